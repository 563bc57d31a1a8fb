"""Shapes of trees, linear models and encoders, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from autoauto.graph.shapes.trace import trace
from autoauto.records.errors import UnreadableModel

G = np.random.default_rng(2)


def some(n: int) -> list[float]:
    return [float(number) for number in G.random(n)]


def trees(kind: str, n_outputs: int, ids: list[int]) -> dict[str, Any]:
    """One tree of a root and two leaves, which weigh outputs."""
    tree = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [0, 0, 0],
        "nodes_values": [0.5, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        f"{kind}_treeids": [0] * len(ids),
        f"{kind}_nodeids": [1 + index % 2 for index in range(len(ids))],
        f"{kind}_ids": ids,
        f"{kind}_weights": [0.5] * len(ids),
    }
    return tree | ({"n_targets": n_outputs} if kind == "target" else {"classlabels_int64s": list(range(n_outputs))})


def vectors(n_classes: int, probabilities: bool, texts: bool) -> dict[str, Any]:
    """A linear machine of two support vectors a class."""
    pairs = n_classes * (n_classes - 1) // 2
    labels: dict[str, Any] = {"classlabels_ints": list(range(n_classes))}
    return {
        "kernel_type": "LINEAR",
        "kernel_params": [0.1, 0.0, 3.0],
        "support_vectors": some(6 * n_classes),
        "vectors_per_class": [2] * n_classes,
        "coefficients": some(2 * n_classes * (n_classes - 1)),
        "rho": [0.1] * pairs,
        **({"classlabels_strings": [f"class {index}" for index in range(n_classes)]} if texts else labels),
        **({"prob_a": [0.1] * pairs, "prob_b": [0.1] * pairs} if probabilities else {}),
    }


CASES: list[tuple[str, dict[str, Any], int]] = [
    ("TreeEnsembleClassifier", trees("class", 2, [0, 0]), 2),
    ("TreeEnsembleClassifier", trees("class", 3, [0, 1, 2]), 2),
    ("TreeEnsembleRegressor", trees("target", 1, [0, 0]), 1),
    ("TreeEnsembleRegressor", trees("target", 4, [0, 1, 2, 3]), 1),
    ("LinearClassifier", {"coefficients": some(9), "intercepts": some(3), "classlabels_ints": [0, 1, 2]}, 2),
    ("LinearClassifier", {"coefficients": some(3), "intercepts": some(1), "classlabels_strings": ["a", "b"]}, 2),
    ("LinearRegressor", {"coefficients": some(6), "intercepts": some(2), "targets": 2}, 1),
    *[("SVMClassifier", vectors(n, p, t), 2) for n in (2, 3, 4) for p in (False, True) for t in (False, True)],
    ("SVMRegressor", {"kernel_params": [0.1, 0.0, 3.0], "coefficients": some(3), "rho": [0.1]}, 1),
    ("Scaler", {"offset": some(3), "scale": some(3)}, 1),
    ("Normalizer", {"norm": "L2"}, 1),
    ("Imputer", {"imputed_value_floats": [1.0], "replaced_value_float": 0.0}, 1),
    ("OneHotEncoder", {"cats_int64s": [0, 1, 2, 3]}, 1),
    ("Binarizer", {"threshold": 0.5}, 1),
    ("LabelEncoder", {"keys_floats": [0.0, 1.0], "values_int64s": [0, 1]}, 1),
]


def made(op: str, attributes: dict[str, Any], n_outputs: int, *shapes: list[int]) -> onnx.ModelProto:
    names, outputs = [f"x{index}" for index in range(len(shapes))], [f"y{index}" for index in range(n_outputs)]
    inputs = [
        helper.make_tensor_value_info(*each) for each in zip(names, [TensorProto.FLOAT] * 2, shapes, strict=False)
    ]
    node = helper.make_node(op, names, outputs, domain="ai.onnx.ml", **attributes)
    graph = helper.make_graph([node], "test", inputs, list(map(helper.make_empty_tensor_value_info, outputs)))
    imports = [helper.make_opsetid("", 15), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


@pytest.mark.parametrize(("op", "attributes", "n_outputs"), CASES)
def test_shapes_are_those_of_onnx_runtime(
    op: str, attributes: dict[str, Any], n_outputs: int, execute: Any, sample: Any
) -> None:
    model = made(op, attributes, n_outputs, [5, 3])
    values = trace(model)
    for index, result in enumerate(execute(model, sample(model, G))):
        assert values[f"y{index}"].shape == result.shape


def test_rows_side_by_side(execute: Any, sample: Any) -> None:
    model = made("FeatureVectorizer", {"inputdimensions": [3, 2]}, 1, [5, 3], [5, 2])
    (result,) = execute(model, sample(model, G))
    assert trace(model)["y0"].shape == result.shape == (5, 5)


def test_dictionaries_that_another_node_reads_are_refused() -> None:
    with pytest.raises(UnreadableModel, match="dictionaries of scores; try to export without it"):
        trace(made("ZipMap", {"classlabels_int64s": [0, 1, 2]}, 1, [5, 3]))
