"""`ModelInputs` from values of Python (`model_inputs`) and from texts (`read_model_inputs`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from autoauto.records.errors import BadInput
from autoauto.records.layers import Lengths, ModelInputs

MAX_LENGTH = 2**40
MAX_AXES = 32
NO_BATCH_AXIS = "none"

Texts = Sequence[str] | None
Read = TypeVar("Read")


def model_inputs(
    shapes: Mapping[str, int | Sequence[int]] | None = None,
    batch_axes: Mapping[str, int | None] | None = None,
    states: Mapping[str, str] | None = None,
) -> ModelInputs:
    """Make `ModelInputs` of Python values by name.

    Raises BadInput if a length is no whole number from 1, or an axis is none from 0.
    """
    return ModelInputs(
        shapes=tuple((_name(name), _lengths(name, value)) for name, value in _items("shapes", shapes)),
        batch_axes=tuple((_name(name), _axis(name, value)) for name, value in _items("batch_axes", batch_axes)),
        states=tuple((_name(name), _name(value)) for name, value in _items("states", states)),
    )


def read_model_inputs(shape: Texts = None, batch_axis: Texts = None, state: Texts = None) -> ModelInputs:
    """Make `ModelInputs` of texts, as options of the command line have them: `height=320,width=640`, `x=3x8`, `x=none`.

    Raises BadInput if a text has another form, or a name has two values.
    """
    return ModelInputs(
        _pairs("--shape", shape, _read_lengths),
        _pairs("--batch-axis", batch_axis, _read_axis),
        _pairs("--state", state, lambda _, text: text),
    )


def texts_of(inputs: ModelInputs) -> dict[str, tuple[str, ...]]:
    """The texts that `read_model_inputs` makes them of, by its arguments; empty ones are left out."""
    texts: dict[str, tuple[str, ...]] = {}
    if inputs.shapes:
        texts["shape"] = tuple(f"{name}={'x'.join(map(str, lengths))}" for name, lengths in inputs.shapes)
    if inputs.batch_axes:
        axes = {name: NO_BATCH_AXIS if axis is None else str(axis) for name, axis in inputs.batch_axes}
        texts["batch_axis"] = tuple(f"{name}={axis}" for name, axis in axes.items())
    if inputs.states:
        texts["state"] = tuple(f"{name}={output}" for name, output in inputs.states)
    return texts


def _pairs(option: str, texts: Texts, read: Callable[[str, str], Read]) -> tuple[tuple[str, Read], ...]:
    """The pairs NAME=VALUE of the texts; a name may contain "=" and ",", a value has neither."""
    values: dict[str, Read] = {}
    for text in _separated(texts or ()):
        name, equals, value = text.rpartition("=")
        if not (equals and name and value):
            raise BadInput(f"{option} takes NAME=VALUE, got {text!r:.80}; {_EXAMPLES[option]}")
        read_value = read(name, value)
        if values.setdefault(name, read_value) != read_value:
            raise BadInput(f"{option} gives {name!r} two values, got {text!r:.80} too; leave one out")
    return tuple(values.items())


def _separated(texts: Iterable[str]) -> Iterable[str]:
    """Pairs that commas separate; a part without "=" belongs to the name behind it.

    >>> [*_separated(["a=1,b=2", "f(x,y)=3"])]
    ['a=1', 'b=2', 'f(x,y)=3']
    """
    for text in texts:
        waiting = ""
        for part in text.split(","):
            waiting = f"{waiting},{part}" if waiting else part
            if "=" in part:
                yield waiting
                waiting = ""
        if waiting or not text:
            yield waiting


def _read_lengths(name: str, text: str) -> Lengths:
    words = text.lower().split("x")
    if not all(word.isdecimal() and len(word) < 20 for word in words):
        raise BadInput(
            f"a length is a whole number from 1, several are written 3x320x320; got --shape {name}={text:.60}"
        )
    return _lengths(name, tuple(map(int, words)))


def _read_axis(name: str, text: str) -> int | None:
    if text == NO_BATCH_AXIS:
        return None
    if not text.isdecimal() or len(text) > 2:
        raise BadInput(f"--batch-axis {name} is an axis from 0, or {NO_BATCH_AXIS}; got {text!r:.60}")
    return int(text)


def _items(what: str, values: object) -> Iterable[tuple[object, object]]:
    if values is not None and not isinstance(values, Mapping):
        raise BadInput(f"{what} are given by name, for example {{'height': 320}}, got {values!r:.60}")
    return (values or {}).items()


def _name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise BadInput(f"inputs, outputs and axes have names, got {name!r:.60}")
    return name


def _lengths(name: object, value: object) -> Lengths:
    lengths: tuple[Any, ...] = (value,)
    if isinstance(value, Sequence) and not isinstance(value, str):
        lengths = tuple(value)
    for length in lengths:
        if not isinstance(length, int) or isinstance(length, bool) or not 1 <= length <= MAX_LENGTH:
            raise BadInput(f"a length is a whole number from 1 to 2**40, got {length!r:.60} for {name!r}")
    return lengths


def _axis(name: object, value: object) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < MAX_AXES):
        raise BadInput(f"the batch axis of {name!r} is an axis from 0, or None, got {value!r:.60}")
    return value


_EXAMPLES = {
    "--shape": "try --shape height=320, or --shape INPUT=3x320x320",
    "--batch-axis": "try --batch-axis INPUT=1, or --batch-axis INPUT=none",
    "--state": "try --state INPUT=OUTPUT",
}
