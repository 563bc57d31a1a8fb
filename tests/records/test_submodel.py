from autoauto.records.submodel import Port


def test_a_port_counts_the_bytes_of_its_type() -> None:
    assert [
        Port("x", shape, dtype).n_bytes for shape, dtype in (((), "int64"), ((2, 3), "bool"), ((5,), "float16"))
    ] == [
        8,
        6,
        10,
    ]
