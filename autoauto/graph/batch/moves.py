"""Rules of operators that move, join, cut or pick elements."""

from __future__ import annotations

import numpy as np

from autoauto.graph.batch.operands import SampleRule, beside, copy, not_along, same, shared
from autoauto.graph.batch.sample_axes import NodeStep, SampleAxis
from autoauto.graph.onnx_file import attribute_named
from autoauto.records.units import Array


def concat(step: NodeStep) -> SampleAxis:
    """Joins along an axis without samples; an operand that all samples share is repeated for each.

    In QLinearConcat a scale and a zero point stand behind every part, and two in front.
    """
    parts = set(range(len(step.read)))
    if step.node.op_type == "QLinearConcat":
        parts = {index for index in parts if index % 3 == 2}
    shared(step, set(range(len(step.read))) - parts)
    samples = same(step, step.sample_axes)
    if step.integer("axis", 0) % len(step.output_shape) == samples.axis:
        raise step.refuse("joins along the batch axis")
    for index in sorted(parts):
        if step.sample_axes[index] is None:
            copy(step, index, samples)
    return samples


def transpose(step: NodeStep) -> SampleAxis:
    """Moves axes."""
    samples = step.only()
    order = step.integers("perm") or tuple(range(len(step.shape())))[::-1]
    return samples._replace(axis=order.index(samples.axis))


def reshape(step: NodeStep) -> SampleAxis:
    """Keeps the order of elements; its target grows with the batch."""
    samples = step.after_reshape(step.only())
    step.grow(1, step.output_shape, samples.axis)
    return samples


def flatten(step: NodeStep) -> SampleAxis:
    """Keeps the order of elements; the target follows from the input."""
    samples, axis = step.only(), step.integer("axis", 1)
    if axis < 0:
        axis += len(step.shape())
    after = step.after_reshape(samples)
    # Axes before `axis` become rows, axis 0 of the output; the others become columns.
    expected = 0 if samples.axis < axis else 1
    if after.axis != expected:
        raise step.refuse("moves samples from rows to columns")
    return after


def squeeze(step: NodeStep) -> SampleAxis:
    """Removes named axes of length 1."""
    axes = step.integers("axes", 1)
    if axes is None:
        raise step.refuse("removes every axis of length 1, the batch too")
    named = {axis % len(step.shape()) for axis in axes}
    samples = not_along(step, named)
    return samples._replace(axis=samples.axis - sum(axis < samples.axis for axis in named))


def unsqueeze(step: NodeStep) -> SampleAxis:
    """Adds axes of length 1."""
    samples, rank = step.only(), len(step.output_shape)
    added = {axis % rank for axis in step.integers("axes", 1) or ()}
    old = [axis for axis in range(rank) if axis not in added]  # where the axes of the input lie in the output
    return samples._replace(axis=old[samples.axis])


def expand(step: NodeStep) -> SampleAxis:
    """Broadcasts to a shape written into the file."""
    samples, shape = step.only(), step.output_shape
    axis = samples.axis + len(shape) - len(step.shape())
    if shape[axis] != step.shape()[samples.axis]:
        raise step.refuse("repeats the batch axis")
    step.grow(1, shape, axis)
    return samples._replace(axis=axis)


def cut(step: NodeStep) -> SampleAxis:
    """Slice: any axis but the samples', which may be named as long as it stays whole."""
    starts, ends = step.integers("starts", 1) or (), step.integers("ends", 2) or ()
    axes = step.integers("axes", 3) or tuple(range(len(starts)))
    strides = step.integers("steps", 4) or (1,) * len(starts)
    changed: set[int] = set()
    for axis, start, end, stride in zip(axes, starts, ends, strides, strict=True):
        # Only an end that stands for infinity reaches the end of an axis at any batch size.
        if (start, stride) != (0, 1) or end < 2**31 - 1:
            changed.add(axis % len(step.shape()))
    return not_along(step, changed)


def gather(step: NodeStep) -> SampleAxis:
    """Picks along an axis: samples lie in the data, or in the indices."""
    axis = step.axis(0)
    if step.sample_axes[0] is None:
        picked = step.only(1)
        return picked._replace(axis=picked.axis + axis)
    samples = not_along(step, {axis})
    if samples.axis > axis:  # the axes of the indices stand in place of the one that is picked from
        return samples._replace(axis=samples.axis + len(step.shape(1)) - 1)
    return samples


def by_elements(step: NodeStep) -> SampleAxis:
    """GatherElements, ScatterElements: along an axis, element by element; an operand that all share is repeated."""
    samples = same(step, step.sample_axes)
    if samples.axis == step.axis(0) or step.shape(0)[samples.axis] != step.shape(1)[samples.axis]:
        raise step.refuse("works along the batch axis")
    for index, operand in enumerate(step.sample_axes):
        if operand is None:
            copy(step, index, samples)
    return samples


def gather_rows(axis_name: str = "axis") -> SampleRule:
    """Picks rows of a table that all samples share, by samples of indices, which are operand 1."""

    def rule(step: NodeStep) -> SampleAxis:
        picked = step.only(1)
        rank = len(step.output_shape) - len(step.shape(1)) + 1
        return picked._replace(axis=picked.axis + step.integer(axis_name, 0) % rank)

    return rule


def gather_nd(step: NodeStep) -> SampleAxis:
    """GatherND at positions that the file fixes for one sample: the same positions are picked in every sample."""
    return _at_positions(step, step.only())


def scatter_nd(step: NodeStep) -> SampleAxis:
    """ScatterND to positions that the file fixes for one sample: the same positions are written in every sample."""
    samples = step.sample_axes[0]
    if samples is None or step.sample_axes[1]:
        raise step.refuse("writes samples into what all samples share")
    beside(step, 2, _at_positions(step, samples))
    return samples


def _at_positions(step: NodeStep, samples: SampleAxis) -> SampleAxis:
    """Where the samples lie in what is picked or written at positions of operand 1, which each sample then gets."""
    positions = step.read[1].data if step.read[1] else None
    is_of_one_sample = step.shape()[samples.axis] == 1 and not step.integer("batch_dims", 0)
    if positions is None or len(positions) != 1 or not is_of_one_sample:
        raise step.refuse("picks positions that are not those of one sample")
    depth, rank = positions.shape[-1], positions.ndim
    if samples.axis >= depth:
        return samples._replace(axis=samples.axis - depth + rank - 1)
    in_sample = np.arange(depth) != samples.axis

    def spread(batch_size: int) -> Array:
        # Of one sample only position 0 can be picked.
        samples = np.arange(batch_size).reshape((-1,) + (1,) * (rank - 1))
        return np.where(in_sample, positions, samples)

    step.literals[1] = spread
    return SampleAxis(0, 1)


def affine_grid(step: NodeStep) -> SampleAxis:
    """AffineGrid: the size that is written into the file grows with the batch."""
    samples = not_along(step, {1, 2})
    step.grow(1, step.integers("size", 1) or (), 0)
    return samples


def expand_dims(step: NodeStep) -> SampleAxis:
    """ExpandDims: an axis of length 1, which an operand names."""
    samples = step.only()
    (axis,) = step.integers("axis", 1) or (0,)
    return samples._replace(axis=samples.axis + (axis % len(step.output_shape) <= samples.axis))


def pad(step: NodeStep) -> SampleAxis:
    """Adds to the ends of other axes."""
    rank = len(step.shape())
    pads = step.integers("pads", 1) or ()
    axes = step.integers("axes", 3) or tuple(range(rank))
    half = len(pads) // 2  # first all pads before the axes, then all behind them
    padded = {
        axis % rank for axis, before, after in zip(axes, pads[:half], pads[half:], strict=True) if before or after
    }
    return not_along(step, padded)


def tile(step: NodeStep) -> SampleAxis:
    """Repeats other axes."""
    return not_along(step, {axis for axis, count in enumerate(step.integers("repeats", 1) or ()) if count != 1})


def resize(step: NodeStep) -> SampleAxis:
    """Resize and Upsample: other axes change their length; lengths written into the file grow with the batch."""
    lengths = enumerate(zip(step.shape(), step.output_shape, strict=True))
    samples = not_along(step, {axis for axis, (before, after) in lengths if before != after})
    axes = step.integers("axes") or tuple(range(len(step.shape())))
    if samples.axis not in axes:
        return samples
    index = axes.index(samples.axis)
    if step.operand(3) is not None:
        step.grow(3, step.integers("sizes", 3) or (), index)
    elif _scales(step)[index] != 1.0:
        raise step.refuse("works along the batch axis")
    return samples


def _scales(step: NodeStep) -> list[float]:
    """Factors of a Resize or Upsample: an attribute, or an operand whose position depends on the operator set."""
    attribute = attribute_named(step.node, "scales")
    if attribute is not None:
        return list(attribute.floats)
    is_second = step.node.op_type == "Upsample" or step.version < 11
    value = step.read[1] if is_second else step.read[2]
    if value is None or value.data is None:
        raise step.refuse("has scales that are not constant")
    return [float(factor) for factor in value.data.reshape(-1)]
