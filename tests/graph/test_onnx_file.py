from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from autoauto.graph.load import load_graph
from autoauto.graph.onnx_file import MAX_CONSTANT_ELEMENTS, read_model
from autoauto.graph.plain import flatten
from autoauto.records.errors import UnreadableModel


def names(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def test_weights_lose_their_values_and_not_their_shapes(make: Any, save: Any) -> None:
    big = np.zeros((2, MAX_CONSTANT_ELEMENTS), np.float32)
    model = read_model(Path(save(make("MatMul x w > y", {"x": [1, 2]}, "y", {"w": big, "s": [1, 2]}))))
    weight, small = model.graph.initializer
    assert list(weight.dims) == [2, MAX_CONSTANT_ELEMENTS]
    assert not weight.raw_data
    assert weight.doc_string == "0"
    assert numpy_helper.to_array(small).tolist() == [1, 2]


def test_external_data_need_not_be_there(make: Any, tmp_path: Path) -> None:
    model = make("MatMul x w > y", {"x": [1, 64]}, "y", {"w": np.ones((64, 64), np.float32)})
    onnx.save_model(model, tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin")
    (tmp_path / "weights.bin").unlink()
    graph = load_graph(str(tmp_path / "m.onnx"))
    assert graph.tensors[graph.layers[0].weights[0]].shape == (64, 64)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "has none; is it an ONNX file"), (b"a letter to a friend\n", "ONNX file"), (b"\x00" * 40, "ONNX file")],
)
def test_a_file_that_is_no_model_is_one_clear_line(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(UnreadableModel, match=message) as caught:
        load_graph(str(tmp_path / "m.onnx"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_one_clear_line(part: float, light: Any, tmp_path: Path) -> None:
    content = light("squeezenet").read_bytes()
    (tmp_path / "m.onnx").write_bytes(content[: int(part * len(content))])
    with pytest.raises(UnreadableModel, match="not a complete ONNX file"):
        load_graph(str(tmp_path / "m.onnx"))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UnreadableModel, match="readable file"):
        read_model(tmp_path / "m.onnx")


def test_every_damaged_byte_is_read_or_refused(light: Any, tmp_path: Path) -> None:
    content, generator = bytearray(light("bvlc_alexnet").read_bytes()), np.random.default_rng(0)
    path = tmp_path / "m.onnx"
    for position in generator.integers(0, len(content), 150):
        original, content[position] = content[position], int(generator.integers(0, 256))
        path.write_bytes(bytes(content))
        content[position] = original
        try:
            load_graph(str(path))
        except UnreadableModel as error:
            assert "\n" not in str(error)  # noqa: PT017  (either outcome is right; a line must be one line)


def test_nodes_are_sorted_and_useless_ones_dropped(make: Any) -> None:
    nodes = "Add a b > y; Neg x > z; Relu x > a; Abs a > b; Exp z > w"
    assert names(flatten(make(nodes, {"x": [1, 2]}, "y"))) == ["Relu", "Abs", "Add"]


def test_a_cycle_is_refused(make: Any) -> None:
    with pytest.raises(UnreadableModel, match="must not have a cycle"):
        flatten(make("Add x b > a; Relu a > b; Neg a > y", {"x": [1]}, "y"))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("Relu x > y; Neg x > y", "'y' is written by two nodes"),
        ("Add x z > y", "nothing writes 'z'"),
        ("Relu x > z", "nothing writes 'y'"),
        ("Relu x x > y", "not as ONNX defines it"),
        ("Relu x > y slope=1", "Unrecognized attribute"),
        ("Nonsense x > y", "Nonsense"),
    ],
)
def test_a_contradiction_is_one_clear_line(nodes: Any, message: str, make: Any) -> None:
    with pytest.raises(UnreadableModel, match=message) as caught:
        flatten(make(nodes, {"x": [1]}, "y"))
    assert "\n" not in str(caught.value)


def wide_version(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 2**31


def wide_format(model: onnx.ModelProto) -> None:
    model.ir_version = 2**40


def negative_version(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = -1


def huge_input(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 2**62


def many_axes(model: onnx.ModelProto) -> None:
    dims = model.graph.input[0].type.tensor_type.shape.dim
    dims.extend([dims[1]] * 100_000)


def huge_weight(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims[:] = [2**40, 2**40]


def many_axes_of_a_weight(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims.extend([1] * 100_000)


def binary_attribute(model: onnx.ModelProto) -> None:
    model.graph.node[0].attribute.append(helper.make_attribute("auto_pad", b"\xff\xfe"))


def parameter_outside_a_function(model: onnx.ModelProto) -> None:
    model.graph.node[0].attribute[0].ref_attr_name = "x"


def no_name(model: onnx.ModelProto) -> None:
    model.graph.output[0].name = model.graph.node[-1].output[0] = ""


def constant_without_output(model: onnx.ModelProto) -> None:
    model.graph.node.add(op_type="Constant").attribute.append(helper.make_attribute("value_int", 1))


def constant_of_texts(model: onnx.ModelProto) -> None:
    model.graph.node.add(op_type="Constant", output=["c"]).attribute.append(
        helper.make_attribute("value_float", "text")
    )


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (wide_version, "versions in a model must be from 0 to 2147483647, got 2147483648"),
        (wide_format, "versions in a model must be from 0"),
        (negative_version, "got -1"),
        (huge_input, r"input 'x' must have at most 2\*\*50 elements"),
        (many_axes, "input 'x' must have at most 32 axes, got 100,002"),
        (huge_weight, r"constant 'w' must have at most 2\*\*50 elements"),
        (many_axes_of_a_weight, "constant 'w' must have at most 32 axes"),
        (binary_attribute, "attribute 'auto_pad' of node 'Gemm_0' must be UTF-8 text"),
        (parameter_outside_a_function, "only the body of a function has parameters"),
        (no_name, "must have names"),
        (constant_without_output, "needs one value and one output"),
        (constant_of_texts, "constant 'c' is no value_float"),
    ],
)
def test_what_onnx_cannot_hold_is_one_clear_line(damage: Any, message: str, make: Any, save: Any) -> None:
    model = make("Gemm x w > y transB=1", {"x": [1, 2]}, "y", {"w": [[1.0, 2.0]]})
    damage(model)
    with pytest.raises(UnreadableModel, match=message) as caught:
        load_graph(save(model))
    assert "\n" not in str(caught.value)


def test_a_split_that_writes_more_than_it_makes_is_refused(make: Any, save: Any) -> None:
    with pytest.raises(UnreadableModel, match="has 3 instead of 2"):
        load_graph(save(make("Split x > y a b num_outputs=2 axis=1", {"x": [1, 4]}, "y", opset=18)))


def test_only_control_flow_holds_graphs(make: Any) -> None:
    branch = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["z"])],
        "branch",
        [],
        [helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, None)],
    )
    model = make("SequenceMap x > y", {"x": [1]}, "y")
    model.graph.node[0].attribute.append(helper.make_attribute("body", branch))
    with pytest.raises(UnreadableModel, match="only If, Loop, Scan may hold graphs, SequenceMap 'SequenceMap_0' does"):
        flatten(model)


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        (("value", numpy_helper.from_array(np.array([3], np.int64))), [3]),
        (("value_int", 3), 3),
        (("value_ints", [3, 4]), [3, 4]),
        (("value_float", 2.0), 2.0),
        (("value_floats", [2.0]), [2.0]),
    ],
)
def test_constant_nodes_become_initializers(attribute: Any, expected: Any, make: Any) -> None:
    model = make("Constant > c; Expand x c > y", {"x": [1]}, "y")
    model.graph.node[0].attribute.append(helper.make_attribute(*attribute))
    plain = flatten(model)
    assert names(plain) == ["Expand"]
    assert numpy_helper.to_array(plain.graph.initializer[0]).tolist() == expected


def test_a_large_constant_node_is_a_weight(make: Any, save: Any) -> None:
    model = make("Constant > w; MatMul x w > y", {"x": [1, 2]}, "y")
    big = numpy_helper.from_array(np.zeros((2, MAX_CONSTANT_ELEMENTS), np.float32))
    model.graph.node[0].attribute.append(helper.make_attribute("value", big))
    graph = load_graph(save(model))
    assert [graph.tensors[index].shape for index in graph.layers[0].weights] == [(2, MAX_CONSTANT_ELEMENTS)]


def test_functions_are_inlined(make: Any) -> None:
    twice = helper.make_function(
        "local", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    model = make("Relu x > a; Twice a > y", {"x": [1, 2]}, "y")
    model.graph.node[1].domain = "local"
    model.functions.append(twice)
    model.opset_import.append(helper.make_opsetid("local", 1))
    assert names(flatten(model)) == ["Relu", "Add"]


def test_the_long_name_of_the_standard_domain(make: Any, save: Any) -> None:
    model = make("Relu x > a; Constant > c value_float=2.0; Mul a c > y", {"x": [1, 2]}, "y")
    for entry in (*model.opset_import, *model.graph.node):
        entry.domain = "ai.onnx"
    assert [layer.op for layer in load_graph(save(model)).layers] == ["Relu", "Mul"]
    assert model.graph.node[0].domain == "ai.onnx"


def test_an_operator_of_another_vendor_is_named(make: Any, save: Any) -> None:
    model = make("Fused x x > y", {"x": [1, 2]}, "y")
    model.graph.node[0].domain = "com.microsoft"
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(UnreadableModel, match=r"Fused of domain 'com\.microsoft' are not known"):
        load_graph(save(model))


@pytest.mark.parametrize(
    ("program", "outputs"),
    [("Relu x > a; Exp a > b; SequenceConstruct a b > y", ["a", "b"]), ("Relu x > a; SplitToSequence a > y", ["a"])],
)
def test_a_sequence_at_the_end_is_the_tensors_in_it(program: str, outputs: list[str], make: Any, save: Any) -> None:
    model = make(program, {"x": ["n", 4]}, "y")
    assert [entry.name for entry in flatten(model).graph.output] == outputs
    (note,) = load_graph(save(model)).notes
    assert note.startswith("'y' is no tensor and is left to the caller, who gets 'a'")


def test_a_sequence_between_layers_is_refused(make: Any, save: Any) -> None:
    model = make("SequenceConstruct x x > s; ConcatFromSequence s > y axis=0", {"x": ["n", 4]}, "y")
    with pytest.raises(UnreadableModel, match=r"output 's' of node 'SequenceConstruct_0' .* is a sequence; try"):
        load_graph(save(model))
