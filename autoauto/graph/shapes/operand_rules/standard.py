"""What operands of the operators of onnx must be, those of `ai.onnx.ml` at the end.

Rules that operators of ONNX Runtime have, too, lie here with the positions of their operands as parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx

from autoauto.graph.onnx_file import attribute_named
from autoauto.graph.shapes.operand_rules.rule import (
    Required,
    pasts,
    refuse_unless_elements,
    refuse_unless_equal_groups,
    refuse_unless_it_broadcasts,
    refuse_unless_shared,
)
from autoauto.graph.shapes.shape_rule import Operands, axis_of, count, given, integer, integers, needed
from autoauto.records.units import Array

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


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


def transposed_convolution(node: onnx.NodeProto, operands: Operands, bias: int = 2) -> Iterator[Required]:
    """ConvTranspose: a weight of (channels that it reads, channels that it writes / groups, kernel)."""
    first, weight, group = needed(operands, 0).shape, needed(operands, 1).shape, count(node, "group", 1)
    refuse_unless_equal_groups(first[1], group)
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
    """InstanceNormalization and GroupNormalization: a scale and a bias for every channel, in equal groups.

    GroupNormalization of operator set 18 has them for every group.
    """
    channels, groups = needed(operands, 0).shape[1], count(node, "num_groups", 1)
    refuse_unless_equal_groups(channels, groups)
    length = channels
    if node.op_type == "GroupNormalization" and needed(operands, 1).shape == (groups,):
        length = groups
    yield 1, (length,)
    yield 2, (length,)


def per_row(node: onnx.NodeProto, operands: Operands) -> None:
    """LayerNormalization and its kin: scale and bias broadcast to the operand; it has the axis that is normalised."""
    shape = needed(operands, 0).shape
    axis_of(node, "axis", -1, shape)
    refuse_unless_it_broadcasts(node, operands, 1, shape)
    refuse_unless_it_broadcasts(node, operands, 2, shape)


def along_axes(node: onnx.NodeProto, operands: Operands) -> None:
    """MeanVarianceNormalization: along axes that there are."""
    n_axes, axes = len(needed(operands, 0).shape), integers(node, "axes")
    if any(not -n_axes <= axis < n_axes for axis in axes):
        raise ValueError(f"axes must be of {list(needed(operands, 0).shape)}, they are {list(axes)}")


def gemm(node: onnx.NodeProto, operands: Operands, right: int = 1, term: int = 2, columns: Sequence[int] = ()) -> None:
    """Gemm and QGemm: two matrices that are summed over one axis, and a term that broadcasts to their product.

    Each of the operands `columns` is a number for the right matrix, or one for each of its columns.
    """
    left_shape, right_shape = needed(operands, 0).shape, needed(operands, right).shape
    if integer(node, "transA", 0):
        left_shape = left_shape[::-1]
    if integer(node, "transB", 0):
        right_shape = right_shape[::-1]
    if left_shape[1] != right_shape[0]:
        raise ValueError(f"the axes to sum over must be equal, {left_shape[1]} is not {right_shape[0]}")
    refuse_unless_it_broadcasts(node, operands, term, (left_shape[0], right_shape[1]))
    for index in columns:
        refuse_unless_elements(node, operands, index, 1, right_shape[1])


def product_of_integers(
    node: onnx.NodeProto,
    operands: Operands,
    right: int = 1,
    rows: Sequence[int] = (),
    columns: Sequence[int] = (),
    bias: int | None = None,
) -> None:
    """Products of integers: a scale and a zero point for a matrix, or for each of its rows or columns; a bias."""
    left_shape, right_shape = needed(operands, 0).shape, needed(operands, right).shape
    # Numbers for rows, and the columns beside them, are those of a product of two matrices.
    if len(right_shape) == 2 and (not rows or len(left_shape) == 2):
        for index in rows:
            refuse_unless_elements(node, operands, index, 1, left_shape[0])
        for index in columns:
            refuse_unless_elements(node, operands, index, 1, right_shape[1])
    if bias is not None:
        refuse_unless_elements(node, operands, bias, right_shape[-1])


def slope(node: onnx.NodeProto, operands: Operands) -> None:
    """PRelu: a slope that broadcasts to the operand; before operator set 7 one of every channel."""
    shape, slopes = needed(operands, 0).shape, needed(operands, 1).shape
    if slopes != shape[1:2]:
        refuse_unless_it_broadcasts(node, operands, 1, shape)


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
    refuse_unless_shared(n_heads, n_kv_heads)
    past = given(operands, 4)
    n_keys = keys[-2] + (past.shape[2] if past else 0)
    mask = given(operands, 3)
    if mask is not None and mask.shape:
        # A mask that is shorter than all keys hides the others.
        refuse_unless_it_broadcasts(node, operands, 3, (queries[0], n_heads, queries[-2], min(n_keys, mask.shape[-1])))
    yield from pasts(operands, 4, (queries[0], n_kv_heads), (size, None))
    if len(queries) == 4:
        yield 1, (queries[0], n_kv_heads, None, size)
        yield 2, (queries[0], n_kv_heads, keys[2], None)
    else:
        yield 1, (queries[0], None, n_kv_heads * size)
        yield 2, (queries[0], keys[1], None)


def rotated(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """RotaryEmbedding: a cosine and a sine for every pair of elements that turn."""
    shape = needed(operands, 0).shape
    size = shape[-1] if len(shape) == 4 else shape[-1] // count(node, "num_heads")
    n_pairs = (integer(node, "rotary_embedding_dim", 0) or size) // 2
    cosines = needed(operands, 1).shape
    yield 1, (*cosines[:-1], n_pairs)
    yield 2, cosines
    yield 3, (shape[0], shape[-2])


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
    """Gather, and ArrayFeatureExtractor of the last axis: indices of an axis."""
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


def resized(node: onnx.NodeProto, operands: Operands) -> None:
    """Resize and Upsample: every axis is made longer or shorter, none is removed."""
    factors = list(_floats(node, "scales"))
    # (X, scales) before operator set 11, (X, roi, scales, sizes) afterwards.
    for index in (1,) if len(operands) == 2 else (2, 3):
        value = given(operands, index)
        if value is not None and value.data is not None and value.constant:
            factors += value.data.reshape(-1).tolist()
    if 0 in needed(operands, 0).shape:
        return
    if any(not factor > 0 for factor in factors):
        raise ValueError(f"scales and sizes must be above 0, they are {factors}")


def _floats(node: onnx.NodeProto, name: str) -> Sequence[float]:
    """An attribute that is a list of numbers, () when there is none."""
    attribute = attribute_named(node, name)
    return () if attribute is None else tuple(attribute.floats)


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


def reversed_in_part(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
    """ReverseSequence: a length for every sample."""
    axis = integer(node, "batch_axis", 1)
    yield 1, needed(operands, 0).shape[axis : axis + 1]


def normalised_by_neighbours(node: onnx.NodeProto, operands: Operands) -> None:
    """LRN: over one channel or more."""
    count(node, "size")


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
        n_given = len(_floats(node, name))
        if n_given not in (0, 1, n_features):
            raise ValueError(f"attribute {name!r} must have a number for each of {n_features} features, got {n_given}")


def linear(node: onnx.NodeProto, operands: Operands) -> None:
    """LinearRegressor: a coefficient for every feature and target."""
    n_targets, n_features = count(node, "targets", 1), needed(operands, 0).shape[-1]
    n_given = len(_floats(node, "coefficients"))
    if n_given != n_targets * n_features:
        raise ValueError(f"{n_targets} targets of {n_features} features need as many coefficients, got {n_given}")
