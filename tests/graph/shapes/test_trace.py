from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from autoauto.graph.shapes.infer import opset, schema
from autoauto.graph.shapes.trace import trace
from autoauto.graph.shapes.values import Value, is_float, label
from autoauto.records.errors import UnreadableModel

FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


def test_shapes_of_weights_suffice(make: Any) -> None:
    nodes = "ConstantOfShape s > w; MatMul x w > y"
    values = trace(make(nodes, {"x": [2, 1000]}, "y", {"s": [1000, 70000]}))
    assert values["w"] == Value(FLOAT, (1000, 70000), None, True)
    assert values["y"] == Value(FLOAT, (2, 70000), None, False)


def test_a_chain_of_shapes_is_followed(make: Any) -> None:
    nodes = "Shape x > s; Gather s zero > n; Unsqueeze n axes > u; Concat u minus > t axis=0; Reshape x t > y"
    constants = {"zero": np.array(0), "axes": [0], "minus": [-1]}
    assert trace(make(nodes, {"x": [3, 4, 5]}, "y", constants))["y"].shape == (3, 20)


def test_ranges_and_masks_decide_shapes(make: Any) -> None:
    nodes = (
        "Shape x > s start=1; Squeeze s > n; Range zero n one > r; Less r two > m; NonZero m > i; Gather x i > y axis=1"
    )
    constants = {"zero": np.array(0), "one": np.array(1), "two": np.array(2)}
    values = trace(make(nodes, {"x": [3, 4]}, "y", constants))
    assert values["m"].data is not None
    assert values["m"].data.tolist() == [True, True, False, False]
    assert values["y"].shape == (3, 1, 2)


def test_size_is_known(make: Any) -> None:
    nodes = "Size x > n; Reshape n one > s; Reshape x s > y"
    assert trace(make(nodes, {"x": [3, 4]}, "y", {"one": [1]}))["y"].shape == (12,)


def test_an_operator_defined_by_a_function(make: Any) -> None:
    values = trace(make("GreaterOrEqual x x > m; Cast m > y to=1", {"x": [3, 4]}, "y", opset=12))
    assert values["m"] == Value(onnx.TensorProto.BOOL, (3, 4), None, False)


@pytest.mark.parametrize("version", range(7, 23))
def test_operator_sets(version: int, make: Any) -> None:
    nodes = "Gemm x w b > g; Dropout g > d m; Softmax d > y"
    constants = {"w": np.ones((4, 5), np.float32), "b": np.ones(5, np.float32)}
    assert trace(make(nodes, {"x": [3, 4]}, "y", constants, version))["y"].shape == (3, 5)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("Tile x m > y", r"output 'y' of node 'Tile_0' \(Tile\) depends on data; .*--shape y=64x64"),
        ("Reshape x s > y", "6 is not 7"),
        ("Gemm x w > y", "node 'Gemm_0' .* do not fit"),
        ("MatMul x w > y", "Incompatible dimensions"),
        ("SequenceConstruct x > y", "tensors of known type"),
    ],
)
def test_a_shape_that_does_not_follow_is_one_clear_line(nodes: Any, message: str, make: Any) -> None:
    with pytest.raises(UnreadableModel, match=message) as caught:
        trace(make(nodes, {"x": [2, 3], "int:m": [2]}, "y", {"s": [7], "w": np.ones((2, 2), np.float32)}))
    assert "\n" not in str(caught.value)


def test_channels_of_a_convolution_are_counted(make: Any) -> None:
    weights = {"w": np.ones((2, 3, 1, 1), np.float32)}
    with pytest.raises(UnreadableModel, match="4 is not 6"):
        trace(make("Conv x w > y group=2", {"x": [1, 4, 5, 5]}, "y", weights))


def test_names_and_versions(make: Any) -> None:
    model = make("Relu x > y", {"x": [1]}, "y", opset=11)
    assert opset(model) == 11
    assert label(model.graph.node[0]) == "node 'Relu_0' (Relu)"
    assert schema("Relu", 11, "") is not None
    assert schema("Reluu", 11, "") is None
    with pytest.raises(UnreadableModel, match="domain 'other' has none"):
        opset(model, "other")


def test_float_types() -> None:
    assert is_float(onnx.TensorProto.BFLOAT16)
    assert not is_float(INT64)


def test_random_numbers_are_no_constants(make: Any) -> None:
    nodes = "RandomNormal > n shape=1,3; Add x n > y"
    assert not trace(make(nodes, {"x": [1, 3]}, "y"))["n"].constant


def test_values_that_onnx_cannot_compute_stay_unknown(make: Any) -> None:
    nodes = "GatherElements d i > g axis=1; Gather w g > e; Add x e > y"
    constants = {"d": np.zeros((1, 9), int), "i": np.zeros((1, 5), int), "w": np.ones((4, 3), np.float32)}
    assert trace(make(nodes, {"x": [1, 5, 3]}, "y", constants))["y"].shape == (1, 5, 3)


def test_a_damaged_constant_is_refused(make: Any) -> None:
    model = make("Reshape x s > y", {"x": [1]}, "y", {"s": [1]})
    model.graph.initializer[0].raw_data = b"\x01\x02"
    with pytest.raises(UnreadableModel, match="'s' does not hold what its shape says"):
        trace(model)
