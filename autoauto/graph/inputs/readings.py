"""The inputs of a model: where samples lie, and the lengths of all other axes, `readings`.

An axis of an input is fixed by the file, or open: with a name ("height"), or without one. Of the open axes the batch
axis is found by its name, else it is the first one; all others need a length, which the user gives (`ModelInputs`):

    images (batch, 3, height, width)      batch axis 0; height and width are given by their names
    state  (2, ?, 128)                    batch axis 1: the file leaves nothing else open
    sr     ()                             no batch axis
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy

import onnx

from autoauto.graph.inputs.axes import Dim, Input, describe, dims_of
from autoauto.graph.inputs.batch_axes import (
    Batch,
    batch_name,
    batches,
    check_batch_is_open,
    likely_batch_axis,
    says_batch,
    with_batch_axes,
    with_one_first_name,
)
from autoauto.graph.inputs.lengths import length_kind, open_axes, sensible
from autoauto.graph.onnx_file import all_nodes
from autoauto.records.errors import BadInput, UnreadableModel, did_you_mean
from autoauto.records.layers import ModelInputs

Reading = tuple[onnx.ModelProto, Batch]
"""A model in which all open axes but those of the batch have lengths, and where its batch lies."""


def readings(model: onnx.ModelProto, given: ModelInputs) -> Iterator[Reading]:
    """The ways to read the inputs of a plain model, the most likely first; a later one counts where that fails.

    Raises:
        BadInput: an axis stays open, or what was given contradicts the file; the message ends with what to try.
        UnreadableModel: an input is no tensor.
    """
    inputs = [_input(entry, given) for entry in model.graph.input]
    _check_names(model, inputs, given)
    inputs = with_one_first_name(inputs, given)
    firsts = {str(dims[0]) for dims in map(dims_of, model.graph.output) if dims}  # of the outputs
    check_batch_is_open(inputs, firsts, given)
    known = [_with_lengths(each, given) for each in inputs]
    inputs = with_batch_axes(known, firsts)
    guessed = _guess([after for before, after in zip(known, inputs, strict=True) if before != after])
    left = [each for each in inputs if each.open_axes]
    if left:
        names = dict.fromkeys(map(batch_name, inputs))
        raise open_axes(left, [name for name in names if name and not says_batch(name)])
    for batch in batches(inputs):
        open_batch = dict(batch.axes) if batch.fixed is None else {}
        copy = deepcopy(model)
        for entry, each in zip(copy.graph.input, inputs, strict=True):
            dims = [None if open_batch.get(each.name) == axis else dim for axis, dim in enumerate(each.dims)]
            entry.type.CopyFrom(onnx.helper.make_tensor_type_proto(entry.type.tensor_type.elem_type, dims))
        yield copy, batch._replace(guessed=guessed)


def _guess(inputs: Sequence[Input]) -> str:
    """Options to try where the axis taken for the batch has a name that usually means a length; else empty."""
    for each in inputs:
        first = str(each.dims[0]) if each.batch_axis == 0 else ""
        kind = length_kind(first)
        if kind is not None and not says_batch(first):
            lengths = "x".join(map(str, (kind.lengths[0], *each.dims[1:])))
            return f"--batch-axis {each.name}=none --shape {each.name}={lengths}"
    return ""


def _input(entry: onnx.ValueInfoProto, given: ModelInputs) -> Input:
    if not entry.type.HasField("tensor_type"):
        raise UnreadableModel(f"every input must be a tensor, {entry.name!r} is none; try to export the model without")
    if entry.type.tensor_type.HasField("shape"):
        return Input(entry.name, dims_of(entry))
    lengths = dict(given.shapes).get(entry.name)
    if lengths is None:
        raise BadInput(
            f"the number of axes of input {entry.name!r} is not in the file; try --shape {entry.name}=3x224x224, all "
            "lengths but that of the batch axis"
        )
    return Input(entry.name, ("", *lengths))


def _check_names(model: onnx.ModelProto, inputs: Sequence[Input], given: ModelInputs) -> None:
    names = {each.name: each for each in inputs}
    axes: set[str] = set()
    for each in inputs:
        axes.update(dim for dim in each.dims if isinstance(dim, str) and dim)
    outputs = [entry.name for entry in model.graph.output]
    others: set[str] = set()  # lengths that depend on data are given by the names of tensors and of loops
    for node in all_nodes(model.graph):
        others.update([node.name, *node.output])
    for name, lengths in given.shapes:
        if name not in names and name not in axes and name not in others:
            raise BadInput(f"there is no open axis or input {name!r}; {_offer(name, [*axes, *names])}")
        if name in axes and name not in names and len(lengths) > 1:
            raise BadInput(f"axis {name!r} has one length, got {'x'.join(map(str, lengths))}")
    for name, axis in given.batch_axes:
        if name not in names:
            raise BadInput(f"--batch-axis is for an input, there is none called {name!r}; {_offer(name, names)}")
        if axis is not None and axis >= len(names[name].dims):
            raise BadInput(f"input {name!r} has {len(names[name].dims)} axes, got --batch-axis {name}={axis}")
    for name, output in given.states:
        for end, known in ((name, list(names)), (output, outputs)):
            if end not in known:
                raise BadInput(f"--state takes INPUT=OUTPUT of the model, it has no {end!r}; {_offer(end, known)}")


def _offer(word: str, known: Iterable[str]) -> str:
    names = sorted(known)
    return did_you_mean(word, names, f"there are {', '.join(names[:20])}")


def _with_lengths(each: Input, given: ModelInputs) -> Input:
    by_name = {name: lengths[0] for name, lengths in given.shapes if len(lengths) == 1}
    axes = dict(given.batch_axes)
    dims = tuple(_length(dim, by_name) for dim in each.dims)
    named = Input(
        each.name, dims, axes.get(each.name), is_given=each.name in axes, first_is_given=dims[:1] != each.dims[:1]
    )
    lengths = dict(given.shapes).get(each.name)
    if lengths is None or (len(lengths) == 1 and each.name in each.dims):
        return named
    return _with_shape(named, lengths)


def _length(dim: Dim, by_name: Mapping[str, int]) -> Dim:
    """The length of an axis by its name, which may be a sum or a product of names, as in "past + 1"."""
    if not isinstance(dim, str) or not dim:
        return dim
    if dim in by_name:
        return by_name[dim]
    try:
        return _value(ast.parse(dim, mode="eval").body, by_name)
    except (SyntaxError, ValueError, KeyError, RecursionError, ZeroDivisionError, MemoryError):
        return dim


def _value(node: ast.expr, by_name: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return by_name[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        value = int(_OPERATIONS[type(node.op)](_value(node.left, by_name), _value(node.right, by_name)))
        if value >= 1:
            return value
    raise ValueError(node)


_OPERATIONS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
}


def _with_shape(each: Input, lengths: Sequence[int]) -> Input:
    """An input with the shape that was given for it: of all axes but the batch axis, or of all where it has none."""
    name, dims = each.name, each.dims
    likely = each.batch_axis if each.is_given else likely_batch_axis(dims)
    # As many lengths as axes mean that no axis is the batch; one length fewer leaves out the batch axis.
    if len(lengths) == len(dims) and likely is None:
        return Input(name, _agree(name, dims, lengths), None, is_given=True)
    if len(lengths) != len(dims) - 1 or (each.is_given and likely is None):
        n_axes = len(dims) if likely is None else f"{len(dims) - 1} axes without its batch axis"
        example = "x".join(str(sensible(name, dims, axis)) for axis in range(len(dims)) if axis != likely)
        got = f"{name}={'x'.join(map(str, lengths))}"
        raise BadInput(f"input {name!r} {describe(dims)} has {n_axes}, got --shape {got}; try --shape {name}={example}")
    axis, is_sure = likely, True
    if axis is None:
        axis, is_sure = _left_out(dims, lengths)
    agreed = _agree(name, dims, (*lengths[:axis], dims[axis], *lengths[axis:]))
    if not is_sure:
        return each._replace(dims=agreed)
    return Input(name, agreed, axis, is_given=True)


def _left_out(dims: Sequence[Dim], lengths: Sequence[int]) -> tuple[int, bool]:
    """The axis that is left when `lengths` are given to all others, an open one if possible, and whether it is certain.

    >>> _left_out((2, "", 128), (2, 128)), _left_out((1, 64, ""), (64, 160)), _left_out((1, 1, 64), (1, 64))
    ((1, True), (0, True), (0, False))
    """
    fit: list[int] = []
    for axis in range(len(dims)):
        others = (*dims[:axis], *dims[axis + 1 :])
        if all(isinstance(dim, str) or dim == length for dim, length in zip(others, lengths, strict=True)):
            fit.append(axis)
    is_open = [axis for axis in fit if isinstance(dims[axis], str)]
    if is_open:
        return is_open[0], True
    if not fit:  # the message about a length that disagrees follows
        return 0, True
    return fit[0], len(fit) == 1


def _agree(name: str, dims: Sequence[Dim], lengths: Sequence[Dim]) -> tuple[Dim, ...]:
    """`lengths`, after a check that no axis has another length already."""
    for axis, (dim, length) in enumerate(zip(dims, lengths, strict=True)):
        if isinstance(dim, int) and dim != length:
            raise BadInput(
                f"axis {axis} of input {name!r} {describe(dims)} is {dim} in the file or by its name, got {length}; an "
                "axis has one length, and one that the file fixes keeps it"
            )
    return tuple(lengths)
