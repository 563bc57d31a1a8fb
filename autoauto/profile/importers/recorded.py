"""Layers as other tools recorded them at one or several batch sizes: `RecordedLayer`, `RecordedProfile`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import NamedTuple

from autoauto.records.errors import BadInput
from autoauto.records.files.fields import MAX_NUMBER
from autoauto.records.layers import Layer, LayerGraph, Tensor
from autoauto.records.profile import PARAMETER, LayerProfile

MAX_S = 1e6
"""Longer times are mistakes of the unit."""
_TOO_MANY = 4.0 * MAX_NUMBER  # bytes or cycles; sums of so many are refused when costs are added up


class RecordedLayer(NamedTuple):
    """One layer of a profile; bytes and seconds are those of one micro-batch.

    Attributes:
        name: in the profile.
        forward_s, backward_s: its compute; the latter is 0 where only inference was recorded.
        parameter_bytes: its weights.
        activation_bytes: what a micro-batch stashes here for its backward pass.
        temporary_bytes: what is alive only while the layer runs, its inputs and outputs included.
        carried_bytes, input_bytes, output_bytes: as in `LayerProfile`.
        tied: layers of equal `tied` share a stage; None is a layer alone.
    """

    name: str
    forward_s: float
    backward_s: float = 0.0
    parameter_bytes: float = 0.0
    activation_bytes: float = 0.0
    temporary_bytes: float = 0.0
    carried_bytes: float = 0.0
    input_bytes: float = 0.0
    output_bytes: float = 0.0
    tied: str | None = None

    def profile(self, clock_hz: float, *, training: bool) -> LayerProfile:
        """The layer on a device with this clock; bytes are rounded up, so that memory is not underestimated."""
        return LayerProfile(
            forward_cycles=_cycles(self.forward_s, clock_hz),
            backward_cycles=_cycles(self.backward_s, clock_hz) if training else 0,
            shared={},
            exclusive={PARAMETER: _whole(self.parameter_bytes)},
            temporary_bytes=_whole(self.temporary_bytes),
            carried_bytes=_whole(self.carried_bytes),
            input_bytes=_whole(self.input_bytes),
            output_bytes=_whole(self.output_bytes),
            activation_bytes=_whole(self.activation_bytes) if training else 0,
        )


Layers = tuple[RecordedLayer, ...]


@dataclass(frozen=True, slots=True)
class RecordedProfile:
    """The layers of a model at every batch size at which they were recorded.

    Attributes:
        name: of the model, or of the first file.
        layers_at: the layers in order, by batch size; the same layers at each.
        notes: what was read and assumed, one sentence each.

    Raises:
        BadInput: there is no layer, a name is no text in one line, all layers of a batch size take no time, or the
            layers or passes of two batch sizes differ.
    """

    name: str
    layers_at: Mapping[int, Layers]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = {size: [layer.name for layer in layers] for size, layers in self.layers_at.items()}
        first, *others = names or [0]
        if not names or not names[first]:
            raise BadInput(f"a profile needs a layer at least, {self.name} has none; record the model again")
        for size in others:
            if names[size] != names[first]:
                raise BadInput(f"{self.name}: {_difference(names[first], names[size], first, size)}")
            if self._trains_at(size) != self._trains_at(first):
                with_it, without = (size, first) if self._trains_at(size) else (first, size)
                difference = f"batch size {with_it} has a backward pass, {without} has none"
                raise BadInput(f"{self.name}: {difference}; record the same at both")
        for name in names[first]:
            if not name.isprintable():
                raise BadInput(f"{self.name}: the name of a layer must be printable, got {name[:40]!r}; rename it")
        for size, layers in self.layers_at.items():
            if not any(layer.forward_s for layer in layers):
                raise BadInput(f"{self.name}: some layer must take time, all have 0 s at batch size {size}; correct it")

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The batch sizes at which layers were recorded, ascending."""
        return tuple(sorted(self.layers_at))

    @property
    def trains(self) -> bool:
        """Whether a backward pass was recorded."""
        return any(map(self._trains_at, self.layers_at))

    @property
    def content(self) -> str:
        """A digest of all numbers."""
        return hashlib.sha256(repr(sorted(self.layers_at.items())).encode()).hexdigest()[:16]

    def _trains_at(self, batch_size: int) -> bool:
        return any(layer.backward_s > 0 for layer in self.layers_at[batch_size])

    def at(self, batch_size: int) -> Layers:
        """The layers at a batch size; between two that were recorded every number is interpolated linearly.

        Raises:
            BadInput: the batch size is below the smallest that was recorded, or above the largest.
        """
        sizes = self.batch_sizes
        if batch_size in sizes:
            return self.layers_at[batch_size]
        for low, high in pairwise(sizes):
            if low < batch_size < high:
                share = (batch_size - low) / (high - low)
                ends = zip(self.layers_at[low], self.layers_at[high], strict=True)
                return tuple(_between(*pair, share) for pair in ends)
        recorded = ", ".join(map(str, sizes))
        raise BadInput(
            f"the profile has batch size {recorded}, got --batch-size {batch_size}, of which it says nothing; "
            "record that one too, and give both: --profile B=FILE --profile B=FILE"
        )


def line_graph(profile: RecordedProfile) -> LayerGraph:
    """A model of the layers of a profile alone: each reads what the one before it writes."""
    size = profile.batch_sizes[-1]
    layers = profile.layers_at[size]
    n_bytes = [layers[0].input_bytes, *(layer.output_bytes for layer in layers)]
    tensors = tuple(
        Tensor(f"tensor {i}", (max(1, round(n / size)),), 0, "uint8", i - 1, i) for i, n in enumerate(n_bytes)
    )
    chain = tuple(
        Layer(layer.name, "Recorded", (), (i,), (i + 1,), (), (i,), f"{i} {layer.name}", layer.tied)
        for i, layer in enumerate(layers)
    )
    return LayerGraph(profile.name, chain, tensors, None, profile.content)


def with_boundaries(layers: Sequence[RecordedLayer], boundary_bytes: Sequence[float]) -> Layers:
    """Layers with what passes before and after each, by the n + 1 boundaries; both count while the layer runs."""
    return tuple(
        layer._replace(
            input_bytes=before, output_bytes=after, temporary_bytes=before + max(layer.temporary_bytes, after)
        )
        for layer, (before, after) in zip(layers, pairwise(boundary_bytes), strict=True)
    )


def read_text(path: Path, what: str) -> str:
    """The text of a file.

    Raises:
        BadInput: it cannot be read, or is no UTF-8; the message calls it `what`.
    """
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise BadInput(f"{what} must be readable, {path}: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}, byte {error.start}: {what} is UTF-8 text; save it as such") from error


def number_in(text: str, where: str, most: float = MAX_NUMBER) -> float:
    """A number from 0 in a file; `where` is the start of the error.

    Raises:
        BadInput: it is none, or above `most`.

    >>> number_in("1.5", "file, line 2: forward_s")
    1.5
    """
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= most:
        raise BadInput(f"{where} must be a number from 0 to {most:g}, got {text[:40]!r}; correct it there")
    return value


def _cycles(seconds: float, clock_hz: float) -> int:
    return round(min(seconds * clock_hz, _TOO_MANY))


def _whole(n_bytes: float) -> int:
    return ceil(min(n_bytes, _TOO_MANY))


def _between(low: RecordedLayer, high: RecordedLayer, share: float) -> RecordedLayer:
    def middle(first: float, second: float) -> float:
        return first + (second - first) * share

    return RecordedLayer(
        name=low.name,
        forward_s=middle(low.forward_s, high.forward_s),
        backward_s=middle(low.backward_s, high.backward_s),
        parameter_bytes=middle(low.parameter_bytes, high.parameter_bytes),
        activation_bytes=middle(low.activation_bytes, high.activation_bytes),
        temporary_bytes=middle(low.temporary_bytes, high.temporary_bytes),
        carried_bytes=middle(low.carried_bytes, high.carried_bytes),
        input_bytes=middle(low.input_bytes, high.input_bytes),
        output_bytes=middle(low.output_bytes, high.output_bytes),
        tied=low.tied or high.tied,
    )


def _difference(first: Sequence[str], other: Sequence[str], first_size: int, size: int) -> str:
    """In which layer the profiles of two batch sizes differ."""
    if len(first) != len(other):
        return f"batch size {first_size} has {len(first)} layers, {size} has {len(other)}; record one model at both"
    name, another = next((a, b) for a, b in zip(first, other, strict=True) if a != b)
    return f"batch size {first_size} has a layer {name!r} where {size} has {another!r}; record one model at both"
