"""Helpers of rules: the axis on which operands hold the samples, and refusals of a node that mixes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from autoauto.graph.batch.sample_axes import NodeStep, SampleAxis

SampleRule = Callable[[NodeStep], SampleAxis | tuple[SampleAxis, ...]]
"""Where the samples lie in all outputs, or in each; it raises `NodeStep.refuse` when the node mixes samples."""


def not_along(step: NodeStep, axes: Collection[int]) -> SampleAxis:
    """The sample axis of input 0; refuses a node that computes along it, that is along one of `axes`."""
    samples = step.only()
    if samples.axis in axes:
        raise step.refuse("works along the batch axis")
    return samples


def removed(step: NodeStep, samples: SampleAxis, axes: set[int]) -> SampleAxis:
    """The position of the samples after a reduction of `axes`."""
    if step.integer("keepdims", 1):
        return samples
    return samples._replace(axis=samples.axis - sum(axis < samples.axis for axis in axes))


def same(step: NodeStep, axes: Iterable[SampleAxis | None]) -> SampleAxis:
    """The axis on which all operands hold the samples; None stands for an operand without samples."""
    different = set(axes) - {None}
    if len(different) != 1:
        raise step.refuse("holds the samples of its operands on different axes")
    (samples,) = different
    assert samples is not None
    return samples


def shared(step: NodeStep, indices: Iterable[int]) -> None:
    """Refuse samples in operands that all samples must share."""
    for index in indices:
        if index < len(step.sample_axes) and step.sample_axes[index]:
            raise step.refuse("reads the samples as an operand that all samples must share")


def aligned(step: NodeStep, index: int) -> SampleAxis:
    """The position in the output of the samples of an operand; all operands are broadcast to the output's shape."""
    samples = step.sample_axes[index]
    assert samples is not None
    return samples._replace(axis=samples.axis + len(step.output_shape) - len(step.shape(index)))


def meet(step: NodeStep, axes: Iterable[SampleAxis | None], rank: int | None = None) -> SampleAxis:
    """The sample axis that all operands share once they are broadcast.

    Along it, operands with samples must be equally long; an operand without samples is 1 long, or gets repeated.
    """
    samples = same(step, axes)
    if rank is None:
        rank = len(step.output_shape)
    lengths = set()
    for index, value in enumerate(step.read):
        if value is None:
            continue
        axis = samples.axis - rank + len(value.shape)  # broadcasting aligns the last axes
        length = value.shape[axis] if axis >= 0 else 1
        if step.sample_axes[index]:
            lengths.add(length)
        elif length != 1:
            copy(step, index, samples._replace(axis=axis))
    if len(lengths) != 1:
        raise step.refuse("repeats samples")
    return samples


def copy(step: NodeStep, index: int, samples: SampleAxis) -> None:
    """Repeat an operand that all samples share, once for each sample, along the axis of the samples."""
    if step.n_samples != 1 or step.shape(index)[samples.axis] != samples.inner:
        raise step.refuse("meets an operand that may differ between samples")
    step.copies[index] = samples.axis


def beside(step: NodeStep, index: int, samples: SampleAxis) -> None:
    """Hold the samples of an operand, which may be omitted, where `samples` says; one that all share is repeated."""
    if step.operand(index) is None:
        return
    own = step.sample_axes[index]
    if own is None:
        copy(step, index, samples)
    else:
        same(step, (samples, own))


def side_by_side(*per_sample: int, broadcast: Collection[int] = ()) -> Callable[[NodeStep], SampleAxis]:
    """Samples lie on the first axis of every operand at `per_sample`, and of the outputs; all samples share the others.

    An operand there that all samples share is repeated for each; one at `broadcast` may be 1 long instead.
    """

    def rule(step: NodeStep) -> SampleAxis:
        samples = same(step, step.sample_axes)
        if samples.axis != 0:
            raise step.refuse("holds the samples on another axis than the first")
        shared(step, set(range(len(step.read))).difference(per_sample))
        for index in per_sample:
            if not (index in broadcast and is_broadcast(step, index)):
                beside(step, index, samples)
        return samples

    return rule


def is_broadcast(step: NodeStep, index: int) -> bool:
    """True if an operand has no samples, and is 1 long on its first axis, where others have them."""
    value = step.operand(index)
    return value is not None and step.sample_axes[index] is None and value.shape[:1] == (1,)
