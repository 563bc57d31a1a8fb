"""The memory of every range of layers, `RangeMemory`, and of a device that runs several as its stages, `device_memory`.

What a device holds is added up in this file only, of estimated ranges and of compiled ones (`compiled_stage`):

    bytes of a device = exclusive bytes         of its stages, which add up
                      + shared bytes            of their keys, each once
                      + temporary bytes         the peak of the current micro-batch; one stage runs at a time
                      + entries x stash entry   what other micro-batches in flight stash for their backward pass

`_addends` does so for numbers and for arrays. One range on a device is the case of one stage, `alone_bytes`; planners
ask for all ranges at once, `RangeMemory.one_in_flight`. Where a range does not fit, the same formula of its outlined
form counts, if that is less: a program with one subgraph for equal layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import mul
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from autoauto.records.costs.profile import OUTLINED, STASH, TEMPORARY, CompiledRange, category
from autoauto.records.units import Amount, IntArray

Stashed = TypeVar("Stashed")


class StageBytes(NamedTuple, Generic[Amount]):
    """The memory of one range of layers as a stage of a device; of many ranges at once where these are arrays.

    Attributes:
        exclusive_bytes: always in use, by category.
        shared_bytes: by key; equal keys on one device are stored once.
        temporary_bytes: the peak of the current micro-batch, its stash entry included.
        entry_bytes: what it stashes for one micro-batch until the backward pass.
    """

    exclusive_bytes: Mapping[str, Amount]
    shared_bytes: Mapping[str, int]
    temporary_bytes: Amount
    entry_bytes: Amount


def device_memory(stages: Sequence[StageBytes[int]], in_flight: IntArray) -> list[dict[str, int]]:
    """The memory of every stage by category, so that the sum over the stages of a device is what it needs.

    Exclusive bytes add up, a shared key counts in the first stage that has it. One stage runs at a time, so of what
    they use besides their stash the largest counts, in its stage. The stash is that of the moment in which it is
    largest.

    Args:
        stages: of one device, in the order of their layers.
        in_flight: (moments, stages) how many micro-batches of every stage are in flight, the current one included, at
            every moment at which the stash may be largest.

    >>> one = StageBytes({"parameter": 5}, {"vertexCode_a": 2}, temporary_bytes=9, entry_bytes=4)
    >>> device_memory([one], np.array([[3]]))
    [{'parameter': 5, 'vertexCode': 2, 'temporary': 9, 'stash': 8}]
    >>> device_memory([one, one._replace(temporary_bytes=7)], np.array([[3, 1], [2, 2]]))[1]
    {'parameter': 5, 'temporary': 0, 'stash': 4}
    """
    memories: list[dict[str, int]] = [{} for _ in stages]
    for memory, (exclusive, shared, moving) in zip(memories, _addends(stages, in_flight), strict=True):
        memory.update(exclusive)
        for key, n_bytes in shared.items():
            name = category(key)
            memory[name] = memory.get(name, 0) + n_bytes
        for name, n_bytes in moving.items():
            memory[name] = memory.get(name, 0) + n_bytes
    return memories


def device_bytes(stages: Sequence[StageBytes[Amount]], in_flight: IntArray) -> Amount:
    """Bytes that stages need on one device: the sum of `device_memory`, or arrays of sums for arrays of stages.

    >>> one = StageBytes({"parameter": 5}, {"vertexCode_a": 2}, temporary_bytes=9, entry_bytes=4)
    >>> device_bytes([one, one._replace(temporary_bytes=7)], np.array([[3, 1], [2, 2]]))
    33
    """
    n_bytes: list[Any] = []
    for exclusive, shared, moving in _addends(stages, in_flight):
        n_bytes += exclusive.values()
        n_bytes += shared.values()
        n_bytes += moving.values()
    total: Amount = sum(n_bytes)
    return total


def alone_bytes(stage: StageBytes[int], n_stash_entries: int = 0) -> dict[str, int]:
    """The memory by category of a device that runs one stage, with the stash of so many other micro-batches.

    >>> alone_bytes(StageBytes({"parameter": 5}, {"vertexCode_a": 2, "vertexCode_b": 1}, 9, 4))
    {'parameter': 5, 'vertexCode': 3, 'temporary': 9}
    """
    [memory] = device_memory([stage], np.array([[1 + n_stash_entries]]))
    if not n_stash_entries:
        del memory[STASH]
    return memory


def compiled_bytes(compiled: CompiledRange) -> dict[str, int]:
    """The memory by category of a device that runs a range that was compiled whole, with one micro-batch in flight."""
    return alone_bytes(compiled_stage(compiled))


def compiled_stage(compiled: CompiledRange, input_bytes: int = 0, *, recompute: bool = False) -> StageBytes[int]:
    """A range that was compiled whole, as a stage that receives `input_bytes` and stashes them where it recomputes."""
    stored_bytes = input_bytes + compiled.checkpoint_bytes
    entry_bytes = stash_entry_bytes(compiled.activation_bytes, stored_bytes, recompute=recompute)
    return StageBytes(compiled.exclusive, compiled.shared, compiled.temporary_bytes, entry_bytes)


def _addends(
    stages: Sequence[StageBytes[Amount]], in_flight: IntArray
) -> Iterator[tuple[Mapping[str, Amount], Mapping[str, int], Mapping[str, Any]]]:
    """What counts of every stage on a device: its exclusive bytes, shared bytes by key, and bytes that come and go."""
    entries = [stage.entry_bytes for stage in stages]
    working = [stage.temporary_bytes - stage.entry_bytes for stage in stages]
    counts: Any
    largest: Any
    # The moment in which the stash is largest, and the stage that works with most memory besides it.
    if isinstance(entries[0], np.ndarray):
        counts = in_flight[(in_flight @ np.array(entries)).argmax(axis=0)].T
        largest = np.array(working).argmax(axis=0)
    else:
        counts = max(in_flight.tolist(), key=lambda moment: sum(map(mul, moment, entries)))
        largest = max(range(len(stages)), key=working.__getitem__)
    stored: set[str] = set()
    for index, (stage, count) in enumerate(zip(stages, counts, strict=True)):
        runs = largest == index
        own = runs & (count > 0)  # whether its entry for the current micro-batch is part of the temporary bytes
        # Products with truth values, as both may be arrays: only the stage that runs has temporary bytes.
        temporary = runs * (stage.temporary_bytes - stage.entry_bytes) + own * stage.entry_bytes
        once = {key: n_bytes for key, n_bytes in stage.shared_bytes.items() if key not in stored}
        yield stage.exclusive_bytes, once, {TEMPORARY: temporary, STASH: (count - own) * stage.entry_bytes}
        stored |= stage.shared_bytes.keys()


@dataclass(frozen=True, slots=True, eq=False)
class RangeBytes:
    """Bytes of any range `[start, stop)` of n layers: `stop_bytes[stop] - start_bytes[start]`, and maxima over it.

    Attributes:
        stop_bytes, start_bytes: (n + 1,) by the ends of a range.
        maxima_bytes: columns by layer, each (n,); of each the largest entry in the range is added.
    """

    stop_bytes: IntArray
    start_bytes: IntArray
    maxima_bytes: tuple[IntArray, ...] = ()

    def __add__(self, other: RangeBytes) -> RangeBytes:
        return RangeBytes(
            self.stop_bytes + other.stop_bytes,
            self.start_bytes + other.start_bytes,
            self.maxima_bytes + other.maxima_bytes,
        )

    def between(self, start: Amount, stop: int) -> Amount:
        """Bytes of `[start, stop)`, or of the ranges from each of several starts, ascending, to one stop."""
        if not isinstance(start, np.ndarray):
            n_bytes = int(self.stop_bytes[stop] - self.start_bytes[start])
            return n_bytes + sum(int(column[start:stop].max()) for column in self.maxima_bytes)
        by_start: IntArray = self.stop_bytes[stop] - self.start_bytes[start]
        first = start[0] if len(start) else stop
        for column in self.maxima_bytes:
            largest: IntArray = np.maximum.accumulate(column[first:stop][::-1])[::-1]  # from every start to the stop
            by_start = by_start + largest[start - first]
        return by_start


class SharedMemory(NamedTuple):
    """Data that a range stores once, however many of its layers need it, for example code or a tied weight.

    `keys` has for every layer indices into the other two.
    """

    keys: tuple[tuple[int, ...], ...]
    n_bytes: tuple[int, ...]
    categories: tuple[str, ...]

    def of(self, *ranges: tuple[int, int]) -> set[int]:
        """The keys that ranges need together."""
        keys: set[int] = set()
        for start, stop in ranges:
            keys.update(*self.keys[start:stop])
        return keys


@dataclass(frozen=True, slots=True, eq=False)
class RangeMemory:
    """The memory of every range of n layers on a device, for one range and for arrays of ranges.

    Attributes:
        exclusive_prefix_bytes: {category: (n + 1,)} running sums of bytes that add up.
        peak_bytes: (n,) memory that is in use only while layer i runs: its temporary memory and the tensors that are
            carried past it (`LayerProfile.carried_bytes`).
        activation_prefix_bytes: (n + 1,) running sum of activations stashed for the backward pass; zeros for inference.
        stashed_input_bytes: (n,) activations that are stashed both for a layer before i and for layer i or a later one.
            `activation_prefix_bytes` counts them before i, so a stage that starts at i adds them.
            `stashed_input_bytes[i + 1] - stashed_input_bytes[i]` is at most the activations of layer i.
        input_bytes: (n,) inputs of a stage that starts at layer i.
        checkpoint_prefix_bytes: (n + 1,) running sum of what checkpoints stash where a stage recomputes.
        recompute: whether a stage stashes its inputs and checkpoints only and computes the rest again.
        outlined: the memory of every range where equal layers are one subgraph; None where the target has none.
        activations: what a range stashes for one micro-batch where it does not recompute.
        temporary: the peak of the current micro-batch [auto-pipeline]: a layer needs its `peak_bytes` and the
            activations that the range has stashed before it. With recomputation they are those since the checkpoint
            before the layer, and what earlier checkpoints have stashed; a stage that starts between two checkpoints is
            counted as if it started at the first of them.
        stash_entry: what a range stashes for one micro-batch until its backward pass (`stash_entry_bytes`). With
            recomputation that may be more for a range with a later start, since its inputs may be larger.
    """

    exclusive_prefix_bytes: Mapping[str, IntArray]
    shared: SharedMemory
    peak_bytes: IntArray
    activation_prefix_bytes: IntArray
    stashed_input_bytes: IntArray
    input_bytes: IntArray
    checkpoint_prefix_bytes: IntArray
    recompute: bool
    outlined: RangeMemory | None = None
    activations: RangeBytes = field(init=False)
    temporary: RangeBytes = field(init=False)
    stash_entry: RangeBytes = field(init=False)

    def __post_init__(self) -> None:
        stops, starts = self.activation_prefix_bytes, self.activation_prefix_bytes.copy()
        starts[:-1] -= self.stashed_input_bytes
        nothing, activations = np.zeros_like(stops), RangeBytes(stops, starts)
        held = self.checkpoint_prefix_bytes
        # What a checkpoint at the start of a range would stash is among its inputs.
        inputs = RangeBytes(held, np.append(held[1:] - self.input_bytes, held[-1]))
        temporary = RangeBytes(nothing, starts, (self.peak_bytes + stops[:-1],))
        if self.recompute and held[-1]:
            layers = np.arange(len(self.peak_bytes))
            segments = np.maximum.accumulate(np.where(np.diff(held) > 0, layers, 0))  # the checkpoint before each layer
            peaks = self.peak_bytes + stops[:-1] - starts[segments] + held[segments]
            temporary = RangeBytes(nothing, np.append(held[segments], held[-1]), (peaks,))
        object.__setattr__(self, "activations", activations)
        object.__setattr__(self, "temporary", temporary)
        object.__setattr__(self, "stash_entry", stash_entry_bytes(activations, inputs, recompute=self.recompute))

    @property
    def one_in_flight(self) -> RangeBytes:
        """All bytes of a range but the shared ones, on a device with one micro-batch in flight."""
        return self.exclusive(*self.exclusive_prefix_bytes) + self.temporary

    @property
    def forms(self) -> tuple[RangeMemory, ...]:
        """The programs that a range may be; a stage fits when one of them does."""
        return (self,) if self.outlined is None else (self, self.outlined)

    def stage(self, start: Amount, stop: int) -> StageBytes[Amount]:
        """The memory of a range as a stage; of ranges from several starts, ascending, all but the shared bytes."""
        exclusive: dict[str, Any] = {
            name: prefix[stop] - prefix[start] for name, prefix in self.exclusive_prefix_bytes.items()
        }
        shared: dict[str, int] = {}
        if not isinstance(start, np.ndarray):
            exclusive = {name: int(n_bytes) for name, n_bytes in exclusive.items()}
            keys = self.shared.of((start, stop))
            shared = {f"{self.shared.categories[key]}_{key}": self.shared.n_bytes[key] for key in keys}
        return StageBytes(exclusive, shared, self.temporary.between(start, stop), self.stash_entry.between(start, stop))

    def by_category(
        self, start: int, stop: int, n_stash_entries: int, limit_bytes: int | None = None
    ) -> dict[str, int]:
        """Bytes of a range by category, with the stash of so many other micro-batches.

        What its outlined form saves where it exceeds `limit_bytes` is a category of its own, below 0.
        """
        memory = alone_bytes(self.stage(start, stop), n_stash_entries)
        if self.outlined is not None and limit_bytes is not None and sum(memory.values()) > limit_bytes:
            outlined_bytes = sum(self.outlined.by_category(start, stop, n_stash_entries).values())
            if outlined_bytes < sum(memory.values()):
                memory[OUTLINED] = outlined_bytes - sum(memory.values())
        return memory

    def exclusive(self, *categories: str) -> RangeBytes:
        """The exclusive bytes of a range over these categories."""
        prefix = np.zeros_like(self.activation_prefix_bytes)
        for name in categories:
            if name in self.exclusive_prefix_bytes:
                prefix = prefix + self.exclusive_prefix_bytes[name]
        return RangeBytes(prefix, prefix)

    def together(self, ranges: Sequence[tuple[int, int]]) -> int:
        """Bytes that several ranges need on one device, each with one micro-batch in flight."""
        return device_bytes([self.stage(*ends) for ends in ranges], np.ones((1, len(ranges)), dtype=np.int64))


def stash_entry_bytes(activations: Stashed, inputs: Stashed, *, recompute: bool) -> Stashed:
    """Bytes that a stage stashes for a micro-batch: activations, or inputs and checkpoints if it recomputes."""
    return inputs if recompute else activations
