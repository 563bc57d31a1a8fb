from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autoauto.graph.load import load_graph
from autoauto.graph.shapes.trace import trace
from autoauto.records.errors import UnreadableModel
from autoauto.records.model_inputs import model_inputs


@pytest.mark.parametrize(
    ("nodes", "bound"),
    [
        ("NonZero x > y", (2, 12)),
        ("Compress x m > y axis=1", (3, 4)),
        ("Compress x m > y", (12,)),
        ("Unique x > y i j k", (12,)),
        ("Slice x f t > y", (3, 4)),
        ("TopK x f > y i", (3, 4)),
        ("NonZero x > z; Gather w z > y", (2, 12)),
        ("NonZero x > z; Shape z > s; ConstantOfShape s > y", (2, 12)),
    ],
)
def test_lengths_that_depend_on_data_have_an_upper_bound(nodes: str, bound: tuple[int, ...], make: Any) -> None:
    inputs = {"x": [3, 4], "int:f": [1], "int:t": [1], "m": [4]}
    model = make(nodes, inputs, "y", {"w": np.ones(9, np.float32)})
    for entry in model.graph.input:
        if entry.name == "m":
            entry.type.tensor_type.elem_type = 9  # bool
    value = trace(model)["y"]
    assert value.shape == bound
    assert value.data_dependent
    assert not value.constant


def test_detections_are_bounded_by_what_is_asked_for(make: Any) -> None:
    constants = {"most": np.array([5]), "iou": np.float32(0.5)}
    model = make("NonMaxSuppression b s most iou > y", {"b": [2, 100, 4], "s": [2, 3, 100]}, "y", constants)
    assert trace(model)["y"].shape == (2 * 3 * 5, 3)


def test_a_length_may_be_given(make: Any) -> None:
    model = make("NonZero x > z; Cast z > f to=1; Relu f > y", {"x": ["n", 4]}, "y")
    assert next(t for t in load_graph(model, model_inputs({"z": (2, 3)})).tensors if t.name == "y").shape == (2, 3)


def test_what_nothing_bounds_is_asked_for(make: Any) -> None:
    model = make("Range zero n one > r; Cast r > y to=1", {"int:n": []}, "y", {"zero": np.array(0), "one": np.array(1)})
    with pytest.raises(UnreadableModel, match=r"output 'r' .* depends on data; .*, try --shape r=64"):
        trace(model)


def test_layers_between_such_tensors_share_a_stage(make: Any) -> None:
    nodes = "Relu x > a; NonZero a > z; Cast z > f to=1; Exp f > e; ReduceSum e > s keepdims=0; Sqrt s > t; Neg t > y"
    graph = load_graph(make(nodes, {"x": ["n", 4]}, "y"))
    tied = [layer.tied for layer in graph.layers]
    assert tied[0] is tied[5] is None
    assert len({*tied[1:5]}) == 1 != tied[1:5].count(None)


def test_a_tensor_whose_shape_is_known_is_none_of_them(make: Any) -> None:
    values = trace(make("NonZero x > z; Shape z > s; ReduceSum z > y keepdims=0", {"x": [3, 4]}, "y s"))
    assert not values["y"].data_dependent
    assert not values["s"].data_dependent
    assert not values["s"].constant
