"""Any range of layers as one program for an IPU: `IpuTarget`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, Device, Link
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.profile import CompiledRange, CompileOptions, ProgramStep
from autoauto.targets.ipu.kernels.codelets import EXCHANGE_BYTES_PER_CYCLE, SHORTEST_EXCHANGE_CYCLES, SYNC_CYCLES
from autoauto.targets.ipu.layout import rearrangements
from autoauto.targets.ipu.liveness import live_bytes
from autoauto.targets.ipu.memory import check_code, program_bytes, shared_bytes, weight_bytes, working_bytes
from autoauto.targets.ipu.operator_cost import DEFAULTS, Settings, Site, Work
from autoauto.targets.ipu.operators.registry import work
from autoauto.targets.ipu.training import NO_BACKWARD, backward_pass

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


IO_TILES = 32  # PopRT's examples: num_io_tiles


def overlap_io(cluster: Cluster, n_io_tiles: int = IO_TILES) -> Cluster:
    """`cluster` with `n_io_tiles` of every device given to the host's transfers.

    The tiles left compute while io tiles load the next micro-batch and store the last; then one exchange within the
    device hands them over, at the rate of the io tiles. A period lasts as long as the host takes at least.

    Raises:
        BadInput: no tile is left to compute, or the host's links are not there to overlap.
    """
    first, last = cluster.devices[0], cluster.devices[-1]
    if not 0 < n_io_tiles < min(device.n_tiles for device in cluster.devices):
        raise BadInput(f"io tiles must be some of {first.n_tiles}, got {n_io_tiles}; try {IO_TILES}")
    return replace(
        cluster,
        devices=tuple(_without(device, n_io_tiles) for device in cluster.devices),
        receive_links=(_hand_over(first, n_io_tiles), *cluster.receive_links[1:]),
        send_links=(*cluster.send_links[:-1], _hand_over(last, n_io_tiles)),
        overlapped_host_links=(cluster.receive_links[0], cluster.send_links[-1]),
    )


def _without(device: Device, n_tiles: int) -> Device:
    memory_bytes = device.memory_bytes * (1 - n_tiles / device.n_tiles)
    return replace(device, n_tiles=device.n_tiles - n_tiles, memory_bytes=memory_bytes)


def _hand_over(device: Device, n_tiles: int) -> Link:
    rate = n_tiles * EXCHANGE_BYTES_PER_CYCLE * device.clock_hz
    return Link(bytes_per_s=rate, idle_cycles=SYNC_CYCLES + SHORTEST_EXCHANGE_CYCLES)
