"""Rules of products, recurrent cells and attention."""

from __future__ import annotations

from collections.abc import Sequence

from autoauto.graph.batch.operands import SampleRule, beside, is_broadcast, meet, same, shared, side_by_side
from autoauto.graph.batch.sample_axes import NodeStep, SampleAxis
from autoauto.graph.onnx_file import attribute_named


def multiplied(left: int = 0, right: int = 1, of_rows: Sequence[int] = ()) -> SampleRule:
    """A product of the operands at `left` and `right`, each of which may be turned.

    Samples are rows of the left, columns of the right, or leading axes of both:

        left (..., rows, depth)  x  right (..., depth, columns)  ->  (..., rows, columns)

    Operands at `of_rows` are factors of rows; where samples are rows or columns, each must have one element.
    """

    def rule(step: NodeStep) -> SampleAxis:
        rank = max(2, len(step.shape(left)), len(step.shape(right)))
        of_left = _in_product(step, left, rank, "A", depth=-1)
        of_right = _in_product(step, right, rank, "B", depth=-2)
        samples = same(step, (of_left, of_right))
        are_rows, are_columns = samples.axis == rank - 2, samples.axis == rank - 1
        if are_rows or are_columns:
            step.only(left if are_rows else right)
            if (are_columns and len(step.read) > 2) or any(_is_long(step, index) for index in of_rows):
                raise step.refuse("has a factor for every row or column of samples")
        elif min(len(step.shape(left)), len(step.shape(right))) > 1:
            meet(step, (samples,), rank)
        if samples.axis == len(step.output_shape):  # a vector on the left has no rows, so columns move up
            return samples._replace(axis=samples.axis - 1)
        return samples

    return rule


def _in_product(step: NodeStep, index: int, rank: int, side: str, depth: int) -> SampleAxis | None:
    """Where the samples of a factor, on `side` "A" or "B", lie in a product of `rank` axes that sums over `depth`."""
    samples, own_rank = step.sample_axes[index], len(step.shape(index))
    if samples is None:
        return None
    if step.integer(f"transBatch{side}", 0):
        raise step.refuse("moves the batch axis between rows")
    axis = samples.axis
    if step.integer(f"trans{side}", 0) and axis >= own_rank - 2:
        axis = 2 * own_rank - 3 - axis  # the last two axes change places
    if own_rank == 1 or axis == own_rank + depth:
        raise step.refuse("sums over the batch axis")
    return samples._replace(axis=axis + rank - own_rank)


def _is_long(step: NodeStep, index: int) -> bool:
    value = step.operand(index)
    return value is not None and any(length != 1 for length in value.shape)


def gemm(left: int = 0, right: int = 1, term: int = 2) -> SampleRule:
    """Samples are rows of the left matrix or columns of the right one; the added term is shared along them."""

    def rule(step: NodeStep) -> SampleAxis:
        if step.sample_axes[left]:
            samples, axis = step.only(left), 0
            is_turned = step.integer("transA", 0)
        else:
            samples, axis = step.only(right), 1
            is_turned = step.integer("transB", 0)
        expected = 1 - axis if is_turned else axis
        if samples.axis != expected:
            raise step.refuse("sums over the batch axis")
        added = step.operand(term)
        if added is not None and (1, 1, *added.shape)[-2:][axis] != 1:
            raise step.refuse("adds a term that differs between samples")
        return samples._replace(axis=axis)

    return rule


def einsum(step: NodeStep) -> SampleAxis:
    """Samples keep one letter from the operands to the result."""
    attribute = attribute_named(step.node, "equation")
    assert attribute is not None
    equation = attribute.s.decode().replace(" ", "")
    left, arrow, result = equation.partition("->")
    terms = list(zip(left.split(","), step.sample_axes, strict=True))
    letters: set[tuple[str, int]] = set()
    if "." not in equation:  # "..." stands for axes that have no letters
        letters = {(term[samples.axis], samples.inner) for term, samples in terms if samples}
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
    if step.operand(4) is not None:
        raise step.refuse("has a length for every sample")
    for index in (5, 6):
        beside(step, index, samples)
    shared(step, range(7, len(step.read)))
    return (samples._replace(axis=2), samples, samples)


def attention(step: NodeStep) -> SampleAxis:
    """Attention of the standard: queries, keys, values and their past; a mask of fewer axes is shared."""
    mask = step.operand(3)
    if mask is None or len(mask.shape) < 4:
        return side_by_side(0, 1, 2, 4, 5, 6)(step)
    return side_by_side(0, 1, 2, 3, 4, 5, 6, broadcast=(3,))(step)


def merged_attention(mask: int, past: int, bias: int | None = None) -> SampleRule:
    """Attention of one input by merged weights; keys and values of the past hold the samples on their second axis."""

    def rule(step: NodeStep) -> tuple[SampleAxis, ...]:
        samples = step.sample_axes[0]
        if samples is None or samples.axis != 0:
            raise step.refuse("holds the samples on another axis than the first")
        shared(step, set(range(len(step.read))).difference({0, mask, past, bias}))
        beside(step, mask, samples)
        if bias is not None and not is_broadcast(step, bias):
            beside(step, bias, samples)
        of_past = samples._replace(axis=1)
        beside(step, past, of_past)
        return (samples, of_past)

    return rule


def rotated(step: NodeStep) -> SampleAxis:
    """RotaryEmbedding of the standard: with positions all samples share the tables, without each has its rows."""
    if step.operand(3) is not None:
        return side_by_side(0, 3)(step)
    return side_by_side(0, 1, 2)(step)


def rotated_by_positions(step: NodeStep) -> SampleAxis:
    """RotaryEmbedding of ONNX Runtime: a matrix of positions has a row a sample; a vector of one is for all samples."""
    if len(step.shape(1)) > 1:
        return side_by_side(0, 1)(step)
    return side_by_side(0)(step)
