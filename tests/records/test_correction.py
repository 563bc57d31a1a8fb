from autoauto.records.correction import PLAIN_SUM, parent


def test_every_class_descends_from_the_root() -> None:
    name, ancestors = "Relu after Conv", []
    while name:
        above = parent(name)
        assert above is not None
        ancestors.append(above)
        name = above
    assert ancestors == ["Relu", ""]


def test_a_plain_sum_has_learned_nothing() -> None:
    assert (PLAIN_SUM.n_examples, PLAIN_SUM.memory_band.high, PLAIN_SUM.cycles_band.low) == (0, 1.0, 1.0)
