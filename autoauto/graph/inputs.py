"""The axes of a model's inputs: where samples lie, and the lengths of the others, `readings`.

An axis of an input is fixed by the file, or open: with a name ("height"), or without one. Of the open axes the batch
axis is found by its name, else it is the first one; all others need a length, which the user gives (`ModelInputs`):

    images (batch, 3, height, width)      batch axis 0; height and width are given by their names
    state  (2, ?, 128)                    batch axis 1: the file leaves nothing else open
    sr     ()                             no batch axis
"""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import onnx

from autoauto.graph.onnx_file import all_nodes
from autoauto.records.errors import BadInput, UnreadableModel, did_you_mean
from autoauto.records.layers import Lengths, ModelInputs

Dim = int | str
"""A length that the file fixes, or the name of an open axis, "" for one without a name."""

_NO_NAME = re.compile(r"-?\d*|\?|None|unk__\d+|dynamic_axes_\d+|(p2o\.)?DynamicDimension\.\d+")
_BATCH = re.compile(r"bsz?|.*batch.*", re.IGNORECASE)
_IMAGE = (224, 48, 32, 64, 320)
_LENGTHS: tuple[tuple[str, Lengths], ...] = (  # what the name of an axis, or of an input, says of sensible lengths
    (r"height|width|^[hw]$|image_?size", _IMAGE),
    (r"total", (256, 128, 64, 32, 16)),  # what came before, and what comes
    (r"audio|wave|samples|pcm|signal", (16_000, 512, 32_000, 1_024, 160_000)),
    (r"frame|mel|spec", (100, 200, 64, 300, 1_000)),
    (r"seq|token|text|word|past|cache|context|length|(^|_)len|ids|mask|time|^[tls]$", (128, 64, 32, 16, 8)),
)
_OTHER_LENGTHS = (64, 128, 512, 576, 32)
N_OFFERS = 5
"""How many lengths there are to offer, each tried where those before it do not fit the model."""
_IMAGE_RANK = 4


class OpenAxes(BadInput):
    """Axes of inputs have no length.

    Attributes:
        offers: `--shape` texts for all of them, `N_OFFERS` to try one after the other.
        offer: the index of those in the message.
    """

    def __init__(self, message: str, offers: Sequence[Sequence[str]], offer: int = 0) -> None:
        super().__init__(f"{message}; try {' '.join(_argument(text) for text in offers[offer])}")
        self.message, self.offers, self.offer = message, offers, offer

    def __reduce__(self) -> tuple[type[OpenAxes], tuple[str, Sequence[Sequence[str]], int]]:
        """Pickle all arguments."""
        return OpenAxes, (self.message, self.offers, self.offer)


class Batch(NamedTuple):
    """How a file says what the batch is.

    Attributes:
        axes: the inputs that hold samples, with the axis along which they lie.
        fixed: how many samples the file fixes, None when it leaves them open.
        guessed: what to try instead where nothing but its being open and first speaks for the axis.
    """

    axes: tuple[tuple[str, int], ...]
    fixed: int | None
    guessed: str = ""


class Reading(NamedTuple):
    """A model in which all open axes but those of the batch have lengths, and where its batch lies."""

    model: onnx.ModelProto
    batch: Batch


class _Input(NamedTuple):
    """An input with its axes; its batch axis, None where it has none, and whether the user gave it."""

    name: str
    dims: tuple[Dim, ...]
    batch_axis: int | None = None
    is_given: bool = False

    @property
    def open_axes(self) -> list[int]:
        """Axes without a length, the batch axis aside."""
        return [axis for axis, dim in enumerate(self.dims) if isinstance(dim, str) and axis != self.batch_axis]


def readings(model: onnx.ModelProto, given: ModelInputs) -> Iterator[Reading]:
    """The ways to read the inputs of a plain model, the most likely first; a later one counts where that fails.

    Raises:
        BadInput: an axis stays open, or what was given contradicts the file; the message ends with what to try.
        UnreadableModel: an input is no tensor.
    """
    inputs = [_input(entry, given) for entry in model.graph.input]
    _check_names(model, inputs, given)
    known = [_with_lengths(each, given) for each in inputs]
    inputs = _with_batch_axes(known)
    guessed = _guess([after for before, after in zip(known, inputs, strict=True) if before != after])
    if left := [each for each in inputs if each.open_axes]:
        raise _open_axes(left)
    for batch in _batches(inputs):
        open_batch = dict(batch.axes) if batch.fixed is None else {}
        yield Reading(_with_inputs(model, inputs, open_batch), batch._replace(guessed=guessed))


def _guess(inputs: Sequence[_Input]) -> str:
    """Options to try where the axis taken for the batch has a name that usually means a length; else empty."""
    for name, dims, axis, _ in inputs:
        if axis == 0 and not _BATCH.fullmatch(str(dims[0])) and (known := _known_lengths(str(dims[0]))):
            lengths = "x".join(map(str, (known[0], *dims[1:])))
            return f"--batch-axis {name}=none --shape {name}={lengths}"
    return ""


def describe(dims: Iterable[Dim]) -> str:
    """A shape with the names of its open axes.

    >>> describe(("rows", 3, ""))
    '[rows, 3, ?]'
    """
    return f"[{', '.join(str(dim) or '?' for dim in dims)}]"


def dims_of(entry: onnx.ValueInfoProto) -> tuple[Dim, ...]:
    """The axes of an input or output."""
    return tuple(
        int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value >= 1 else _axis_name(dim.dim_param)
        for dim in entry.type.tensor_type.shape.dim
    )


def _axis_name(text: str) -> str:
    return "" if _NO_NAME.fullmatch(text) else text


def _input(entry: onnx.ValueInfoProto, given: ModelInputs) -> _Input:
    if not entry.type.HasField("tensor_type"):
        raise UnreadableModel(f"every input must be a tensor, {entry.name!r} is none; try to export the model without")
    if entry.type.tensor_type.HasField("shape"):
        return _Input(entry.name, dims_of(entry))
    lengths = dict(given.shapes).get(entry.name)
    if lengths is None:
        raise BadInput(
            f"the number of axes of input {entry.name!r} is not in the file; try --shape {entry.name}=3x224x224, all "
            "lengths but that of the batch axis"
        )
    return _Input(entry.name, ("", *lengths))


def _check_names(model: onnx.ModelProto, inputs: Sequence[_Input], given: ModelInputs) -> None:
    """Refuse names that are not in the model."""
    names = {each.name: each for each in inputs}
    axes = {dim for each in inputs for dim in each.dims if isinstance(dim, str) and dim}
    outputs = [entry.name for entry in model.graph.output]
    others = {name for node in all_nodes(model.graph) for name in (node.name, *node.output)}
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
        if name not in names or output not in outputs:
            wrong, known = (name, [*names]) if name not in names else (output, outputs)
            raise BadInput(f"--state takes INPUT=OUTPUT of the model, it has no {wrong!r}; {_offer(wrong, known)}")


def _offer(word: str, known: Iterable[str]) -> str:
    names = sorted(known)
    return did_you_mean(word, names, f"there are {', '.join(names[:20])}")


def _with_lengths(each: _Input, given: ModelInputs) -> _Input:
    """An input with the lengths that were given for its axes, by their names and by the input's."""
    by_name = {name: lengths[0] for name, lengths in given.shapes if len(lengths) == 1}
    axes = dict(given.batch_axes)
    dims = tuple(_length(dim, by_name) for dim in each.dims)
    named = _Input(each.name, dims, axes.get(each.name), each.name in axes)
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
    """The value of a sum or product of names and numbers."""
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


def _with_shape(each: _Input, lengths: Sequence[int]) -> _Input:
    """An input with the shape that was given for it: of all axes but the batch axis, or of all where it has none.

    Raises:
        BadInput: there are more lengths or fewer, or an axis has another one.
    """
    name, dims = each.name, each.dims
    likely = each.batch_axis if each.is_given else _likely_batch_axis(dims)
    if len(lengths) == len(dims) and likely is None:
        return _Input(name, _agree(name, dims, lengths), None, is_given=True)
    if len(lengths) != len(dims) - 1 or (each.is_given and likely is None):
        n_axes = len(dims) if likely is None else f"{len(dims) - 1} axes without its batch axis"
        example = "x".join(str(_sensible(name, dims, axis)) for axis in range(len(dims)) if axis != likely)
        got = f"{name}={'x'.join(map(str, lengths))}"
        raise BadInput(f"input {name!r} {describe(dims)} has {n_axes}, got --shape {got}; try --shape {name}={example}")
    axis, is_sure = (likely, True) if likely is not None else _left_out(dims, lengths)
    if not is_sure:
        return each._replace(dims=_agree(name, dims, (*lengths[:axis], dims[axis], *lengths[axis:])))
    return _Input(name, _agree(name, dims, (*lengths[:axis], dims[axis], *lengths[axis:])), axis, is_given=True)


def _left_out(dims: Sequence[Dim], lengths: Sequence[int]) -> tuple[int, bool]:
    """The axis that is left when `lengths` are given to all others, an open one if possible, and whether it is certain.

    >>> _left_out((2, "", 128), (2, 128)), _left_out((1, 64, ""), (64, 160)), _left_out((1, 1, 64), (1, 64))
    ((1, True), (0, True), (0, False))
    """
    fit = [axis for axis in range(len(dims)) if _fits((*dims[:axis], *dims[axis + 1 :]), lengths)]
    is_open = [axis for axis in fit if isinstance(dims[axis], str)]
    return (is_open[0], True) if is_open else (fit[0] if fit else 0, len(fit) < 2)


def _fits(dims: Sequence[Dim], lengths: Sequence[int]) -> bool:
    return all(isinstance(dim, str) or dim == length for dim, length in zip(dims, lengths, strict=True))


def _agree(name: str, dims: Sequence[Dim], lengths: Sequence[Dim]) -> tuple[Dim, ...]:
    """`lengths`, after a check that no axis has another length already.

    Raises:
        BadInput: an axis has another length.
    """
    for axis, (dim, length) in enumerate(zip(dims, lengths, strict=True)):
        if isinstance(dim, int) and dim != length:
            raise BadInput(
                f"axis {axis} of input {name!r} {describe(dims)} is {dim} in the file or by its name, got {length}; an "
                "axis has one length, and one that the file fixes keeps it"
            )
    return tuple(lengths)


def _likely_batch_axis(dims: Sequence[Dim]) -> int | None:
    """The batch axis by names, or the first axis where it is open and its name says nothing else.

    >>> _likely_batch_axis(("batch", 3)), _likely_batch_axis((2, "batch", 128)), _likely_batch_axis(("", "", 8))
    (0, 1, 0)
    >>> _likely_batch_axis(("seq_len", 576)), _likely_batch_axis((1, 3))
    (None, None)
    """
    is_open = [axis for axis, dim in enumerate(dims) if isinstance(dim, str)]
    named = next((axis for axis in is_open if _BATCH.fullmatch(str(dims[axis]))), None)
    return 0 if named is None and 0 in is_open and _known_lengths(str(dims[0])) is None else named


def _with_batch_axes(inputs: Sequence[_Input]) -> list[_Input]:
    """The inputs with their batch axes: by names and places, then by what other inputs have.

    An axis without a name that is the only open one of an input is the batch axis where another input has an open one:
    a state (2, ?, 128). Where nothing points at a batch, it is the first axis that is open and first.
    """
    inputs = [each if each.is_given else each._replace(batch_axis=_likely_batch_axis(each.dims)) for each in inputs]
    if all(each.batch_axis is None for each in inputs):
        first = next((each for each in inputs if not each.is_given and 0 in each.open_axes), None)
        return [each._replace(batch_axis=0) if each is first else each for each in inputs]
    names = {each.dims[each.batch_axis] for each in inputs if each.batch_axis is not None}
    return [each if each.is_given or each.batch_axis is not None else _like_others(each, names) for each in inputs]


def _like_others(each: _Input, names: Collection[Dim]) -> _Input:
    """An input whose batch axis has a name that the batch has elsewhere, or is its only open one and has none."""
    axes = each.open_axes
    alike = [axis for axis in axes if (each.dims[axis] in names if each.dims[axis] else len(axes) == 1)]
    return each._replace(batch_axis=alike[0] if alike else None)


def _batches(inputs: Sequence[_Input]) -> Iterator[Batch]:
    """Where samples lie, and how many the file fixes: the likely answer, then another for states.

    A state of a recurrent model has the batch on its second axis: (layers, batch, features). Where nothing says so, its
    length must be that of the batch.
    """
    axes = [(each.name, each.batch_axis) for each in inputs if each.batch_axis is not None]
    lengths = {each.dims[each.batch_axis] for each in inputs if each.batch_axis is not None}
    is_open = any(isinstance(length, str) for length in lengths)
    unnamed = [each for each in inputs if each.batch_axis is None and not each.is_given and each.dims]
    firsts = (dim for dim in (*lengths, *(each.dims[0] for each in unnamed)) if isinstance(dim, int))
    n_samples = 1 if is_open else next(firsts, 1)
    if not is_open:
        axes += [(each.name, 0) for each in unnamed if each.dims[0] == n_samples]
    fixed = None if is_open else n_samples
    yield Batch(tuple(axes), fixed)
    states = {each.name: 1 for each in unnamed if len(each.dims) > 2 and each.dims[1] == n_samples}
    if states and any(name not in states for name, _ in axes):
        yield Batch(tuple({**dict(axes), **states}.items()), fixed)


def _with_inputs(model: onnx.ModelProto, inputs: Sequence[_Input], open_batch: Mapping[str, int]) -> onnx.ModelProto:
    """A copy of a model with the lengths of its inputs, those of open batches aside."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for entry, each in zip(copy.graph.input, inputs, strict=True):
        dims = [None if open_batch.get(each.name) == axis else dim for axis, dim in enumerate(each.dims)]
        entry.type.CopyFrom(onnx.helper.make_tensor_type_proto(entry.type.tensor_type.elem_type, dims))
    return copy


def _open_axes(inputs: Sequence[_Input]) -> OpenAxes:
    """The error that names all axes without a length."""
    shapes = ", ".join(f"{each.name!r} {describe(each.dims)}" for each in inputs)
    message = f"axes that the file leaves open need a length, the batch axis aside: {shapes}"
    return OpenAxes(message, [_texts(inputs, offer) for offer in range(N_OFFERS)])


def _texts(inputs: Sequence[_Input], offer: int) -> tuple[str, ...]:
    """What `--shape` takes for every axis that is open: by its name, and by the input where an axis has none."""
    texts: list[str] = []
    for each in inputs:
        names = [str(each.dims[axis]) for axis in each.open_axes]
        if all(name.isidentifier() for name in names):
            lengths = [_sensible(each.name, each.dims, axis, offer) for axis in each.open_axes]
            texts += [f"{name}={length}" for name, length in zip(names, lengths, strict=True)]
        else:
            axes = [axis for axis in range(len(each.dims)) if axis != each.batch_axis]
            lengths = [_sensible(each.name, each.dims, axis, offer) for axis in axes]
            texts.append(f"{each.name}={'x'.join(map(str, lengths))}")
    seen: dict[str, str] = {}
    for text in texts:
        seen.setdefault(text.rpartition("=")[0], text)
    return tuple(seen.values())


def _argument(text: str) -> str:
    """A shape as an argument that a shell reads.

    >>> _argument("f(x)=3"), _argument("h=3")
    ("--shape 'f(x)=3'", '--shape h=3')
    """
    return f"--shape {shlex.quote(text)}"


def _sensible(name: str, dims: Sequence[Dim], axis: int, offer: int = 0) -> int:
    """A length for an axis: its own, or what its name, the input's name, or the place in an image says."""
    dim = dims[axis]
    if isinstance(dim, int):
        return dim
    known = _known_lengths(dim)
    if known is None and len(dims) == _IMAGE_RANK and axis >= _IMAGE_RANK - 2:
        known = _IMAGE
    return (known or _known_lengths(name) or _OTHER_LENGTHS)[offer]


def _known_lengths(name: str) -> Lengths | None:
    return next((lengths for words, lengths in _LENGTHS if re.search(words, name, re.IGNORECASE)), None)
