"""Sensible lengths for axes that a file leaves open, and what they count: `OpenAxes`, `open_axes`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from autoauto.graph.inputs.axes import Dim, Input, describe
from autoauto.records.errors import BadInput
from autoauto.records.layers import Lengths


class LengthKind(NamedTuple):
    """A kind of length: what it counts, a pattern of names of such axes and inputs, and lengths to try."""

    counts: str
    words: str
    lengths: Lengths


_IMAGE = LengthKind("pixels", r"height|width|^[hw]$|image_?size", (224, 48, 32, 64, 320))
_ANY = LengthKind(
    "tokens or other steps", r"past|cache|context|length|(^|_)len|mask|time|^[tls]$", (128, 64, 32, 16, 8)
)
"""Words that stand for the length of anything: what the name of the input says, counts more."""
_KINDS = (
    _IMAGE,
    LengthKind("tokens, those before included", r"total", (256, 128, 64, 32, 16)),
    LengthKind("samples of a signal", r"audio|wave|samples|pcm|signal", (16_000, 512, 32_000, 1_024, 160_000)),
    LengthKind("frames", r"frame|mel|spec", (100, 200, 64, 300, 1_000)),
    LengthKind("tokens", r"token|text|word|(^|_)ids", _ANY.lengths),
    LengthKind("tokens or other steps", r"seq", _ANY.lengths),
    _ANY,
)
_OTHER_LENGTHS = (64, 128, 512, 576, 32)
_ROUND_LENGTHS = (256, 1_024, 4_096, 16_384, 65_536, 16, 8, 4, 2, 1)
"""What is tried for every axis where no sensible length fits the model."""
N_OFFERS = len(_OTHER_LENGTHS) + len(_ROUND_LENGTHS)
"""How many lengths there are to offer, each tried where those before it do not fit the model."""
_IMAGE_RANK = 4


class OpenAxes(BadInput):
    """Axes of inputs have no length.

    Attributes:
        offers: `--shape` texts for all of them, `N_OFFERS` to try one after the other.
        offer: the index of those in the message; None where the model runs at none of them, and then `reason` says why.
        counts: what the lengths count, as "height counts pixels", where names tell.
    """

    def __init__(
        self,
        message: str,
        offers: Sequence[Sequence[str]],
        counts: tuple[str, ...] = (),
        offer: int | None = 0,
        reason: str = "",
    ) -> None:
        what = "".join(f"; {text}" for text in counts)
        end = f"none of {N_OFFERS} that were tried fits: {reason}"
        if offer is not None:
            end = f"try {' '.join(_argument(text) for text in offers[offer])}"
        super().__init__(f"{message}{what}; {end}")
        self.message, self.offers, self.counts, self.offer, self.reason = message, offers, counts, offer, reason

    def __reduce__(self) -> tuple[type[OpenAxes], tuple[object, ...]]:
        """Pickle all arguments."""
        return OpenAxes, (self.message, self.offers, self.counts, self.offer, self.reason)


def length_kind(name: str) -> LengthKind | None:
    """The kind of the lengths of an axis or an input, by its name; None where the name says nothing.

    >>> length_kind("height").counts, length_kind("n_rows")
    ('pixels', None)
    """
    return next((kind for kind in _KINDS if re.search(kind.words, name, re.IGNORECASE)), None)


def open_axes(inputs: Sequence[Input], batch_names: Sequence[str]) -> OpenAxes:
    """The error that names all axes without a length, of inputs whose batch axes have these names."""
    shapes = ", ".join(f"{each.name!r} {describe(each.dims)}" for each in inputs)
    batch = " ".join(["the batch axis", *batch_names])
    message = f"axes that the file leaves open need a length, {batch} aside: {shapes}"
    return OpenAxes(message, [_texts(inputs, offer) for offer in range(N_OFFERS)], tuple(_counts(inputs)))


def _counts(inputs: Sequence[Input]) -> Iterator[str]:
    """Texts such as "height counts pixels", of open axes whose names do not hold the word itself."""
    counted: dict[str, str] = {}
    for each in inputs:
        for axis in each.open_axes:
            name, kind = str(each.dims[axis]), _kind(each.name, each.dims, axis)
            if kind is not None and (not name or kind.counts.partition(" ")[0] not in name):
                counted.setdefault(name or f"axis {axis} of {each.name!r}", kind.counts)
    for what in dict.fromkeys(counted.values()):
        names = [name for name, counts in counted.items() if counts == what]
        verb = "counts" if len(names) == 1 else "count"
        yield f"{' and '.join(names)} {verb} {what}"


def _texts(inputs: Sequence[Input], offer: int) -> tuple[str, ...]:
    """Values of `--shape` for all open axes: by the names of axes, or by the input where an axis has no name."""
    lengths: dict[str, str] = {}  # the first length of a name counts
    for each in inputs:
        names = [str(each.dims[axis]) for axis in each.open_axes]
        if all(name.isidentifier() for name in names):
            for axis, name in zip(each.open_axes, names, strict=True):
                lengths.setdefault(name, str(sensible(each.name, each.dims, axis, offer)))
        else:
            axes = [axis for axis in range(len(each.dims)) if axis != each.batch_axis]
            shape = [sensible(each.name, each.dims, axis, offer) for axis in axes]
            lengths.setdefault(each.name, "x".join(map(str, shape)))
    return tuple(f"{name}={text}" for name, text in lengths.items())


def _argument(text: str) -> str:
    """A shape as an argument that a shell reads.

    >>> _argument("f(x)=3"), _argument("h=3")
    ("--shape 'f(x)=3'", '--shape h=3')
    """
    return f"--shape {shlex.quote(text)}"


def sensible(name: str, dims: Sequence[Dim], axis: int, offer: int = 0) -> int:
    """A length for an axis: its own, or one that suits its name, the name of the input, or its position in an image."""
    dim = dims[axis]
    if isinstance(dim, int):
        return dim
    kind = _kind(name, dims, axis)
    likely = _OTHER_LENGTHS if kind is None else kind.lengths
    return (likely + _ROUND_LENGTHS)[offer]


def _kind(name: str, dims: Sequence[Dim], axis: int) -> LengthKind | None:
    kind, of_input = length_kind(str(dims[axis])), length_kind(name)
    if kind is None and len(dims) == _IMAGE_RANK and axis >= _IMAGE_RANK - 2:
        return _IMAGE  # (samples, channels, height, width)
    if kind is None or (kind is _ANY and of_input is not None):
        return of_input
    return kind
