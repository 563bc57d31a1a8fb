"""Rules of operators that compute element by element or along some axes, and keep the others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autoauto.graph.batch.operands import aligned, beside, meet, not_along, removed, same
from autoauto.graph.batch.sample_axes import NodeStep, SampleAxis


def pointwise(step: NodeStep) -> SampleAxis:
    """Operands are broadcast to one shape, in which the samples of all of them lie on one axis."""
    return meet(step, [aligned(step, index) for index, samples in enumerate(step.sample_axes) if samples])


def rows(step: NodeStep) -> SampleAxis:
    """Convolution, pooling, normalisation within one row of axis 0."""
    samples = step.only()
    if samples.axis != 0 or step.integer("training_mode", 0) or any(step.node.output[1:]):
        raise step.refuse("works along the batch axis")
    return samples


def softmax(step: NodeStep) -> SampleAxis:
    """Normalises one axis; before operator set 13, which QLinearSoftmax names by an attribute, all from there on."""
    version, first = step.version, step.axis(1)
    if step.node.op_type == "QLinearSoftmax":
        version, first = step.integer("opset", 13), step.axis(-1)
    if version >= 13:
        return not_along(step, {step.axis(-1)})
    return not_along(step, range(first, len(step.shape())))


def layer_norm(step: NodeStep) -> SampleAxis:
    """Normalises all axes from one on."""
    return not_along(step, range(step.axis(-1), len(step.shape())))


def field_norm(step: NodeStep) -> SampleAxis:
    """MeanVarianceNormalization: by default over samples, too."""
    return not_along(step, {axis % len(step.shape()) for axis in step.integers("axes") or (0, 2, 3)})


def reduce(step: NodeStep) -> SampleAxis:
    """Removes axes, or makes them 1 long; ArgMax and ArgMin do so with one."""
    if step.node.op_type in ("ArgMax", "ArgMin"):
        axes = {step.axis(0)}
        return removed(step, not_along(step, axes), axes)
    rank = len(step.shape())
    given = step.integers("axes", 1)
    if not given and step.integer("noop_with_empty_axes", 0):
        return step.only()
    axes = {axis % rank for axis in given or range(rank)}  # without axes it reduces all
    return removed(step, not_along(step, axes), axes)


def along_axis(step: NodeStep) -> SampleAxis:
    """Split, TopK, LpNormalization: one axis, the attribute `axis`."""
    default = 0 if step.node.op_type == "Split" else -1
    return not_along(step, {step.axis(default)})


def cumulate(step: NodeStep) -> SampleAxis:
    """CumSum and CumProd: the axis is an operand."""
    return not_along(step, {axis % len(step.shape()) for axis in step.integers("axis", 1) or ()})


def transform(step: NodeStep) -> SampleAxis:
    """DFT: along an axis, which is an attribute or an operand, of real and imaginary parts on the last."""
    rank = len(step.shape())
    default = 1 if step.version < 20 else -2
    given = step.integers("axis", 2) or (step.integer("axis", default),)
    return not_along(step, {given[0] % rank, rank - 1})


def last_axes(count: int) -> Callable[[NodeStep], SampleAxis]:
    """A rule for operators that compute along the last `count` axes."""

    def rule(step: NodeStep) -> SampleAxis:
        rank = len(step.shape())
        return not_along(step, range(max(rank - count, 0), rank))

    return rule


def quantize(step: NodeStep) -> SampleAxis:
    """QuantizeLinear and DequantizeLinear: one factor for all, or one for every position on another axis."""
    per_axis = len(step.shape(1))
    if per_axis > 1:
        raise step.refuse("has factors in blocks")
    return not_along(step, {step.axis(1)} if per_axis else ())


def by_all_samples(step: NodeStep) -> SampleAxis:
    """Refuse DynamicQuantizeLinear, and products that quantise their operands: their scale depends on all samples."""
    raise step.refuse("chooses a scale by the extremes of all samples; try to quantise with fixed scales")


def normalised_sum(step: NodeStep) -> SampleAxis:
    """A sum that is broadcast, and its normalisation along the last axis, or by BiasSoftmax along all from one on."""
    samples = pointwise(step)
    first = step.axis(1) if step.node.op_type == "BiasSoftmax" else len(step.output_shape) - 1
    if samples.axis >= first:
        raise step.refuse("works along the batch axis")
    return samples


def one_hot(step: NodeStep) -> SampleAxis:
    """OneHot: a new axis of classes."""
    samples = step.only()
    axis = step.integer("axis", -1) % len(step.output_shape)
    return samples._replace(axis=samples.axis + (axis <= samples.axis))


def reverse_sequence(step: NodeStep) -> SampleAxis:
    """ReverseSequence: every sample by its own length."""
    samples, axis = step.sample_axes[0], step.integer("batch_axis", 1)
    if samples is None or samples.axis != axis:
        raise step.refuse("works along the batch axis")
    beside(step, 1, samples._replace(axis=0))
    return samples


def regions(step: NodeStep) -> SampleAxis:
    """RoiAlign: constant regions of the only sample become those of every sample."""
    samples, boxes, owners = step.only(), step.read[1], step.read[2]
    if samples != SampleAxis(0, 1) or step.n_samples != 1 or not (boxes and owners and owners.data is not None):
        raise step.refuse("takes regions that are not those of one sample")
    n_regions = boxes.shape[0]
    step.copies[1] = 0
    step.literals[2] = lambda batch_size: np.repeat(np.arange(batch_size), n_regions)
    return SampleAxis(0, n_regions)


def features(step: NodeStep) -> SampleAxis:
    """Trees, linear models: a sample is a row."""
    samples = step.only()
    if samples.axis != 0 or len(step.shape()) < 2:
        raise step.refuse("works along the batch axis")
    return samples


def joined_features(step: NodeStep) -> SampleAxis:
    """FeatureVectorizer: rows side by side."""
    if not all(step.sample_axes):
        raise step.refuse("joins samples with what all samples share")
    samples = same(step, step.sample_axes)
    if samples.axis != 0:
        raise step.refuse("works along the batch axis")
    return samples
