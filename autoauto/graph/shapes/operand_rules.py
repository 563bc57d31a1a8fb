"""What operands must be by the definition of an operator, where onnx's inference does not look: `check_operands`.

onnx derives an output from the fewest operands that it needs. A Conv of kernels 1 x 1 whose attribute says 3 x 3, a
bias of another length than the output, or an index behind the end of an axis pass, and the layer would get numbers that
no runtime can reach. A rule names the shape that an operand must have, or says in a `ValueError` what contradicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import onnx

from autoauto.graph.onnx_file import attribute_named
from autoauto.graph.shapes.contrib_attention import widths_and_keys
from autoauto.graph.shapes.shape_rule import Operands, Shape, axis_of, count, given, integer, integers, needed
from autoauto.graph.shapes.values import label
from autoauto.records.errors import UnreadableModel
from autoauto.records.units import Array

Required = tuple[int, Sequence[int | None]]
"""An operand, and the shape that it must have: None is any length. An operand that is left out meets them all."""
OperandRule = Callable[[onnx.NodeProto, Operands], Iterator[Required] | None]

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
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
            if value is not None and not _agree(value.shape, shape):
                raise ValueError(f"operand {node.input[index]!r} must be {_said(shape)}, it is {list(value.shape)}")
    except (ValueError, IndexError) as error:  # an operand that lacks an axis has another shape, too
        raise UnreadableModel(f"the shapes at {label(node)} do not fit: {error}; {_TRY}") from error


def _agree(shape: Shape, wanted: Sequence[int | None]) -> bool:
    if len(shape) != len(wanted):
        return False
    return all(asked in (None, length) for length, asked in zip(shape, wanted, strict=True))


def _said(shape: Sequence[int | None]) -> str:
    return f"[{', '.join('any' if length is None else str(length) for length in shape)}]"


def _refuse_unless_it_broadcasts(node: onnx.NodeProto, operands: Operands, index: int, shape: Shape) -> None:
    """Refuse an operand that does not become `shape` by repeating axes of length 1; this goes in one direction."""
    value = given(operands, index)
    if value is None:
        return
    tail = shape[len(shape) - len(value.shape) :] if len(value.shape) <= len(shape) else None
    if tail is None or any(length not in (1, wanted) for length, wanted in zip(value.shape, tail, strict=True)):
        raise ValueError(f"operand {node.input[index]!r} must broadcast to {list(shape)}, it is {list(value.shape)}")


def _refuse_unless_one_of(node: onnx.NodeProto, operands: Operands, index: int, *shapes: Sequence[int | None]) -> None:
    """Refuse an operand that has none of the shapes that its operator defines for it."""
    value = given(operands, index)
    if value is not None and not any(_agree(value.shape, shape) for shape in shapes):
        raise ValueError(
            f"operand {node.input[index]!r} must be {' or '.join(map(_said, shapes))}, it is {list(value.shape)}"
        )


def convolution(
    node: onnx.NodeProto, operands: Operands, weight: int = 1, bias: int | None = 2, scales: Sequence[int] = ()
) -> Iterator[Required]:
    """Conv and its kin: a filter for every output, in equal groups, each of which reads its part of the channels."""
    first, filters = needed(operands, 0).shape, needed(operands, weight).shape
    is_last = node.op_type.startswith("Nhwc") or integer(node, "channels_last", 0)
    channels, n_filters = first[-1] if is_last else first[1], filters[0]
    group = count(node, "group", 1)
    if channels != filters[1] * group:
        raise ValueError(
            f"the channels that filters read in {group} groups must be all, {channels} is not {filters[1] * group} in "
            f"{list(first)} and {list(filters)}"
        )
    if n_filters % group:
        raise ValueError(f"the filters of a convolution must fall into {group} equal groups, there are {n_filters}")
    kernel = integers(node, "kernel_shape") or filters[2:]
    yield weight, (n_filters, filters[1], *kernel)
    if bias is not None:
        yield bias, (n_filters,)
    for index in scales:
        value = given(operands, index)
        if value is not None and value.shape not in ((), (1,)):
            yield index, (n_filters,)


def convolution_in_blocks(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """Conv of ONNX Runtime's layout in blocks of channels, which are not those of the model."""
    weight = needed(operands, 1).shape
    yield 1, (*weight[:2], *(integers(node, "kernel_shape") or weight[2:]))


def transposed_convolution(node: onnx.NodeProto, operands: Operands, bias: int = 2) -> Iterator[Required]:
    """ConvTranspose: a weight of (channels that it reads, channels that it writes / groups, kernel)."""
    first, weight, group = needed(operands, 0).shape, needed(operands, 1).shape, count(node, "group", 1)
    if first[1] % group:
        raise ValueError(f"{first[1]} channels must fall into {group} equal groups")
    yield 1, (first[1], weight[1], *(integers(node, "kernel_shape") or weight[2:]))
    yield bias, (weight[1] * group,)


def deformed_convolution(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """DeformConv: X, W, offset, B, mask; an offset for every axis, and a factor, of every element of a kernel."""
    first, kernel = needed(operands, 0).shape, needed(operands, 1).shape[2:]
    n_elements = count(node, "offset_group", 1) * int(np.prod(kernel))
    yield from convolution(node, operands, bias=3)
    yield 2, (first[0], n_elements * len(kernel), *(None,) * len(kernel))
    yield 4, (first[0], n_elements, *(None,) * len(kernel))


def per_channel(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """InstanceNormalization and GroupNormalization: a scale and a bias for every channel, in equal groups."""
    channels = needed(operands, 0).shape[1]
    if channels % count(node, "num_groups", 1):
        raise ValueError(f"{channels} channels must fall into {count(node, 'num_groups')} equal groups")
    yield 1, (channels,)
    yield 2, (channels,)


def per_row(node: onnx.NodeProto, operands: Operands) -> None:
    """LayerNormalization and its kin: scale and bias broadcast to the axes that are normalised."""
    shape = needed(operands, 0).shape
    axis_of(node, "axis", -1, shape)
    _refuse_unless_it_broadcasts(node, operands, 1, shape)
    _refuse_unless_it_broadcasts(node, operands, 2, shape)


def skipped(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """SkipLayerNormalization and its simplified form: a sum, and vectors of the last axis."""
    shape = needed(operands, 0).shape
    _refuse_unless_it_broadcasts(node, operands, 1, shape)
    for index in range(2, len(operands)):
        yield index, shape[-1:]


def biased(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """BiasGelu and its kin: a bias of the last axis; BiasAdd adds another operand like the first."""
    shape = needed(operands, 0).shape
    yield 1, shape[-1:]
    yield 2, shape


def biased_product(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """GemmFastGelu: a bias for every column of the weight."""
    yield 2, needed(operands, 1).shape[-1:]


def per_group(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """GroupNorm and SkipGroupNorm: a scale and a bias for every channel, in equal groups; a summand, and its bias."""
    shape = needed(operands, 0).shape
    last = len(shape) - 1
    channels, groups = shape[-1] if integer(node, "channels_last", 1) else shape[1], count(node, "groups")
    if channels % groups:
        raise ValueError(f"{channels} channels must fall into {groups} equal groups")
    _refuse_unless_one_of(node, operands, 3, shape, (shape[0], channels), (shape[0], *(1,) * (last - 1), channels))
    for index in (1, 2, 4):
        yield index, (channels,)


def packed(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """MatMulNBits: N rows of blocks of a weight, with a scale and a zero point each, in any number of axes; a bias."""
    size, bits, n_rows = count(node, "block_size"), count(node, "bits", 4), count(node, "N")
    n_row_blocks = -(-count(node, "K") // size)
    _check_elements(node, operands, 1, n_rows * n_row_blocks * size * bits // 8)
    _check_elements(node, operands, 2, n_rows * n_row_blocks)
    # Zero points are numbers like the scales, or packed like the weight into whole bytes of every row.
    _check_elements(node, operands, 3, n_rows * n_row_blocks, n_rows * -(-n_row_blocks * bits // 8))
    yield 5, (n_rows,)


def packed_in_a_row(node: onnx.NodeProto, operands: Operands) -> None:
    """MatMulBnb4: two elements of a weight in a byte, and a scale for every block of them."""
    n_elements = count(node, "N") * count(node, "K")
    _check_elements(node, operands, 1, -(-n_elements // 2))
    _check_elements(node, operands, 2, -(-n_elements // count(node, "block_size")))


def _check_elements(node: onnx.NodeProto, operands: Operands, index: int, *n_elements: int) -> None:
    value = given(operands, index)
    if value is not None and int(np.prod(value.shape)) not in n_elements:
        wanted = " or ".join(map(str, dict.fromkeys(n_elements)))
        raise ValueError(f"operand {node.input[index]!r} must have {wanted} elements, it is {list(value.shape)}")


def gathered_in_blocks(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """GatherBlockQuantized: a scale and a zero point for every block of an axis, whose numbers may share bytes."""
    table, scales = needed(operands, 0), needed(operands, 2).shape
    axis, size = axis_of(node, "quantize_axis", 1, table.shape), count(node, "block_size", 128)
    n_in_byte = 8 // count(node, "bits", 4) if table.dtype == onnx.TensorProto.UINT8 else 1
    shape = table.shape
    yield 2, (*shape[:axis], -(-shape[axis] * n_in_byte // size), *shape[axis + 1 :])
    yield 3, (*scales[:axis], -(-scales[axis] // n_in_byte), *scales[axis + 1 :])


def columns(node: onnx.NodeProto, operands: Operands, each: Sequence[int], bias: int) -> None:
    """Products of integers: a scale and a zero point for the weight, or for every column of it; a bias."""
    shape = needed(operands, 1).shape
    if len(shape) == 2:
        for index in each:
            _check_elements(node, operands, index, 1, shape[1])
    _check_elements(node, operands, bias, shape[-1])


def product_of_integers(
    node: onnx.NodeProto, operands: Operands, rows: Sequence[int], right: int, columns: Sequence[int]
) -> None:
    """MatMulInteger and QLinearMatMul: a scale and a zero point for a matrix, or for each of its rows or columns."""
    left_shape, right_shape = needed(operands, 0).shape, needed(operands, right).shape
    if len(left_shape) == len(right_shape) == 2:
        for index in rows:
            _check_elements(node, operands, index, 1, left_shape[0])
        for index in columns:
            _check_elements(node, operands, index, 1, right_shape[1])


def quantised_gemm(node: onnx.NodeProto, operands: Operands) -> None:
    """QGemm: a scale and a zero point for the weight or its columns, and a term that broadcasts to the product."""
    left, right = needed(operands, 0).shape, needed(operands, 3).shape
    rows, width = left[integer(node, "transA", 0)], right[1 - integer(node, "transB", 0)]
    _refuse_unless_it_broadcasts(node, operands, 6, (rows, width))
    for index in (4, 5):
        _check_elements(node, operands, index, 1, width)


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


def weighted_loss(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """Losses: a weight for every class."""
    yield 2, needed(operands, 0).shape[1:2]


def reversed_in_part(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """ReverseSequence: a length for every sample."""
    axis = integer(node, "batch_axis", 1)
    yield 1, needed(operands, 0).shape[axis : axis + 1]


def along_axis(node: onnx.NodeProto, operands: Operands) -> None:
    """LpNormalization: along an axis that there is."""
    axis_of(node, "axis", -1, needed(operands, 0).shape)


def along_axes(node: onnx.NodeProto, operands: Operands) -> None:
    """MeanVarianceNormalization: along axes that there are."""
    n_axes, axes = len(needed(operands, 0).shape), integers(node, "axes")
    if any(not -n_axes <= axis < n_axes for axis in axes):
        raise ValueError(f"axes must be of {list(needed(operands, 0).shape)}, they are {list(axes)}")


def compressed(node: onnx.NodeProto, operands: Operands) -> None:
    """Compress: a condition that is not longer than its axis, or than all elements."""
    shape, n_conditions = needed(operands, 0).shape, needed(operands, 1).shape[0]
    length = int(np.prod(shape))
    if attribute_named(node, "axis") is not None:
        length = shape[axis_of(node, "axis", None, shape)]
    if n_conditions > length:
        raise ValueError(f"a condition must not be longer than its axis of {length}, it has {n_conditions}")


def folded(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """Col2Im: the elements of whole blocks, as many blocks as fit the image."""
    shape, image, block = needed(operands, 0).shape, needed(operands, 1).data, needed(operands, 2).data
    if image is None or block is None:
        return
    if shape[1] % int(np.prod(block)):
        raise ValueError(f"the second axis must have whole blocks of {block.tolist()}, it has a length of {shape[1]}")
    n_axes = len(block)
    pads = np.array(integers(node, "pads") or (0,) * 2 * n_axes).reshape(2, n_axes).sum(axis=0)
    spread = np.array(integers(node, "dilations") or (1,) * n_axes) * (block - 1) + 1
    steps = np.array(integers(node, "strides") or (1,) * n_axes)
    if not np.all(steps > 0):
        raise ValueError(f"strides must be above 0, they are {steps.tolist()}")
    yield 0, (*shape[:2], int(np.prod((image + pads - spread) // steps + 1)))


def placed(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """AffineGrid: a matrix of every sample, for the axes of a field."""
    size = needed(operands, 1).data
    if size is not None:
        n_axes = len(size) - 2
        yield 0, (int(size[0]), n_axes, n_axes + 1)


def branched(node: onnx.NodeProto, operands: Operands) -> None:
    """Ensembles of trees: nodes that ask for features that there are."""
    n_features, asked = needed(operands, 0).shape[-1], integers(node, "nodes_featureids")
    if asked and max(asked) >= n_features:
        raise ValueError(f"nodes must ask for one of {n_features} features, one asks for feature {max(asked)} from 0")


def joined(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """FeatureVectorizer: as many features of every operand as the node says."""
    for index, n_features in enumerate(integers(node, "inputdimensions")):
        yield index, (*needed(operands, index).shape[:-1], n_features)


def scaled(node: onnx.NodeProto, operands: Operands) -> None:
    """Scaler: one number, or one for every feature."""
    n_features = needed(operands, 0).shape[-1]
    for name in ("offset", "scale"):
        attribute = attribute_named(node, name)
        n_given = 0 if attribute is None else len(attribute.floats)
        if n_given not in (0, 1, n_features):
            raise ValueError(f"attribute {name!r} must have a number for each of {n_features} features, got {n_given}")


def linear(node: onnx.NodeProto, operands: Operands) -> None:
    """LinearRegressor: a coefficient for every feature and target."""
    n_targets, n_features = count(node, "targets", 1), needed(operands, 0).shape[-1]
    attribute = attribute_named(node, "coefficients")
    n_given = 0 if attribute is None else len(attribute.floats)
    if n_given != n_targets * n_features:
        raise ValueError(f"{n_targets} targets of {n_features} features need as many coefficients, got {n_given}")


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
        _refuse_unless_one_of(node, operands, mask, *lengths, *of_keys)
    of_scores = [(samples, each, n_tokens, n_keys) for samples in {1, batch} for each in {1, heads}]
    _refuse_unless_one_of(node, operands, bias, *of_scores)


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
    yield from _pasts(operands, past, (batch, heads), (width // heads, value_width // heads))
    before, n_keys = given(operands, past), None
    if before is None:
        n_keys = n_new
    elif not integer(node, "past_present_share_buffer", 0) and given(operands, past + 2) is None:
        n_keys = n_new + before.shape[2]
    _check_masks(node, operands, (batch, heads, n_tokens, n_keys), mask, scores)


def _pasts(
    operands: Operands, index: int, heads: tuple[int, int], sizes: tuple[int | None, int | None]
) -> Iterator[Required]:
    """Keys of the past and their values: of all samples and heads, as many of both."""
    keys = given(operands, index)
    n_past = None if keys is None else keys.shape[2]
    yield index, (*heads, None, sizes[0])
    yield index + 1, (*heads, n_past, sizes[1])


def grouped_heads(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """GroupQueryAttention and SparseAttention: whole groups of heads of queries share those of keys."""
    batch, n_tokens, width = needed(operands, 0).shape
    heads, kv_heads = count(node, "num_heads"), count(node, "kv_num_heads")
    if heads % kv_heads:
        raise ValueError(f"the heads of queries must be a multiple of those of keys, {heads} is not of {kv_heads}")
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
    yield from _pasts(operands, 3, (batch, kv_heads), (None, None) if is_packed else (size, size))
    if node.op_type == "GroupQueryAttention":
        _check_elements(node, operands, 5, batch)
        _check_masks(node, operands, (batch, heads, n_tokens, None), None, 10)
        yield 9, (batch, n_tokens)


def attention(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """Attention of the standard: queries and keys of equal heads, a value for every key, whole groups of heads."""
    queries, keys, values = (needed(operands, index).shape for index in range(3))
    if len(queries) == 4:
        n_heads, n_kv_heads, size = queries[1], keys[1], queries[3]
    else:
        n_heads, n_kv_heads = count(node, "q_num_heads"), count(node, "kv_num_heads")
        widths = (queries[-1] % n_heads, keys[-1] % n_kv_heads, values[-1] % n_kv_heads)
        if any(widths):
            got = f"{list(queries)}, {list(keys)} and {list(values)}"
            raise ValueError(f"the last axes must be {n_heads} and {n_kv_heads} equal heads, the operands are {got}")
        size = queries[-1] // n_heads
    if n_heads % n_kv_heads:
        raise ValueError(f"the heads of queries must be a multiple of those of keys, {n_heads} is not of {n_kv_heads}")
    past = given(operands, 4)
    n_keys = keys[-2] + (past.shape[2] if past else 0)
    mask = given(operands, 3)
    if mask is not None and mask.shape:
        # A mask that is shorter than all keys hides the others.
        _refuse_unless_it_broadcasts(node, operands, 3, (queries[0], n_heads, queries[-2], min(n_keys, mask.shape[-1])))
    yield from _pasts(operands, 4, (queries[0], n_kv_heads), (size, None))
    if len(queries) == 4:
        yield 1, (queries[0], n_kv_heads, None, size)
        yield 2, (queries[0], n_kv_heads, keys[2], None)
    else:
        yield 1, (queries[0], None, n_kv_heads * size)
        yield 2, (queries[0], keys[1], None)


def gemm(node: onnx.NodeProto, operands: Operands) -> None:
    """Gemm: two matrices that are summed over one axis, and a term that broadcasts to their product."""
    left, right = needed(operands, 0).shape, needed(operands, 1).shape
    if integer(node, "transA", 0):
        left = left[::-1]
    if integer(node, "transB", 0):
        right = right[::-1]
    if left[1] != right[0]:
        raise ValueError(f"the axes to sum over must be equal, {left[1]} is not {right[0]}")
    _refuse_unless_it_broadcasts(node, operands, 2, (left[0], right[1]))


def slope(node: onnx.NodeProto, operands: Operands) -> None:
    """PRelu: a slope that broadcasts to the operand; before operator set 7 one of every channel."""
    shape, slopes = needed(operands, 0).shape, needed(operands, 1).shape
    if slopes != shape[1:2]:
        _refuse_unless_it_broadcasts(node, operands, 1, shape)


def recurrent(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """RNN, GRU and LSTM: X, W, R, B, lengths, the first states, and the peepholes of an LSTM."""
    steps, batch, n_inputs = needed(operands, 0).shape
    weights, is_turned = needed(operands, 2).shape, integer(node, "layout", 0)
    if is_turned:
        batch = steps
    direction = attribute_named(node, "direction")
    n_directions = 2 if direction is not None and direction.s == b"bidirectional" else 1
    hidden = count(node, "hidden_size", weights[2])
    n_rows = _GATES[node.op_type] * hidden
    yield 1, (n_directions, n_rows, n_inputs)
    yield 2, (n_directions, n_rows, hidden)
    yield 3, (n_directions, 2 * n_rows)
    yield 4, (batch,)
    state = (batch, n_directions, hidden) if is_turned else (n_directions, batch, hidden)
    yield 5, state
    yield 6, state
    yield 7, (n_directions, 3 * hidden)


def quantised_recurrent(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """DynamicQuantizeLSTM: the weights of an LSTM, turned."""
    n_inputs, hidden = needed(operands, 0).shape[2], count(node, "hidden_size")
    n_directions = needed(operands, 1).shape[0]
    yield 1, (n_directions, n_inputs, 4 * hidden)
    yield 2, (n_directions, hidden, 4 * hidden)
    yield 3, (n_directions, 8 * hidden)


def quantised(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """QuantizeLinear and DequantizeLinear: one scale, or one for every index or block of an axis; zeros like scales."""
    shape, scales = needed(operands, 0).shape, needed(operands, 1).shape
    if int(np.prod(scales)) == 1:
        return
    axis, block = axis_of(node, "axis", 1, shape), integer(node, "block_size", 0)
    if block > 0:
        yield 1, (*shape[:axis], -(-shape[axis] // block), *shape[axis + 1 :])
    else:
        yield 1, shape[axis : axis + 1]
    yield 2, scales


def gathered(node: onnx.NodeProto, operands: Operands) -> None:
    """Gather: indices of an axis."""
    shape = needed(operands, 0).shape
    _check_indices(node, operands, shape[axis_of(node, "axis", 0, shape)])


def gathered_by_element(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """GatherElements and ScatterElements: indices of an axis, and an update for each; other axes may be shorter."""
    shape, indices = needed(operands, 0).shape, needed(operands, 1).shape
    axis = axis_of(node, "axis", 0, shape)
    if len(indices) != len(shape):
        raise ValueError(f"data and indices must have as many axes, they are {list(shape)} and {list(indices)}")
    for number, (length, n_indices) in enumerate(zip(shape, indices, strict=True)):
        if number != axis and n_indices > length:
            raise ValueError(f"indices must lie in the data, they are {list(indices)} of {list(shape)}")
    _check_indices(node, operands, shape[axis])
    yield 2, indices


def gathered_by_point(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """GatherND and ScatterND: the last axis of indices has a position on every leading axis."""
    shape, indices, n_samples = needed(operands, 0).shape, needed(operands, 1).shape, integer(node, "batch_dims", 0)
    depth = indices[-1]
    if n_samples + depth > len(shape):
        raise ValueError(f"indices must have at most {len(shape) - n_samples} positions, they are {list(indices)}")
    # Operand 2 of ScatterND has what is written at the positions.
    yield 2, (*indices[:-1], *shape[depth:])
    _check_indices(node, operands, np.array(shape[n_samples : n_samples + depth]))


def selected(node: onnx.NodeProto, operands: Operands) -> None:
    """ArrayFeatureExtractor: indices of the last axis."""
    _check_indices(node, operands, needed(operands, 0).shape[-1])


def _check_indices(node: onnx.NodeProto, operands: Operands, lengths: int | Array) -> None:
    """Refuse constant indices behind an end of their axis; negative ones count from its end."""
    indices = needed(operands, 1)
    if indices.data is None or not indices.constant:
        return
    wrong = indices.data[(indices.data < -lengths) | (indices.data >= lengths)]
    if wrong.size:
        ends = np.unique(np.atleast_1d(lengths)).tolist()
        said = " or ".join(map(str, ends))
        raise ValueError(f"indices {node.input[1]!r} must lie in an axis of length {said}, one is {wrong[0]}")


def resized(node: onnx.NodeProto, operands: Operands, scales: int | None = 2, sizes: int | None = None) -> None:
    """Resize and Upsample: every axis is made longer or shorter, none is removed."""
    listed = attribute_named(node, "scales")
    factors: list[float] = [] if listed is None else list(listed.floats)
    for index in (scales, sizes):
        value = None if index is None else given(operands, index)
        if value is not None and value.data is not None and value.constant:
            factors += value.data.reshape(-1).tolist()
    if 0 in needed(operands, 0).shape:
        return
    if any(not factor > 0 for factor in factors):
        raise ValueError(f"scales and sizes must be above 0, they are {factors}")


def resized_by_operand(node: onnx.NodeProto, operands: Operands) -> None:
    """Resize: (X, scales) in operator set 10, (X, roi, scales, sizes) afterwards."""
    if len(operands) == 2:
        resized(node, operands, 1)
    else:
        resized(node, operands, 2, 3)


def split(node: onnx.NodeProto, operands: Operands) -> None:
    """Split: parts of lengths of 0 or more; onnx looks at their sum only."""
    lengths = list(integers(node, "split"))
    value = given(operands, 1)
    if value is not None and value.data is not None:
        lengths = value.data.reshape(-1).tolist()
    if any(length < 0 for length in lengths):
        raise ValueError(f"the parts must have lengths of 0 or more, they are {lengths}")


def turned(node: onnx.NodeProto, operands: Operands) -> None:
    """Transpose: every axis once."""
    shape, permutation = needed(operands, 0).shape, integers(node, "perm")
    if permutation and sorted(permutation) != [*range(len(shape))]:
        raise ValueError(f"perm must have every axis of {list(shape)} once, it is {list(permutation)}")


def accumulated(node: onnx.NodeProto, operands: Operands) -> None:
    """CumSum and CumProd: along an axis that there is."""
    shape, axis = needed(operands, 0).shape, needed(operands, 1)
    if axis.data is not None and axis.data.size == 1 and not -len(shape) <= int(axis.data.reshape(-1)[0]) < len(shape):
        raise ValueError(f"axis {axis.data.reshape(-1)[0]} is none of {list(shape)}")


def normalised_by_neighbours(node: onnx.NodeProto, operands: Operands) -> None:
    """LRN: over one channel or more."""
    count(node, "size")


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
    _refuse_unless_one_of(node, operands, 1, (), (1,), (shape[0], n_tokens))
    yield 2, (None, n_pairs or size // 2)
    yield 3, needed(operands, 2).shape


def convolved_with_state(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """CausalConvWithState: a filter for every channel, and the last inputs of the call before."""
    (batch, channels, *_), weight = needed(operands, 0).shape, needed(operands, 1).shape
    yield 1, (channels, 1, weight[-1])
    yield 2, (channels,)
    yield 3, (batch, channels, (weight[-1] - 1) * count(node, "dilation", 1))


def linear_attention(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """LinearAttention: queries, keys and values of the same tokens, and what is forgotten and learnt at each."""
    tokens = needed(operands, 0).shape[:2]
    for index in (1, 2, 4, 5):
        yield index, (*tokens, None)


def inverted(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """Inverse: of square matrices."""
    shape = needed(operands, 0).shape
    yield 0, (*shape[:-1], shape[-2])


def compared(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """CDist: points of as many coordinates."""
    yield 1, (None, needed(operands, 0).shape[1])


def pooled_where(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """MaxpoolWithMask: a mask of the field."""
    yield 1, (None, None, *needed(operands, 0).shape[2:])


def rotated(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """RotaryEmbedding: a cosine and a sine for every pair of elements that turn."""
    shape = needed(operands, 0).shape
    size = shape[-1] if len(shape) == 4 else shape[-1] // count(node, "num_heads")
    n_pairs = (integer(node, "rotary_embedding_dim", 0) or size) // 2
    cosines = needed(operands, 1).shape
    yield 1, (*cosines[:-1], n_pairs)
    yield 2, cosines
    yield 3, (shape[0], shape[-2])


def suppressed(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """NonMaxSuppression: four corners of every box, and a score of every class for it."""
    n_samples, n_boxes, *_ = needed(operands, 0).shape
    yield 0, (n_samples, n_boxes, 4)
    yield 1, (n_samples, None, n_boxes)


def regions(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """RoiAlign: four corners of every region, and its sample."""
    n_regions = needed(operands, 1).shape[0]
    yield 1, (n_regions, 4)
    yield 2, (n_regions,)


def unpooled(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """MaxUnpool: an index for every element."""
    yield 1, needed(operands, 0).shape


_STANDARD: dict[str, OperandRule] = {
    "AffineGrid": placed,
    "Attention": attention,
    "Col2Im": folded,
    "Compress": compressed,
    "Conv": convolution,
    "ConvInteger": partial(convolution, bias=None),
    "ConvTranspose": transposed_convolution,
    "CumProd": accumulated,
    "CumSum": accumulated,
    "DeformConv": deformed_convolution,
    "DequantizeLinear": quantised,
    "GRU": recurrent,
    "Gather": gathered,
    "GatherElements": gathered_by_element,
    "GatherND": gathered_by_point,
    "Gemm": gemm,
    "GroupNormalization": per_channel,
    "InstanceNormalization": per_channel,
    "LRN": normalised_by_neighbours,
    "LSTM": recurrent,
    "LayerNormalization": per_row,
    "LpNormalization": along_axis,
    "MatMulInteger": partial(product_of_integers, rows=(2,), right=1, columns=(3,)),
    "MaxUnpool": unpooled,
    "MeanVarianceNormalization": along_axes,
    "NegativeLogLikelihoodLoss": weighted_loss,
    "NonMaxSuppression": suppressed,
    "PRelu": slope,
    "QLinearConv": partial(convolution, weight=3, bias=8, scales=(4, 5)),
    "QLinearMatMul": partial(product_of_integers, rows=(1, 2, 6, 7), right=3, columns=(4, 5)),
    "QuantizeLinear": quantised,
    "RMSNormalization": per_row,
    "RNN": recurrent,
    "Resize": resized_by_operand,
    "ReverseSequence": reversed_in_part,
    "RoiAlign": regions,
    "RotaryEmbedding": rotated,
    "ScatterElements": gathered_by_element,
    "ScatterND": gathered_by_point,
    "SimplifiedLayerNormalization": per_row,
    "SoftmaxCrossEntropyLoss": weighted_loss,
    "Split": split,
    "Transpose": turned,
    "Upsample": partial(resized, scales=1),
}
_CONTRIB: dict[str, OperandRule] = {
    "Attention": attention_of_one,
    "BiasAdd": biased,
    "BiasGelu": biased,
    "BiasSplitGelu": biased,
    "ConvTransposeWithDynamicPads": partial(transposed_convolution, bias=3),
    "DynamicQuantizeLSTM": quantised_recurrent,
    "EmbedLayerNormalization": embedded,
    "CDist": compared,
    "CausalConvWithState": convolved_with_state,
    "DecoderMaskedMultiHeadAttention": partial(multi_head, bias=10, mask=3, scores=4, past=5),
    "DecoderMaskedSelfAttention": attention_of_one,
    "DynamicQuantizeMatMul": partial(columns, each=(2, 3), bias=4),
    "FastGelu": biased,
    "FusedConv": convolution,
    "FusedGemm": gemm,
    "GatherND": gathered_by_point,
    "GatherBlockQuantized": gathered_in_blocks,
    "GemmFastGelu": biased_product,
    "GroupNorm": per_group,
    "GroupQueryAttention": grouped_heads,
    "Inverse": inverted,
    "LinearAttention": linear_attention,
    "MatMulBnb4": packed_in_a_row,
    "MatMulIntegerToFloat": partial(columns, each=(3, 5), bias=6),
    "MatMulNBits": packed,
    "MaxpoolWithMask": pooled_where,
    "MoE": partial(mixed, weights=(2, 4, 6), vectors=((3,), (5,))),
    "MultiHeadAttention": multi_head,
    "NhwcConv": convolution,
    "NhwcFusedConv": convolution,
    "QAttention": partial(attention_of_one, mask=5, past=8, bias=9),
    "QEmbedLayerNormalization": embedded,
    "QGemm": quantised_gemm,
    "QLinearConv": partial(convolution, weight=3, bias=8, scales=(4, 5)),
    "QMoE": partial(mixed, weights=(2, 5, 8), vectors=((3, 4), (6, 7))),
    "RotaryEmbedding": rotated_by_positions,
    "SkipGroupNorm": per_group,
    "SkipLayerNormalization": skipped,
    "SkipSimplifiedLayerNormalization": skipped,
    "SparseAttention": grouped_heads,
}
_CLASSIC: dict[str, OperandRule] = {
    "ArrayFeatureExtractor": selected,
    "FeatureVectorizer": joined,
    "LinearRegressor": linear,
    "Scaler": scaled,
    "TreeEnsemble": branched,
    "TreeEnsembleClassifier": branched,
    "TreeEnsembleRegressor": branched,
}
_RULES: dict[tuple[str, str], OperandRule] = {("com.microsoft.nchwc", "Conv"): convolution_in_blocks}
for _domain, _rules in {"": _STANDARD, "com.microsoft": _CONTRIB, "ai.onnx.ml": _CLASSIC}.items():
    _RULES.update(((_domain, op), rule) for op, rule in _rules.items())
