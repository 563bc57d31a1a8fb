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

from autoauto.graph.shapes.contrib import MICROSOFT, NCHWC
from autoauto.graph.shapes.operand_rules import contrib, standard
from autoauto.graph.shapes.operand_rules.rule import OperandRule, agree, named_axes, said
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


_TABLE: tuple[tuple[str, OperandRule, str], ...] = (
    ("", standard.placed, "AffineGrid"),
    ("", standard.attention, "Attention"),
    ("", standard.folded, "Col2Im"),
    ("", standard.compressed, "Compress"),
    ("", standard.convolution, "Conv"),
    ("", partial(standard.convolution, bias=None), "ConvInteger"),
    ("", standard.transposed_convolution, "ConvTranspose"),
    ("", standard.accumulated, "CumProd CumSum"),
    ("", standard.deformed_convolution, "DeformConv"),
    ("", standard.quantised, "DequantizeLinear QuantizeLinear"),
    ("", standard.recurrent, "GRU LSTM RNN"),
    ("", standard.gathered, "Gather"),
    ("", standard.gathered_by_element, "GatherElements ScatterElements"),
    ("", standard.gathered_by_point, "GatherND ScatterND"),
    ("", standard.gemm, "Gemm"),
    ("", standard.per_channel, "GroupNormalization InstanceNormalization"),
    ("", standard.normalised_by_neighbours, "LRN"),
    ("", standard.per_row, "LayerNormalization LpNormalization RMSNormalization SimplifiedLayerNormalization"),
    ("", partial(standard.product_of_integers, rows=(2,), columns=(3,)), "MatMulInteger"),
    ("", named_axes("*all", "*all"), "MaxUnpool"),
    ("", standard.along_axes, "MeanVarianceNormalization"),
    ("", named_axes("samples classes *field", "", "classes"), "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss"),
    ("", named_axes("samples boxes 4", "samples classes boxes"), "NonMaxSuppression"),
    ("", standard.slope, "PRelu"),
    ("", partial(standard.convolution, weight=3, bias=8, scales=(4, 5)), "QLinearConv"),
    ("", partial(standard.product_of_integers, rows=(1, 2, 6, 7), right=3, columns=(4, 5)), "QLinearMatMul"),
    ("", standard.resized, "Resize Upsample"),
    ("", standard.reversed_in_part, "ReverseSequence"),
    ("", named_axes("", "regions 4", "regions"), "RoiAlign"),
    ("", standard.rotated, "RotaryEmbedding"),
    ("", standard.split, "Split"),
    ("", standard.turned, "Transpose"),
    (MICROSOFT, contrib.attention_of_one, "Attention DecoderMaskedSelfAttention"),
    (MICROSOFT, named_axes("*rows width", "width", "*rows width"), "BiasAdd BiasGelu BiasSplitGelu FastGelu"),
    (MICROSOFT, partial(standard.transposed_convolution, bias=3), "ConvTransposeWithDynamicPads"),
    (MICROSOFT, contrib.quantised_recurrent, "DynamicQuantizeLSTM"),
    (MICROSOFT, contrib.embedded, "EmbedLayerNormalization QEmbedLayerNormalization"),
    (MICROSOFT, named_axes("points coordinates", "others coordinates"), "CDist"),
    (MICROSOFT, contrib.convolved_with_state, "CausalConvWithState"),
    (MICROSOFT, partial(contrib.multi_head, bias=10, mask=3, scores=4, past=5), "DecoderMaskedMultiHeadAttention"),
    (MICROSOFT, partial(standard.product_of_integers, columns=(2, 3), bias=4), "DynamicQuantizeMatMul"),
    (MICROSOFT, standard.convolution, "FusedConv NhwcConv NhwcFusedConv"),
    (MICROSOFT, standard.gemm, "FusedGemm"),
    (MICROSOFT, standard.gathered_by_point, "GatherND"),
    (MICROSOFT, contrib.gathered_in_blocks, "GatherBlockQuantized"),
    (MICROSOFT, named_axes("", "*rows width", "width"), "GemmFastGelu"),
    (MICROSOFT, contrib.per_group, "GroupNorm SkipGroupNorm"),
    (MICROSOFT, contrib.grouped_heads, "GroupQueryAttention SparseAttention"),
    (MICROSOFT, named_axes("*samples rows rows"), "Inverse"),
    (MICROSOFT, named_axes("n t q", "n t k", "n t v", "", "n t decay", "n t rate"), "LinearAttention"),
    (MICROSOFT, contrib.packed_in_a_row, "MatMulBnb4"),
    (MICROSOFT, partial(standard.product_of_integers, columns=(3, 5), bias=6), "MatMulIntegerToFloat"),
    (MICROSOFT, contrib.packed, "MatMulNBits"),
    (MICROSOFT, named_axes("samples channels *field", "masks layers *field"), "MaxpoolWithMask"),
    (MICROSOFT, partial(contrib.mixed, weights=(2, 4, 6), vectors=((3,), (5,))), "MoE"),
    (MICROSOFT, contrib.multi_head, "MultiHeadAttention"),
    (MICROSOFT, partial(contrib.attention_of_one, mask=5, past=8, bias=9), "QAttention"),
    (MICROSOFT, partial(standard.gemm, right=3, term=6, columns=(4, 5)), "QGemm"),
    (MICROSOFT, partial(standard.convolution, weight=3, bias=8, scales=(4, 5)), "QLinearConv"),
    (MICROSOFT, partial(contrib.mixed, weights=(2, 5, 8), vectors=((3, 4), (6, 7))), "QMoE"),
    (MICROSOFT, contrib.rotated_by_positions, "RotaryEmbedding"),
    (MICROSOFT, contrib.skipped, "SkipLayerNormalization SkipSimplifiedLayerNormalization"),
    ("ai.onnx.ml", partial(standard.gathered, axis=-1), "ArrayFeatureExtractor"),
    ("ai.onnx.ml", standard.joined, "FeatureVectorizer"),
    ("ai.onnx.ml", standard.linear, "LinearRegressor"),
    ("ai.onnx.ml", standard.scaled, "Scaler"),
    ("ai.onnx.ml", standard.branched, "TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor"),
    (NCHWC, contrib.convolution_in_blocks, "Conv"),
)
"""A domain, a rule, and the operators that have it."""
_RULES = {(domain, operator): rule for domain, rule, operators in _TABLE for operator in operators.split()}
