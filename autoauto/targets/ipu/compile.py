"""Any range of layers as one program for an IPU: `IpuTarget`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.profile import CompiledRange, CompileOptions, ProgramStep
from autoauto.targets.ipu.layout import rearrangements
from autoauto.targets.ipu.live import live_bytes
from autoauto.targets.ipu.memory import check_code, program_bytes, shared_bytes, weight_bytes, working_bytes
from autoauto.targets.ipu.operators import work
from autoauto.targets.ipu.settings import DEFAULTS, Settings
from autoauto.targets.ipu.training import NO_BACKWARD, backward_pass
from autoauto.targets.ipu.work import Site, Work

VERSION = "ipu-5"


@dataclass(frozen=True, slots=True)
class IpuTarget:
    """A cost model of Poplar's compiler for Mk2, Bow and C600 IPUs: no hardware, no SDK."""

    settings: Settings = DEFAULTS

    @property
    def version(self) -> str:
        """Changes whenever equal input may compile to something else."""
        return f"{VERSION}{self.settings}"

    def profiled(self, batch_size: int) -> tuple[int, ...]:
        """Every batch size itself: the cost model is cheap."""
        return (batch_size,)

    def depends_on(self, device: Device, options: CompileOptions) -> object:
        """All of them."""
        return device, options

    def compile(self, graph: LayerGraph, layers: LayerRange, device: Device, options: CompileOptions) -> CompiledRange:
        """Compile `layers` of `graph` as one program for `device`; memory limits are the caller's to check.

        A range costs at most what its layers cost alone, and never less than a shorter one: neighbours share code,
        spare each other copies, and write over tensors that are not needed any more. For training the program also has
        a backward pass and a buffer for the gradient of every parameter (`backward.py`). Bytes are those of the fullest
        tile on every tile.

        Raises:
            OutOfMemory: there is more code than a tile can run, however much memory is left.
        """
        works = works_of(graph, layers, device, options, self.settings)
        after = NO_BACKWARD
        if options.training:
            after = backward_pass(graph, layers, works, device, options, self.settings)
        alive = live_bytes(graph, layers, works, options, after.kept)
        rearranged = rearrangements(graph, layers, works)
        steps = tuple(
            step
            for index, done, copied, n_bytes in zip(range(*layers), works, rearranged, alive, strict=True)
            for step in _steps(graph.layers[index].name, done, copied, n_bytes + working_bytes(done, device.n_tiles))
        )
        kinds = tuple(layer.kind for layer in graph.layers[slice(*layers)])
        compiled = CompiledRange(
            steps=steps,
            backward_cycles=after.cycles,
            shared=shared_bytes((*kinds, *after.kinds), (*works, *after.works), device.n_tiles),
            exclusive={
                **program_bytes((*works, *after.works)),
                **weight_bytes(graph, layers, works, options, device.n_tiles),
                **after.exclusive,
            },
            weight_cycles=after.weight_cycles,
            activation_bytes=after.activation_bytes,
            backward_temporary_bytes=after.temporary_bytes,
        )
        check_code(layers, compiled.memory_bytes, device)
        return compiled


def works_of(
    graph: LayerGraph, layers: LayerRange, device: Device, options: CompileOptions, settings: Settings = DEFAULTS
) -> list[Work]:
    """The work of every layer of a range, neighbours aside; `Work.within_bound` says whether the bound was met."""
    return [work(Site(graph, layer, device, options, settings)) for layer in graph.layers[slice(*layers)]]


def _steps(name: str, done: Work, rearranged_cycles: int, temporary_bytes: int) -> Iterator[ProgramStep]:
    parts = {"rearrange": rearranged_cycles, "exchange": done.exchange_cycles, "compute": done.compute_cycles}
    for part, cycles in parts.items():
        if cycles:
            yield ProgramStep(f"{name}/{part}", cycles, temporary_bytes)
