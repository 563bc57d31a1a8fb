"""The Open Inference Protocol: what is read is what was sent, and what is malformed is one clear line."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoauto.records.errors import BadInput
from autoauto.records.units import Array
from autoauto.serve.protocol import (
    DATATYPES,
    InferenceRequest,
    ServedTensor,
    read_request,
    write_response,
)
from tests.serve.conftest import port

PORTS = (port("ids", 2, 3, batch_size=2, dtype="int64"), port("x", 3, 4, batch_size=2, axis=1))
OUTPUTS = (port("y", 2, batch_size=2), port("z", 2, batch_size=2, dtype="bool"))
NAMES = {dtype: name for name, dtype in DATATYPES.items()}


def body_of(arrays: dict[str, Array], binary: Sequence[str] = (), **more: Any) -> tuple[bytes, str | None]:
    """A request as a client makes it."""
    inputs, parts = [], []
    for name, array in arrays.items():
        entry: dict[str, Any] = {"name": name, "shape": list(array.shape), "datatype": NAMES[array.dtype.name]}
        if name in binary:
            parts.append(array.tobytes())
            entry["parameters"] = {"binary_data_size": array.nbytes}
        else:
            entry["data"] = array.tolist()
        inputs.append(entry)
    head = json.dumps({"inputs": inputs, **more}).encode()
    return b"".join([head, *parts]), str(len(head)) if binary else None


def arrays_of(n_samples: int) -> dict[str, Array]:
    rng = np.random.default_rng(n_samples)
    return {
        "ids": rng.integers(-9, 9, (n_samples, 3)),
        "x": rng.standard_normal((3, 2 * n_samples)).astype(np.float32),
    }


@given(
    st.sampled_from(sorted(DATATYPES)),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.integers(0, 2),
    st.integers(1, 5),
    st.booleans(),
    st.booleans(),
)
def test_every_type_arrives_as_it_was_sent(
    name: str, shape: list[int], axis: int, n_samples: int, binary: bool, flat: bool
) -> None:
    batch_axis = min(axis, len(shape) - 1)
    tensor = ServedTensor(
        "x", tuple(2 * n if i == batch_axis else n for i, n in enumerate(shape)), DATATYPES[name], batch_axis, 2
    )
    array = np.random.default_rng(0).integers(0, 2, tensor.shape_of(n_samples)).astype(DATATYPES[name])
    body, length = body_of({"x": array}, ("x",) if binary else ())
    if flat and not binary:
        content = json.loads(body)
        content["inputs"][0]["data"] = array.ravel().tolist()
        body = json.dumps(content).encode()
    request = read_request(body, length, (tensor,), OUTPUTS)
    assert request.n_samples == n_samples
    assert request.inputs["x"].dtype == array.dtype
    np.testing.assert_array_equal(request.inputs["x"], array)


def test_binary_tensors_lie_behind_the_object_in_its_order() -> None:
    arrays = arrays_of(3)
    body, length = body_of(arrays, ("ids", "x"), id="7", parameters={"binary_data_output": True})
    request = read_request(body, length, PORTS, OUTPUTS)
    assert (request.id, request.n_samples) == ("7", 3)
    assert [*request.outputs.items()] == [("y", True), ("z", True)]
    for name, array in arrays.items():
        np.testing.assert_array_equal(request.inputs[name], array)


def test_outputs_are_those_that_are_asked_for() -> None:
    wanted = [{"name": "z", "parameters": {"binary_data": True}}, {"name": "y"}]
    body, length = body_of(arrays_of(1), outputs=wanted)
    assert [*read_request(body, length, PORTS, OUTPUTS).outputs.items()] == [("z", True), ("y", False)]


def test_a_request_whose_inputs_have_no_axis_of_samples_is_one_micro_batch() -> None:
    whole = port("x", 2, 3, batch_size=4, axis=None)
    body, length = body_of({"x": np.zeros((2, 3), np.float32)})
    assert read_request(body, length, (whole,), OUTPUTS).n_samples == 4


ONE = arrays_of(1)


@pytest.mark.parametrize("size", [16, 23, 32, "24"])
def test_a_binary_tensor_has_the_bytes_of_its_shape(size: Any) -> None:
    """Three numbers of 8 bytes."""
    entry = {"name": "ids", "shape": [1, 3], "datatype": "INT64", "parameters": {"binary_data_size": size}}
    other = {"name": "x", "shape": [3, 2], "datatype": "FP32", "data": ONE["x"].tolist()}
    head = json.dumps({"inputs": [entry, other]}).encode()
    n_bytes = size if isinstance(size, int) else 24
    with pytest.raises(BadInput, match="must have 24 bytes by its shape, got binary_data_size"):
        read_request(head + bytes(n_bytes), str(len(head)), PORTS, OUTPUTS)


@pytest.mark.parametrize(
    ("body", "length", "message"),
    [
        (b"", None, "must be the JSON object"),
        (b"[]", None, "must be the JSON object"),
        (b"\xff\xfe", None, "must be the JSON object"),
        (b"[" * 100_000, None, "must be the JSON object"),
        (b'{"inputs": 3}', None, "must be the JSON object"),
        (b'{"inputs": []}', None, "the inputs must be ids, x, each once, got none"),
        (b"{}", "9", "must be a number up to the 2 bytes of the body, got '9'"),
        (b"{}", "-1", "must be a number"),
        (b"{}", "9" * 5000, "must be a number"),
        (body_of({"ids": ONE["ids"]})[0], None, "the inputs must be ids, x, each once, got ids"),
        (body_of({**ONE, "q": ONE["x"]})[0], None, "got ids, x, q"),
        (body_of({**ONE, "ids": ONE["x"]})[0], None, "input 'ids' must be INT64, got 'FP32'"),
        (
            body_of({**ONE, "x": ONE["x"][:2]})[0],
            None,
            r"input 'x' must have the shape \[3, -1\], where -1 is 2 for each",
        ),
        (body_of({**ONE, "x": ONE["x"][:, :1]})[0], None, "input 'x' must have the shape"),
        (body_of({**ONE, "x": ONE["x"][:, :0]})[0], None, "input 'x' must have the shape"),
        (body_of({**ONE, "ids": np.zeros((), np.int64)})[0], None, "input 'ids' must have the shape"),
        (body_of({**ONE, "x": arrays_of(2)["x"]})[0], None, "the same number of samples, got 1 of ids, 2 of x"),
        (body_of(ONE, ("x",))[0][:-1], body_of(ONE, ("x",))[1], "must have 24 bytes behind the JSON object, got 23"),
        (body_of(ONE, ("x",))[0] + b"?", body_of(ONE, ("x",))[1], "got 1 bytes more than their sizes say"),
        (body_of(ONE, outputs=[{"name": "q"}])[0], None, "the outputs must be of y, z, each once, got q"),
        (body_of(ONE, outputs=[{"name": "y"}] * 2)[0], None, "got y, y"),
        (body_of(ONE, parameters={"sequence_id": 4})[0], None, "this server has no sequences"),
    ],
)
def test_a_malformed_request_is_refused_in_one_line(body: bytes, length: str | None, message: str) -> None:
    with pytest.raises(BadInput, match=message) as refused:
        read_request(body, length, PORTS, OUTPUTS)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    "data", ["null", "3", '"abc"', '["1"]', "[1.5]", "[true]", "[1, 2]", "[[1], [2, 3]]", "[99999999999]", "[[[1]]]"]
)
def test_data_of_another_kind_or_shape_is_refused(data: str) -> None:
    body = '{"inputs": [{"name": "i", "shape": [1, 1], "datatype": "INT8", "data": DATA}]}'.replace("DATA", data)
    with pytest.raises(BadInput, match="input 'i' must"):
        read_request(body.encode(), None, (port("i", 1, 1, batch_size=1, dtype="int8"),), OUTPUTS)


def test_no_data_is_not_the_one_number_of_a_shape() -> None:
    """It has as many commas; the number would be whatever lay in memory."""
    body = b'{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": []}]}'
    with pytest.raises(BadInput, match="input 'x' must hold numbers of FP32: a number is missing"):
        read_request(body, None, (port("x", 1, batch_size=1),), OUTPUTS)


def test_a_float_that_its_type_does_not_have_is_refused() -> None:
    body = b'{"inputs": [{"name": "h", "shape": [1], "datatype": "FP16", "data": [1e6]}]}'
    with pytest.raises(BadInput, match="must hold numbers of FP16"):
        read_request(body, None, (port("h", 1, batch_size=1, dtype="float16"),), OUTPUTS)


def test_a_bool_of_another_byte_is_refused() -> None:
    head = b'{"inputs": [{"name": "b", "shape": [1], "datatype": "BOOL", "parameters": {"binary_data_size": 1}}]}'
    with pytest.raises(BadInput, match="must have bytes 0 and 1"):
        read_request(head + b"\x02", str(len(head)), (port("b", 1, batch_size=1, dtype="bool"),), OUTPUTS)


@given(st.binary(max_size=200), st.none() | st.text(max_size=4))
def test_any_bytes_are_a_request_or_bad_input(body: bytes, length: str | None) -> None:
    with pytest.raises(BadInput):
        read_request(body, length, PORTS, OUTPUTS)


@given(st.data())
def test_any_change_of_a_byte_is_a_request_or_bad_input(data: st.DataObject) -> None:
    body, length = body_of(ONE, ("x",), id="1")
    changed = bytearray(body)
    changed[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        request = read_request(changed, length, PORTS, OUTPUTS)
    except BadInput:
        return
    assert request.n_samples == 1


def test_a_response_is_what_the_public_client_reads() -> None:
    client = pytest.importorskip("tritonclient.http")
    outputs = {"y": np.array([1.5, 2.5], np.float32), "z": np.array([True, False])}
    for binary in (True, False):
        request = InferenceRequest("7", 2, {}, {"z": binary, "y": True})
        parts, length = write_response(request, "model", "1", outputs)
        read = client.InferResult.from_response_body(b"".join(parts), header_length=length)
        assert read.get_response()["id"] == "7"
        for name, array in outputs.items():
            np.testing.assert_array_equal(read.as_numpy(name), array)


def test_numbers_that_json_does_not_have_are_refused_there() -> None:
    outputs = {"y": np.array([np.nan], np.float32)}
    with pytest.raises(BadInput, match="ask for binary_data"):
        write_response(InferenceRequest("", 1, {}, {"y": False}), "model", "1", outputs)
    parts, length = write_response(InferenceRequest("", 1, {}, {"y": True}), "model", "1", outputs)
    assert np.isnan(np.frombuffer(b"".join(parts)[length:], np.float32)).all()


def test_a_type_that_the_protocol_does_not_have_is_refused() -> None:
    with pytest.raises(BadInput, match="tensor 'c' is complex64"):
        port("c", 1, batch_size=1, dtype="complex64")
