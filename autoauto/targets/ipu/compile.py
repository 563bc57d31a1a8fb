"""Any range of layers as one program for an IPU: `IpuTarget`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.profile import CompiledRange, CompileOptions, ProgramStep
from autoauto.targets.ipu.layout import rearrangements
from autoauto.targets.ipu.live import live_bytes
from autoauto.targets.ipu.memory import exclusive_bytes, shared_bytes
from autoauto.targets.ipu.operators import work
from autoauto.targets.ipu.settings import DEFAULTS, Settings
from autoauto.targets.ipu.work import Site, Work

VERSION = "ipu-4"


@dataclass(frozen=True, slots=True)
class IpuTarget:
    """A cost model of Poplar's compiler for Mk2, Bow and C600 IPUs: no hardware, no SDK."""

    settings: Settings = DEFAULTS

    @property
    def version(self) -> str:
        """Changes whenever equal input may compile to something else."""
        return f"{VERSION}{self.settings}"

    def compile(self, graph: LayerGraph, layers: LayerRange, device: Device, options: CompileOptions) -> CompiledRange:
        """Compile `layers` of `graph` as one inference program for `device`; memory limits are the caller's to check.

        A range costs at most what its layers cost alone, and never less than a shorter one: neighbours share code,
        spare each other copies, and write over tensors that are not needed any more.
        """
        works = works_of(graph, layers, device, options, self.settings)
        alive = live_bytes(graph, layers, works, options)
        rearranged = rearrangements(graph, layers, works)
        steps = tuple(
            step
            for index, done, copied, n_bytes in zip(range(*layers), works, rearranged, alive, strict=True)
            for step in _steps(graph.layers[index].name, done, copied, n_bytes + done.working_bytes)
        )
        exclusive = exclusive_bytes(graph, layers, works, options)
        return CompiledRange(steps, 0, shared_bytes(works, device.n_tiles), exclusive)


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
