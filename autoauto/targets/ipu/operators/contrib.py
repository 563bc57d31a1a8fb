"""Operators that ONNX Runtime's optimiser fuses: the standard operators that are in them, one after the other.

Nothing is public about how Graphcore's tools run them; a graph compiler takes them apart [onnxruntime-contrib]. An
operator whose name the standard has, too, has its domain in its name here (`com.microsoft.Attention`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod

from autoauto.records.layers import AttributeValue
from autoauto.targets.ipu.operator_cost import CostRule, OperatorContext, OperatorCost, by_operator, together
from autoauto.targets.ipu.operators import convolutions, data_movement, products, rows, sequences
from autoauto.targets.ipu.operators.elementwise import Loops, dropout, elementwise, loops_named, one_pass
from autoauto.targets.ipu.operators.products import AttentionSizes
from autoauto.targets.ipu.tiling.split import Product

MICROSOFT, NCHWC = "com.microsoft", "com.microsoft.nchwc"
_UNPACK = ("cast", "add", "add")  # a packed weight to a number: shift and mask, subtract, scale


def as_standard(context: OperatorContext, op: str, *positions: int, **attributes: AttributeValue) -> OperatorContext:
    """The layer as if it were the standard operator `op` that reads the operands at `positions`, by default all."""
    layer = context.layer
    operands = layer.operands
    if positions:
        padded = operands + (-1,) * (max(positions) + 1)  # -1 is an operand that the node leaves out
        operands = tuple(padded[index] for index in positions)
    named = tuple(sorted((dict(layer.attributes) | attributes).items()))
    return context._replace(layer=replace(layer, op=op, operands=operands, attributes=named, outputs=layer.outputs[:1]))


def alias(rule: CostRule, op: str, *positions: int, **attributes: AttributeValue) -> CostRule:
    """The rule of an operator that costs what the standard operator `op` costs."""
    return lambda context: rule(as_standard(context, op, *positions, **attributes))


def convolution(context: OperatorContext) -> OperatorCost:
    """A convolution with a bias, a term that is added, and an activation."""
    op = "NhwcConv" if convolutions.is_channels_last(context) else "Conv"
    product = convolutions.convolution(as_standard(context, op, 0, 1, 2))
    return _finished(context, product, has_term=context.tensor(3) is not None)


def _finished(context: OperatorContext, cost: OperatorCost, has_term: bool = False) -> OperatorCost:
    """A product, then one pass that adds a term and computes the activation."""
    loops: Loops = ()
    if has_term:
        loops += ("add",)
    if activation := context.text("activation"):
        loops += loops_named(activation)
    if not loops:
        return cost
    return together(cost, one_pass(context, context.n_out, loops, 1 + has_term))


def transposed_convolution(context: OperatorContext) -> OperatorCost:
    """ConvTransposeWithDynamicPads."""
    return convolutions.transposed_convolution(as_standard(context, "ConvTranspose", 0, 1, 3))


def matmul(context: OperatorContext) -> OperatorCost:
    """A product and an activation."""
    return _finished(context, products.matmul(as_standard(context, "MatMul", 0, 1)))


def gemm(context: OperatorContext) -> OperatorCost:
    """A product, a term that is added, and an activation."""
    return _finished(context, products.gemm(as_standard(context, "Gemm", 0, 1, 2)))


def matmul_gelu(context: OperatorContext) -> OperatorCost:
    """GemmFastGelu."""
    product = products.matmul(as_standard(context, "MatMul", 0, 1))
    return together(product, one_pass(context, context.n_out, ("add", *loops_named("Gelu"))))


def packed_matmul(context: OperatorContext) -> OperatorCost:
    """MatMulNBits and MatMulBnb4: the weight is unpacked, then multiplied."""
    unpacked = one_pass(context, context.integer("K", 1) * context.integer("N", 1), _UNPACK)
    return together(products.multiply(context, packed_product, context.present[:1]), unpacked)


def packed_product(context: OperatorContext) -> Product:
    """Rows by a weight of K x N."""
    n_rows = prod(context.shape(0)[:-1])
    return products.matrix_product(context, 1, n_rows, context.integer("K", 1), context.integer("N", 1))


def packed_look_up(context: OperatorContext) -> OperatorCost:
    """GatherBlockQuantized: rows of a table, then unpacked."""
    axis = context.integer("gather_axis", 0)
    looked_up = data_movement.look_up(as_standard(context, "Gather", 0, 1, axis=axis))
    return together(looked_up, one_pass(context, context.n_out, _UNPACK))


def normalised_sum(context: OperatorContext) -> OperatorCost:
    """SkipLayerNormalization and its simplified form: one or two additions, then the norm."""
    bias = 4
    if "Simplified" in context.layer.op:  # it has no operand beta, which comes before the bias
        bias = 3
    n_additions = 1 + (context.tensor(bias) is not None)
    added = one_pass(context, context.n_elements(context.present[0]), ("add",) * n_additions)
    return together(rows.layer_norm(as_standard(context, "LayerNormalization", 0, 2)), added)


def group_norm(context: OperatorContext) -> OperatorCost:
    """GroupNorm and SkipGroupNorm: statistics of groups of channels, and a sigmoid that multiplies."""
    groups = context.integer("groups", 1)
    norm = rows.group_norm(as_standard(context, "GroupNormalization", 0, 1, 2, num_groups=groups))
    loops: Loops = ()
    if context.layer.op.startswith("Skip"):
        loops += ("add",)
    if context.integer("activation", 0):
        loops += ("sigmoid", "add")
    if not loops:
        return norm
    return together(norm, one_pass(context, context.n_elements(context.present[0]), loops))


def softmax_of_sum(context: OperatorContext) -> OperatorCost:
    """BiasSoftmax: an addition, then the softmax."""
    summed = elementwise(as_standard(context, "Add"))
    return together(rows.softmax(as_standard(context, "Softmax", 0)), summed._replace(follows=-1))


def merged_attention(context: OperatorContext) -> OperatorCost:
    """Attention of one input: the projection of queries, keys and values with their bias, then the attention."""
    n_projected = prod(context.shape(0)[:-1]) * context.shape(1)[-1]
    return together(
        products.multiply(context, projection_product, context.present[:1]),
        one_pass(context, n_projected, ("add",)),
        products.attend(context, merged_sizes),
    )


def projection_product(context: OperatorContext) -> Product:
    """Tokens by the merged weights of queries, keys and values."""
    *tokens, channels = context.shape(0)
    return products.matrix_product(context, 1, prod(tuple(tokens)), channels, context.shape(1)[-1])


def merged_sizes(context: OperatorContext) -> AttentionSizes:
    """Sizes of an attention of one input."""
    heads, value = context.integer("num_heads", 1), context.out_shape[-1]
    tokens_at = 0
    if context.layer.op == "PackedAttention":  # operand 0 has the tokens of all samples in one row
        tokens_at = 3  # the offset of every token in its sample
    samples, tokens = context.shape(tokens_at)[:2]
    keys = tokens
    for past in map(context.shape, (4, 8)):
        if len(past) == 5:
            keys += past[3]
            break
    width = (context.shape(1)[-1] - value) // 2
    return AttentionSizes(samples * heads, tokens, width // heads, keys, value // heads)


def multi_head_attention(context: OperatorContext) -> OperatorCost:
    """Attention of queries, keys and values, to each of which a bias may be added."""
    cost = products.attend(context, multi_head_sizes, context.present[:2], context.present[2:3])
    if context.tensor(3) is None:
        return cost
    return together(cost, one_pass(context, 3 * context.n_out, ("add",)))


def multi_head_sizes(context: OperatorContext) -> AttentionSizes:
    """Sizes of an attention of queries, keys and values, which may be packed in one tensor."""
    queries, heads = context.shape(0), context.integer("num_heads", 1)
    value = context.out_shape[-1] // heads
    keys = context.shape(1) or queries
    n_keys = keys[1]
    if len(keys) == 4:  # (samples, heads, keys, channels)
        n_keys = keys[2]
    for past in map(context.shape, (5, 6)):
        if len(past) == 4 and context.tensor(1):
            if past[3] == value:
                n_keys += past[2]
            break
    width = queries[-1]
    if len(queries) != 5:  # else (samples, tokens, heads, 3, channels), so the last axis is that of one head
        if not context.tensor(1):  # queries, keys and values side by side
            width //= 3
        width //= heads
    return AttentionSizes(queries[0] * heads, queries[1], width, n_keys, value)


def grouped_attention(context: OperatorContext) -> OperatorCost:
    """GroupQueryAttention: queries and keys may be turned by their positions first."""
    cost = products.attend(context, grouped_sizes, context.present[:1])
    n_turned = context.n_elements(context.layer.outputs[0]) * 2 * context.integer("do_rotary", 0)
    if not n_turned:
        return cost
    return together(cost, one_pass(context, n_turned, loops_named("RotaryEmbedding")))


def grouped_sizes(context: OperatorContext) -> AttentionSizes:
    """Sizes of a GroupQueryAttention; every head of queries meets keys, however few heads the keys have."""
    samples, tokens, width = context.out_shape
    heads, past, outputs = context.integer("num_heads", 1), context.shape(3), context.layer.outputs
    n_keys = tokens
    if len(past) == 4:
        n_keys = max(n_keys, past[2])
    if len(outputs) > 1:  # the second output has all keys
        n_keys = context.graph.tensors[outputs[1]].shape_at(context.options.batch_size)[2]
    return AttentionSizes(samples * heads, tokens, width // heads, n_keys, width // heads)


def embedding(context: OperatorContext) -> OperatorCost:
    """EmbedLayerNormalization: rows of two or three tables, their sum, and its norm."""
    looked_up = [data_movement.look_up(as_standard(context, "Gather", 2, 0, axis=0))]
    if context.tensor(1) is not None and context.tensor(4) is not None:
        looked_up.append(data_movement.look_up(as_standard(context, "Gather", 4, 1, axis=0)))
    n_elements = context.n_elements(context.layer.outputs[0])
    positions = data_movement.move_bytes(context, context.n_bytes(context.layer.operands[3]), per_element=False)
    added = one_pass(context, n_elements, ("add",) * len(looked_up))
    *tokens, width = context.out_shape
    return together(rows.normalise(context, prod(tuple(tokens)), width), *looked_up, positions, added)


def experts(context: OperatorContext) -> OperatorCost:
    """MoE and QMoE: a choice of experts for every token, and the two or three layers of each that was chosen."""
    n_tokens, n_experts = prod(context.shape(0)[:-1]), context.shape(1)[-1]
    widths = expert_widths(context)
    activation = loops_named(context.text("activation_type").title() or "Relu")
    first, *others = (partial(expert_product, layer=layer) for layer in range(len(widths)))
    return together(
        products.multiply(context, first, context.present[:1]),
        one_pass(context, context.integer("k", 1) * n_tokens * widths[0], activation),
        *(products.multiply(context, other) for other in others),
        rows.softmax_rows(context, n_tokens, n_experts),
    )


def expert_product(context: OperatorContext, layer: int) -> Product:
    """Tokens by a layer of their experts: the first, the second, or one that gates; each expert has as many tokens."""
    n_rows = context.integer("k", 1) * prod(context.shape(0)[:-1])
    n_groups = max(min(context.shape(1)[-1], n_rows), 1)
    inputs, outputs = context.shape(0)[-1], expert_widths(context)[layer]
    if layer == 1:
        inputs, outputs = outputs, inputs
    return products.matrix_product(context, n_groups, -(-n_rows // n_groups), inputs, outputs)


def expert_widths(context: OperatorContext) -> list[int]:
    """Channels inside an expert that each of its layers writes or reads.

    Rows of a weight are what its layer writes or what it reads, and the first may write two halves, of which one gates
    the other: the number of elements tells.
    """
    indices, n_in_byte = (2, 4, 6), 1
    if context.layer.op == "QMoE":
        indices, n_in_byte = (2, 5, 8), 8 // context.integer("expert_weight_bits", 4)
    hidden, operands = context.shape(0)[-1], context.layer.operands
    given = [index for index in indices if index < len(operands) and operands[index] >= 0]
    return [prod(context.shape(index)[1:]) * n_in_byte // max(hidden, 1) for index in given]


def distances(context: OperatorContext) -> OperatorCost:
    """CDist: products of the rows and squares of the rows, from which the distances follow."""
    (n_rows, depth), n_others = context.shape(0), context.shape(1)[0]
    squares = one_pass(context, (n_rows + n_others) * depth, ("square",))
    finished = one_pass(context, context.n_out, ("add", "add", "sqrt"))
    factors = products.two_operands(context)
    return together(products.multiply(context, distance_product, factors), squares, finished)


def distance_product(context: OperatorContext) -> Product:
    """The rows of one matrix by those of another."""
    (n_rows, depth), n_others = context.shape(0), context.shape(1)[0]
    return products.matrix_product(context, 1, n_rows, depth, n_others)


def gated_relative_bias(context: OperatorContext) -> OperatorCost:
    """GatedRelativePositionBias: gates by a product of the queries, which weigh the bias."""
    weighed = one_pass(context, context.n_out, ("sigmoid", "add", "add", "add"))
    return together(products.multiply(context, gate_product, context.present[:1]), weighed)


def gate_product(context: OperatorContext) -> Product:
    """The queries of every head by the weight of the gates."""
    width, outputs = context.shape(3)
    return products.matrix_product(context, 1, prod(context.shape(0)) // max(width, 1), width, outputs)


def biased_dropout(context: OperatorContext) -> OperatorCost:
    """A sum, or two, and a dropout."""
    sums = one_pass(context, context.n_elements(context.present[0]), ("add", "add"))
    return together(dropout(as_standard(context, "Dropout", 0)), sums)


_UNIQUE_NAMES: dict[str, CostRule] = by_operator(
    {
        convolution: "FusedConv NhwcConv NhwcFusedConv",
        matmul: "FusedMatMul FusedMatMulActivation TransposeMatMul",
        packed_matmul: "MatMulNBits MatMulBnb4",
        normalised_sum: "SkipLayerNormalization SkipSimplifiedLayerNormalization",
        rows.layer_norm: "SimplifiedLayerNormalization",
        group_norm: "GroupNorm SkipGroupNorm",
        multi_head_attention: "MultiHeadAttention DecoderMaskedMultiHeadAttention",
        merged_attention: "DecoderMaskedSelfAttention PackedAttention",
        grouped_attention: "GroupQueryAttention SparseAttention",
        experts: "MoE QMoE",
        biased_dropout: "BiasDropout BitmaskBiasDropout",
        convolutions.pool: "NhwcMaxPool MaxpoolWithMask",
        data_movement.move: "ExpandDims RestorePadding UnfoldTensor",
        data_movement.shuffle: "ReorderInput ReorderOutput",
        softmax_of_sum: "BiasSoftmax",
        alias(dropout, "Dropout", 0): "BitmaskDropout",
        distances: "CDist",
        transposed_convolution: "ConvTransposeWithDynamicPads",
        alias(convolutions.pool, "RoiAlign"): "CropAndResize",
        embedding: "EmbedLayerNormalization",
        gemm: "FusedGemm",
        gated_relative_bias: "GatedRelativePositionBias",
        packed_look_up: "GatherBlockQuantized",
        matmul_gelu: "GemmFastGelu",
        data_movement.move_everything: "RelativePositionBias",
        alias(data_movement.look_up, "Gather", 0, 1, axis=0): "TorchEmbedding",
    }
)

_MICROSOFT: dict[str, CostRule] = by_operator(
    {
        elementwise: "DequantizeLinear Gelu QuantizeLinear RotaryEmbedding SwiGLU",
        data_movement.move: "Pad Range Trilu",
        rows.layer_norm: "LayerNormalization SimplifiedLayerNormalization",
        merged_attention: "Attention",
        convolutions.causal_convolution: "CausalConvWithState",
        data_movement.look_up: "GatherND",
        data_movement.interpolate: "GridSample",
        sequences.linear_attention: "LinearAttention",
        sequences.unique: "Unique",
    }
)
_NCHWC: dict[str, CostRule] = by_operator(
    {
        convolutions.pool: "AveragePool MaxPool",
        rows.reduction: "GlobalAveragePool GlobalMaxPool",
        convolution: "Conv",
        data_movement.interpolate: "Upsample",
    }
)

COST_RULES: dict[str, CostRule] = dict(_UNIQUE_NAMES)
COST_RULES.update((f"{MICROSOFT}.{op}", rule) for op, rule in _MICROSOFT.items())
COST_RULES.update((f"{NCHWC}.{op}", rule) for op, rule in _NCHWC.items())
