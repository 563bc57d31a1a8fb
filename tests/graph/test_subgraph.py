from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autoauto.graph import cut as subgraph_module
from autoauto.graph.batch.rebatch import TracedModel
from autoauto.graph.cut import BatchedModel, Part, varint, with_weights
from autoauto.graph.onnx_file import Weights
from autoauto.graph.shapes.trace import trace
from autoauto.records.errors import UnreadableModel, Unsupported
from autoauto.records.layers import Port

NO_WEIGHTS = Weights(Path("nowhere.onnx"))


@pytest.fixture
def batched(make: Any) -> BatchedModel:
    """a and b are computed; s is the shape of a; d is b under that shape, plus a constant."""
    program = "Relu x > a; MatMul a w > b; Shape a > s; Reshape b s > c; Neg k > l; Add c l > d; Tanh d > y"
    return traced(make(program, {"x": [2, 4]}, "y d", {"w": np.ones((4, 4), np.float32), "k": np.float32(1)}))


def traced(model: onnx.ModelProto) -> BatchedModel:
    return BatchedModel(TracedModel(model, trace(model)))


def test_a_subgraph_starts_at_tensors_from_outside(batched: BatchedModel) -> None:
    subgraph = batched.subgraph(["b"], {"a"})
    assert [node.op_type for node in subgraph.nodes] == ["MatMul"]
    assert (subgraph.inputs, subgraph.constants) == (["a"], ["w"])


def test_a_subgraph_starts_at_the_inputs_of_the_model(batched: BatchedModel) -> None:
    subgraph = batched.subgraph(["b"], ())
    assert [node.op_type for node in subgraph.nodes] == ["Relu", "MatMul"]
    assert subgraph.inputs == ["x"]


def test_a_shape_does_not_need_its_tensor(batched: BatchedModel) -> None:
    subgraph = batched.subgraph(["y"], {"b"})
    assert [node.op_type for node in subgraph.nodes] == ["Reshape", "Neg", "Add", "Tanh"]
    assert (subgraph.inputs, subgraph.constants) == (["b"], ["k", "s"])


def test_tensors_from_outside_and_inputs_need_no_node(batched: BatchedModel) -> None:
    assert batched.subgraph(["x", "b"], {"b"}) == ([], ["b", "x"], [])


def test_a_name_that_nothing_writes_is_one_clear_line(batched: BatchedModel) -> None:
    with pytest.raises(UnreadableModel, match="nothing there writes 'z'; it may have changed"):
        batched.subgraph(["z"], ())


def test_a_file_holds_only_the_constants_that_are_read(batched: BatchedModel) -> None:
    inputs, outputs = batched.ports(["b"]), batched.ports(["y", "d"])
    model = onnx.load_model_from_string(
        batched.serialise(Part(batched.subgraph(["y", "d"], {"b"}), inputs, outputs), NO_WEIGHTS)
    )
    onnx.checker.check_model(model, full_check=True)
    assert [entry.name for entry in model.graph.input] == ["b"]
    assert [entry.name for entry in model.graph.output] == ["y", "d"]
    stored = {tensor.name: numpy_helper.to_array(tensor).tolist() for tensor in model.graph.initializer}
    assert stored == {"k": 1.0, "s": [2, 4]}
    assert not model.graph.value_info


def test_a_constant_leaves_through_a_node(batched: BatchedModel, execute: Any) -> None:
    subgraph, outputs = batched.subgraph(["s", "l"], ()), batched.ports(["s", "l"])
    model = onnx.load_model_from_string(batched.serialise(Part(subgraph, (), outputs), NO_WEIGHTS))
    assert [node.op_type for node in model.graph.node] == ["Identity", "Neg"]
    assert [result.tolist() for result in execute(model, {})] == [[2, 4], -1.0]


def test_ports_have_shapes_and_types(batched: BatchedModel) -> None:
    assert batched.ports(["s", "x"]) == (Port("s", (2,), "int64"), Port("x", (2, 4), "float32"))


def test_a_tensor_of_a_type_unknown_to_numpy_cannot_be_a_port(make: Any) -> None:
    batched = traced(make(f"Cast x > b to={TensorProto.BFLOAT16}; Cast b > y to=1", {"x": [1]}, "y"))
    with pytest.raises(Unsupported, match=r"NumPy knows, 'b' holds bfloat16; try stages that begin elsewhere$"):
        batched.ports(["b"])


@pytest.mark.parametrize(("kind", "words"), [(TensorProto.STRING, "strings"), (TensorProto.BFLOAT16, "bfloat16")])
def test_ends_of_a_model_of_a_type_unknown_to_numpy_are_left_to_what_calls_it(kind: int, words: str, make: Any) -> None:
    model = make("Identity x > y", {"x": [1]}, "y")
    for end in (*model.graph.input, *model.graph.output):
        end.type.tensor_type.elem_type = kind
    with pytest.raises(UnreadableModel, match=f"'x' holds {words}; cut the model there, and leave the rest to"):
        traced(model).ports(["x"])


def test_weights_too_large_for_a_file_are_one_clear_line(
    batched: BatchedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subgraph_module, "MAX_WEIGHT_BYTES", 63)
    ends = batched.ports(["a"]), batched.ports(["b"])
    with pytest.raises(
        UnreadableModel, match="at most 63 bytes of weights, a range of layers has 64; try more devices"
    ):
        batched.serialise(Part(batched.subgraph(["b"], {"a"}), *ends), NO_WEIGHTS)


@pytest.mark.parametrize(
    ("value", "shape", "stands_in"),
    [
        (np.float32(0.02), "stored", True),
        (np.float16(0.02), "stored", True),
        (np.float32(1), "stored", False),
        (np.float32(0), "stored", False),
        (np.int64(2), "stored", False),
        (np.float32(0.02), "read", False),
    ],
)
def test_large_constants_stand_in_for_weights_where_they_may(
    value: Any, shape: str, stands_in: bool, make: Any
) -> None:
    model = make(f"Shape x > read; ConstantOfShape {shape} > k; Cast k > y to=1", {"x": [200, 100]}, "y")
    model.graph.initializer.append(numpy_helper.from_array(np.array([200, 100]), "stored"))
    model.graph.node[1].attribute.append(helper.make_attribute("value", numpy_helper.from_array(value.reshape(1))))
    batched = traced(model)
    subgraph = batched.subgraph(["y"], ())
    assert (subgraph.constants == ["k"]) == stands_in
    file = onnx.load_model_from_string(batched.serialise(Part(subgraph, (), batched.ports(["y"])), NO_WEIGHTS))
    assert [node.op_type for node in file.graph.node] == ["ConstantOfShape", "Cast"][stands_in:]


@pytest.mark.parametrize(("number", "groups"), [(0, [0]), (127, [127]), (128, [128, 1]), (1 << 31, [128] * 4 + [8])])
def test_whole_numbers_by_hand(number: int, groups: list[int]) -> None:
    assert list(varint(number)) == groups


def test_weights_behind_a_model_are_its_initializers(make: Any) -> None:
    small, large = np.ones(1, np.float32), np.arange(3000, dtype=np.float32)
    model = make("Add x a > b; Add b c > y", {"x": [3000]}, "y", {"a": small})
    model.producer_name, model.doc_string = "before the graph", "and behind it"
    weight = numpy_helper.from_array(large, "c")
    joined = onnx.ModelProto.FromString(with_weights(model, [weight.SerializeToString()]))
    model.graph.initializer.append(weight)
    assert joined == model


def test_no_weights_change_nothing(make: Any) -> None:
    model = make("Relu x > y", {"x": [1]}, "y")
    assert onnx.ModelProto.FromString(with_weights(model, [])) == model
