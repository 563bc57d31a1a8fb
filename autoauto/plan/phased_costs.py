"""Costs of phases on one device, `PhaseCosts`, for the ranges of layers that may fit, `phase_candidates`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

import numpy as np

from autoauto.plan.pipeline.blocks import Blocks, contract
from autoauto.plan.pipeline.fitting import SharedUses, bytes_by_ends, earliest_starts, parts
from autoauto.records.costs.cost import CostTable
from autoauto.records.costs.memory import stash_entry_bytes
from autoauto.records.costs.profile import PARAMETER, ModelProfile
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, Link, StreamingMemory
from autoauto.records.plans.phased import IoMode, PhasedOptions, PhaseKind, loop_cycles
from autoauto.records.units import IntArray


class PhaseCandidates(NamedTuple):
    """Several ranges of layers `[start, stop)`.

    Attributes:
        starts, stops: of each range; either all ranges end with the last layer, or none does.
        base_bytes: variables, program and peak of each range, as `CostTable.memory_bytes`.
        variable_bytes: the part of `base_bytes` that is variables.
        activation_bytes: what a backward pass reads again.
    """

    starts: IntArray
    stops: IntArray
    base_bytes: IntArray
    variable_bytes: IntArray
    activation_bytes: IntArray


def phase_candidates(table: CostTable, limit_bytes: int, cuts: IntArray) -> Iterator[PhaseCandidates]:
    """The ranges between `cuts` whose `base_bytes` are within the limit, as `candidates_from`.

    Phases may be cut anywhere: layers that read one variable need not share a phase, as each can load it.
    """
    blocks = blocks_between(table, cuts)
    return candidates_from(table, blocks, earliest_starts(blocks.costs[0], limit_bytes))


def single_layers(table: CostTable) -> Iterator[PhaseCandidates]:
    """Every layer alone, as `candidates_from`."""
    return candidates_from(table, blocks_between(table, all_cuts(table)), [0, *range(table.n_layers)])


def all_cuts(table: CostTable) -> IntArray:
    """All cuts: phases may begin and end at any layer."""
    return np.arange(table.n_layers + 1)


def blocks_between(table: CostTable, cuts: IntArray) -> Blocks:
    """The layers between neighbouring cuts, of which the first is 0 and the last the number of layers."""
    may_cut = np.zeros_like(table.cut_allowed)
    may_cut[cuts] = True
    return contract(replace(table, cut_allowed=may_cut))


def candidates_from(table: CostTable, blocks: Blocks, earliest: Sequence[int]) -> Iterator[PhaseCandidates]:
    """The ranges to every stop of blocks from its start in `earliest` on, by ascending stop, then start.

    They come in parts of about `MAX_RANGES`; those that end with the last layer are a part of their own.
    """
    n, cuts, memory = len(blocks), np.array(blocks.cuts), table.memory
    [form] = blocks.costs[0].forms
    base, shared = form.one_in_flight, SharedUses.of(form.shared_keys, form.shared_bytes)
    variables, activations = memory.exclusive(PARAMETER), memory.activations
    categories = memory.shared.categories
    sizes = [size * (name == PARAMETER) for size, name in zip(form.shared_bytes, categories, strict=True)]
    shared_variables = SharedUses.of(form.shared_keys, sizes)
    for ends in chain(parts(earliest, range(1, n)), parts(earliest, range(n, n + 1))):
        first_starts = np.array(earliest[ends.stops.start : ends.stops.stop], dtype=np.int64)
        row, column = np.nonzero(ends.are_ranges & (np.asarray(ends.starts) >= first_starts[:, None]))
        stops, starts = cuts[row + ends.stops.start], cuts[column + ends.starts.start]
        if len(starts):
            yield PhaseCandidates(
                starts=starts,
                stops=stops,
                base_bytes=(bytes_by_ends(base, ends) + shared.by_ends(ends))[row, column],
                variable_bytes=variables.stop_bytes[stops]
                - variables.start_bytes[starts]
                + shared_variables.by_ends(ends)[row, column],
                activation_bytes=activations.stop_bytes[stops] - activations.start_bytes[starts],
            )


def single_candidate(table: CostTable, start: int, stop: int) -> PhaseCandidates:
    """The range `[start, stop)` alone, by `CostTable.memory_bytes`."""
    memory = table.memory_bytes(start, stop)
    return PhaseCandidates(
        starts=np.array([start]),
        stops=np.array([stop]),
        base_bytes=np.array([sum(memory.values())]),
        variable_bytes=np.array([memory.get(PARAMETER, 0)]),
        activation_bytes=np.array([table.memory.activations.between(start, stop)]),
    )


class PassCosts(NamedTuple):
    """The costs of one pass over each of several ranges: arrays by range, with the names and units of `Phase`.

    `n_variable_moves` is 1 where variables are loaded, 2 where they are then stored, too.
    """

    kind: PhaseKind
    n_variable_moves: int
    load_bytes: IntArray
    load_cycles: IntArray
    compute_cycles: IntArray
    store_bytes: IntArray
    store_cycles: IntArray


@dataclass(frozen=True, slots=True)
class PhaseCosts:
    """The costs of phases on one device: what they depend on, and methods for many ranges at once.

    Attributes:
        table: costs of ranges on one device that holds one micro-batch.
        input_bytes: (n + 1,) by start: bytes that a range receives; the last entry is unused.
        output_bytes: (n + 1,) by stop: bytes that a range sends; the first entry is unused.
        cluster: links, clock and streaming memory.
    """

    table: CostTable
    input_bytes: IntArray
    output_bytes: IntArray
    options: PhasedOptions
    training: bool
    cluster: Cluster

    @property
    def streaming(self) -> StreamingMemory:
        """The streaming memory beside the device's own."""
        memory = self.cluster.streaming_memory
        assert memory is not None  # `prepare_phases` has checked
        return memory

    @property
    def compute_limit_bytes(self) -> int:
        """Bytes that the compute tiles may hold."""
        return int(self.table.memory_limit_bytes[0]) - self.io_limit_bytes

    @property
    def io_limit_bytes(self) -> int:
        """Bytes that the io tiles may hold."""
        limit_bytes = int(self.table.memory_limit_bytes[0])
        return limit_bytes * self.options.n_io_tiles // self.cluster.devices[0].n_tiles

    @property
    def n_buffers(self) -> int:
        """Copies of the load and store buffers: two when overlapped, one on the io tiles and one in use by compute."""
        return 2 if self.options.effective_mode is IoMode.IO_OVERLAPPED else 1

    def excess_bytes(self, ranges: PhaseCandidates) -> IntArray:
        """Bytes by which each range exceeds its limit, of the compute tiles or of the io tiles, whichever is more."""
        compute_bytes, io_bytes = self.needed_bytes(ranges)
        excess: IntArray = np.maximum(compute_bytes - self.compute_limit_bytes, io_bytes - self.io_limit_bytes)
        return excess

    def needed_bytes(self, ranges: PhaseCandidates) -> tuple[IntArray, IntArray]:
        """Bytes on the compute tiles, and on the io tiles, which hold one copy of the buffers where there are any."""
        buffer_bytes = self._buffer_bytes(ranges)
        if self.options.n_io_tiles:
            return ranges.base_bytes + (self.n_buffers - 1) * buffer_bytes, buffer_bytes
        return ranges.base_bytes + self.n_buffers * buffer_bytes, np.zeros_like(buffer_bytes)

    def earliest_starts(self) -> list[int]:
        """By stop, (n + 1,), the earliest start whose range fits, its buffers left out; the stop itself without one."""
        blocks = blocks_between(self.table, all_cuts(self.table))
        return earliest_starts(blocks.costs[0], self.compute_limit_bytes)

    def min_transfer_cycles(self) -> tuple[IntArray, IntArray]:
        """Cycles of all steps that a phase takes at least, by its start and by its stop, (n + 1,), beside its layers.

        Loads and stores of a forward pass, of whose stores outputs alone are counted, and in inference to enter it.
        Overlapped with computing loads and stores take the time of one step.
        """
        overlapped = self.options.effective_mode is IoMode.IO_OVERLAPPED
        n_steps = 1 if overlapped else self.options.steps
        loads = self._load_inputs(np.arange(len(self.input_bytes)))
        stores = self._cycles(self.output_bytes, self.streaming.link)
        to_host = self._cycles(self.output_bytes[-1:], self.cluster.send_links[-1])
        if self.training:
            stores[-1:] = 0
            return n_steps * loads, n_steps * stores
        stores[-1:] = to_host
        entry_cycles = np.append(self.table.entry_cycles, 0)
        return n_steps * loads + self.options.steps * entry_cycles, n_steps * stores

    def min_compute_cycles(self) -> int:
        """Cycles in which all phases of any plan compute at least, for all steps."""
        backward = int(self.table.backward_prefix_cycles[-1])
        forward = int(self.table.compute_prefix_cycles[-1]) - backward
        if not self.training:
            return self.options.steps * forward
        if self.options.recompute:
            # Backward has a second forward in it, and the last phase, which may be all layers, runs no first one.
            return self.options.steps * backward
        return self.options.steps * (backward + forward)

    def min_variable_cycles(self, n_replicas: int) -> float:
        """Cycles to load the variables of all layers at least, however they are divided into phases.

        A phase waits for every link, and its cycles are rounded down, which is left out.
        """
        links = self.cluster.receive_links
        n_bytes = int(self.table.memory.exclusive(PARAMETER).stop_bytes[-1]) / n_replicas
        between = (n_replicas - 1) / links[min(1, len(links) - 1)].bytes_per_s
        cycles = n_bytes * self.cluster.clock_hz * (1 / self.streaming.link.bytes_per_s + between)
        return cycles - n_replicas * self.table.n_layers

    def total_cycles(self, ranges: PhaseCandidates, counts: Sequence[int]) -> IntArray:
        """Cycles of all passes over each range, for all steps, with variables: a row for every number of replicas."""
        steps, mode = self.options.steps, self.options.effective_mode
        loops: IntArray = np.zeros_like(ranges.starts)
        n_moves = 0
        for costs in self.passes(ranges):
            loops = loops + loop_cycles(mode, steps, costs.load_cycles, costs.compute_cycles, costs.store_cycles)
            n_moves += costs.n_variable_moves
        variables = [self.variable_cycles(ranges.variable_bytes, n_replicas) for n_replicas in counts]
        return loops + n_moves * np.stack(variables)

    def passes(self, ranges: PhaseCandidates) -> tuple[PassCosts, ...]:
        """Forward; in training also backward, or both at once for ranges that hold the last layer."""
        if not self.training:
            return (self._forward(ranges),)
        if self._at_end(ranges):
            return (self._both(ranges),)
        return self._forward(ranges), self._backward(ranges)

    def _at_end(self, ranges: PhaseCandidates) -> bool:
        return bool(ranges.stops[0] == self.table.n_layers)

    def _buffer_bytes(self, ranges: PhaseCandidates) -> IntArray:
        """Bytes that are loaded and stored in one step of the pass that moves most."""
        loaded = self.input_bytes[ranges.starts]
        if not self.training:
            return loaded + self.output_bytes[ranges.stops]
        if self._at_end(ranges):
            return loaded + self._input_gradients(ranges)
        forward_bytes, backward_bytes = loaded + self._stored(ranges), sum(self._moved_backward(ranges))
        largest: IntArray = np.maximum(forward_bytes, backward_bytes)
        return largest

    def _forward(self, ranges: PhaseCandidates) -> PassCosts:
        """Load the range's inputs; store its outputs and, in training, the activations that backward needs."""
        stored = self._stored(ranges)
        return PassCosts(
            PhaseKind.FORWARD,
            1,
            self.input_bytes[ranges.starts],
            self._load_inputs(ranges.starts),
            self._on_compute_tiles(self._forward_cycles(ranges)),
            stored,
            self._cycles(stored, self.cluster.send_links[-1] if self._at_end(ranges) else self.streaming.link),
        )

    def _stored(self, ranges: PhaseCandidates) -> IntArray:
        """Bytes that a forward pass stores: outputs, and for its backward activations, or the host's inputs again."""
        outputs = self.output_bytes[ranges.stops]
        if not self.training:
            return outputs
        if self.options.recompute:
            host_inputs: IntArray = np.where(ranges.starts == 0, self.input_bytes[ranges.starts], 0)
            return outputs + host_inputs
        return outputs + _between(self.table.memory.activation_prefix_bytes, ranges)

    def _moved_backward(self, ranges: PhaseCandidates) -> tuple[IntArray, IntArray]:
        """Bytes that a backward pass loads: gradients of outputs, and stashed activations or inputs; and stores."""
        inputs = self.input_bytes[ranges.starts]
        again = stash_entry_bytes(ranges.activation_bytes, inputs, recompute=self.options.recompute)
        return self.output_bytes[ranges.stops] + again, self._input_gradients(ranges)

    def _backward(self, ranges: PhaseCandidates) -> PassCosts:
        """Load gradients of outputs and stashed activations, or the inputs to recompute; store gradients of inputs."""
        loaded, stored = self._moved_backward(ranges)
        return PassCosts(
            PhaseKind.BACKWARD,
            2,  # variables are loaded, and stored when they are updated
            loaded,
            self._cycles(loaded, self.streaming.link),
            self._on_compute_tiles(self._backward_cycles(ranges)),
            stored,
            self._cycles(stored, self.streaming.link),
        )

    def _both(self, ranges: PhaseCandidates) -> PassCosts:
        """Forward, loss and backward of the last layers in one pass: nothing is computed again."""
        stored = self._input_gradients(ranges)
        compute = self._backward_cycles(ranges)
        if not self.options.recompute:
            compute = compute + self._forward_cycles(ranges)
        return PassCosts(
            PhaseKind.BOTH,
            2,
            self.input_bytes[ranges.starts],
            self._load_inputs(ranges.starts),
            self._on_compute_tiles(compute),
            stored,
            self._cycles(stored, self.streaming.link),
        )

    def _input_gradients(self, ranges: PhaseCandidates) -> IntArray:
        """Bytes of the gradients of a range's inputs; the model's inputs need none."""
        gradients: IntArray = np.where(ranges.starts > 0, self.input_bytes[ranges.starts], 0)
        return gradients

    def _load_inputs(self, starts: IntArray) -> IntArray:
        """Cycles to load a range's inputs: from the host for the first range, else from streaming memory."""
        n_bytes = self.input_bytes[starts]
        streamed = self._cycles(n_bytes, self.streaming.link)
        from_host = self._cycles(n_bytes, self.cluster.receive_links[0])
        cycles: IntArray = np.where(starts > 0, streamed, from_host)
        return cycles

    def _forward_cycles(self, ranges: PhaseCandidates) -> IntArray:
        whole = _between(self.table.compute_prefix_cycles, ranges) + self.table.entry_cycles[ranges.starts]
        cycles: IntArray = whole - self._backward_cycles(ranges)
        return cycles

    def _backward_cycles(self, ranges: PhaseCandidates) -> IntArray:
        """Cycles of the backward pass, recomputation included."""
        return _between(self.table.backward_prefix_cycles, ranges)

    def _on_compute_tiles(self, cycles: IntArray) -> IntArray:
        """Cycles on the compute tiles of work that takes all tiles `cycles`, rounded up."""
        n_tiles = self.cluster.devices[0].n_tiles
        return -(-cycles * n_tiles // (n_tiles - self.options.n_io_tiles))

    def variable_cycles(self, n_bytes: IntArray, n_replicas: int) -> IntArray:
        """Cycles to load variables: each replica loads a shard, then all gather; to reduce and store takes as long."""
        links = self.cluster.receive_links
        shards = -(-n_bytes // n_replicas)
        rounds = (n_replicas - 1) * self._cycles(shards, links[min(1, len(links) - 1)])
        return self._cycles(shards, self.streaming.link) + rounds

    def _cycles(self, n_bytes: IntArray, link: Link) -> IntArray:
        return link.load_cycles(n_bytes, self.cluster.clock_hz)


def prepare_phases(table: CostTable, profile: ModelProfile, cluster: Cluster, options: PhasedOptions) -> PhaseCosts:
    """Check that the cluster can run phases, and collect their costs.

    Raises BadInput for no streaming memory, more replicas than devices, or no tiles left to compute.
    """
    device = cluster.devices[0]
    if cluster.streaming_memory is None:
        raise BadInput(
            f"phased execution needs a streaming memory, cluster {cluster.name} has none; try one with a "
            "[streaming_memory], as bow-2000"
        )
    if options.n_replicas > len(cluster):
        raise BadInput(f"replicas must be at most {len(cluster)} on {cluster.name}, got {options.n_replicas}")
    if options.n_io_tiles >= device.n_tiles:
        raise BadInput(f"io_tiles must be below {device.n_tiles}, the tiles of a {device.name}, got {options.io_tiles}")
    assert table.n_devices == 1
    assert not any(table.stash_entries)
    inputs = np.array([layer.input_bytes for layer in profile.layers] + [0], dtype=np.int64)
    outputs = np.array([0] + [layer.output_bytes for layer in profile.layers], dtype=np.int64)
    training = profile.options is not None and profile.options.training
    # Phases are planned without subgraphs for equal layers.
    return PhaseCosts(table.plain, inputs, outputs, options, training, cluster)


def _between(prefix: IntArray, ranges: PhaseCandidates) -> IntArray:
    between: IntArray = prefix[ranges.stops] - prefix[ranges.starts]
    return between
