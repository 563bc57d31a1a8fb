"""Operators that ONNX Runtime's optimiser fuses: the standard operators that are in them, one after the other.

Nothing is public about how Graphcore's tools run them; a graph compiler takes them apart [onnxruntime-contrib]. An
operator whose name the standard has, too, has its domain in its name here (`com.microsoft.Attention`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from autoauto.records.layers import AttributeValue
from autoauto.targets.ipu.operator_cost import CostRule, OperatorContext, OperatorCost, by_operator, size, together
from autoauto.targets.ipu.operators import convolutions, data_movement, products, rows, sequences
from autoauto.targets.ipu.operators.elementwise import dropout, elementwise, loops_named, one_pass
from autoauto.targets.ipu.operators.products import AttentionSizes
from autoauto.targets.ipu.tiling.split import Product

MICROSOFT, NCHWC = "com.microsoft", "com.microsoft.nchwc"
_UNPACK = ("cast", "add", "add")  # a packed weight to a number: shift and mask, subtract, scale


def as_standard(context: OperatorContext, op: str, *positions: int, **attributes: AttributeValue) -> OperatorContext:
    """The layer as if it were the standard operator `op` that reads the operands at `positions`, by default all."""
    layer = context.layer
    read = positions or range(len(layer.operands))
    operands = tuple(layer.operands[index] if index < len(layer.operands) else -1 for index in read)
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
    """A product, a term that is added to it, and an activation, in one pass."""
    activation = context.text("activation")
    loops = (*("add",) * has_term, *(loops_named(activation) if activation else ()))
    return together(cost, one_pass(context, context.n_out, loops, 1 + has_term)) if loops else cost


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
    n_rows = size(context.shape(0)[:-1])
    return products.matrix_product(context, 1, n_rows, context.integer("K", 1), context.integer("N", 1))


def packed_look_up(context: OperatorContext) -> OperatorCost:
    """GatherBlockQuantized: rows of a table, then unpacked."""
    axis = context.integer("gather_axis", 0)
    looked_up = data_movement.look_up(as_standard(context, "Gather", 0, 1, axis=axis))
    return together(looked_up, one_pass(context, context.n_out, _UNPACK))


def normalised_sum(context: OperatorContext) -> OperatorCost:
    """SkipLayerNormalization and its simplified form: one or two additions, then the norm."""
    has_bias = context.tensor(3 if "Simplified" in context.layer.op else 4) is not None
    added = one_pass(context, context.n_elements(context.present[0]), ("add",) * (1 + has_bias))
    return together(rows.layer_norm(as_standard(context, "LayerNormalization", 0, 2)), added)


def group_norm(context: OperatorContext) -> OperatorCost:
    """GroupNorm and SkipGroupNorm: statistics of groups of channels, and a sigmoid that multiplies."""
    groups, first = context.integer("groups", 1), context.n_elements(context.present[0])
    loops = ("add",) * context.layer.op.startswith("Skip") + ("sigmoid", "add") * context.integer("activation", 0)
    norm = rows.group_norm(as_standard(context, "GroupNormalization", 0, 1, 2, num_groups=groups))
    return together(norm, one_pass(context, first, loops)) if loops else norm


def softmax_of_sum(context: OperatorContext) -> OperatorCost:
    """BiasSoftmax: an addition, then the softmax."""
    summed = elementwise(as_standard(context, "Add"))
    return together(rows.softmax(as_standard(context, "Softmax", 0)), summed._replace(follows=-1))


def merged_attention(context: OperatorContext) -> OperatorCost:
    """Attention of one input: the projection of queries, keys and values with their bias, then the attention."""
    n_projected = size(context.shape(0)[:-1]) * context.shape(1)[-1]
    return together(
        products.multiply(context, projection_product, context.present[:1]),
        one_pass(context, n_projected, ("add",)),
        products.attend(context, merged_sizes),
    )


def projection_product(context: OperatorContext) -> Product:
    """Tokens by the merged weights of queries, keys and values."""
    *tokens, channels = context.shape(0)
    return products.matrix_product(context, 1, size(tuple(tokens)), channels, context.shape(1)[-1])


def merged_sizes(context: OperatorContext) -> AttentionSizes:
    """Sizes of an attention of one input; the samples and lengths of packed tokens are those of their offsets."""
    heads, value = context.integer("num_heads", 1), context.out_shape[-1]
    packed = context.layer.op == "PackedAttention"
    samples, tokens = context.shape(3)[:2] if packed else context.shape(0)[:2]
    past = next((shape for shape in map(context.shape, (4, 8)) if len(shape) == 5), ())
    width = (context.shape(1)[-1] - value) // 2
    keys = tokens + (past[3] if past else 0)
    return AttentionSizes(samples * heads, tokens, width // heads, keys, value // heads)


def multi_head_attention(context: OperatorContext) -> OperatorCost:
    """Attention of queries, keys and values, whose biases are added."""
    cost = products.attend(context, multi_head_sizes, context.present[:2], context.present[2:3])
    return together(cost, one_pass(context, 3 * context.n_out, ("add",))) if context.tensor(3) is not None else cost


def multi_head_sizes(context: OperatorContext) -> AttentionSizes:
    """Sizes of an attention of queries, keys and values, which may be packed in one tensor."""
    queries, heads, value = context.shape(0), context.integer("num_heads", 1), context.out_shape[-1]
    keys = context.shape(1) or queries
    n_keys = keys[2] if len(keys) == 4 else keys[1]
    past = next((shape for shape in map(context.shape, (5, 6)) if len(shape) == 4 and context.tensor(1)), ())
    n_keys += past[2] if past and past[3] == value // heads else 0
    width = queries[-1] if len(queries) == 5 else (queries[-1] if context.tensor(1) else queries[-1] // 3) // heads
    return AttentionSizes(queries[0] * heads, queries[1], width, n_keys, value // heads)


def grouped_attention(context: OperatorContext) -> OperatorCost:
    """GroupQueryAttention: queries and keys may be turned by their positions first."""
    cost = products.attend(context, grouped_sizes, context.present[:1])
    turned = context.n_elements(context.layer.outputs[0]) * 2 * context.integer("do_rotary", 0)
    return together(cost, one_pass(context, turned, loops_named("RotaryEmbedding"))) if turned else cost


def grouped_sizes(context: OperatorContext) -> AttentionSizes:
    """Sizes of a GroupQueryAttention; every head of queries meets keys, however few heads these have."""
    samples, tokens, width = context.out_shape
    heads, past, outputs = context.integer("num_heads", 1), context.shape(3), context.layer.outputs
    n_keys = max(tokens, past[2] if len(past) == 4 else 0)
    if len(outputs) > 1:  # the keys that leave are all of them
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
    return together(rows.normalise(context, size(tuple(tokens)), width), *looked_up, positions, added)


def experts(context: OperatorContext) -> OperatorCost:
    """MoE and QMoE: a choice of experts for every token, and the two layers of each that was chosen."""
    n_tokens, n_experts = size(context.shape(0)[:-1]), context.shape(1)[-1]
    n_inside = context.integer("k", 1) * n_tokens * expert_width(context)
    activation = loops_named(context.text("activation_type").title() or "Relu")
    return together(
        products.multiply(context, expert_product, context.present[:1]),
        one_pass(context, n_inside, activation),
        products.multiply(context, partial(expert_product, turned=True)),
        rows.softmax_rows(context, n_tokens, n_experts),
    )


def expert_product(context: OperatorContext, turned: bool = False) -> Product:
    """Tokens by the first layers of experts, or by the second ones; tokens are dealt evenly."""
    n_rows, hidden = context.integer("k", 1) * size(context.shape(0)[:-1]), context.shape(0)[-1]
    groups, width = max(min(context.shape(1)[-1], n_rows), 1), expert_width(context)
    inputs, outputs = (width, hidden) if turned else (hidden, width)
    return products.matrix_product(context, groups, -(-n_rows // groups), inputs, outputs)


def expert_width(context: OperatorContext) -> int:
    """Channels between the two layers of an expert: of its first weight those that are not the tokens'."""
    hidden, weight = context.shape(0)[-1], context.shape(2)
    return next((length for length in weight[1:] if length != hidden), hidden)


def distances(context: OperatorContext) -> OperatorCost:
    """CDist: the products of rows, from which and from the squares of rows the distances follow."""
    (n_rows, depth), n_others = context.shape(0), context.shape(1)[0]
    squares = one_pass(context, (n_rows + n_others) * depth, ("square",))
    finished = one_pass(context, context.n_out, ("add", "add", "sqrt"))
    factors = products.two_operands(context, 0, 1)
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
    return products.matrix_product(context, 1, size(context.shape(0)) // max(width, 1), width, outputs)


def biased_dropout(context: OperatorContext) -> OperatorCost:
    """A sum, or two, and a dropout."""
    sums = one_pass(context, context.n_elements(context.present[0]), ("add", "add"))
    return together(dropout(as_standard(context, "Dropout", 0)), sums)


def _looked_up_bias(context: OperatorContext) -> OperatorCost:
    """RelativePositionBias: a row of the table for every pair of positions."""
    return data_movement.move_everything(context)


_UNIQUE_NAMES: dict[str, CostRule] = {
    **by_operator(convolution, "FusedConv NhwcConv NhwcFusedConv"),
    **by_operator(matmul, "FusedMatMul FusedMatMulActivation TransposeMatMul"),
    **by_operator(packed_matmul, "MatMulNBits MatMulBnb4"),
    **by_operator(normalised_sum, "SkipLayerNormalization SkipSimplifiedLayerNormalization"),
    **by_operator(rows.layer_norm, "SimplifiedLayerNormalization"),
    **by_operator(group_norm, "GroupNorm SkipGroupNorm"),
    **by_operator(multi_head_attention, "MultiHeadAttention DecoderMaskedMultiHeadAttention"),
    **by_operator(merged_attention, "DecoderMaskedSelfAttention PackedAttention"),
    **by_operator(grouped_attention, "GroupQueryAttention SparseAttention"),
    **by_operator(experts, "MoE QMoE"),
    **by_operator(biased_dropout, "BiasDropout BitmaskBiasDropout"),
    **by_operator(convolutions.pool, "NhwcMaxPool MaxpoolWithMask"),
    **by_operator(data_movement.move, "ExpandDims RestorePadding UnfoldTensor"),
    **by_operator(data_movement.shuffle, "ReorderInput ReorderOutput"),
    "BiasSoftmax": softmax_of_sum,
    "BitmaskDropout": alias(dropout, "Dropout", 0),
    "CDist": distances,
    "ConvTransposeWithDynamicPads": transposed_convolution,
    "CropAndResize": alias(convolutions.pool, "RoiAlign"),
    "EmbedLayerNormalization": embedding,
    "FusedGemm": gemm,
    "GatedRelativePositionBias": gated_relative_bias,
    "GatherBlockQuantized": packed_look_up,
    "GemmFastGelu": matmul_gelu,
    "RelativePositionBias": _looked_up_bias,
    "TorchEmbedding": alias(data_movement.look_up, "Gather", 0, 1, axis=0),
}

_MICROSOFT: dict[str, CostRule] = {
    **by_operator(elementwise, "DequantizeLinear Gelu QuantizeLinear RotaryEmbedding SwiGLU"),
    **by_operator(data_movement.move, "Pad Range Trilu"),
    **by_operator(rows.layer_norm, "LayerNormalization SimplifiedLayerNormalization"),
    "Attention": merged_attention,
    "CausalConvWithState": convolutions.causal_convolution,
    "GatherND": data_movement.look_up,
    "GridSample": data_movement.interpolate,
    "LinearAttention": sequences.linear_attention,
    "Unique": sequences.unique,
}
_NCHWC: dict[str, CostRule] = {
    **by_operator(convolutions.pool, "AveragePool MaxPool"),
    **by_operator(rows.reduction, "GlobalAveragePool GlobalMaxPool"),
    "Conv": convolution,
    "Upsample": data_movement.interpolate,
}

COST_RULES: dict[str, CostRule] = {
    **_UNIQUE_NAMES,
    **{f"{MICROSOFT}.{op}": rule for op, rule in _MICROSOFT.items()},
    **{f"{NCHWC}.{op}": rule for op, rule in _NCHWC.items()},
}
