"""What holds for every tensor at any batch size, learnt from concrete ones: `Fact`."""

from __future__ import annotations

from typing import NamedTuple

import onnx
from onnx import helper

from autoauto.graph.read.trace import Array, Value, is_float, trace
from autoauto.graph.rebatch.rebatch import at_batch, own_batch, settle
from autoauto.records.errors import BadInput, UnreadableModel


class Fact(NamedTuple):
    """What is known about a tensor, as in `records.layers.Tensor`.

    Attributes:
        shape: at batch size 1.
        batch_axis: the axis whose length is multiplied by the batch size, None when there is none.
        dtype: "float", or NumPy's name.
        data: its elements at batch size 1, where they are constant and few.
        constant: whether it depends neither on an input nor, as floats, on the batch size.
    """

    shape: tuple[int, ...]
    batch_axis: int | None
    dtype: str
    data: Array | None
    constant: bool


class Known(NamedTuple):
    """A plain model at batch size 1, the facts by tensor name, and why other batch sizes do not work (or None)."""

    model: onnx.ModelProto
    facts: dict[str, Fact]
    fixed_batch: str | None


def learn(model: onnx.ModelProto) -> Known:
    """Follow the shapes of a model through batch sizes 1, 2 and 3; through its own only where others do not work.

    Raises:
        UnreadableModel: the model cannot be read at any batch size.
    """
    plain, batch = settle(model)
    alone = own_batch(plain, batch)
    try:
        models = [at_batch(plain, batch, batch_size) for batch_size in (1, 2, 3)]
        one, two, three = map(trace, models)
        return Known(models[0], {name: _fact(name, one[name], two[name], three[name]) for name in one}, None)
    except BadInput as reason:
        return Known(
            alone, {name: _fact(name, value, value, value) for name, value in trace(alone).items()}, str(reason)
        )


def _fact(name: str, one: Value, two: Value, three: Value) -> Fact:
    axis = batch_axis(name, one.shape, two.shape, three.shape)
    dtype = _dtype(name, one.dtype)
    return Fact(one.shape, axis, dtype, one.data, one.constant and not (dtype == "float" and axis is not None))


def batch_axis(name: str, one: tuple[int, ...], two: tuple[int, ...], three: tuple[int, ...]) -> int | None:
    """The axis that grows with the batch, from the shapes at 1, 2 and 3 samples; None when no axis does.

    >>> batch_axis("x", (12, 64), (24, 64), (36, 64))
    0

    Raises:
        BadInput: an axis changes otherwise, or more than one does.
    """
    if len(one) == len(two) == len(three):
        moved = [axis for axis in range(len(one)) if not one[axis] == two[axis] == three[axis]]
        if not moved:
            return None
        axis = moved[0]
        if len(moved) == 1 and (two[axis], three[axis]) == (2 * one[axis], 3 * one[axis]):
            return axis
    raise BadInput(
        f"one axis of a tensor must grow with the batch, {name!r} is {list(one)}, {list(two)} and {list(three)}"
        " at 1, 2 and 3 samples"
    )


def _dtype(name: str, dtype: int) -> str:
    if is_float(dtype):
        return "float"
    try:
        return str(helper.tensor_dtype_to_np_dtype(dtype))
    except KeyError as error:
        raise UnreadableModel(f"tensor {name!r} has an element type that is not known: {dtype}") from error
