"""Which axes of the inputs are the batch: `with_batch_axes`, `batches`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from autoauto.graph.inputs.axes import Dim, Input
from autoauto.graph.inputs.lengths import length_kind
from autoauto.records.errors import BadInput
from autoauto.records.layers import ModelInputs

_GENERATED = re.compile(r".*_dynamic_axes_\d+")
"""What an exporter calls an axis for which nobody had a name; it says no more than none."""
_BATCH = re.compile(r"bsz?|.*batch.*", re.IGNORECASE)
_OFTEN_BATCH = re.compile(r"[bn]|bs|n(um)?_?(samples|examples|images|graphs)", re.IGNORECASE)
"""Which of several names is likely that of the batch, where none says so."""


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


def says_batch(name: str) -> bool:
    """Whether the name of an axis says that it is the batch."""
    return _BATCH.fullmatch(name) is not None


def likely_batch_axis(dims: Sequence[Dim]) -> int | None:
    """The batch axis by names, or the first axis where it is open and its name says nothing else.

    >>> likely_batch_axis(("batch", 3)), likely_batch_axis((2, "batch", 128)), likely_batch_axis(("", "", 8))
    (0, 1, 0)
    >>> likely_batch_axis(("seq_len", 576)), likely_batch_axis((1, 3))
    (None, None)
    """
    is_open = [axis for axis, dim in enumerate(dims) if isinstance(dim, str)]
    named = next((axis for axis in is_open if says_batch(str(dims[axis]))), None)
    return 0 if named is None and 0 in is_open and length_kind(str(dims[0])) is None else named


def with_batch_axes(inputs: Sequence[Input], firsts: Collection[str]) -> list[Input]:
    """The inputs with their batch axes: by names and places, then by what other inputs have.

    An axis without a name that is the only open one of an input is the batch axis where another input has an open one:
    a state (2, ?, 128). Where nothing points at a batch, it is the first axis that is open and first. First axes of
    several names are not all the batch (`batch_names`); `firsts` are those of the outputs.
    """
    inputs = [each if each.is_given else each._replace(batch_axis=likely_batch_axis(each.dims)) for each in inputs]
    if all(each.batch_axis is None for each in inputs):
        first = next((each for each in inputs if not each.is_given and 0 in each.open_axes), None)
        return [each._replace(batch_axis=0) if each is first else each for each in inputs]
    names = {"", *batch_names(inputs, firsts)}
    inputs = [each if each.is_given or batch_name(each) in names else each._replace(batch_axis=None) for each in inputs]
    alike = {each.dims[each.batch_axis] for each in inputs if each.batch_axis is not None}
    return [each if each.is_given or each.batch_axis is not None else _like_others(each, alike) for each in inputs]


def batch_name(each: Input) -> str:
    """The name of the batch axis of an input; empty where it has none, and where that has none that means anything."""
    dim = "" if each.batch_axis is None else each.dims[each.batch_axis]
    return dim if isinstance(dim, str) and not _GENERATED.fullmatch(dim) else ""


def batch_names(inputs: Sequence[Input], firsts: Collection[str]) -> list[str]:
    """The names of axes that are the batch: all that say so, also of inputs whose batch axis was given, else one.

    Nodes and edges of a graph are no samples of each other; of their names the likely one is that of the outputs, too.
    """
    names = dict.fromkeys(filter(None, map(batch_name, inputs)))
    given = {batch_name(each) for each in inputs if each.is_given}
    sure = [name for name in names if name in given or says_batch(name)]
    likely = sorted(names, key=lambda name: (_OFTEN_BATCH.fullmatch(name) is None, name not in firsts))
    return sure or likely[:1]


def check_batch_is_open(inputs: Sequence[Input], firsts: Collection[str], given: ModelInputs) -> None:
    """Refuse a length for the batch axis, unless all of several names that say nothing of a batch have one.

    Raises:
        BadInput: a name of `--shape` is that of the batch axis.
    """
    axes, lengths = dict(given.batch_axes), dict(given.shapes)
    likely = [
        each._replace(batch_axis=axes.get(each.name, likely_batch_axis(each.dims)), is_given=each.name in axes)
        for each in inputs
    ]
    names = dict.fromkeys(filter(None, map(batch_name, likely)))
    if len(names) > 1 and names.keys() <= lengths.keys() and not any(map(says_batch, names)):
        return
    for name in batch_names(likely, firsts):
        if name in lengths and all(each.name != name for each in inputs):
            got = f"--shape {name}={lengths[name][0]}"
            other = ", or say where the batch lies with --batch-axis INPUT=AXIS" if len(names) > 1 else ""
            raise BadInput(f"{name!r} is the batch axis, its length is --batch-size, got {got}; leave it out{other}")


def _like_others(each: Input, names: Collection[Dim]) -> Input:
    """An input whose batch axis has a name that the batch has elsewhere, or is its only open one and has none."""
    axes = each.open_axes
    alike = [axis for axis in axes if (each.dims[axis] in names if each.dims[axis] else len(axes) == 1)]
    return each._replace(batch_axis=alike[0] if alike else None)


def batches(inputs: Sequence[Input]) -> Iterator[Batch]:
    """Where samples lie, and how many the file fixes: the likely answer, then another for states.

    A state of a recurrent model has the batch on its second axis: (layers, batch, features). Where nothing says so, its
    length must be that of the batch. A first axis to which the user gave a length is not the batch.
    """
    axes = [(each.name, each.batch_axis) for each in inputs if each.batch_axis is not None]
    lengths = {each.dims[each.batch_axis] for each in inputs if each.batch_axis is not None}
    is_open = any(isinstance(length, str) for length in lengths)
    unnamed = [each for each in inputs if each.batch_axis is None and not each.is_given and each.dims]
    of_file = [each for each in unnamed if not each.first_is_given]
    firsts = (dim for dim in (*lengths, *(each.dims[0] for each in of_file)) if isinstance(dim, int))
    n_samples = 1 if is_open else next(firsts, 1)
    if not is_open:
        axes += [(each.name, 0) for each in of_file if each.dims[0] == n_samples]
    fixed = None if is_open else n_samples
    yield Batch(tuple(axes), fixed)
    states = {each.name: 1 for each in unnamed if len(each.dims) > 2 and each.dims[1] == n_samples}
    if states and any(name not in states for name, _ in axes):
        yield Batch(tuple({**dict(axes), **states}.items()), fixed)
