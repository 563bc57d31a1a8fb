"""Facts about tensors that hold at any batch size, from the shapes at 1, 2 and 3 samples: `TensorFact`."""

from __future__ import annotations

from typing import NamedTuple

import onnx
from onnx import helper

from autoauto.graph.batch.rebatch import resolve_batch
from autoauto.graph.inputs.batch_axes import Batch
from autoauto.graph.inputs.states import State, states_of
from autoauto.graph.shapes.values import Value, is_float
from autoauto.records.errors import BadInput, UnreadableModel
from autoauto.records.layers import AS_IN_FILE, ModelInputs
from autoauto.records.units import Array


class TensorFact(NamedTuple):
    """Shape, type and origin of a tensor, as in `records.layers.Tensor`."""

    shape: tuple[int, ...]  # at batch size 1
    batch_axis: int | None  # the axis whose length is multiplied by the batch size, None when there is none
    dtype: str  # "float", or NumPy's name
    data: Array | None  # its elements at batch size 1, where they are constant and few
    constant: bool  # whether it depends neither on an input nor, as floats, on the batch size
    data_dependent: bool  # whether lengths depend on data; `shape` is then an upper bound


class ModelFacts(NamedTuple):
    """A plain model and the facts about its tensors."""

    model: onnx.ModelProto  # at batch size 1, or at its own where other batch sizes are impossible
    facts: dict[str, TensorFact]  # by tensor name
    fixed_batch: str | None  # why other batch sizes are impossible, None when they are not
    batch: Batch  # where the samples lie in the inputs
    states: tuple[State, ...] = ()  # inputs that an output feeds in the next call, with that output
    only_branches: tuple[str, ...] = ()  # those that run because the others of their Ifs do not fit the lengths


def infer_facts(model: onnx.ModelProto, given: ModelInputs = AS_IN_FILE) -> ModelFacts:
    """Trace a model at the batch sizes 1, 2 and 3; at its own batch size only, where the others are impossible.

    Raises:
        BadInput: an axis of an input stays open that is no batch axis.
        UnreadableModel: the model cannot be read at any batch size.
    """
    plain = resolve_batch(model, given)
    own = plain.own
    states = states_of(own.model, own.values, given)
    try:
        at_one, at_two, at_three = plain.at(1), plain.at(2), plain.at(3)
        facts: dict[str, TensorFact] = {}
        for name, value in at_one.values.items():
            if name not in at_two.values or name not in at_three.values:  # of a branch that does not fit other lengths
                raise BadInput(f"a branch must fit every batch size, that with {name!r} fits one sample alone")
            facts[name] = _fact(name, value, at_two.values[name], at_three.values[name])
        return ModelFacts(at_one.model, facts, None, plain.batch, states, plain.only_branches)
    except BadInput as reason:
        if plain.batch.guessed:
            raise BadInput(f"no axis of the inputs acts like a batch: {reason}; try {plain.batch.guessed}") from None
        facts = {name: _fact(name, value, value, value) for name, value in own.values.items()}
        return ModelFacts(own.model, facts, str(reason), plain.batch, states, plain.only_branches)


def batch_axis(name: str, at_one: tuple[int, ...], at_two: tuple[int, ...], at_three: tuple[int, ...]) -> int | None:
    """The axis that grows with the batch, from the shapes at 1, 2 and 3 samples; None when no axis does.

    Raises BadInput if one changes otherwise, or several do.

    >>> batch_axis("x", (12, 64), (24, 64), (36, 64))
    0
    """
    if at_one == at_two == at_three:
        return None
    if len(at_one) == len(at_two) == len(at_three):
        changed = [axis for axis in range(len(at_one)) if not at_one[axis] == at_two[axis] == at_three[axis]]
        axis = changed[0]
        if len(changed) == 1 and (at_two[axis], at_three[axis]) == (2 * at_one[axis], 3 * at_one[axis]):
            return axis
    shapes = f"{list(at_one)}, {list(at_two)} and {list(at_three)} at 1, 2 and 3 samples"
    raise BadInput(f"one axis of a tensor must grow with the batch, {name!r} is {shapes}")


def _fact(name: str, at_one: Value, at_two: Value, at_three: Value) -> TensorFact:
    axis = batch_axis(name, at_one.shape, at_two.shape, at_three.shape)
    dtype = "float"
    if not is_float(at_one.dtype):
        try:
            dtype = str(helper.tensor_dtype_to_np_dtype(at_one.dtype))
        except KeyError as error:
            raise UnreadableModel(f"tensor {name!r} has an element type that is not known: {at_one.dtype}") from error
    constant = at_one.constant and not (dtype == "float" and axis is not None)
    return TensorFact(at_one.shape, axis, dtype, at_one.data, constant, at_one.data_dependent)
