"""Layers as other tools recorded them at one or several batch sizes: `RecordedLayer`, `RecordedProfile`.

A target whose costs are those of a profile that another tool recorded: `ProfileTarget`. Devices of several kinds have a
profile each, or one profile and a speed each (`ProfileTarget.on_devices`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from autoauto.records.costs.options import CompileOptions, PlainSession
from autoauto.records.costs.profile import PARAMETER, CompiledRange, LayerProfile, ModelProfile, ProgramStep
from autoauto.records.errors import BadInput
from autoauto.records.files.fields import MAX_NUMBER
from autoauto.records.files.packed import unpacked
from autoauto.records.hardware import Cluster, Device, Period
from autoauto.records.layers import Layer, LayerGraph, LayerRange, Tensor
from autoauto.records.target import Origin, TargetTraits

MAX_S = 1e6
"""Longer times are mistakes of the unit."""
_MOST_APART = 100
"""A larger batch takes no less than this part of the time of a smaller one, and no more than these times as much a
sample: measured profiles are far within both."""
_MOST_PRECISIONS = 8
"""Weights take at most these times as many bytes in one precision as in another: fp32 and int4."""
_NOISE = 0.01
"""The share of the time of all layers up to which that of one may be noise."""
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

    def sped_up(self, speed: float) -> RecordedLayer:
        """The layer on a device that runs it `speed` times as fast."""
        return self._replace(forward_s=self.forward_s / speed, backward_s=self.backward_s / speed)

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
            layers, passes or weights of two batch sizes differ, or their times are too far apart.
    """

    name: str
    layers_at: Mapping[int, Layers]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        sizes = list(self.layers_at)
        if not sizes or not self.layers_at[sizes[0]]:
            raise BadInput(f"a profile needs a layer at least, {self.name} has none; record the model again")
        first_layers = self.layers_at[sizes[0]]
        for size in sizes[1:]:
            difference = _difference(first_layers, self.layers_at[size], f"{sizes[0]}", f"{size}", "at both")
            if difference is not None:
                raise BadInput(f"{self.name}: batch size {difference}")
        for layer in first_layers:
            if not layer.name.isprintable():
                raise BadInput(
                    f"{self.name}: the name of a layer must be printable, got {layer.name[:40]!r}; rename it"
                )
        for size, layers in self.layers_at.items():
            if not any(layer.forward_s for layer in layers):
                raise BadInput(f"{self.name}: some layer must take time, all have 0 s at batch size {size}; correct it")
        for low, high in pairwise(self.batch_sizes):
            _check_weights(self, low, high)
            _check_times(self, low, high)

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The batch sizes at which layers were recorded, ascending."""
        return tuple(sorted(self.layers_at))

    @property
    def trains(self) -> bool:
        """True if a backward pass was recorded; all batch sizes are alike in this."""
        return _have_backward(next(iter(self.layers_at.values())))

    @property
    def content(self) -> str:
        """A digest of all numbers."""
        return hashlib.sha256(repr(sorted(self.layers_at.items())).encode()).hexdigest()[:16]

    def sped_up(self, speed: float) -> RecordedProfile:
        """The profile of a device that runs every layer `speed` times as fast."""
        layers_at = {size: tuple(layer.sped_up(speed) for layer in layers) for size, layers in self.layers_at.items()}
        return replace(self, layers_at=layers_at)

    def at(self, batch_size: int, kind: str | None = None) -> Layers:
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
        of = prefix = ""
        if kind is not None:
            of = f" of {kind}"
            prefix = f"{kind}:"
        raise BadInput(
            f"the profile{of} has batch size {_listed(sizes)}, got --batch-size {batch_size}, of which it says "
            f"nothing; record that one too, and give both: --profile {prefix}B=FILE --profile {prefix}B=FILE"
        )


def line_graph(profile: RecordedProfile) -> LayerGraph:
    """A model of the layers of a profile alone: each reads what the one before it writes."""
    size = profile.batch_sizes[-1]

    def tensor(index: int, n_bytes: float) -> Tensor:
        bytes_per_sample = max(1, round(n_bytes / size))
        return Tensor(f"tensor {index}", (bytes_per_sample,), 0, "uint8", producer=index - 1, last_use=index)

    recorded = profile.layers_at[size]
    tensors = [tensor(0, recorded[0].input_bytes)]
    layers = []
    for index, layer in enumerate(recorded):
        kind = f"{index} {layer.name}"
        layers.append(Layer(layer.name, "Recorded", (), (index,), (index + 1,), (), (index,), kind, layer.tied))
        tensors.append(tensor(index + 1, layer.output_bytes))
    return LayerGraph(profile.name, tuple(layers), tuple(tensors), None, profile.content)


def with_boundaries(layers: Sequence[RecordedLayer], boundary_bytes: Sequence[float]) -> Layers:
    """Layers with the bytes that pass before and after each, by the n + 1 boundaries; both count while it runs."""
    passing = []
    for layer, (before, after) in zip(layers, pairwise(boundary_bytes), strict=True):
        peak_bytes = before + max(layer.temporary_bytes, after)
        passing.append(layer._replace(input_bytes=before, output_bytes=after, temporary_bytes=peak_bytes))
    return tuple(passing)


def read_text(path: Path, what: str) -> str:
    """The text of a file, packed or not, which messages call `what`; raises BadInput if it cannot be read as UTF-8."""
    try:
        return unpacked(path).decode("utf-8-sig")
    except OSError as error:
        raise BadInput(f"{what} must be readable, {path}: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}, byte {error.start}: {what} is UTF-8 text; save it as such") from error


def number_in(given: str | float, where: str, most: float = MAX_NUMBER) -> float:
    """A number of a file, from 0 to `most`; `where` is the start of the error; raises BadInput if it is none.

    >>> number_in("1.5", "file, line 2: forward_s")
    1.5
    """
    try:
        value = float(given)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= most:
        raise BadInput(f"{where} must be a number from 0 to {most:g}, got {str(given)[:40]!r}; correct it there")
    return value


def _cycles(seconds: float, clock_hz: float) -> int:
    return round(min(seconds * clock_hz, _TOO_MANY))


def _whole(n_bytes: float) -> int:
    return ceil(min(n_bytes, _TOO_MANY))


def _between(low: RecordedLayer, high: RecordedLayer, share: float) -> RecordedLayer:
    numbers: dict[str, Any] = {}
    for name in RecordedLayer._fields:
        if name not in ("name", "tied"):
            first, second = getattr(low, name), getattr(high, name)
            numbers[name] = first + (second - first) * share
    return low._replace(**numbers, tied=low.tied or high.tied)


def _check_weights(profile: RecordedProfile, low: int, high: int) -> None:
    """Refuse weights that differ between two batch sizes by more than their precision, which an engine may choose."""
    for layer, other in zip(profile.layers_at[low], profile.layers_at[high], strict=True):
        fewer, more = sorted((layer.parameter_bytes, other.parameter_bytes))
        if more > _MOST_PRECISIONS * fewer:
            raise BadInput(
                f"{profile.name}: weights must not depend on the batch size, layer {layer.name!r:.80} has "
                f"{layer.parameter_bytes:,.0f} bytes at {low} and {other.parameter_bytes:,.0f} at {high}; record one "
                "model in one precision at both"
            )


def _check_times(profile: RecordedProfile, low: int, high: int) -> None:
    """Refuse times at two batch sizes that are too far apart, as where those of one have another unit."""
    for which in ("forward_s", "backward_s"):
        low_times = [getattr(layer, which) for layer in profile.layers_at[low]]
        high_times = [getattr(layer, which) for layer in profile.layers_at[high]]
        low_s, high_s = sum(low_times), sum(high_times)
        compared = [("all layers", low_s, high_s)]
        for layer, first, second in zip(profile.layers_at[low], low_times, high_times, strict=True):
            if first > _NOISE * low_s or second > _NOISE * high_s:  # a small one may be far off by itself
                compared.append((f"layer {layer.name!r:.80}", first, second))
        for subject, first, second in compared:
            if second < first / _MOST_APART:
                limit = f"1/{_MOST_APART} of that at the smaller one"
            elif second / high > _MOST_APART * first / low:
                limit = f"{_MOST_APART} times as much a sample"
            else:
                continue
            more_or_less = "at least" if second < first else "at most"
            raise BadInput(
                f"{profile.name}: {which} of {subject} must be {more_or_less} {limit} at a larger batch size, got "
                f"{first:g} s at batch size {low} and {second:g} s at {high}; correct the unit, or record both again"
            )


def _have_backward(layers: Layers) -> bool:
    return any(layer.backward_s > 0 for layer in layers)


def _difference(first: Layers, other: Layers, first_label: str, label: str, at_both: str) -> str | None:
    """The first difference between the layers or passes of two profiles, as of two batch sizes; None without one."""
    if len(first) != len(other):
        return f"{first_label} has {len(first)} layers, {label} has {len(other)}; record one model at both"
    for layer, another in zip(first, other, strict=True):
        if layer.name != another.name:
            names = f"{first_label} has a layer {layer.name!r} where {label} has {another.name!r}"
            return f"{names}; record one model at both"
    if _have_backward(first) and not _have_backward(other):
        return f"{first_label} has a backward pass, {label} has none; record the same {at_both}"
    if _have_backward(other) and not _have_backward(first):
        return f"{label} has a backward pass, {first_label} has none; record the same {at_both}"
    return None


def _listed(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


_MAX_SIZES = 128


@dataclass(frozen=True, slots=True)
class ProfileTarget:
    """Devices that were profiled elsewhere: nothing can be measured here, so every number is an estimate.

    A range of layers costs the sum of its layers, so what is "measured" in a search is what was estimated.

    Attributes:
        recorded: the profile, or that of the first kind of devices.
        of_kinds: where there are several profiles, that of every kind by the name of its devices; of one model, at
            batch sizes that overlap.

    Raises:
        BadInput: the profiles of two kinds differ in their layers or passes, or have no batch size in common.
    """

    recorded: RecordedProfile
    of_kinds: Mapping[str, RecordedProfile] = field(default_factory=dict)

    def __post_init__(self) -> None:
        first_kind = next(iter(self.of_kinds), "")
        for kind, profile in self.of_kinds.items():
            # Any batch size will do: a profile has the same layers and passes at all of its own.
            first_layers = self.recorded.layers_at[self.recorded.batch_sizes[0]]
            layers = profile.layers_at[profile.batch_sizes[0]]
            difference = _difference(first_layers, layers, first_kind, kind, "on both")
            if difference is not None:
                raise BadInput(f"--profile: {difference}")
        if not self._batch_sizes:
            given = _listed(f"{kind} {_listed(each.batch_sizes)}" for kind, each in self.of_kinds.items())
            raise BadInput(f"--profile: kinds need a batch size in common, got {given}; record one on all")

    @property
    def _profiles(self) -> list[RecordedProfile]:
        return list(self.of_kinds.values()) or [self.recorded]

    @property
    def _batch_sizes(self) -> tuple[int, ...]:
        """The batch sizes at which layers were recorded, ascending; of several profiles those that all reach."""
        low = max(profile.batch_sizes[0] for profile in self._profiles)
        high = min(profile.batch_sizes[-1] for profile in self._profiles)
        recorded = set[int]().union(*(profile.batch_sizes for profile in self._profiles))
        return tuple(sorted(size for size in recorded if low <= size <= high))

    def on_devices(self, cluster: Cluster) -> ProfileTarget:
        """This target with a profile for every kind of device in a cluster.

        Where all devices are alike there is one profile. Unlike devices are `Cluster.kinds` and have a profile each, or
        a speed by which the times of the one profile are divided: 1 where another kind has one.

        Raises BadInput if nothing says how fast some devices run the layers.
        """
        names = tuple(dict.fromkeys(device.name for device in cluster.devices))
        if wrong := [kind for kind in self.of_kinds if kind not in names]:
            raise BadInput(
                f"--profile {wrong[0]}:B=FILE must name devices of the cluster, {cluster.name} has {_listed(names)}; "
                "correct it, or leave it out"
            )
        unlike = dict.fromkeys(f"{device.name} of {device.clock_hz:g} Hz" for device in cluster.devices)
        if not cluster.kinds and len(unlike) > 1:  # in an order that was given
            raise BadInput(
                f"a profile is of one kind of device, {cluster.name} lists {_listed(unlike)}, and nothing says how "
                "fast each runs the layers; write them as [[kinds]], with a speed each or a --profile KIND:B=FILE for "
                "each"
            )
        speeds = {kind.device.name: kind.speed for kind in cluster.kinds if kind.speed is not None}
        if not self.of_kinds:
            return self._with_speeds(cluster.name, names, speeds)
        if missing := [name for name in names if name not in self.of_kinds]:
            raise BadInput(
                f"with --profile KIND:B=FILE every kind needs its profile, {_listed(missing)} has none; record it"
            )
        if speeds:
            raise BadInput(
                f"{_listed(speeds)} has a speed and a --profile of its own, which has the times already; leave one of "
                "them out"
            )
        return self

    def _with_speeds(self, cluster: str, names: Sequence[str], speeds: Mapping[str, float]) -> ProfileTarget:
        if len(names) > 1 and not speeds:
            raise BadInput(
                f"a profile is of one kind of device, {cluster} has {_listed(names)}, and nothing says how fast "
                "each runs the layers; give --profile KIND:B=FILE for each, or its kinds a speed in the cluster file"
            )
        if not speeds:
            return self
        shown = []
        for name in names:
            shown.append(f"{name} {speeds[name]:g}" if name in speeds else f"{name} 1, not given")
        note = f"speeds of the cluster file divide the times of the profile: {_listed(shown)}"
        recorded = replace(self.recorded, notes=(*self.recorded.notes, note))
        of_kinds = {name: recorded.sped_up(speeds.get(name, 1.0)) for name in names}
        return ProfileTarget(of_kinds[names[0]], of_kinds)

    @property
    def traits(self) -> TargetTraits:
        """Estimates only; a search tries the batch sizes that the profile has, and those between them."""
        return TargetTraits(
            Origin.ESTIMATED,
            phases=False,
            splits_backward=False,
            space={"batch_size": _sizes(self._batch_sizes)},
            sessions=(PlainSession,),
            period=Period.SERIAL,
            in_seconds=True,
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on what was read and what was assumed."""
        notes: dict[str, None] = {}
        for profile in self._profiles:
            notes |= dict.fromkeys(profile.notes)
        sizes = self.recorded.batch_sizes
        n_layers = len(self.recorded.layers_at[sizes[0]])
        count = f"{n_layers} layer{'s' if n_layers > 1 else ''}"
        at = _listed(sizes)
        sizes_of = {kind: profile.batch_sizes for kind, profile in self.of_kinds.items()}
        if len(set(sizes_of.values())) > 1:
            at = _listed(f"{_listed(sizes)} of {kind}" for kind, sizes in sizes_of.items())
        between = "; between them it is interpolated" if len(self._batch_sizes) > 1 else ""
        return (*notes, f"all numbers are estimated from a profile of {count} at batch size {at}{between}")

    @property
    def version(self) -> str:
        """Names the content of the profile."""
        if not self.of_kinds:
            return f"profile {self.recorded.content}"
        contents = sorted((kind, profile.content) for kind, profile in self.of_kinds.items())
        return f"profile {hashlib.sha256(repr(contents).encode()).hexdigest()[:16]}"

    def profiled(self, batch_size: int) -> tuple[int, ...]:
        """`batch_size` alone: the profile is interpolated when it is read."""
        return (batch_size,)

    def depends_on(self, device: Device, options: CompileOptions) -> object:
        """The kind of device, the clock in whose cycles seconds are counted, the batch size, and the passes."""
        kind = device.name if self.of_kinds else ""
        return kind, device.clock_hz, options.batch_size, options.training

    def profile(self, graph: LayerGraph, device: Device, options: CompileOptions) -> ModelProfile:
        """The profile at the batch size of `options`, in cycles of `device`.

        Raises BadInput for a batch size outside those that were recorded, or training without a backward pass.
        """
        if options.training and not self.recorded.trains:
            raise BadInput(f"{self.recorded.name} has no times of a backward pass, got --mode training; leave it out")
        if self.of_kinds:
            layers = self.of_kinds[device.name].at(options.batch_size, device.name)
        else:
            layers = self.recorded.at(options.batch_size)
        return ModelProfile(
            model=graph.name,
            target=self.version,
            options=options,
            names=tuple(layer.name for layer in layers),
            kinds=tuple(layer.kind for layer in graph.layers),
            tied=tuple(layer.tied for layer in layers),
            layers=tuple(layer.profile(device.clock_hz, training=options.training) for layer in layers),
        )

    def compile(self, graph: LayerGraph, layers: LayerRange, device: Device, options: CompileOptions) -> CompiledRange:
        """The sum of the layers; each needs its temporary memory and what the range has stashed before it.

        Raises as `profile`.
        """
        profile = self.profile(graph, device, options)
        names, part = profile.names[slice(*layers)], profile.layers[slice(*layers)]
        steps: list[ProgramStep] = []
        stashed_bytes = 0
        for name, layer in zip(names, part, strict=True):
            peak_bytes = layer.temporary_bytes + layer.carried_bytes + stashed_bytes
            steps.append(ProgramStep(name, layer.forward_cycles, peak_bytes))
            stashed_bytes += layer.activation_bytes
        return CompiledRange(
            steps=tuple(steps),
            backward_cycles=sum(layer.backward_cycles for layer in part),
            shared={},
            exclusive={PARAMETER: sum(layer.exclusive[PARAMETER] for layer in part)},
            activation_bytes=stashed_bytes,
            last_segment_cycles=sum(layer.forward_cycles for layer in part),
        )


def _sizes(recorded: tuple[int, ...]) -> tuple[int, ...]:
    """All batch sizes between those recorded, or where these are too many, they and the powers of two between them.

    >>> _sizes((1, 4)), _sizes((1, 300))[-3:]
    ((1, 2, 3, 4), (128, 256, 300))
    """
    low, high = recorded[0], recorded[-1]
    if high - low < _MAX_SIZES:
        return tuple(range(low, high + 1))
    powers = {1 << i for i in range(high.bit_length()) if low < 1 << i < high}
    return tuple(sorted({*recorded, *powers}))
