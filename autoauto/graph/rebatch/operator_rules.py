"""For every operator that keeps samples apart: where they lie in its outputs, or why it mixes them.

A rule reads a `Step` and returns the `Place` in all outputs, or one for each. `Step.refuse` makes the error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from autoauto.graph.read.trace import Array
from autoauto.graph.rebatch.sample_axes import Place, Step

Rule = Callable[[Step], Place | tuple[Place, ...]]


def pointwise(step: Step) -> Place:
    """Operands broadcast to one shape: samples must meet samples, and only there."""
    return _meet(step, {_aligned(step, index) for index, place in enumerate(step.places) if place})


def rows(step: Step) -> Place:
    """Convolution, pooling, normalisation within one row of axis 0."""
    place = step.only()
    if place.axis != 0 or step.integer("training_mode", 0) or any(step.node.output[1:]):
        raise step.refuse("works along the batch axis")
    return place


def softmax(step: Step) -> Place:
    """Normalises one axis; before operator set 13 all axes from there on."""
    first = step.axis(-1 if step.version >= 13 else 1)
    return _keep(step, {first} if step.version >= 13 else range(first, len(step.shape())))


def layer_norm(step: Step) -> Place:
    """Normalises all axes from one on."""
    return _keep(step, range(step.axis(-1), len(step.shape())))


def reduce(step: Step) -> Place:
    """Removes axes, or makes them 1 long."""
    given, rank = step.integers("axes", 1), len(step.shape())
    if not given and step.integer("noop_with_empty_axes", 0):
        return step.only()
    axes = {axis % rank for axis in given} if given else set(range(rank))
    return _removed(step, _keep(step, axes), axes)


def arg_reduce(step: Step) -> Place:
    """ArgMax and ArgMin: like `reduce`, over one axis."""
    axes = {step.axis(0)}
    return _removed(step, _keep(step, axes), axes)


def along_axis(step: Step) -> Place:
    """Split, TopK, LpNormalization: works along the attribute `axis` alone."""
    return _keep(step, {step.axis(0 if step.node.op_type == "Split" else -1)})


def cumulate(step: Step) -> Place:
    """CumSum: its axis is an operand."""
    return _keep(step, {axis % len(step.shape()) for axis in step.integers("axis", 1) or ()})


def concat(step: Step) -> Place:
    """Joins along another axis; a part that all samples share is repeated for each."""
    (place,) = _same(step, set(filter(None, step.places)))
    if step.axis(0) == place.axis:
        raise step.refuse("joins along the batch axis")
    for index, here in enumerate(step.places):
        if here is None:
            _copy(step, index, place)
    return place


def transpose(step: Step) -> Place:
    """Moves axes."""
    place = step.only()
    order = step.integers("perm") or tuple(range(len(step.shape())))[::-1]
    return place._replace(axis=order.index(place.axis))


def reshape(step: Step) -> Place:
    """Keeps the order of elements; its target grows with the batch."""
    place = step.land(step.only())
    step.grow(1, step.output_shape, place.axis)
    return place


def flatten(step: Step) -> Place:
    """Keeps the order of elements; the target follows from the input."""
    place, axis = step.only(), step.integer("axis", 1)
    after = step.land(place)
    if after.axis != int(place.axis >= (axis if axis >= 0 else axis + len(step.shape()))):
        raise step.refuse("moves samples from rows to columns")
    return after


def squeeze(step: Step) -> Place:
    """Removes named axes of length 1."""
    axes = step.integers("axes", 1)
    if axes is None:
        raise step.refuse("removes every axis of length 1, the batch too")
    named = {axis % len(step.shape()) for axis in axes}
    place = _keep(step, named)
    return place._replace(axis=place.axis - sum(axis < place.axis for axis in named))


def unsqueeze(step: Step) -> Place:
    """Adds axes of length 1."""
    place, rank = step.only(), len(step.output_shape)
    added = {axis % rank for axis in step.integers("axes", 1) or ()}
    return place._replace(axis=[axis for axis in range(rank) if axis not in added][place.axis])


def expand(step: Step) -> Place:
    """Broadcasts to a shape written into the file."""
    place, shape = step.only(), step.output_shape
    axis = place.axis + len(shape) - len(step.shape())
    if shape[axis] != step.shape()[place.axis]:
        raise step.refuse("repeats the batch axis")
    step.grow(1, shape, axis)
    return place._replace(axis=axis)


def cut(step: Step) -> Place:
    """Slice: any axis but the samples', which may be named as long as it stays whole."""
    starts, ends = step.integers("starts", 1) or (), step.integers("ends", 2) or ()
    axes = step.integers("axes", 3) or tuple(range(len(starts)))
    strides = step.integers("steps", 4) or (1,) * len(starts)
    whole = {
        axis % len(step.shape())
        for axis, start, end, stride in zip(axes, starts, ends, strides, strict=True)
        if (start, stride) == (0, 1) and end >= 2**31 - 1
    }
    return _keep(step, {axis % len(step.shape()) for axis in axes} - whole)


def gather(step: Step) -> Place:
    """Picks along an axis: from samples, or for samples."""
    axis = step.axis(0)
    if step.places[0] is None:
        picked = step.only(1)
        return picked._replace(axis=picked.axis + axis)
    place = _keep(step, {axis})
    return place if place.axis < axis else place._replace(axis=place.axis + len(step.shape(1)) - 1)


def gather_elements(step: Step) -> Place:
    """Picks along an axis, position by position; what all samples share is repeated for each."""
    (place,) = _same(step, set(filter(None, step.places)))
    if place.axis == step.axis(0) or step.shape(0)[place.axis] != step.shape(1)[place.axis]:
        raise step.refuse("works along the batch axis")
    for index, here in enumerate(step.places):
        if here is None:
            _copy(step, index, place)
    return place


def gather_nd(step: Step) -> Place:
    """Picks positions written into the file: those in the only sample become those in every sample."""
    place, positions = step.only(), step.read[1].data if step.read[1] else None
    if positions is None or step.integer("batch_dims", 0) or step.shape()[place.axis] != 1 or len(positions) != 1:
        raise step.refuse("picks positions that are not those of one sample")
    if place.axis >= positions.shape[-1]:
        return place._replace(axis=place.axis - positions.shape[-1] + positions.ndim - 1)
    in_sample = np.arange(positions.shape[-1]) != place.axis  # of one sample only 0 can be picked

    def spread(batch_size: int) -> Array:
        samples = np.arange(batch_size).reshape(-1, *[1] * (positions.ndim - 1))
        return np.where(in_sample, positions, samples)

    step.literals[1] = spread
    return Place(0, 1)


def pad(step: Step) -> Place:
    """Adds to the ends of other axes."""
    rank = len(step.shape())
    pads = step.integers("pads", 1) or ()
    axes = step.integers("axes", 3) or tuple(range(rank))
    half = len(pads) // 2
    return _keep(step, {axis % rank for index, axis in enumerate(axes) if pads[index] or pads[half + index]})


def tile(step: Step) -> Place:
    """Repeats other axes."""
    return _keep(step, {axis for axis, count in enumerate(step.integers("repeats", 1) or ()) if count != 1})


def resize(step: Step) -> Place:
    """Resize and Upsample: other axes change their length; lengths written into the file grow with the batch."""
    changed = {axis for axis, (a, b) in enumerate(zip(step.shape(), step.output_shape, strict=True)) if a != b}
    place = _keep(step, changed)
    axes = step.integers("axes") or tuple(range(len(step.shape())))
    if place.axis not in axes:
        return place
    index = axes.index(place.axis)
    if len(step.read) > 3 and step.read[3]:
        step.grow(3, step.integers("sizes", 3) or (), index)
    elif _scales(step)[index] != 1.0:
        raise step.refuse("works along the batch axis")
    return place


def quantize(step: Step) -> Place:
    """QuantizeLinear and DequantizeLinear: one factor for all, or one for every position on another axis."""
    per_axis = len(step.shape(1))
    if per_axis > 1:
        raise step.refuse("has factors in blocks")
    return _keep(step, {step.axis(1)} if per_axis else ())


def matmul(step: Step) -> Place:
    """Samples are rows of the left, columns of the right, or leading axes of both."""
    found = set()
    rank = max(2, len(step.shape(0)), len(step.shape(1)))
    for index, place in enumerate(step.places[:2]):
        here = len(step.shape(index))
        if place is None:
            continue
        if here == 1 or place.axis == (here - 1 if index == 0 else here - 2):
            raise step.refuse("sums over the batch axis")
        found.add(place._replace(axis=place.axis + rank - here))
    (place,) = _same(step, found)
    if place.axis >= rank - 2:
        step.only(0 if place.axis == rank - 2 else 1)
    elif min(len(step.shape(0)), len(step.shape(1))) > 1:
        _meet(step, {place}, rank)
    return place if place.axis < len(step.output_shape) else place._replace(axis=place.axis - 1)


def gemm(step: Step) -> Place:
    """Samples are rows of the left matrix or columns of the right one; the added term is shared along them."""
    side = 0 if step.places[0] else 1
    place = step.only(side)
    kept = side if not step.integer("transB" if side else "transA", 0) else 1 - side
    if place.axis != kept:
        raise step.refuse("sums over the batch axis")
    after = place._replace(axis=side)
    if len(step.read) > 2 and step.read[2]:
        shape = (1, 1, *step.shape(2))[-2:]
        if shape[side] != 1:
            raise step.refuse("adds a term that differs between samples")
    return after


def einsum(step: Step) -> Place:
    """Samples keep one letter from the operands to the result."""
    equation = next(entry.s.decode() for entry in step.node.attribute if entry.name == "equation").replace(" ", "")
    left, arrow, result = equation.partition("->")
    terms = list(zip(left.split(","), step.places, strict=True))
    letters = {(term[place.axis], place.inner) for term, place in terms if place and "." not in equation}
    if not arrow or len(letters) != 1:
        raise step.refuse(f"has an equation whose samples cannot be followed: {equation}")
    ((letter, inner),) = letters
    if result.count(letter) != 1 or any(term.count(letter) != bool(place) for term, place in terms):
        raise step.refuse("sums over the batch axis")
    return Place(result.index(letter), inner)


def recurrent(step: Step) -> tuple[Place, ...]:
    """LSTM, GRU, RNN on (sequence, batch, features); a shared first state is repeated for each sample."""
    place = step.places[0]
    if place is None or place.axis != 1 or step.integer("layout", 0) or any(step.places[1:5]):
        raise step.refuse("holds the samples on another axis than the second")
    if len(step.read) > 4 and step.read[4]:
        raise step.refuse("has a length for every sample")
    for index in range(5, min(7, len(step.read))):
        if step.read[index] and step.places[index] is None:
            _copy(step, index, place)
        elif step.read[index] and step.places[index] != place:
            raise step.refuse("holds the samples of its state on another axis")
    if any(step.places[7:]):
        raise step.refuse("reads the samples as weights")
    return (place._replace(axis=2), place, place)


def _keep(step: Step, axes: Collection[int]) -> Place:
    """The place of input 0, unless the node works along it."""
    place = step.only()
    if place.axis in axes:
        raise step.refuse("works along the batch axis")
    return place


def _removed(step: Step, place: Place, axes: set[int]) -> Place:
    if step.integer("keepdims", 1):
        return place
    return place._replace(axis=place.axis - sum(axis < place.axis for axis in axes))


def _same(step: Step, places: set[Place]) -> set[Place]:
    if len(places) != 1:
        raise step.refuse("holds the samples of its operands on different axes")
    return places


def _aligned(step: Step, index: int) -> Place:
    """The place of an operand in the shape that all broadcast to."""
    place = step.places[index]
    assert place is not None
    return place._replace(axis=place.axis + len(step.output_shape) - len(step.shape(index)))


def _meet(step: Step, places: set[Place], rank: int | None = None) -> Place:
    """One place for all; there operands with samples are equally long, one without is 1 long or repeated."""
    (place,) = _same(step, places)
    rank = len(step.output_shape) if rank is None else rank
    lengths = set()
    for index, value in enumerate(step.read):
        axis = place.axis - rank + (len(value.shape) if value else 0)
        length = value.shape[axis] if value and axis >= 0 else 1
        if step.places[index]:
            lengths.add(length)
        elif length != 1:
            _copy(step, index, place._replace(axis=axis))
    if len(lengths) != 1:
        raise step.refuse("repeats samples")
    return place


def _scales(step: Step) -> list[float]:
    """Factors of a Resize or Upsample: an attribute, or an operand that moved once."""
    for entry in step.node.attribute:
        if entry.name == "scales":
            return list(entry.floats)
    value = step.read[1 if step.node.op_type == "Upsample" or step.version < 11 else 2]
    if value is None or value.data is None:
        raise step.refuse("has scales that are not constant")
    return [float(factor) for factor in value.data.reshape(-1)]


def _copy(step: Step, index: int, place: Place) -> None:
    """Repeat what all samples share, once for each of them, where the samples of the others lie."""
    if step.n_samples != 1 or step.shape(index)[place.axis] != place.inner:
        raise step.refuse("meets an operand that may differ between samples")
    step.copies[index] = place.axis


_POINTWISE = (
    "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast Ceil Celu "
    "Clip Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity IsInf IsNaN "
    "LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu Shrink "
    "Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor"
)
_ROWS = (
    "AveragePool BatchNormalization Conv ConvTranspose DepthToSpace GlobalAveragePool GlobalLpPool GlobalMaxPool "
    "GroupNormalization InstanceNormalization LRN LpPool MaxPool SpaceToDepth"
)
_REDUCE = "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum"

RULES: dict[str, Rule] = {
    **dict.fromkeys(_POINTWISE.split(), pointwise),
    **dict.fromkeys(_ROWS.split(), rows),
    **dict.fromkeys(_REDUCE.split(), reduce),
    "ReduceSumSquare": reduce,
    **dict.fromkeys(("ArgMax", "ArgMin"), arg_reduce),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), softmax),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), layer_norm),
    **dict.fromkeys(("Split", "TopK", "LpNormalization"), along_axis),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), recurrent),
    **dict.fromkeys(("Resize", "Upsample"), resize),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), quantize),
    "Concat": concat,
    "CumSum": cumulate,
    "Dropout": Step.only,
    "Einsum": einsum,
    "Expand": expand,
    "Flatten": flatten,
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "Gemm": gemm,
    "MatMul": matmul,
    "Pad": pad,
    "Reshape": reshape,
    "Slice": cut,
    "Squeeze": squeeze,
    "Tile": tile,
    "Transpose": transpose,
    "Unsqueeze": unsqueeze,
}
