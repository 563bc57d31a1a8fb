"""Shape rules of ONNX Runtime's attention and embeddings of transformers: `RULES`.

Keys and values of earlier tokens, the past, come in and leave with those of the tokens of this call behind them; or
both are one buffer, as long as it will ever be [onnxruntime-contrib].
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import TensorProto

from autoauto.graph.shapes.contrib import MICROSOFT
from autoauto.graph.shapes.shape_rule import (
    Operands,
    Output,
    ShapeRule,
    count,
    given,
    integer,
    integers,
    like_first,
    needed,
    number,
    ranked,
)
from autoauto.graph.shapes.values import Value


def attention(past: int, dtype_of: int = 0) -> ShapeRule:
    """Attention of one input by merged weights: the output, and keys and values with the past, the operand `past`."""

    def rule(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
        batch, n_tokens, _ = ranked(needed(operands, 0), 3)
        weight, heads = ranked(needed(operands, 1), 2), count(node, "num_heads")
        sizes = _hidden_sizes(node, weight[1])
        dtype, before = needed(operands, dtype_of).dtype, given(operands, past)
        n_keys = n_tokens
        if before:  # one buffer has room for the new tokens already
            is_buffer = integer(node, "past_present_share_buffer", 0)
            n_keys = before.shape[3] if is_buffer else before.shape[3] + n_tokens
        return [(dtype, (batch, n_tokens, sizes[2])), (dtype, (2, batch, heads, n_keys, sizes[0] // heads))]

    return rule


def packed_attention(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """PackedAttention: the tokens of all samples one after the other, without padding."""
    first = needed(operands, 0)
    sizes = _hidden_sizes(node, ranked(needed(operands, 1), 2)[1])
    return [(first.dtype, (ranked(first, 2)[0], sizes[2]))]


def _hidden_sizes(node: onnx.NodeProto, width: int) -> tuple[int, int, int]:
    """Channels of queries, keys and values in a weight of `width` columns."""
    sizes = integers(node, "qkv_hidden_sizes") or (width // 3,) * 3
    if len(sizes) != 3:
        raise ValueError(f"qkv_hidden_sizes must be 3 numbers, they are {list(sizes)}")
    return sizes[0], sizes[1], sizes[2]


def packed_heads(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """PackedMultiHeadAttention: attention of queries, keys and values without padding between samples."""
    first, values = needed(operands, 0), given(operands, 2)
    shape = ranked(first, 2, 4)
    width = shape[1]
    if len(shape) == 4:  # heads, then queries, keys and values of each
        width = shape[1] * shape[3]
    elif values:
        width = values.shape[1]
    return [(first.dtype, (shape[0], width))]


def multi_head(past: int) -> ShapeRule:
    """Attention of queries, keys and values, apart or packed; keys of the past are the operand `past`."""

    def rule(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
        queries, heads, before = needed(operands, 0), count(node, "num_heads"), given(operands, past)
        batch, n_tokens, *_ = queries.shape
        width, value_width, n_keys = widths_and_keys(queries, given(operands, 1), given(operands, 2), heads)
        if before:
            is_buffer = integer(node, "past_present_share_buffer", 0)
            n_keys = before.shape[2] if is_buffer else before.shape[2] + n_keys
        dtype = queries.dtype
        keys = (dtype, (batch, heads, n_keys, width // heads))
        values = (dtype, (batch, heads, n_keys, value_width // heads))
        scores = (dtype, (batch, heads, n_tokens, n_keys))
        return [(dtype, (batch, n_tokens, value_width)), keys, values, scores]

    return rule


def widths_and_keys(queries: Value, keys: Value | None, values: Value | None, heads: int) -> tuple[int, int, int]:
    """Channels of all heads of a query and of a value, and how many keys there are."""
    shape = ranked(queries, 3, 5)
    if len(shape) == 5:  # heads, then queries, keys and values of each
        return shape[2] * shape[4], shape[2] * shape[4], shape[1]
    if keys is None:  # side by side
        return shape[2] // 3, shape[2] // 3, shape[1]
    if values is None:  # heads, then keys and values of each
        return shape[2], shape[2], ranked(keys, 5)[1]
    if len(keys.shape) == 4:  # heads apart
        return shape[2], heads * values.shape[3], keys.shape[2]
    return shape[2], ranked(values, 3)[2], ranked(keys, 3)[1]


def grouped(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """GroupQueryAttention: several heads of queries share one of keys and values."""
    queries, past = needed(operands, 0), given(operands, 3)
    batch, n_tokens, width = ranked(queries, 3)
    heads, kv_heads = count(node, "num_heads"), count(node, "kv_num_heads")
    head = width // heads
    if given(operands, 1) is None:  # queries, keys and values side by side
        head = width // (heads + 2 * kv_heads)
    cache, total = past or queries, given(operands, 6)
    # Keys after a call: the longer of the past, which may be a buffer, and of all tokens so far.
    n_keys = past.shape[2] if past else 0
    if total is not None and total.data is not None:
        n_keys = max(n_keys, number(operands, 6))
    else:
        n_keys += n_tokens
    keys = (cache.dtype, (batch, kv_heads, n_keys, head))
    scores = (queries.dtype, (batch, heads, n_tokens, keys[1][2]))
    return [(queries.dtype, (batch, n_tokens, heads * head)), keys, keys, scores]


def sparse(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """SparseAttention: as GroupQueryAttention, its past is a buffer."""
    output, *_ = grouped(node, operands[:3])  # operand 6 has columns of blocks
    past = [(value.dtype, value.shape) for value in (needed(operands, 3), needed(operands, 4))]
    return [output, *past]


def linear(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """LinearAttention: the output, and the state of every head, a matrix of key and value."""
    queries, keys, values = (needed(operands, index) for index in range(3))
    heads, kv_heads = count(node, "q_num_heads"), count(node, "kv_num_heads")
    batch, n_tokens, _ = ranked(queries, 3)
    width, value = ranked(keys, 3)[2] // kv_heads, ranked(values, 3)[2] // kv_heads
    state: tuple[int, ...] = (batch, kv_heads, width, value)
    window = integer(node, "state_window", 0)
    if window > 0:  # a state for every position of the window
        state = (window, *state)
    output = (queries.dtype, (batch, n_tokens, max(heads, kv_heads) * value))
    past = given(operands, 3) or queries
    return [output, (past.dtype, state)]


def decoder(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """DecoderAttention: (tokens, samples, channels), with a cache of keys and values."""
    queries, keys, heads = needed(operands, 0), needed(operands, 1), count(node, "num_heads")
    _, batch, width = ranked(queries, 3)
    past = given(operands, 6)
    n_keys = keys.shape[0] + (past.shape[2] if past else 0)
    cache = (queries.dtype, (batch, heads, n_keys, width // heads))
    return [(queries.dtype, queries.shape), cache, cache]


def gemma_rotary(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """GemmaRotaryEmbedding: queries and keys, turned."""
    return [(value.dtype, value.shape) for value in (needed(operands, 1), needed(operands, 3))]


def embedding(dtype_of: int) -> ShapeRule:
    """Sums of embeddings, normalised: the output, the length of every sample, and the sums."""

    def rule(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
        indices, table = needed(operands, 0), needed(operands, 2)
        output = (needed(operands, dtype_of).dtype, (*ranked(indices, 2), ranked(table, 2)[1]))
        return [output, (TensorProto.INT32, indices.shape[:1]), output]

    return rule


def relative_bias(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """RelativePositionBias: a number for every head, query and key."""
    table = needed(operands, 0)
    return [(table.dtype, (1, ranked(table, 2)[1], number(operands, 1), number(operands, 2)))]


def gated_relative_bias(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """GatedRelativePositionBias: a number for every sample, head, query and key; tokens may be packed."""
    first, offsets, bias = needed(operands, 0), given(operands, 6), needed(operands, 2)
    n_samples = (offsets or first).shape[0]
    return [(first.dtype, (n_samples, count(node, "num_heads"), *bias.shape[2:]))]


def restored(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """RestorePadding: packed tokens back to samples."""
    first, offsets = needed(operands, 0), needed(operands, 1)
    return [(first.dtype, (*ranked(offsets, 2), *first.shape[1:]))]


_ATTENTION: dict[str, ShapeRule] = {
    "Attention": attention(past=4),
    "DecoderAttention": decoder,
    "DecoderMaskedMultiHeadAttention": multi_head(past=5),
    "DecoderMaskedSelfAttention": attention(past=4),
    "GroupQueryAttention": grouped,
    "LinearAttention": linear,
    "MultiHeadAttention": multi_head(past=6),
    "PackedAttention": packed_attention,
    "PackedMultiHeadAttention": packed_heads,
    "QAttention": attention(past=8, dtype_of=2),
    "QOrderedAttention": like_first,
    "SparseAttention": sparse,
    "EmbedLayerNormalization": embedding(dtype_of=2),
    "GatedRelativePositionBias": gated_relative_bias,
    "GemmaRotaryEmbedding": gemma_rotary,
    "QEmbedLayerNormalization": embedding(dtype_of=8),
    "RelativePositionBias": relative_bias,
    "RestorePadding": restored,
}

RULES: dict[tuple[str, str], ShapeRule] = {(MICROSOFT, op): rule for op, rule in _ATTENTION.items()}
"""By domain and operator."""
