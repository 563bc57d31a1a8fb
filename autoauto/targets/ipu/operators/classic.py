"""Trees, linear models and encoders of `ai.onnx.ml`: no tool of Graphcore runs them, so that all of it is assumed."""

from __future__ import annotations

from math import ceil, log2, prod

from autoauto.targets.ipu import kernels
from autoauto.targets.ipu.kernels import WORKERS
from autoauto.targets.ipu.operator_cost import (
    CostRule,
    Family,
    OperatorContext,
    OperatorCost,
    by_operator,
    together,
)
from autoauto.targets.ipu.operators import data_movement, products, rows
from autoauto.targets.ipu.operators.contrib import alias
from autoauto.targets.ipu.operators.elementwise import one_pass
from autoauto.targets.ipu.tiling.split import Product

_VISIT_CYCLES = 12  # of a worker, to load a node and its feature, compare, and go on: an assumption


def linear(context: OperatorContext) -> OperatorCost:
    """A product of features and coefficients, and a sigmoid or an exponential of the scores."""
    product = products.multiply(context, linear_product, context.present[:1])
    return together(product, one_pass(context, context.n_out, ("add", "exponent", "add")))


def linear_product(context: OperatorContext) -> Product:
    """Samples by features by scores."""
    n_samples, n_features = _rows(context)
    return products.matrix_product(context, 1, n_samples, n_features, _n_scores(context))


def support_vectors(context: OperatorContext) -> OperatorCost:
    """Samples by support vectors, a function of each product, and their sums for every score."""
    return together(
        products.multiply(context, kernels_product, context.present[:1]),
        one_pass(context, _rows(context)[0] * _n_vectors(context), ("add", "exponent")),
        products.multiply(context, scores_product),
    )


def kernels_product(context: OperatorContext) -> Product:
    """The product of samples and support vectors."""
    return products.matrix_product(context, 1, *_rows(context), _n_vectors(context))


def scores_product(context: OperatorContext) -> Product:
    """The product of the kernel's values, one a sample and support vector, and the coefficients of the scores."""
    return products.matrix_product(context, 1, _rows(context)[0], _n_vectors(context), _n_scores(context))


def _n_vectors(context: OperatorContext) -> int:
    return max(_n_entries(context, "support_vectors") // _rows(context)[1], 1)


def trees(context: OperatorContext) -> OperatorCost:
    """Tiles share pairs of samples and trees; a worker follows one from its root to a leaf. Then sums over trees."""
    (n_samples, n_features), (n_trees, depth) = _rows(context), forest(context)
    n_out = max(n_samples * _n_scores(context), 1)
    n_summed = max(n_samples * n_trees, n_out)
    share = -(-n_samples * n_trees // context.n_tiles)
    walk = kernels.UNARY_LAUNCH_CYCLES + WORKERS * -(-share // WORKERS) * depth * _VISIT_CYCLES
    read_bytes = min(share, n_samples) * n_features * context.precision.n_bytes
    exchange = round(float(kernels.exchange(read_bytes)))
    walked = OperatorCost(Family.GATHER, exchange, walk, ("tree", "copy"), context.n_tiles, n_sources=1)
    return together(walked, rows.reduce_to(context, n_summed, n_out, n_samples=context.options.batch_size))


def forest(context: OperatorContext) -> tuple[int, int]:
    """The number of trees, and their depth if all leaves lay equally deep."""
    ids = context.integers("nodes_treeids", ()) or context.integers("tree_roots", (0,))
    n_trees = max(len(set(ids)), 1)
    n_nodes = max(_n_entries(context, "nodes_featureids"), 1)
    return n_trees, ceil(log2(n_nodes / n_trees + 1))


def encode(context: OperatorContext) -> OperatorCost:
    """LabelEncoder and CategoryMapper: a binary search among the keys."""
    names = ("keys_int64s", "keys_floats", "keys_strings", "cats_int64s", "cats_strings")
    n_keys = max(_n_entries(context, name) for name in names)
    return one_pass(context, context.n_out, ("compare",) * ceil(log2(n_keys + 2)))


def normalise(context: OperatorContext) -> OperatorCost:
    """Normalizer: every sample by the norm of its features."""
    return rows.normalise(context, *_rows(context))


def _rows(context: OperatorContext) -> tuple[int, int]:
    """Samples and features; a vector is one sample."""
    shape = context.shape(0) or (1,)
    return max(prod(shape[:-1]), 1), max(shape[-1], 1)


def _n_scores(context: OperatorContext) -> int:
    return context.graph.tensors[context.layer.outputs[-1]].shape[-1]


def _n_entries(context: OperatorContext, name: str) -> int:
    value = context.layer.attribute(name)
    return len(value) if isinstance(value, tuple) else 0


COST_RULES: dict[str, CostRule] = by_operator(
    {
        alias(data_movement.look_up, "Gather", 0, 1, axis=-1): "ArrayFeatureExtractor",
        data_movement.move: "FeatureVectorizer OneHotEncoder",
        encode: "CategoryMapper LabelEncoder",
        linear: "LinearClassifier LinearRegressor",
        normalise: "Normalizer",
        support_vectors: "SVMClassifier SVMRegressor",
        trees: "TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor",
    }
)
