"""Shape rules of trees, linear models and encoders, the domain `ai.onnx.ml`: `RULES`.

A sample is a row of features; a vector is one sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import onnx
from onnx import TensorProto

from autoauto.graph.shapes.shape_rule import Operands, Output, ShapeRule, count, integers, like_first, needed


def classified(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """A class for every sample, and a score for every class."""
    n_samples, labels = _n_samples(operands), _n_entries(node, "classlabels")
    return [(_label_type(node), (n_samples,)), (TensorProto.FLOAT, (n_samples, max(labels, 1)))]


def separated(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """SVMClassifier: without probabilities, of three classes or more, a score for every pair of them."""
    n_samples, n_classes = _n_samples(operands), max(_n_entries(node, "classlabels"), 1)
    n_scores = n_classes
    if n_classes > 2 and _n_entries(node, "vectors_per_class") and not _n_entries(node, "prob_a"):
        n_scores = n_classes * (n_classes - 1) // 2
    return [(_label_type(node), (n_samples,)), (TensorProto.FLOAT, (n_samples, n_scores))]


def regressed(targets: str | None) -> ShapeRule:
    """A number for every sample and target; how many targets there are is an attribute."""

    def rule(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
        n_targets = count(node, targets, 1) if targets else 1
        return [(TensorProto.FLOAT, (_n_samples(operands), n_targets))]

    return rule


def as_floats(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """Scaler and Normalizer: like the operand, in floats."""
    return [(TensorProto.FLOAT, needed(operands, 0).shape)]


def one_hot(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """OneHotEncoder: a new last axis of categories."""
    return [(TensorProto.FLOAT, (*needed(operands, 0).shape, _n_entries(node, "cats_")))]


def selected(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """ArrayFeatureExtractor: some of the last axis, of a vector as a row."""
    first = needed(operands, 0)
    rows = first.shape[:-1] or (1,)
    return [(first.dtype, (*rows, prod(needed(operands, 1).shape)))]


def joined(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """FeatureVectorizer: features of several tensors side by side."""
    return [(TensorProto.FLOAT, (_n_samples(operands), sum(integers(node, "inputdimensions"))))]


def zipped(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """ZipMap: a dictionary for every sample, which no device computes."""
    raise ValueError("it makes dictionaries of scores; try to export without it, skl2onnx does so with zipmap=False")


def _n_samples(operands: Operands) -> int:
    shape = needed(operands, 0).shape
    return shape[0] if len(shape) > 1 else 1


def _n_entries(node: onnx.NodeProto, name: str) -> int:
    """Entries of the attribute whose name begins so; of several, the only one that has any."""
    lists = (entry for entry in node.attribute if entry.name.startswith(name))
    return max((len(entry.ints) + len(entry.strings) + len(entry.floats) for entry in lists), default=0)


def _label_type(node: onnx.NodeProto) -> int:
    if _n_entries(node, "classlabels_strings"):
        return int(TensorProto.STRING)
    return int(TensorProto.INT64)


_CLASSIC: dict[str, ShapeRule] = {
    "ArrayFeatureExtractor": selected,
    "FeatureVectorizer": joined,
    "Imputer": like_first,
    "LinearClassifier": classified,
    "LinearRegressor": regressed("targets"),
    "Normalizer": as_floats,
    "OneHotEncoder": one_hot,
    "SVMClassifier": separated,
    "SVMRegressor": regressed(None),
    "Scaler": as_floats,
    "TreeEnsembleClassifier": classified,
    "TreeEnsembleRegressor": regressed("n_targets"),
    "ZipMap": zipped,
}

RULES: dict[tuple[str, str], ShapeRule] = {("ai.onnx.ml", op): rule for op, rule in _CLASSIC.items()}
"""By domain and operator."""
