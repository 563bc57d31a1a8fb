"""A target whose costs are those of a profile that another tool recorded: `ProfileTarget`."""

from __future__ import annotations

from dataclasses import dataclass

from autoauto.profile.importers.recorded import RecordedProfile
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Device, Period
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.profile import PARAMETER, CompiledRange, CompileOptions, ModelProfile, ProgramStep
from autoauto.records.target import Origin, TargetTraits

_MAX_SIZES = 128


@dataclass(frozen=True, slots=True)
class ProfileTarget:
    """Devices that were profiled elsewhere: nothing can be measured here, so every number is an estimate.

    A range of layers costs the sum of its layers, so what is "measured" in a search is what was estimated.

    Attributes:
        recorded: the profile.
    """

    recorded: RecordedProfile

    @property
    def traits(self) -> TargetTraits:
        """Estimates only; a search tries the batch sizes that the profile has, and those between them."""
        space = {"memory_proportion": (1.0,), "batch_size": _sizes(self.recorded.batch_sizes)}
        return TargetTraits(Origin.ESTIMATED, phases=False, memory_proportion=1.0, space=space, period=Period.SERIAL)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was read and assumed, one sentence each."""
        sizes = self.recorded.batch_sizes
        between = "; between them it is interpolated" if len(sizes) > 1 else ""
        n_layers = len(self.recorded.layers_at[sizes[0]])
        count = f"{n_layers} layer{'s' if n_layers > 1 else ''}"
        read = f"all numbers are estimated from a profile of {count} at batch size "
        return (*self.recorded.notes, f"{read}{', '.join(map(str, sizes))}{between}")

    @property
    def version(self) -> str:
        """Names the content of the profile."""
        return f"profile {self.recorded.content}"

    def profiled(self, batch_size: int) -> tuple[int, ...]:
        """Itself: the profile is interpolated when it is read."""
        return (batch_size,)

    def depends_on(self, device: Device, options: CompileOptions) -> object:
        """The clock in whose cycles the seconds of the profile are counted, the batch size, and the passes."""
        return device.clock_hz, options.batch_size, options.training

    def profile(self, graph: LayerGraph, device: Device, options: CompileOptions) -> ModelProfile:
        """The profile at the batch size of `options`, in cycles of `device`.

        Raises:
            BadInput: the batch size is outside those that were recorded, or training without a backward pass.
        """
        if options.training and not self.recorded.trains:
            raise BadInput(f"{self.recorded.name} has no times of a backward pass, got --mode training; leave it out")
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

        Raises:
            BadInput: as `profile`.
        """
        profile = self.profile(graph, device, options)
        steps, stashed_bytes = [], 0
        for name, layer in list(zip(profile.names, profile.layers, strict=True))[slice(*layers)]:
            peak_bytes = layer.temporary_bytes + layer.carried_bytes + stashed_bytes
            steps.append(ProgramStep(name, layer.forward_cycles, peak_bytes))
            stashed_bytes += layer.activation_bytes
        part = profile.layers[slice(*layers)]
        return CompiledRange(
            steps=tuple(steps),
            backward_cycles=sum(layer.backward_cycles for layer in part),
            shared={},
            exclusive={PARAMETER: sum(layer.exclusive[PARAMETER] for layer in part)},
            activation_bytes=stashed_bytes,
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
