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
"""Names that an exporter makes up for axes without a name; they mean nothing."""
_SYMBOL = re.compile(r"s\d+")
"""A name that torch.export makes up for an axis; another one for each input whose first axis nothing ties to others."""
_BATCH = re.compile(r"bsz?|.*batch.*", re.IGNORECASE)
_OFTEN_BATCH = re.compile(r"[bn]|bs|n(um)?_?(samples|examples|images|graphs)", re.IGNORECASE)
"""Which of several names is likely that of the batch, where none says so."""


class Batch(NamedTuple):
    """The batch axes of the inputs of a file, and the batch size where the file fixes it."""

    axes: tuple[tuple[str, int], ...]  # the inputs that hold samples, with the axis along which they lie
    fixed: int | None  # how many samples the file fixes, None when it leaves them open
    guessed: str = ""  # what to try instead where nothing but its being open and first speaks for the axis


def says_batch(name: str) -> bool:
    """True if the name of an axis says that it is the batch."""
    return _BATCH.fullmatch(name) is not None


def likely_batch_axis(dims: Sequence[Dim]) -> int | None:
    """The batch axis by names, or the first axis where it is open and its name says nothing else.

    >>> likely_batch_axis(("batch", 3)), likely_batch_axis((2, "batch", 128)), likely_batch_axis(("", "", 8))
    (0, 1, 0)
    >>> likely_batch_axis(("seq_len", 576)), likely_batch_axis((1, 3))
    (None, None)
    """
    for axis, dim in enumerate(dims):
        if isinstance(dim, str) and says_batch(dim):
            return axis
    if dims and isinstance(dims[0], str) and length_kind(dims[0]) is None:
        return 0
    return None


def with_one_first_name(inputs: Sequence[Input], given: ModelInputs) -> list[Input]:
    """Inputs that differ in the name of their first axis alone have the one of the first of them.

    torch.export so names the batch of a mask [s86, s12] beside tokens [s10, s12], unless the user gives it a length.
    """
    named = {name for name, _ in (*given.shapes, *given.batch_axes)}
    first_of: dict[tuple[Dim, ...], Dim] = {}  # by the axes behind it
    renamed: list[Input] = []
    for each in inputs:
        first, others = str(*each.dims[:1]), each.dims[1:]
        is_alike = _SYMBOL.fullmatch(first) and any(isinstance(dim, str) and dim for dim in others)
        if is_alike and named.isdisjoint((each.name, first)):
            renamed.append(each._replace(dims=(first_of.setdefault(others, first), *others)))
        else:
            renamed.append(each)
    return renamed


def with_batch_axes(inputs: Sequence[Input], firsts: Collection[str]) -> list[Input]:
    """The inputs with their batch axes: by names and places, then by what other inputs have.

    An axis without a name that is the only open one of an input is the batch axis where another input has an open one:
    a state (2, ?, 128). Where nothing points at a batch, it is the first axis that is open and first. First axes of
    several names are not all the batch (`batch_names`); `firsts` are those of the outputs.
    """
    axes = list(inputs)
    for index, each in enumerate(inputs):
        if not each.is_given:
            axes[index] = each._replace(batch_axis=likely_batch_axis(each.dims))
    if all(each.batch_axis is None for each in axes):
        for index, each in enumerate(axes):
            if not each.is_given and 0 in each.open_axes:
                axes[index] = each._replace(batch_axis=0)
                break
        return axes
    # Likely axes of other names than the batch are none. They go before the others are compared with those that stay.
    names = {"", *batch_names(axes, firsts)}
    for index, each in enumerate(axes):
        if not each.is_given and batch_name(each) not in names:
            axes[index] = each._replace(batch_axis=None)
    alike = {each.dims[each.batch_axis] for each in axes if each.batch_axis is not None}
    for index, each in enumerate(axes):
        if each.is_given or each.batch_axis is not None:
            continue
        # An open axis is the batch if its name is one that the batch has elsewhere, or it has none and is the only one.
        for axis in each.open_axes:
            name = each.dims[axis]
            is_alike = name in alike if name else len(each.open_axes) == 1
            if is_alike:
                axes[index] = each._replace(batch_axis=axis)
                break
    return axes


def batch_name(each: Input) -> str:
    """The name of the batch axis of an input; empty where it has none, and where that has none that means anything."""
    if each.batch_axis is None:
        return ""
    dim = each.dims[each.batch_axis]
    if not isinstance(dim, str) or _GENERATED.fullmatch(dim):
        return ""
    return dim


def batch_names(inputs: Sequence[Input], firsts: Collection[str]) -> list[str]:
    """The names of axes that are the batch: all that say so, also of inputs whose batch axis was given, else one.

    Nodes and edges of a graph are no samples of each other; of their names the likely one is that of the outputs, too.
    """
    names = dict.fromkeys(filter(None, map(batch_name, inputs)))
    given = {batch_name(each) for each in inputs if each.is_given}
    sure = [name for name in names if name in given or says_batch(name)]
    if sure or not names:
        return sure
    return [min(names, key=lambda name: (_OFTEN_BATCH.fullmatch(name) is None, name not in firsts))]


def check_batch_is_open(inputs: Sequence[Input], firsts: Collection[str], given: ModelInputs) -> None:
    """Raise BadInput for a length of the batch axis, unless all of several names that say nothing of it have one."""
    axes, lengths = dict(given.batch_axes), dict(given.shapes)
    likely: list[Input] = []
    for each in inputs:
        axis = axes.get(each.name, likely_batch_axis(each.dims))
        likely.append(each._replace(batch_axis=axis, is_given=each.name in axes))
    names = dict.fromkeys(filter(None, map(batch_name, likely)))
    if len(names) > 1 and names.keys() <= lengths.keys() and not any(map(says_batch, names)):
        return
    for name in batch_names(likely, firsts):
        if name in lengths and all(each.name != name for each in inputs):
            got = f"--shape {name}={lengths[name][0]}"
            other = ""
            if len(names) > 1:
                other = ", or say where the batch lies with --batch-axis INPUT=AXIS"
            raise BadInput(f"{name!r} is the batch axis, its length is --batch-size, got {got}; leave it out{other}")


def batches(inputs: Sequence[Input]) -> Iterator[Batch]:
    """Where samples lie, and how many the file fixes: the likely answer, then another for states.

    A state of a recurrent model has the batch on its second axis: (layers, batch, features). Where nothing says so, its
    length must be that of the batch. A first axis to which the user gave a length is not the batch.
    """
    axes: dict[str, int] = {}
    lengths: set[Dim] = set()
    for each in inputs:
        if each.batch_axis is not None:
            axes[each.name] = each.batch_axis
            lengths.add(each.dims[each.batch_axis])
    unnamed = [each for each in inputs if each.batch_axis is None and not each.is_given and each.dims]
    of_file = [each for each in unnamed if not each.first_is_given]
    fixed: int | None = None
    if all(isinstance(length, int) for length in lengths):
        # The file fixes the batch: a batch axis says how many samples it has, or else the first axis of an input.
        firsts = [*lengths, *(each.dims[0] for each in of_file)]
        fixed = next((length for length in firsts if isinstance(length, int)), 1)
        axes |= {each.name: 0 for each in of_file if each.dims[0] == fixed}
    yield Batch(tuple(axes.items()), fixed)
    n_samples = 1 if fixed is None else fixed
    states = {each.name: 1 for each in unnamed if len(each.dims) > 2 and each.dims[1] == n_samples}
    # Another input must show that the second axis of a state is as long as the batch.
    if states and not axes.keys() <= states.keys():
        yield Batch(tuple((axes | states).items()), fixed)
