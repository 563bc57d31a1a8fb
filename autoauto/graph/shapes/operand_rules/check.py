"""What operands must be by the definition of an operator, where onnx's inference does not look: `check_operands`.

onnx derives an output from the fewest operands that it needs. A Conv of kernels 1 x 1 whose attribute says 3 x 3, a
bias of another length than the output, or an index behind the end of an axis pass, and the layer would get numbers that
no runtime can reach. A rule names the shape that an operand must have, or says in a `ValueError` what contradicts. To
add one, put it into the table below.

    rule.py        what a rule is, and what rules refuse in the same words
    standard.py    operators of onnx and of `ai.onnx.ml`
    contrib.py     operators of ONNX Runtime
"""

from __future__ import annotations

from functools import partial

import onnx

from autoauto.graph.shapes.operand_rules import contrib, standard
from autoauto.graph.shapes.operand_rules.rule import OperandRule, agree, said
from autoauto.graph.shapes.shape_rule import Operands, given
from autoauto.graph.shapes.values import label
from autoauto.records.errors import UnreadableModel

_TRY = "try to export the model again"


def check_operands(node: onnx.NodeProto, operands: Operands) -> None:
    """Refuse a node whose operands contradict the definition of its operator.

    Args:
        node: any; one of an operator without a rule passes.
        operands: in the order of the node, None for an omitted one.

    Raises:
        UnreadableModel: with the node, what must hold, and what it has.
    """
    rule = _RULES.get((node.domain, node.op_type))
    # A length that depends on data is an upper bound, which need not be that of the other operands.
    if rule is None or any(value is not None and value.data_dependent for value in operands):
        return
    try:
        for index, shape in rule(node, operands) or ():
            value = given(operands, index)
            if value is not None and not agree(value.shape, shape):
                raise ValueError(f"operand {node.input[index]!r} must be {said(shape)}, it is {list(value.shape)}")
    except (ValueError, IndexError) as error:  # an operand that lacks an axis has another shape, too
        raise UnreadableModel(f"the shapes at {label(node)} do not fit: {error}; {_TRY}") from error


_STANDARD: dict[str, OperandRule] = {
    "AffineGrid": standard.placed,
    "Attention": standard.attention,
    "Col2Im": standard.folded,
    "Compress": standard.compressed,
    "Conv": standard.convolution,
    "ConvInteger": partial(standard.convolution, bias=None),
    "ConvTranspose": standard.transposed_convolution,
    "CumProd": standard.accumulated,
    "CumSum": standard.accumulated,
    "DeformConv": standard.deformed_convolution,
    "DequantizeLinear": standard.quantised,
    "GRU": standard.recurrent,
    "Gather": standard.gathered,
    "GatherElements": standard.gathered_by_element,
    "GatherND": standard.gathered_by_point,
    "Gemm": standard.gemm,
    "GroupNormalization": standard.per_channel,
    "InstanceNormalization": standard.per_channel,
    "LRN": standard.normalised_by_neighbours,
    "LSTM": standard.recurrent,
    "LayerNormalization": standard.per_row,
    "LpNormalization": standard.per_row,
    "MatMulInteger": partial(standard.product_of_integers, rows=(2,), columns=(3,)),
    "MaxUnpool": standard.alike,
    "MeanVarianceNormalization": standard.along_axes,
    "NegativeLogLikelihoodLoss": partial(standard.vectors, indices=(2,), axis=1),
    "NonMaxSuppression": standard.suppressed,
    "PRelu": standard.slope,
    "QLinearConv": partial(standard.convolution, weight=3, bias=8, scales=(4, 5)),
    "QLinearMatMul": partial(standard.product_of_integers, rows=(1, 2, 6, 7), right=3, columns=(4, 5)),
    "QuantizeLinear": standard.quantised,
    "RMSNormalization": standard.per_row,
    "RNN": standard.recurrent,
    "Resize": standard.resized,
    "ReverseSequence": standard.reversed_in_part,
    "RoiAlign": standard.regions,
    "RotaryEmbedding": standard.rotated,
    "ScatterElements": standard.gathered_by_element,
    "ScatterND": standard.gathered_by_point,
    "SimplifiedLayerNormalization": standard.per_row,
    "SoftmaxCrossEntropyLoss": partial(standard.vectors, indices=(2,), axis=1),
    "Split": standard.split,
    "Transpose": standard.turned,
    "Upsample": standard.resized,
}
_CONTRIB: dict[str, OperandRule] = {
    "Attention": contrib.attention_of_one,
    "BiasAdd": contrib.biased,
    "BiasGelu": contrib.biased,
    "BiasSplitGelu": contrib.biased,
    "ConvTransposeWithDynamicPads": partial(standard.transposed_convolution, bias=3),
    "DynamicQuantizeLSTM": contrib.quantised_recurrent,
    "EmbedLayerNormalization": contrib.embedded,
    "CDist": partial(standard.alike, n_free=1),
    "CausalConvWithState": contrib.convolved_with_state,
    "DecoderMaskedMultiHeadAttention": partial(contrib.multi_head, bias=10, mask=3, scores=4, past=5),
    "DecoderMaskedSelfAttention": contrib.attention_of_one,
    "DynamicQuantizeMatMul": partial(standard.product_of_integers, columns=(2, 3), bias=4),
    "FastGelu": contrib.biased,
    "FusedConv": standard.convolution,
    "FusedGemm": standard.gemm,
    "GatherND": standard.gathered_by_point,
    "GatherBlockQuantized": contrib.gathered_in_blocks,
    "GemmFastGelu": partial(standard.vectors, indices=(2,), of=1),
    "GroupNorm": contrib.per_group,
    "GroupQueryAttention": contrib.grouped_heads,
    "Inverse": contrib.inverted,
    "LinearAttention": contrib.linear_attention,
    "MatMulBnb4": contrib.packed_in_a_row,
    "MatMulIntegerToFloat": partial(standard.product_of_integers, columns=(3, 5), bias=6),
    "MatMulNBits": contrib.packed,
    "MaxpoolWithMask": partial(standard.alike, n_free=2),
    "MoE": partial(contrib.mixed, weights=(2, 4, 6), vectors=((3,), (5,))),
    "MultiHeadAttention": contrib.multi_head,
    "NhwcConv": standard.convolution,
    "NhwcFusedConv": standard.convolution,
    "QAttention": partial(contrib.attention_of_one, mask=5, past=8, bias=9),
    "QEmbedLayerNormalization": contrib.embedded,
    "QGemm": partial(standard.gemm, right=3, term=6, columns=(4, 5)),
    "QLinearConv": partial(standard.convolution, weight=3, bias=8, scales=(4, 5)),
    "QMoE": partial(contrib.mixed, weights=(2, 5, 8), vectors=((3, 4), (6, 7))),
    "RotaryEmbedding": contrib.rotated_by_positions,
    "SkipGroupNorm": contrib.per_group,
    "SkipLayerNormalization": contrib.skipped,
    "SkipSimplifiedLayerNormalization": contrib.skipped,
    "SparseAttention": contrib.grouped_heads,
}
_CLASSIC: dict[str, OperandRule] = {
    "ArrayFeatureExtractor": partial(standard.gathered, axis=-1),
    "FeatureVectorizer": standard.joined,
    "LinearRegressor": standard.linear,
    "Scaler": standard.scaled,
    "TreeEnsemble": standard.branched,
    "TreeEnsembleClassifier": standard.branched,
    "TreeEnsembleRegressor": standard.branched,
}
_RULES: dict[tuple[str, str], OperandRule] = {("com.microsoft.nchwc", "Conv"): contrib.convolution_in_blocks}
for _domain, _rules in {"": _STANDARD, "com.microsoft": _CONTRIB, "ai.onnx.ml": _CLASSIC}.items():
    _RULES.update(((_domain, op), rule) for op, rule in _rules.items())
