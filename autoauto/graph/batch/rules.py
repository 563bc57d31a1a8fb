"""Rules of the operators that keep samples apart, `RULES`: where the samples lie in the outputs.

A rule reads a `NodeStep` and returns the `SampleAxis` in all outputs, or one for each. It raises `NodeStep.refuse` when
the node mixes samples.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from autoauto.graph.batch.sample_axes import NodeStep, SampleAxis
from autoauto.records.units import Array

SampleRule = Callable[[NodeStep], SampleAxis | tuple[SampleAxis, ...]]


def pointwise(step: NodeStep) -> SampleAxis:
    """Operands are broadcast to one shape, in which the samples of all of them lie on one axis."""
    return _meet(step, {_aligned(step, index) for index, samples in enumerate(step.sample_axes) if samples})


def rows(step: NodeStep) -> SampleAxis:
    """Convolution, pooling, normalisation within one row of axis 0."""
    samples = step.only()
    if samples.axis != 0 or step.integer("training_mode", 0) or any(step.node.output[1:]):
        raise step.refuse("works along the batch axis")
    return samples


def softmax(step: NodeStep) -> SampleAxis:
    """Normalises one axis; before operator set 13 all axes from there on."""
    first = step.axis(-1 if step.version >= 13 else 1)
    return _not_along(step, {first} if step.version >= 13 else range(first, len(step.shape())))


def layer_norm(step: NodeStep) -> SampleAxis:
    """Normalises all axes from one on."""
    return _not_along(step, range(step.axis(-1), len(step.shape())))


def reduce(step: NodeStep) -> SampleAxis:
    """Removes axes, or makes them 1 long."""
    given, rank = step.integers("axes", 1), len(step.shape())
    if not given and step.integer("noop_with_empty_axes", 0):
        return step.only()
    axes = {axis % rank for axis in given} if given else set(range(rank))
    return _removed(step, _not_along(step, axes), axes)


def arg_reduce(step: NodeStep) -> SampleAxis:
    """ArgMax and ArgMin: like `reduce`, over one axis."""
    axes = {step.axis(0)}
    return _removed(step, _not_along(step, axes), axes)


def along_axis(step: NodeStep) -> SampleAxis:
    """Split, TopK, LpNormalization: one axis, the attribute `axis`."""
    return _not_along(step, {step.axis(0 if step.node.op_type == "Split" else -1)})


def cumulate(step: NodeStep) -> SampleAxis:
    """CumSum: its axis is an operand."""
    return _not_along(step, {axis % len(step.shape()) for axis in step.integers("axis", 1) or ()})


def concat(step: NodeStep) -> SampleAxis:
    """Joins along an axis without samples; an operand that all samples share is repeated for each."""
    (samples,) = _same(step, set(filter(None, step.sample_axes)))
    if step.axis(0) == samples.axis:
        raise step.refuse("joins along the batch axis")
    for index, operand in enumerate(step.sample_axes):
        if operand is None:
            _copy(step, index, samples)
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
    after = step.after_reshape(samples)
    if after.axis != int(samples.axis >= (axis if axis >= 0 else axis + len(step.shape()))):
        raise step.refuse("moves samples from rows to columns")
    return after


def squeeze(step: NodeStep) -> SampleAxis:
    """Removes named axes of length 1."""
    axes = step.integers("axes", 1)
    if axes is None:
        raise step.refuse("removes every axis of length 1, the batch too")
    named = {axis % len(step.shape()) for axis in axes}
    samples = _not_along(step, named)
    return samples._replace(axis=samples.axis - sum(axis < samples.axis for axis in named))


def unsqueeze(step: NodeStep) -> SampleAxis:
    """Adds axes of length 1."""
    samples, rank = step.only(), len(step.output_shape)
    added = {axis % rank for axis in step.integers("axes", 1) or ()}
    return samples._replace(axis=[axis for axis in range(rank) if axis not in added][samples.axis])


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
    whole = {
        axis % len(step.shape())
        for axis, start, end, stride in zip(axes, starts, ends, strides, strict=True)
        if (start, stride) == (0, 1) and end >= 2**31 - 1
    }
    return _not_along(step, {axis % len(step.shape()) for axis in axes} - whole)


def gather(step: NodeStep) -> SampleAxis:
    """Picks along an axis: samples lie in the data, or in the indices."""
    axis = step.axis(0)
    if step.sample_axes[0] is None:
        picked = step.only(1)
        return picked._replace(axis=picked.axis + axis)
    samples = _not_along(step, {axis})
    return samples if samples.axis < axis else samples._replace(axis=samples.axis + len(step.shape(1)) - 1)


def gather_elements(step: NodeStep) -> SampleAxis:
    """Picks along an axis, position by position; an operand that all samples share is repeated for each."""
    (samples,) = _same(step, set(filter(None, step.sample_axes)))
    if samples.axis == step.axis(0) or step.shape(0)[samples.axis] != step.shape(1)[samples.axis]:
        raise step.refuse("works along the batch axis")
    for index, operand in enumerate(step.sample_axes):
        if operand is None:
            _copy(step, index, samples)
    return samples


def gather_nd(step: NodeStep) -> SampleAxis:
    """Picks positions written into the file: those in the only sample become those in every sample."""
    samples, positions = step.only(), step.read[1].data if step.read[1] else None
    if positions is None or step.integer("batch_dims", 0) or step.shape()[samples.axis] != 1 or len(positions) != 1:
        raise step.refuse("picks positions that are not those of one sample")
    if samples.axis >= positions.shape[-1]:
        return samples._replace(axis=samples.axis - positions.shape[-1] + positions.ndim - 1)
    in_sample = np.arange(positions.shape[-1]) != samples.axis  # of one sample only 0 can be picked

    def spread(batch_size: int) -> Array:
        samples = np.arange(batch_size).reshape(-1, *[1] * (positions.ndim - 1))
        return np.where(in_sample, positions, samples)

    step.literals[1] = spread
    return SampleAxis(0, 1)


def pad(step: NodeStep) -> SampleAxis:
    """Adds to the ends of other axes."""
    rank = len(step.shape())
    pads = step.integers("pads", 1) or ()
    axes = step.integers("axes", 3) or tuple(range(rank))
    half = len(pads) // 2
    return _not_along(step, {axis % rank for index, axis in enumerate(axes) if pads[index] or pads[half + index]})


def tile(step: NodeStep) -> SampleAxis:
    """Repeats other axes."""
    return _not_along(step, {axis for axis, count in enumerate(step.integers("repeats", 1) or ()) if count != 1})


def resize(step: NodeStep) -> SampleAxis:
    """Resize and Upsample: other axes change their length; lengths written into the file grow with the batch."""
    changed = {axis for axis, (a, b) in enumerate(zip(step.shape(), step.output_shape, strict=True)) if a != b}
    samples = _not_along(step, changed)
    axes = step.integers("axes") or tuple(range(len(step.shape())))
    if samples.axis not in axes:
        return samples
    index = axes.index(samples.axis)
    if len(step.read) > 3 and step.read[3]:
        step.grow(3, step.integers("sizes", 3) or (), index)
    elif _scales(step)[index] != 1.0:
        raise step.refuse("works along the batch axis")
    return samples


def quantize(step: NodeStep) -> SampleAxis:
    """QuantizeLinear and DequantizeLinear: one factor for all, or one for every position on another axis."""
    per_axis = len(step.shape(1))
    if per_axis > 1:
        raise step.refuse("has factors in blocks")
    return _not_along(step, {step.axis(1)} if per_axis else ())


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
    (samples,) = _same(step, aligned)
    if samples.axis >= rank - 2:
        step.only(0 if samples.axis == rank - 2 else 1)
    elif min(len(step.shape(0)), len(step.shape(1))) > 1:
        _meet(step, {samples}, rank)
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
            _copy(step, index, samples)
        elif step.read[index] and step.sample_axes[index] != samples:
            raise step.refuse("holds the samples of its state on another axis")
    if any(step.sample_axes[7:]):
        raise step.refuse("reads the samples as weights")
    return (samples._replace(axis=2), samples, samples)


def _not_along(step: NodeStep, axes: Collection[int]) -> SampleAxis:
    """Where the samples lie in input 0; refused when it is on one of `axes`, along which the node computes."""
    samples = step.only()
    if samples.axis in axes:
        raise step.refuse("works along the batch axis")
    return samples


def _removed(step: NodeStep, samples: SampleAxis, axes: set[int]) -> SampleAxis:
    """Where the samples lie after a reduction of `axes`."""
    if step.integer("keepdims", 1):
        return samples
    return samples._replace(axis=samples.axis - sum(axis < samples.axis for axis in axes))


def _same(step: NodeStep, axes: set[SampleAxis]) -> set[SampleAxis]:
    """The axes, which must be one."""
    if len(axes) != 1:
        raise step.refuse("holds the samples of its operands on different axes")
    return axes


def _aligned(step: NodeStep, index: int) -> SampleAxis:
    """Where the samples of an operand lie in the shape that all operands are broadcast to."""
    samples = step.sample_axes[index]
    assert samples is not None
    return samples._replace(axis=samples.axis + len(step.output_shape) - len(step.shape(index)))


def _meet(step: NodeStep, axes: set[SampleAxis], rank: int | None = None) -> SampleAxis:
    """The sample axis that all operands share once they are broadcast.

    Along it, operands with samples must be equally long; an operand without samples is 1 long, or gets repeated.
    """
    (samples,) = _same(step, axes)
    rank = len(step.output_shape) if rank is None else rank
    lengths = set()
    for index, value in enumerate(step.read):
        axis = samples.axis - rank + (len(value.shape) if value else 0)
        length = value.shape[axis] if value and axis >= 0 else 1
        if step.sample_axes[index]:
            lengths.add(length)
        elif length != 1:
            _copy(step, index, samples._replace(axis=axis))
    if len(lengths) != 1:
        raise step.refuse("repeats samples")
    return samples


def _scales(step: NodeStep) -> list[float]:
    """Factors of a Resize or Upsample: an attribute, or an operand whose position depends on the operator set."""
    for entry in step.node.attribute:
        if entry.name == "scales":
            return list(entry.floats)
    value = step.read[1 if step.node.op_type == "Upsample" or step.version < 11 else 2]
    if value is None or value.data is None:
        raise step.refuse("has scales that are not constant")
    return [float(factor) for factor in value.data.reshape(-1)]


def _copy(step: NodeStep, index: int, samples: SampleAxis) -> None:
    """Repeat an operand that all samples share, once for each sample, along the axis of the samples."""
    if step.n_samples != 1 or step.shape(index)[samples.axis] != samples.inner:
        raise step.refuse("meets an operand that may differ between samples")
    step.copies[index] = samples.axis


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

RULES: dict[str, SampleRule] = {
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
    "Dropout": NodeStep.only,
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
