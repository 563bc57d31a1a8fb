"""Which ranges of blocks fit a memory limit, by both their ends: `Fitting`."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

import numpy as np

from autoauto.plan.pipeline.blocks import BlockCosts, BlockMemory, Blocks
from autoauto.plan.pipeline.bytes_by_ends import SharedUses, bytes_by_ends, parts
from autoauto.records.units import IntArray


class Fitting(NamedTuple):
    """The ranges that fit a limit: those from a start to any stop up to its latest one.

    A range never needs less memory with a later stop. With an earlier start it does not either, so that ranges are
    nested, unless other micro-batches in flight stash the inputs of the range alone, because it recomputes: those of an
    earlier start may be smaller.

        start      0   1   2   3   4         inputs of block 2 are large: a range that starts there
        latest     3   4   2   5   5         fits no stop, but those around it do

    Attributes:
        earliest: (B + 1,) for every stop the smallest start whose range fits, the stop itself if none does; ascending.
        latest: (B + 1,) for every start the largest stop whose range fits, the start itself if none does.
        nested: whether all ranges to a stop fit that start at its earliest start or later.
    """

    earliest: list[int]
    latest: list[int]
    nested: bool = True

    @classmethod
    def of(cls, blocks: BlockCosts, limit_bytes: int, stash_entries: int = 0) -> Fitting:
        """The ranges within one limit, with `stash_entries` micro-batches in the stash."""
        if all(_is_nested(form, stash_entries) for form in blocks.forms):
            earliest = earliest_starts(blocks, limit_bytes, stash_entries)
            latest = np.searchsorted(earliest, range(len(earliest)), side="right") - 1
            return cls(earliest, latest.tolist())
        return cls.up_to(_latest_stops(blocks, limit_bytes, stash_entries))

    @classmethod
    def up_to(cls, latest: Sequence[int]) -> Fitting:
        """The ranges from every start to its latest stop."""
        earliest, reached = list(range(len(latest))), 0
        for start, stop in enumerate(latest):
            earliest[reached + 1 : stop + 1] = [start] * (stop - reached)
            reached = max(reached, stop)
        return cls(earliest, list(latest), nested=all(stop <= following for stop, following in pairwise(latest)))

    @classmethod
    def of_devices(cls, blocks: Blocks, limits_bytes: Sequence[int]) -> list[Fitting]:
        """The ranges within the limit of every device; devices of equal costs, limit and stash share one object."""
        keys = [
            (id(blocks.costs[device]), limit_bytes, entries)
            for device, (limit_bytes, entries) in enumerate(zip(limits_bytes, blocks.stash_entries, strict=True))
        ]
        by_key = {key: cls.of(blocks.costs[keys.index(key)], *key[1:]) for key in set(keys)}
        return [by_key[key] for key in keys]

    def or_in(self, other: Fitting) -> Fitting:
        """The ranges that fit in one of two ways."""
        return Fitting.up_to(list(map(max, self.latest, other.latest)))


def _is_nested(memory: BlockMemory, stash_entries: int) -> bool:
    starts = memory.one_in_flight.plus(stash_entries, memory.stash_entry).start_bytes
    return all(start <= following for start, following in pairwise(starts))


def _latest_stops(blocks: BlockCosts, limit_bytes: int, stash_entries: int) -> list[int]:
    """`Fitting.latest`, whatever the bytes at starts; only ranges are looked at that fit without their own inputs."""
    fewest = earliest_starts(blocks, limit_bytes, stash_entries)
    unshared = [form.one_in_flight.plus(stash_entries, form.stash_entry) for form in blocks.forms]
    shared = [SharedUses.of(form.shared_keys, form.shared_bytes) for form in blocks.forms]
    latest: IntArray = np.arange(len(blocks) + 1)
    for ends in parts(fewest, range(1, len(blocks) + 1)):
        forms = zip(unshared, shared, strict=True)
        n_bytes = np.minimum.reduce([bytes_by_ends(own, ends) + uses.by_ends(ends) for own, uses in forms])
        fits = (n_bytes <= limit_bytes) & ends.are_ranges
        stops = np.where(fits, np.array(ends.stops)[:, None], 0).max(axis=0)
        starts = slice(ends.starts.start, ends.starts.stop)
        latest[starts] = np.maximum(latest[starts], stops)
    stops_of_starts: list[int] = latest.tolist()
    return stops_of_starts


def earliest_starts(blocks: BlockCosts, limit_bytes: int, stash_entries: int = 0) -> list[int]:
    """For every stop, (B + 1,), a start before which no range fits, the stop itself if none does.

    Where ranges are nested (`Fitting`), the range from there fits. Else the inputs of no earlier range count for less
    than those of a later one, so that one window slides over the blocks, with at most B steps at either end:

        [start . . . . stop)              fits: the next stop
        [start . . . . . . stop)          does not fit: the next start, until it fits
              [start . . . stop)
    """
    windows = [_Window(form, stash_entries) for form in blocks.forms]
    if any(window.all_bytes() <= limit_bytes for window in windows):
        return [0] * (len(blocks) + 1)
    start, starts = 0, [0]
    for stop in range(1, len(blocks) + 1):
        for window in windows:
            window.grow()
        while start < stop and all(window.n_bytes() > limit_bytes for window in windows):
            start += 1
            for window in windows:
                window.shrink()
        starts.append(start)
    return starts


class _Window:
    """The memory of the blocks `[start, stop)` in one form while both ends move right."""

    __slots__ = ("_after", "_before", "_ends", "_keys", "_maxima", "_shared", "_shared_bytes", "start", "stop")

    def __init__(self, memory: BlockMemory, stash_entries: int) -> None:
        self.start = self.stop = 0
        self._keys, self._shared_bytes = memory.shared_keys, memory.shared_bytes
        self._before, self._after = _uses(tuple(memory.shared_keys))
        self._shared = 0
        n_bytes = memory.one_in_flight.plus(stash_entries, memory.stash_entry)
        self._ends = n_bytes.stop_bytes, list(accumulate(n_bytes.start_bytes, max))
        # Every column with a queue for its maximum in a sliding window: blocks with a larger entry than any later block
        # of the window.
        self._maxima: list[tuple[list[int], deque[int]]] = [(column, deque()) for column in n_bytes.maxima_bytes]

    def all_bytes(self) -> int:
        """Bytes of all blocks together."""
        stop_bytes, start_bytes = self._ends
        used = sum(self._shared_bytes[key] for key in set(chain.from_iterable(self._keys)))
        return stop_bytes[-1] - start_bytes[0] + used + sum(max(column) for column, _ in self._maxima)

    def n_bytes(self) -> int:
        """Bytes of a window that is not empty."""
        stop_bytes, start_bytes = self._ends
        n_bytes = stop_bytes[self.stop] - start_bytes[self.start] + self._shared
        for column, queue in self._maxima:
            n_bytes += column[queue[0]]
        return n_bytes

    def grow(self) -> None:
        """Add the block at `stop`."""
        for before, key in self._before[self.stop]:
            if before >= self.start:
                break
            self._shared += self._shared_bytes[key]
        for column, queue in self._maxima:
            while queue and column[queue[-1]] <= column[self.stop]:
                queue.pop()
            queue.append(self.stop)
        self.stop += 1

    def shrink(self) -> None:
        """Remove the block at `start`."""
        for after, key in self._after[self.start]:
            if after < self.stop:
                break
            self._shared -= self._shared_bytes[key]
        for _, queue in self._maxima:
            if queue[0] == self.start:
                queue.popleft()
        self.start += 1


_Uses = list[list[tuple[int, int]]]
"""By block: every shared key that it needs, after another block that needs it."""


@lru_cache(maxsize=16)  # of the ranges of a model; batch sizes have the same keys
def _uses(keys: tuple[tuple[int, ...], ...]) -> tuple[_Uses, _Uses]:
    """By block the last block before it that needs each of its keys, ascending, and the next one after it, descending.

    There is none before the first, -1, and none after the last, their number. A block that joins a window needs only
    keys anew that no block of the window needs, and they are the first ones here.

    >>> _uses(((0, 1), (0,), (1, 0)))
    ([[(-1, 0), (-1, 1)], [(0, 0)], [(0, 1), (1, 0)]], [[(2, 1), (1, 0)], [(2, 0)], [(3, 1), (3, 0)]])
    """
    n = len(keys)
    before, after = _last_uses(keys, range(n), -1), _last_uses(keys, range(n)[::-1], n)
    return [sorted(uses) for uses in before], [sorted(uses, reverse=True) for uses in after[::-1]]


def _last_uses(keys: Sequence[Sequence[int]], blocks: range, none: int) -> _Uses:
    """For each of `blocks` in turn its keys, with the last of the blocks before it that needs the key, or `none`."""
    seen, uses = dict[int, int](), []
    for block in blocks:
        uses.append([(seen.get(key, none), key) for key in set(keys[block])])
        seen.update(dict.fromkeys(keys[block], block))
    return uses
