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
    """Refuse a node whose operands contradict the definition of its operator; one without a rule passes."""
    rule = _RULES.get((node.domain, node.op_type))
    # A length that depends on data is an upper bound, which need not be that of the other operands.
    if rule is None or any(value is not None and value.data_dependent for value in operands):
        return
    try:
        for index, shape in rule(node, operands) or ():
            value = given(operands, index)
            if value is None:
                continue
            asked = [length if wanted is None else wanted for length, wanted in zip(value.shape, shape, strict=False)]
            if len(value.shape) != len(shape) or asked != list(value.shape):
                said = ", ".join("any" if length is None else str(length) for length in shape)
                raise ValueError(f"operand {node.input[index]!r} must be [{said}], it is {list(value.shape)}")
    except (ValueError, IndexError) as error:  # an operand that lacks an axis has another shape, too
        raise UnreadableModel(f"the shapes at {label(node)} do not fit: {error}; {_TRY}") from error


def _refuse_unless_it_broadcasts(node: onnx.NodeProto, operands: Operands, index: int, shape: Shape) -> None:
    """Refuse an operand that does not become `shape` by repeating axes of length 1; this goes in one direction."""
    value = given(operands, index)
    if value is None:
        return
    tail = shape[len(shape) - len(value.shape) :] if len(value.shape) <= len(shape) else None
    if tail is None or any(length not in (1, wanted) for length, wanted in zip(value.shape, tail, strict=True)):
        raise ValueError(f"operand {node.input[index]!r} must broadcast to {list(shape)}, it is {list(value.shape)}")


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


def per_row(node: onnx.NodeProto, operands: Operands) -> None:
    """LayerNormalization and its kin: scale and bias broadcast to the axes that are normalised."""
    shape = needed(operands, 0).shape
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


def per_channel(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """Normalisations: a scale and a bias for every channel, in equal groups."""
    shape = needed(operands, 0).shape
    if node.domain:  # GroupNorm and SkipGroupNorm of ONNX Runtime
        channels, groups = shape[-1] if integer(node, "channels_last", 1) else shape[1], count(node, "groups")
    else:
        channels, groups = shape[1], count(node, "num_groups", 1)
    if channels % groups:
        raise ValueError(f"{channels} channels must fall into {groups} equal groups")
    yield 1, (channels,)
    yield 2, (channels,)


def packed(node: onnx.NodeProto, operands: Operands) -> None:
    """MatMulNBits: N rows of blocks of a weight, and a scale for every block, in any number of axes."""
    size, bits = count(node, "block_size"), count(node, "bits", 4)
    n_blocks = count(node, "N") * -(-count(node, "K") // size)
    wanted = {1: n_blocks * size * bits // 8, 2: n_blocks}
    for index, n_elements in wanted.items():
        shape = needed(operands, index).shape
        if int(np.prod(shape)) != n_elements:
            raise ValueError(f"operand {node.input[index]!r} must have {n_elements} elements, it is {list(shape)}")


def embedded(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """EmbedLayerNormalization: tables of words, positions and segments, and a normalisation, of one width."""
    width = needed(operands, 2).shape[1]
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


def folded(node: onnx.NodeProto, operands: Operands) -> None:
    """Col2Im: the elements of whole blocks."""
    channels, block = needed(operands, 0).shape[1], needed(operands, 2).data
    if block is not None and channels % int(np.prod(block)):
        raise ValueError(f"the second axis must have whole blocks of {block.tolist()}, it has a length of {channels}")


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


def attention_of_one(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """Attention of ONNX Runtime: one weight for queries, keys and values, of whole heads."""
    width, heads = needed(operands, 1).shape[1], count(node, "num_heads")
    sizes = integers(node, "qkv_hidden_sizes") or (width // 3,) * 3
    if sum(sizes) != width or any(size % heads for size in sizes):
        raise ValueError(f"{width} columns must be queries, keys and values of {heads} heads, they are {list(sizes)}")
    yield 1, (needed(operands, 0).shape[-1], width)
    yield 2, (width,)


def multi_head(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """MultiHeadAttention and GroupQueryAttention: queries and keys of equal heads, where they are three tensors."""
    shapes = [value.shape for value in operands[:3] if value is not None]
    if len(shapes) < 3 or any(len(shape) != 3 for shape in shapes):
        return
    (batch, _, width), n_heads = shapes[0], count(node, "num_heads")
    n_kv_heads = count(node, "kv_num_heads", n_heads)
    if width % n_heads or shapes[2][2] % n_kv_heads:
        raise ValueError(
            f"the last axes must be {n_heads} and {n_kv_heads} equal heads, they are {width} and {shapes[2][2]}"
        )
    yield 1, (batch, None, width // n_heads * n_kv_heads)
    yield 2, (batch, shapes[1][1], None)


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
    yield 4, (queries[0], n_kv_heads, None, size)
    yield 5, (queries[0], n_kv_heads, None, None)
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


def gathered(node: onnx.NodeProto, operands: Operands, axis: int = 0) -> None:
    """Gather and ArrayFeatureExtractor: indices of an axis."""
    shape = needed(operands, 0).shape
    _check_indices(node, operands, shape[axis_of(node, "axis", axis, shape)])


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
    """CumSum: along an axis that there is."""
    shape, axis = needed(operands, 0).shape, needed(operands, 1)
    if axis.data is not None and axis.data.size == 1 and not -len(shape) <= int(axis.data.reshape(-1)[0]) < len(shape):
        raise ValueError(f"axis {axis.data.reshape(-1)[0]} is none of {list(shape)}")


def normalised_by_neighbours(node: onnx.NodeProto, operands: Operands) -> None:
    """LRN: over one channel or more."""
    count(node, "size")


def rotated(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """RotaryEmbedding: a cosine and a sine for every pair of elements that turn."""
    shape = needed(operands, 0).shape
    size = shape[-1] if len(shape) == 4 else shape[-1] // count(node, "num_heads")
    n_pairs = (integer(node, "rotary_embedding_dim", 0) or size) // 2
    for index in (1, 2):
        yield index, (*needed(operands, index).shape[:-1], n_pairs)


def regions(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """RoiAlign: four corners of every region, and its sample."""
    n_regions = needed(operands, 1).shape[0]
    yield 1, (n_regions, 4)
    yield 2, (n_regions,)


def unpooled(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """MaxUnpool: an index for every element."""
    yield 1, needed(operands, 0).shape


_STANDARD: dict[str, OperandRule] = {
    "Attention": attention,
    "Col2Im": folded,
    "Compress": compressed,
    "Conv": convolution,
    "ConvInteger": partial(convolution, bias=None),
    "ConvTranspose": transposed_convolution,
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
    "MaxUnpool": unpooled,
    "MeanVarianceNormalization": along_axes,
    "NegativeLogLikelihoodLoss": weighted_loss,
    "PRelu": slope,
    "QLinearConv": partial(convolution, weight=3, bias=8, scales=(4, 5)),
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
    "FastGelu": biased,
    "FusedConv": convolution,
    "FusedGemm": gemm,
    "GatherND": gathered_by_point,
    "GemmFastGelu": biased_product,
    "GroupNorm": per_channel,
    "GroupQueryAttention": multi_head,
    "MatMulNBits": packed,
    "MultiHeadAttention": multi_head,
    "NhwcConv": convolution,
    "NhwcFusedConv": convolution,
    "QAttention": attention_of_one,
    "QLinearConv": partial(convolution, weight=3, bias=8, scales=(4, 5)),
    "SkipGroupNorm": per_channel,
    "SkipLayerNormalization": skipped,
    "SkipSimplifiedLayerNormalization": skipped,
}
_CLASSIC: dict[str, OperandRule] = {
    "ArrayFeatureExtractor": partial(gathered, axis=-1),
    "FeatureVectorizer": joined,
    "LinearRegressor": linear,
    "Scaler": scaled,
}
_RULES: dict[tuple[str, str], OperandRule] = {("com.microsoft.nchwc", "Conv"): convolution_in_blocks}
for _domain, _rules in {"": _STANDARD, "com.microsoft": _CONTRIB, "ai.onnx.ml": _CLASSIC}.items():
    _RULES.update(((_domain, op), rule) for op, rule in _rules.items())
