"""Memory and variables of all ranges that stop at one layer and may fit: the candidates of the phase planner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from autoauto.plan.pipeline.blocks import contract, reach
from autoauto.records.cost import CostTable, IntArray
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, Link, StreamingMemory
from autoauto.records.phased import IoMode, PhasedOptions, PhaseKind, loop_cycles
from autoauto.records.profile import PARAMETER, ModelProfile


class Ranges(NamedTuple):
    """The ranges of layers `[start, stop)` for several starts and one stop.

    Attributes:
        starts: ascending.
        stop: one for all.
        base_bytes: variables, program and peak of each range, as `CostTable.memory_bytes`.
        variable_bytes: the variables alone.
    """

    starts: IntArray
    stop: int
    base_bytes: IntArray
    variable_bytes: IntArray


def ranges(table: CostTable, limit_bytes: int) -> Iterator[Ranges]:
    """For every stop the ranges whose `base_bytes` are within the limit, in O(n x reach).

    Starts from `reach` on fit, as a range that begins earlier never needs less. A shared key counts for the starts up
    to its last layer, and a layer's peak for all starts before it: both are changed in place as the stop moves on.

    Phases may be cut anywhere: layers that read one variable need not share a phase, as each can load it.
    """
    blocks = contract(replace(table, cut_allowed=np.ones_like(table.cut_allowed)))  # every layer is a block
    earliest, n = reach(blocks, limit_bytes).starts, table.n_layers
    exclusive, not_kept = np.array(blocks.exclusive_prefix_bytes), np.array(blocks.not_kept_bytes)
    variables = table.exclusive_prefix_bytes.get(PARAMETER, np.zeros(n + 1, dtype=np.int64))
    shared, shared_variables, peaks = (np.zeros(n, dtype=np.int64) for _ in range(3))
    last = [-1] * len(table.shared_bytes)
    for layer in range(n):
        first, stop = earliest[layer + 1], layer + 1
        for key in set(table.shared_keys[layer]):
            shared[last[key] + 1 : stop] += table.shared_bytes[key]
            if table.shared_categories[key] == PARAMETER:
                shared_variables[last[key] + 1 : stop] += table.shared_bytes[key]
            last[key] = layer
        np.maximum(peaks[first:stop], blocks.peak_bytes[layer], out=peaks[first:stop])
        at = slice(first, stop)
        yield Ranges(
            starts=np.arange(first, stop),
            stop=stop,
            base_bytes=exclusive[stop] - exclusive[at] + shared[at] + peaks[at] - not_kept[at],
            variable_bytes=variables[stop] - variables[at] + shared_variables[at],
        )


def one_range(table: CostTable, start: int, stop: int) -> Ranges:
    """The range from one start, as the table defines it."""
    memory = table.memory_bytes(start, stop)
    base_bytes, variable_bytes = sum(memory.values()), memory.get(PARAMETER, 0)
    return Ranges(np.array([start]), stop, np.array([base_bytes]), np.array([variable_bytes]))


class Pass(NamedTuple):
    """One pass over several ranges: arrays with an entry for each, as `Phase` names them."""

    kind: PhaseKind
    variable_cycles: IntArray
    load_bytes: IntArray
    load_cycles: IntArray
    compute_cycles: IntArray
    store_bytes: IntArray
    store_cycles: IntArray


@dataclass(frozen=True, slots=True)
class PhaseCosts:
    """Everything that the costs of phases on one device are made of.

    Attributes:
        table: costs of ranges on one device that holds one micro-batch.
        input_bytes: (n + 1,) by start: what a range receives; the last entry is unused.
        output_bytes: (n + 1,) by stop: what a range leaves; the first entry is unused.
        options: steps, io mode, replicas.
        training: whether there is a backward pass.
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
        """What the device has beside its own memory."""
        memory = self.cluster.streaming_memory
        assert memory is not None  # `prepare_phases` has checked
        return memory

    @property
    def compute_limit_bytes(self) -> int:
        """What the compute tiles may hold."""
        return int(self.table.memory_limit_bytes[0]) - self.io_limit_bytes

    @property
    def io_limit_bytes(self) -> int:
        """What the io tiles may hold."""
        limit_bytes = int(self.table.memory_limit_bytes[0])
        return limit_bytes * self.options.n_io_tiles // self.cluster.devices[0].n_tiles

    @property
    def n_buffers(self) -> int:
        """Copies of what is loaded and stored: overlapped, one on the io tiles while compute works on another."""
        return 2 if self.options.effective_mode is IoMode.IO_OVERLAPPED else 1

    @property
    def kept_inputs(self) -> IntArray:
        """(n,) of what a range receives, bytes that its backward needs and an earlier phase has stored."""
        kept = self.table.kept_input_bytes
        return kept if len(kept) else np.zeros(self.table.n_layers, dtype=np.int64)

    def excess_bytes(self, ranges: Ranges) -> IntArray:
        """By how much each range exceeds the memory of compute tiles or io tiles, whichever lacks more."""
        excess = self.compute_bytes(ranges) - self.compute_limit_bytes
        worse: IntArray = np.maximum(excess, self.io_bytes(ranges) - self.io_limit_bytes)
        return worse

    def compute_bytes(self, ranges: Ranges) -> IntArray:
        """What the compute tiles hold: all but the copy of the buffers that is on io tiles."""
        n_copies = self.n_buffers - bool(self.options.n_io_tiles)
        n_bytes: IntArray = ranges.base_bytes + n_copies * self._buffer_bytes(ranges)
        return n_bytes

    def io_bytes(self, ranges: Ranges) -> IntArray:
        """What the io tiles hold: one copy of the buffers."""
        return bool(self.options.n_io_tiles) * self._buffer_bytes(ranges)

    def total_cycles(self, ranges: Ranges) -> IntArray:
        """All passes over each range, for all steps."""
        steps, mode = self.options.steps, self.options.effective_mode
        by_pass = [
            one.variable_cycles + loop_cycles(mode, steps, one.load_cycles, one.compute_cycles, one.store_cycles)
            for one in self.passes(ranges)
        ]
        cycles: IntArray = np.add.reduce(by_pass)
        return cycles

    def passes(self, ranges: Ranges) -> tuple[Pass, ...]:
        """Forward; in training also backward, or both at once where the last layer is."""
        if not self.training:
            return (self._forward(ranges),)
        if ranges.stop == self.table.n_layers:
            return (self._both(ranges),)
        return self._forward(ranges), self._backward(ranges)

    def _buffer_bytes(self, ranges: Ranges) -> IntArray:
        """What is loaded and stored in one step of the pass that moves most."""
        moved = [one.load_bytes + one.store_bytes for one in self.passes(ranges)]
        most: IntArray = np.maximum.reduce(moved)
        return most

    def _forward(self, ranges: Ranges) -> Pass:
        """Load what is alive before the range, store what is alive after it and, in training, what backward needs."""
        starts, stop = ranges.starts, ranges.stop
        stored = np.full(len(starts), self.output_bytes[stop])
        if self.training:
            stored = stored + self._kept(starts, stop)
        at_end = stop == self.table.n_layers
        return Pass(
            PhaseKind.FORWARD,
            self._gather(ranges.variable_bytes),
            self.input_bytes[starts],
            self._load_inputs(starts),
            self._on_compute_tiles(self._forward_cycles(ranges)),
            stored,
            self._cycles(stored, self.cluster.send_links[-1] if at_end else self.streaming.link),
        )

    def _kept(self, starts: IntArray, stop: int) -> IntArray:
        """What a forward phase stores for its backward; to compute again, inputs that only the host has."""
        kept_bytes = self.table.activation_prefix_bytes
        kept: IntArray = kept_bytes[stop] - kept_bytes[starts]
        if self.options.recompute:
            kept = np.where(starts == 0, self.input_bytes[starts], 0)
        return kept

    def _backward(self, ranges: Ranges) -> Pass:
        """Load the gradients of outputs and what the forward kept, or its inputs alone; store gradients of inputs."""
        starts, stop = ranges.starts, ranges.stop
        again = self.input_bytes[starts]
        if not self.options.recompute:
            again = self._kept(starts, stop) + self.kept_inputs[starts]
        loaded, stored = self.output_bytes[stop] + again, self._input_gradients(starts)
        return Pass(
            PhaseKind.BACKWARD,
            2 * self._gather(ranges.variable_bytes),  # loaded, and stored when they are updated
            loaded,
            self._cycles(loaded, self.streaming.link),
            self._on_compute_tiles(self._backward_cycles(ranges)),
            stored,
            self._cycles(stored, self.streaming.link),
        )

    def _both(self, ranges: Ranges) -> Pass:
        """Forward, loss and backward of the last layers at once: nothing is computed again."""
        stored = self._input_gradients(ranges.starts)
        compute = self._backward_cycles(ranges)
        if not self.options.recompute:
            compute = compute + self._forward_cycles(ranges)
        return Pass(
            PhaseKind.BOTH,
            2 * self._gather(ranges.variable_bytes),
            self.input_bytes[ranges.starts],
            self._load_inputs(ranges.starts),
            self._on_compute_tiles(compute),
            stored,
            self._cycles(stored, self.streaming.link),
        )

    def _input_gradients(self, starts: IntArray) -> IntArray:
        """Gradients of what a range receives; the model's inputs need none."""
        gradients: IntArray = np.where(starts > 0, self.input_bytes[starts], 0)
        return gradients

    def _load_inputs(self, starts: IntArray) -> IntArray:
        """The first range's come from the host."""
        n_bytes = self.input_bytes[starts]
        streamed = self._cycles(n_bytes, self.streaming.link)
        from_host = self._cycles(n_bytes, self.cluster.receive_links[0])
        cycles: IntArray = np.where(starts > 0, streamed, from_host)
        return cycles

    def _forward_cycles(self, ranges: Ranges) -> IntArray:
        table = self.table
        whole = table.compute_prefix_cycles[ranges.stop] - table.start_cycles[ranges.starts]
        cycles: IntArray = whole - self._backward_cycles(ranges)
        return cycles

    def _backward_cycles(self, ranges: Ranges) -> IntArray:
        """With what is computed again."""
        return _between(self.table.backward_prefix_cycles, ranges)

    def _on_compute_tiles(self, cycles: IntArray) -> IntArray:
        """What all tiles compute in `cycles`, on those that are not io tiles, rounded up."""
        n_tiles = self.cluster.devices[0].n_tiles
        return -(-cycles * n_tiles // (n_tiles - self.options.n_io_tiles))

    def _gather(self, n_bytes: IntArray) -> IntArray:
        """`Sharding.load_cycles`, and as much to reduce and store, for arrays."""
        n_replicas, links = self.options.n_replicas, self.cluster.receive_links
        shards = -(-n_bytes // n_replicas)
        rounds = (n_replicas - 1) * self._cycles(shards, links[min(1, len(links) - 1)])
        return self._cycles(shards, self.streaming.link) + rounds

    def _cycles(self, n_bytes: IntArray, link: Link) -> IntArray:
        """`Link.cycles` for an array, rounded alike; nothing for nothing."""
        cycles = link.idle_cycles + n_bytes / (link.bytes_per_s / self.cluster.devices[0].clock_hz)
        moved: IntArray = np.where(n_bytes > 0, cycles, 0).astype(np.int64)
        return moved


def prepare_phases(table: CostTable, profile: ModelProfile, cluster: Cluster, options: PhasedOptions) -> PhaseCosts:
    """Check that the cluster can run phases at all, and collect their costs.

    Raises:
        BadInput: no streaming memory, more replicas than devices, or no tiles left to compute.
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
    layers = profile.layers
    inputs = np.array([*(layer.input_bytes for layer in layers), 0], dtype=np.int64)
    outputs = np.array([0, *(layer.output_bytes for layer in layers)], dtype=np.int64)
    training = profile.options is not None and profile.options.training
    return PhaseCosts(table, inputs, outputs, options, training, cluster)


def _between(prefix: IntArray, ranges: Ranges) -> IntArray:
    between: IntArray = prefix[ranges.stop] - prefix[ranges.starts]
    return between
