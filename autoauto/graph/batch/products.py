"""Rules of products, recurrent cells and attention."""

from __future__ import annotations

from collections.abc import Sequence

from autoauto.graph.batch.operands import SampleRule, beside, meet, same, shared, side_by_side
from autoauto.graph.batch.sample_axes import NodeStep, SampleAxis


def multiplied(left: int = 0, right: int = 1, of_rows: Sequence[int] = ()) -> SampleRule:
    """A product of the operands at `left` and `right`, each of which may be turned.

    Samples are rows of the left, columns of the right, or leading axes of both. Of factors `of_rows` there must be one.
    """

    def rule(step: NodeStep) -> SampleAxis:
        rank = max(2, len(step.shape(left)), len(step.shape(right)))
        in_product = {_in_product(step, index, rank, side) for side, index in ((0, left), (1, right))}
        (samples,) = same(step, set(filter(None, in_product)))
        if samples.axis >= rank - 2:
            step.only(left if samples.axis == rank - 2 else right)
            if (samples.axis == rank - 1 and len(step.read) > 2) or any(_is_long(step, index) for index in of_rows):
                raise step.refuse("has a factor for every row or column of samples")
        elif min(len(step.shape(left)), len(step.shape(right))) > 1:
            meet(step, {samples}, rank)
        return samples if samples.axis < len(step.output_shape) else samples._replace(axis=samples.axis - 1)

    return rule


def _in_product(step: NodeStep, index: int, rank: int, side: int) -> SampleAxis | None:
    """Where the samples of a factor lie in a product of `rank` axes; the left one is on side 0."""
    samples, own_rank = step.sample_axes[index], len(step.shape(index))
    if samples is None:
        return None
    if step.integer(f"transBatch{'AB'[side]}", 0):
        raise step.refuse("moves the batch axis between rows")
    axis = samples.axis
    if step.integer(f"trans{'AB'[side]}", 0) and axis >= own_rank - 2:
        axis = 2 * own_rank - 3 - axis
    if own_rank == 1 or axis == own_rank - 1 - side:
        raise step.refuse("sums over the batch axis")
    return samples._replace(axis=axis + rank - own_rank)


def _is_long(step: NodeStep, index: int) -> bool:
    value = step.read[index] if index < len(step.read) else None
    return value is not None and any(length != 1 for length in value.shape)


def gemm(left: int = 0, right: int = 1, term: int = 2) -> SampleRule:
    """Samples are rows of the left matrix or columns of the right one; the added term is shared along them."""

    def rule(step: NodeStep) -> SampleAxis:
        side = 0 if step.sample_axes[left] else 1
        samples = step.only((left, right)[side])
        unsummed = side if not step.integer("transB" if side else "transA", 0) else 1 - side
        if samples.axis != unsummed:
            raise step.refuse("sums over the batch axis")
        if term < len(step.read) and step.read[term] and (1, 1, *step.shape(term))[-2:][side] != 1:
            raise step.refuse("adds a term that differs between samples")
        return samples._replace(axis=side)

    return rule


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
    for index in (5, 6):
        beside(step, index, samples)
    shared(step, *range(7, len(step.read)))
    return (samples._replace(axis=2), samples, samples)


def attention(step: NodeStep) -> SampleAxis:
    """Attention of the standard: queries, keys, values and their past; a mask of fewer axes is shared."""
    mask = step.read[3] if len(step.read) > 3 else None
    if mask is None or len(mask.shape) < 4:
        return side_by_side(0, 1, 2, 4, 5, 6)(step)
    return side_by_side(0, 1, 2, 3, 4, 5, 6, broadcast=(3,))(step)


def merged_attention(mask: int, past: int, bias: int | None = None) -> SampleRule:
    """Attention of one input by merged weights; keys and values of the past hold the samples on their second axis."""

    def rule(step: NodeStep) -> tuple[SampleAxis, ...]:
        samples = step.sample_axes[0]
        if samples is None or samples.axis != 0:
            raise step.refuse("holds the samples on another axis than the first")
        per_sample = {0, mask, past, bias}
        shared(step, *(index for index in range(len(step.read)) if index not in per_sample))
        beside(step, mask, samples)
        if bias is not None and _is_long_first(step, bias):
            beside(step, bias, samples)
        of_past = samples._replace(axis=1)
        beside(step, past, of_past)
        return (samples, of_past)

    return rule


def _is_long_first(step: NodeStep, index: int) -> bool:
    """Whether an operand is longer than 1 on its first axis, or holds samples there."""
    value = step.read[index] if index < len(step.read) else None
    return value is not None and (value.shape[:1] != (1,) or step.sample_axes[index] is not None)


def rotated(step: NodeStep) -> SampleAxis:
    """RotaryEmbedding of the standard: with positions all samples share the tables, without each has its rows."""
    has_positions = len(step.read) > 3 and step.read[3] is not None
    return side_by_side(*((0, 3) if has_positions else (0, 1, 2)))(step)


def rotated_by_positions(step: NodeStep) -> SampleAxis:
    """RotaryEmbedding of ONNX Runtime: positions of every sample, or the first one of all."""
    return side_by_side(*((0, 1) if len(step.shape(1)) > 1 else (0,)))(step)
