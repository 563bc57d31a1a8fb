"""Products in operators of ONNX Runtime and of `ai.onnx.ml`, or their operations, for `operator_bounds.py`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

from autoauto.targets.ipu.operator_cost import OperatorContext
from autoauto.targets.ipu.operators import classic, contrib, convolutions, products, signals
from autoauto.targets.ipu.operators.contrib import as_standard
from autoauto.targets.ipu.tiling.split import Product

Products = Callable[[OperatorContext], tuple[Product, ...]]


def _as(op: str, product: Callable[[OperatorContext], Product], *positions: int) -> Products:
    """The product of a standard operator that is in another one."""
    return lambda context: (product(as_standard(context, op, *positions)),)


def _alone(*parts: Callable[[OperatorContext], Product]) -> Products:
    return lambda context: tuple(part(context) for part in parts)


def _attention(
    sizes: Callable[[OperatorContext], products.AttentionSizes], *others: Callable[[OperatorContext], Product]
) -> Products:
    of_heads = (partial(products.scores_product, sizes), partial(products.output_product, sizes))
    return _alone(*others, *of_heads)


def _experts(context: OperatorContext) -> tuple[Product, ...]:
    return tuple(contrib.expert_product(context, layer) for layer in range(len(contrib.expert_widths(context))))


def _spectrum(context: OperatorContext) -> tuple[Product, ...]:
    """What signals of at most 1,024 samples take; a longer one takes less than its whole matrix."""
    op = context.layer.op
    if op in ("Rfft", "Irfft"):
        length, parts = (context.out_shape if op == "Irfft" else context.shape(0))[-1], 1 + (op == "Irfft")
    elif op == "STFT":
        length, parts = context.shape(2)[0], 1
    else:
        length, parts = context.out_shape[context.integers("axis", (-2,))[0]], context.shape(0)[-1]
    return (signals.sines_product(context, length, parts),)


_CONV = _as("Conv", convolutions.convolution_product, 0, 1)
_LAST = _as("NhwcConv", convolutions.convolution_product, 0, 1)
_MATMUL = _as("MatMul", products.matmul_product, 0, 1)
_MERGED = _attention(contrib.merged_sizes, contrib.projection_product)
_HEADS = _attention(contrib.multi_head_sizes)
_GROUPED = _attention(contrib.grouped_sizes)

PRODUCTS: dict[str, Products] = {
    "CDist": _alone(contrib.distance_product),
    "CausalConvWithState": _alone(convolutions.causal_product),
    "ConvTransposeWithDynamicPads": _as("ConvTranspose", convolutions.transposed_convolution_product, 0, 1),
    "DFT": _spectrum,
    "DecoderMaskedMultiHeadAttention": _HEADS,
    "DecoderMaskedSelfAttention": _MERGED,
    "DynamicQuantizeMatMul": _MATMUL,
    "FlexAttention": _attention(products.attention_sizes),
    "FusedConv": _CONV,
    "FusedGemm": _as("Gemm", products.gemm_product, 0, 1),
    "FusedMatMul": _MATMUL,
    "FusedMatMulActivation": _MATMUL,
    "GatedRelativePositionBias": _alone(contrib.gate_product),
    "GemmFastGelu": _MATMUL,
    "GroupQueryAttention": _GROUPED,
    "Irfft": _spectrum,
    "LinearClassifier": _alone(classic.linear_product),
    "LinearRegressor": _alone(classic.linear_product),
    "MatMulBnb4": _alone(contrib.packed_product),
    "MatMulInteger16": _MATMUL,
    "MatMulIntegerToFloat": _MATMUL,
    "MatMulNBits": _alone(contrib.packed_product),
    "MoE": _experts,
    "MultiHeadAttention": _HEADS,
    "NhwcConv": _LAST,
    "NhwcFusedConv": _LAST,
    "PackedAttention": _MERGED,
    "QAttention": _MERGED,
    "QGemm": _as("Gemm", products.gemm_product, 0, 3),
    "QMoE": _experts,
    "Rfft": _spectrum,
    "STFT": _spectrum,
    "SVMClassifier": _alone(classic.kernels_product, classic.scores_product),
    "SVMRegressor": _alone(classic.kernels_product, classic.scores_product),
    "SparseAttention": _GROUPED,
    "TransposeMatMul": _MATMUL,
    "com.microsoft.Attention": _MERGED,
    "com.microsoft.CausalConvWithState": _alone(convolutions.causal_product),
    "com.microsoft.QLinearConv": _as("NhwcConv", convolutions.convolution_product, 0, 3),
    "com.microsoft.nchwc.Conv": _CONV,
}
"""The products in an operator, by its name in a layer."""


def _visits(context: OperatorContext) -> float:
    """Three instructions for every node on the way to a leaf."""
    n_trees, depth = classic.forest(context)
    return 3.0 * prod(context.shape(0)[:-1]) * n_trees * depth


def _of_matrices(context: OperatorContext) -> float:
    """A third of the cube of the length, for every matrix, two operations at a time."""
    return prod(context.shape(0)) * context.shape(0)[-1] / 3


def _recurrence(context: OperatorContext) -> float:
    """Three operations for every token and element of the states, which are matrices of key and value."""
    heads = max(context.integer("q_num_heads", 1), 1)
    batch, n_tokens, channels = context.shape(0)
    return 3.0 * batch * n_tokens * channels * context.shape(2)[-1] / heads / 8


def _passes(n_operations: int, context: OperatorContext) -> float:
    """So many operations an element of the output, in vectors of 16 bytes."""
    return n_operations * prod(context.out_shape) * context.out_precision.n_bytes / 16


OPERATIONS: dict[str, Callable[[OperatorContext], float]] = {
    "ArrayFeatureExtractor": lambda context: float(context.n_out),
    "Compress": lambda context: 3.0 * prod(context.shape(1)),
    "Det": _of_matrices,
    "GatedRelativePositionBias": partial(_passes, 4),
    "Inverse": _of_matrices,
    "LinearAttention": _recurrence,
    "NegativeLogLikelihoodLoss": lambda context: 2.0 * prod(context.shape(1)),
    "QEmbedLayerNormalization": partial(_passes, 17),
    "TreeEnsemble": _visits,
    "TreeEnsembleClassifier": _visits,
    "TreeEnsembleRegressor": _visits,
    "com.microsoft.LinearAttention": _recurrence,
}
"""Tile cycles of other operators' arithmetic."""
