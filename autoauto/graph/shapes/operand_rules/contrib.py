"""What operands of ONNX Runtime's own operators must be, where no rule of the standard ones fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx

from autoauto.graph.onnx_file import attribute_named
from autoauto.graph.shapes.contrib_attention import widths_and_keys
from autoauto.graph.shapes.operand_rules.rule import (
    Required,
    pasts,
    refuse_unless_elements,
    refuse_unless_equal_groups,
    refuse_unless_it_broadcasts,
    refuse_unless_one_of,
    refuse_unless_shared,
)
from autoauto.graph.shapes.shape_rule import Operands, axis_of, count, given, integer, integers, needed


def attention_of_one(
    node: onnx.NodeProto, operands: Operands, mask: int = 3, past: int = 4, bias: int = 5
) -> Iterator[Required]:
    """Attention of ONNX Runtime: one weight for queries, keys and values, of whole heads."""
    batch, n_tokens, depth = needed(operands, 0).shape
    width, heads = needed(operands, 1).shape[1], count(node, "num_heads")
    sizes = integers(node, "qkv_hidden_sizes") or (width // 3,) * 3
    if sum(sizes) != width or any(size % heads for size in sizes):
        raise ValueError(f"{width} columns must be queries, keys and values of {heads} heads, they are {list(sizes)}")
    yield 1, (depth, width)
    yield 2, (width,)
    yield past, (2, batch, heads, None, sizes[0] // heads)
    before, n_keys = given(operands, past), None
    if not integer(node, "past_present_share_buffer", 0):
        n_keys = n_tokens + (before.shape[3] if before else 0)
    _check_masks(node, operands, (batch, heads, n_tokens, n_keys), mask, bias)


def multi_head(
    node: onnx.NodeProto, operands: Operands, bias: int = 3, mask: int = 4, scores: int = 5, past: int = 6
) -> Iterator[Required]:
    """MultiHeadAttention: queries and keys of equal heads; keys and values of the past; masks of all scores."""
    queries, keys, heads = needed(operands, 0), given(operands, 1), count(node, "num_heads")
    batch, n_tokens, *_ = queries.shape
    width, value_width, n_new = widths_and_keys(queries, keys, given(operands, 2), heads)
    if width % heads or value_width % heads:
        raise ValueError(f"the last axes must be {heads} equal heads, they are {width} and {value_width}")
    if keys is not None and given(operands, 2) is not None:
        if len(keys.shape) == 4:
            yield 1, (batch, heads, n_new, width // heads)
            yield 2, (batch, heads, n_new, value_width // heads)
        else:
            yield 1, (batch, n_new, width)
            yield 2, (batch, n_new, value_width)
    yield bias, (2 * width + value_width,)
    yield from pasts(operands, past, (batch, heads), (width // heads, value_width // heads))
    before, n_keys = given(operands, past), None
    if before is None:
        n_keys = n_new
    elif not integer(node, "past_present_share_buffer", 0) and given(operands, past + 2) is None:
        n_keys = n_new + before.shape[2]
    _check_masks(node, operands, (batch, heads, n_tokens, n_keys), mask, scores)


def grouped_heads(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """GroupQueryAttention and SparseAttention: whole groups of heads of queries share those of keys."""
    batch, n_tokens, width = needed(operands, 0).shape
    heads, kv_heads = count(node, "num_heads"), count(node, "kv_num_heads")
    refuse_unless_shared(heads, kv_heads)
    keys = given(operands, 1)
    n_heads = heads if keys else heads + 2 * kv_heads
    if width % n_heads:
        raise ValueError(f"the last axis must be {n_heads} equal heads, it is {width}")
    size = width // n_heads
    if keys:
        yield 1, (batch, None, kv_heads * size)
        yield 2, (batch, keys.shape[1], kv_heads * size)
    # A cache of fewer bits has several numbers in a byte.
    is_packed = attribute_named(node, "kv_cache_bit_width") is not None
    yield from pasts(operands, 3, (batch, kv_heads), (None, None) if is_packed else (size, size))
    if node.op_type == "GroupQueryAttention":
        refuse_unless_elements(node, operands, 5, batch)
        _check_masks(node, operands, (batch, heads, n_tokens, None), None, 10)
        yield 9, (batch, n_tokens)


def _check_masks(
    node: onnx.NodeProto, operands: Operands, scores: tuple[int, int, int, int | None], mask: int | None, bias: int
) -> None:
    """Refuse a mask, and a bias, that are not of scores of (samples, heads, queries, keys).

    A mask has the lengths of samples, their ends, their ends and starts with lengths, or a number for every key.
    """
    batch, heads, n_tokens, n_keys = scores
    if mask is not None:
        lengths = [(n,) for n in (batch, 2 * batch, 3 * batch + 2)]
        of_keys = [(batch, n_keys), (batch, 1), (batch, n_tokens, n_keys), (batch, 1, None, None)]
        refuse_unless_one_of(node, operands, mask, *lengths, *of_keys)
    of_scores = [(samples, each, n_tokens, n_keys) for samples in {1, batch} for each in {1, heads}]
    refuse_unless_one_of(node, operands, bias, *of_scores)


def rotated_by_positions(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """RotaryEmbedding of ONNX Runtime: positions of every token, or of the first; a cosine and a sine for each pair."""
    shape, n_pairs = needed(operands, 0).shape, integer(node, "rotary_embedding_dim", 0) // 2
    size = shape[-1]
    if len(shape) == 3:  # heads are side by side; how many, cosines say where the node does not
        n_heads = integer(node, "num_heads", 0) or shape[-1] // (2 * needed(operands, 2).shape[1])
        size = shape[-1] // n_heads
        if n_heads * size != shape[-1]:
            raise ValueError(f"the last axis must be {n_heads} equal heads, it is {shape[-1]}")
    n_tokens = shape[1] if len(shape) == 3 else shape[2]
    refuse_unless_one_of(node, operands, 1, (), (1,), (shape[0], n_tokens))
    yield 2, (None, n_pairs or size // 2)
    yield 3, needed(operands, 2).shape


def embedded(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """EmbedLayerNormalization: tables of words, positions and segments, and a normalisation, of one width."""
    ids, width = needed(operands, 0).shape, needed(operands, 2).shape[1]
    n_positions = needed(operands, 3).shape[0]
    if given(operands, 8) is None and ids[1] > n_positions:
        raise ValueError(f"{ids[1]} tokens must have positions, operand {node.input[3]!r} has {n_positions}")
    yield 1, ids
    for index in (3, 4):
        yield index, (None, width)
    for index in (5, 6):
        yield index, (width,)


def skipped(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """SkipLayerNormalization and its simplified form: a sum, and vectors of the last axis."""
    shape = needed(operands, 0).shape
    refuse_unless_it_broadcasts(node, operands, 1, shape)
    for index in range(2, len(operands)):
        yield index, shape[-1:]


def per_group(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """GroupNorm and SkipGroupNorm: a scale and a bias for every channel, in equal groups; a summand, and its bias."""
    shape = needed(operands, 0).shape
    last = len(shape) - 1
    channels, groups = shape[-1] if integer(node, "channels_last", 1) else shape[1], count(node, "groups")
    refuse_unless_equal_groups(channels, groups)
    refuse_unless_one_of(node, operands, 3, shape, (shape[0], channels), (shape[0], *(1,) * (last - 1), channels))
    for index in (1, 2, 4):
        yield index, (channels,)


def packed(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """MatMulNBits: N rows of blocks of a weight, with a scale and a zero point each, in any number of axes; a bias."""
    size, bits, n_rows = count(node, "block_size"), count(node, "bits", 4), count(node, "N")
    n_row_blocks = -(-count(node, "K") // size)
    refuse_unless_elements(node, operands, 1, n_rows * n_row_blocks * size * bits // 8)
    refuse_unless_elements(node, operands, 2, n_rows * n_row_blocks)
    # Zero points are numbers like the scales, or packed like the weight into whole bytes of every row.
    refuse_unless_elements(node, operands, 3, n_rows * n_row_blocks, n_rows * -(-n_row_blocks * bits // 8))
    yield 5, (n_rows,)


def packed_in_a_row(node: onnx.NodeProto, operands: Operands) -> None:
    """MatMulBnb4: two elements of a weight in a byte, and a scale for every block of them."""
    n_elements = count(node, "N") * count(node, "K")
    refuse_unless_elements(node, operands, 1, -(-n_elements // 2))
    refuse_unless_elements(node, operands, 2, -(-n_elements // count(node, "block_size")))


def gathered_in_blocks(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """GatherBlockQuantized: a scale and a zero point for every block of an axis, whose numbers may share bytes."""
    table, scales = needed(operands, 0), needed(operands, 2).shape
    axis, size = axis_of(node, "quantize_axis", 1, table.shape), count(node, "block_size", 128)
    n_in_byte = 8 // count(node, "bits", 4) if table.dtype == onnx.TensorProto.UINT8 else 1
    shape = table.shape
    yield 2, (*shape[:axis], -(-shape[axis] * n_in_byte // size), *shape[axis + 1 :])
    yield 3, (*scales[:axis], -(-scales[axis] // n_in_byte), *scales[axis + 1 :])


def quantised_recurrent(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """DynamicQuantizeLSTM: the weights of an LSTM, turned."""
    n_inputs, hidden = needed(operands, 0).shape[2], count(node, "hidden_size")
    n_directions = needed(operands, 1).shape[0]
    yield 1, (n_directions, n_inputs, 4 * hidden)
    yield 2, (n_directions, hidden, 4 * hidden)
    yield 3, (n_directions, 8 * hidden)


def mixed(
    node: onnx.NodeProto, operands: Operands, weights: Sequence[int], vectors: Sequence[Sequence[int]]
) -> Iterator[Required]:
    """MoE and QMoE: a probability of every expert for every token, and for every expert its weights.

    Rows of weights are what a product writes, or in older files what it reads. The first product may write two halves,
    of which one gates the other.
    """
    shape, n_experts = needed(operands, 0).shape, needed(operands, 1).shape[-1]
    if count(node, "k", 1) > n_experts:
        raise ValueError(f"a token must be sent to at most {n_experts} experts, 'k' is {count(node, 'k', 1)}")
    yield 1, (int(np.prod(shape[:-1])), n_experts)
    for index in weights:
        yield index, (n_experts, None, None)
    width, n_in_byte = shape[-1], 1
    if node.op_type == "QMoE":
        n_in_byte = 8 // count(node, "expert_weight_bits", 4)
    (_, n_rows, n_columns), second = (needed(operands, index).shape for index in weights[:2])
    n_columns, n_inner = n_columns * n_in_byte, second[2] * n_in_byte
    if n_columns == width == second[1] and n_rows in (n_inner, 2 * n_inner):
        n_written = n_rows
    elif n_rows == width == n_inner and n_columns in (second[1], 2 * second[1]):
        n_written = n_columns
    else:
        raise ValueError(
            f"the weights of experts must lead from {width} elements of a token to {width}, they are of [{n_rows}, "
            f"{n_columns}] and [{second[1]}, {n_inner}]"
        )
    for length, indices in zip((n_written, width), vectors, strict=True):
        for index in indices:
            value = given(operands, index)
            if value is not None:  # scales of blocks have an axis more
                yield index, (n_experts, length, *value.shape[2:])


def convolution_in_blocks(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """Conv of ONNX Runtime's layout in blocks of channels, which are not those of the model."""
    weight = needed(operands, 1).shape
    yield 1, (*weight[:2], *(integers(node, "kernel_shape") or weight[2:]))


def convolved_with_state(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """CausalConvWithState: a filter for every channel, and the last inputs of the call before."""
    (batch, channels, *_), weight = needed(operands, 0).shape, needed(operands, 1).shape
    yield 1, (channels, 1, weight[-1])
    yield 2, (channels,)
    yield 3, (batch, channels, (weight[-1] - 1) * count(node, "dilation", 1))
