"""Rules of products, recurrent cells and attention."""

from __future__ import annotations

from autoauto.graph.batch.operands import SampleRule, copy, meet, same, shared
from autoauto.graph.batch.sample_axes import NodeStep, SampleAxis


def matmul(step: NodeStep) -> SampleAxis:
    """Samples are rows of the left, columns of the right, or leading axes of both."""
    aligned = set()
    rank = max(2, len(step.shape(0)), len(step.shape(1)))
    for index, operand in enumerate(step.sample_axes[:2]):
        if operand is None:
            continue
        operand_rank = len(step.shape(index))
        if operand_rank == 1 or operand.axis == (operand_rank - 1 if index == 0 else operand_rank - 2):
            raise step.refuse("sums over the batch axis")
        aligned.add(operand._replace(axis=operand.axis + rank - operand_rank))
    (samples,) = same(step, aligned)
    if samples.axis >= rank - 2:
        step.only(0 if samples.axis == rank - 2 else 1)
    elif min(len(step.shape(0)), len(step.shape(1))) > 1:
        meet(step, {samples}, rank)
    return samples if samples.axis < len(step.output_shape) else samples._replace(axis=samples.axis - 1)


def gemm(step: NodeStep) -> SampleAxis:
    """Samples are rows of the left matrix or columns of the right one; the added term is shared along them."""
    side = 0 if step.sample_axes[0] else 1
    samples = step.only(side)
    unsummed = side if not step.integer("transB" if side else "transA", 0) else 1 - side
    if samples.axis != unsummed:
        raise step.refuse("sums over the batch axis")
    after = samples._replace(axis=side)
    if len(step.read) > 2 and step.read[2]:
        shape = (1, 1, *step.shape(2))[-2:]
        if shape[side] != 1:
            raise step.refuse("adds a term that differs between samples")
    return after


def einsum(step: NodeStep) -> SampleAxis:
    """Samples keep one letter from the operands to the result."""
    equation = next(entry.s.decode() for entry in step.node.attribute if entry.name == "equation").replace(" ", "")
    left, arrow, result = equation.partition("->")
    terms = list(zip(left.split(","), step.sample_axes, strict=True))
    letters = {(term[samples.axis], samples.inner) for term, samples in terms if samples and "." not in equation}
    if not arrow or len(letters) != 1:
        raise step.refuse(f"has an equation whose samples cannot be followed: {equation}")
    ((letter, inner),) = letters
    if result.count(letter) != 1 or any(term.count(letter) != bool(samples) for term, samples in terms):
        raise step.refuse("sums over the batch axis")
    return SampleAxis(result.index(letter), inner)


def recurrent(step: NodeStep) -> tuple[SampleAxis, ...]:
    """LSTM, GRU, RNN on (sequence, batch, features); a shared first state is repeated for each sample."""
    samples = step.sample_axes[0]
    if samples is None or samples.axis != 1 or step.integer("layout", 0) or any(step.sample_axes[1:5]):
        raise step.refuse("holds the samples on another axis than the second")
    if len(step.read) > 4 and step.read[4]:
        raise step.refuse("has a length for every sample")
    for index in range(5, min(7, len(step.read))):
        if step.read[index] and step.sample_axes[index] is None:
            copy(step, index, samples)
        elif step.read[index] and step.sample_axes[index] != samples:
            raise step.refuse("holds the samples of its state on another axis")
    if any(step.sample_axes[7:]):
        raise step.refuse("reads the samples as weights")
    return (samples._replace(axis=2), samples, samples)
