from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from autoauto.graph.cut import onnx_source
from autoauto.graph.load import load_graph
from autoauto.graph.onnx_file import MAX_CONSTANT_ELEMENTS, Weights, fill_value, read_model, stand_in_weight
from autoauto.graph.plain import flatten
from autoauto.records.errors import UnreadableModel
from autoauto.records.layers import LayerRange

FLOAT = np.dtype(np.float32)
BIG = np.arange(2 * MAX_CONSTANT_ELEMENTS, dtype=np.float32).reshape(2, -1)


@pytest.fixture
def model(make: Callable[..., onnx.ModelProto]) -> onnx.ModelProto:
    """One weight that is left in the file when it is read, and one that is not."""
    return make("MatMul x w > a; Add a b > y", {"x": ["n", 2]}, "y", {"w": BIG, "b": BIG[0, :1]})


def values(path: Path, name: str) -> Any:
    """The elements of a weight of the plain model."""
    (tensor,) = (entry for entry in flatten(read_model(path)).graph.initializer if entry.name == name)
    stored = onnx.TensorProto.FromString(Weights(path).serialised(tensor))
    assert stored.name == name
    assert not stored.external_data
    return numpy_helper.to_array(stored)


@pytest.fixture
def external(model: onnx.ModelProto, tmp_path: Path) -> Path:
    """The same with all values in a file beside it."""
    path = tmp_path / "m.onnx"
    onnx.save_model(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


def test_values_inside_the_file(model: onnx.ModelProto, save: Any) -> None:
    path = Path(save(model))
    assert np.array_equal(values(path, "w"), BIG)
    assert np.array_equal(values(path, "b"), BIG[0, :1])


def test_values_beside_the_file(external: Path) -> None:
    assert np.array_equal(values(external, "w"), BIG)
    assert np.array_equal(values(external, "b"), BIG[0, :1])


def test_a_constant_node_is_a_weight_too(make: Any, save: Any) -> None:
    model = make("Constant > v; Constant > w; MatMul x w > a; MatMul a v > y", {"x": [1, 2]}, "y")
    for node, array in zip(model.graph.node, (BIG.T, BIG), strict=False):
        node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(array)))
    path = Path(save(model))
    assert np.array_equal(values(path, "w"), BIG)
    assert np.array_equal(values(path, "v"), BIG.T)


def test_a_constant_of_a_function_is_a_weight_of_every_call(make: Any, save: Any) -> None:
    constant = helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(BIG))
    body = [constant, helper.make_node("MatMul", ["a", "w"], ["b"])]
    model = make("Product x > y; Product x > z", {"x": [1, 2]}, "y z")
    model.functions.append(helper.make_function("local", "Product", ["a"], ["b"], body, model.opset_import))
    model.opset_import.append(helper.make_opsetid("local", 1))
    for node in model.graph.node:
        node.domain = "local"
    path = Path(save(model))
    names = [tensor.name for tensor in flatten(read_model(path)).graph.initializer]
    assert len(names) == 2
    assert all(np.array_equal(values(path, name), BIG) for name in names)


def test_a_model_is_cut_with_values_beside_its_file(external: Path, execute: Any) -> None:
    graph, path = load_graph(str(external)), str(external)
    model = onnx.load_model_from_string(onnx_source(path).cut(graph, LayerRange(0, 2), 1).content)
    (result,) = execute(model, {"x": np.ones((1, 2), np.float32)})
    assert np.array_equal(result, BIG.sum(axis=0, keepdims=True) + BIG[0, 0])


def test_missing_values_are_one_clear_line(external: Path) -> None:
    (external.parent / "weights.bin").unlink()
    graph, source = load_graph(str(external)), onnx_source(str(external))
    with pytest.raises(UnreadableModel, match=r"those of 'w' cannot be read from data file 'weights\.bin'") as caught:
        source.cut(graph, LayerRange(0, 1), 1)
    assert "\n" not in str(caught.value)


def test_values_that_are_cut_short_are_one_clear_line(external: Path) -> None:
    data = external.parent / "weights.bin"
    data.write_bytes(data.read_bytes()[:1000])
    with pytest.raises(UnreadableModel, match=r"those of 'w' cannot be read from data file 'weights\.bin'"):
        values(external, "w")


def test_a_file_without_values_is_one_clear_line(model: onnx.ModelProto, save: Any) -> None:
    model.graph.initializer[0].ClearField("raw_data")
    with pytest.raises(UnreadableModel, match=r"those of 'w' cannot be read from .*model\.onnx: .* value field"):
        values(Path(save(model)), "w")


def test_a_file_that_has_changed_is_one_clear_line(model: onnx.ModelProto, make: Any, save: Any) -> None:
    weight, _ = read_model(Path(save(model))).graph.initializer
    weights = Weights(Path(save(make("MatMul x v > y", {"x": ["n", 3]}, "y", {"v": np.ones((3, 3), np.float32)}))))
    with pytest.raises(UnreadableModel, match="does not hold weight 'w' any more; it has changed"):
        weights.serialised(weight)


def test_elements_of_a_stand_in_weight_differ_and_are_the_same_every_time() -> None:
    weight, again, other = (
        numpy_helper.to_array(stand_in_weight(name, (40, 50), FLOAT, convolves=False)) for name in "wwv"
    )
    assert weight.dtype == np.float32
    assert np.abs(weight).max() <= (3 / 2000**0.5) ** 0.5
    assert abs(np.mean(weight)) < 0.05
    assert len(np.unique(weight)) > 1900
    assert np.array_equal(weight, again)
    assert not np.array_equal(weight, other)


@pytest.mark.parametrize(
    ("shape", "convolves", "n"),
    [
        ((16, 32, 3, 3), True, 288),
        ((64, 1, 5), True, 5),
        ((64, 64), False, 64),
        ((40, 90), False, 60),
        ((1, 1024, 256), False, 512),
    ],
)
def test_stand_in_weights_keep_the_size_of_activations(shape: tuple[int, ...], convolves: bool, n: int) -> None:
    weight = numpy_helper.to_array(stand_in_weight("w", shape, FLOAT, convolves=convolves))
    assert np.mean(weight**2) == pytest.approx(1 / n, rel=0.1)


def test_a_constant_of_shape_is_zero_unless_it_says_otherwise() -> None:
    assert fill_value(helper.make_node("ConstantOfShape", ["s"], ["w"])) == 0
