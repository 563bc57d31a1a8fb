"""The bytes of many ranges at once, `bytes_by_ends`, and which of them fit a memory limit, by both ends: `Fitting`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain, pairwise
from math import isqrt
from typing import NamedTuple

import numpy as np

from autoauto.plan.pipeline.blocks import BlockBytes, BlockCosts, BlockMemory, Blocks
from autoauto.records.costs.memory import RangeBytes
from autoauto.records.units import BoolArray, IntArray

MAX_RANGES = 50_000  # about as many are looked at at once: enough for arrays to be fast, and little memory
NEVER = 2**62  # more bytes than any range can need or lack


@dataclass(frozen=True, slots=True)
class RangeEnds:
    """All ranges of blocks that stop at one of `stops` and start at one of `starts`; both ranges are half-open.

    An array of them has a row for every stop and a column for every start. A range is a range only where its start lies
    before its stop; what an array has elsewhere means nothing.
    """

    stops: range
    starts: range

    @property
    def are_ranges(self) -> BoolArray:
        """(stops, starts), true where the start lies before the stop."""
        before: BoolArray = np.asarray(self.starts) < np.asarray(self.stops)[:, None]
        return before


def parts(earliest: Sequence[int], stops: range) -> Iterator[RangeEnds]:
    """The ranges to every stop from its earliest start on, for neighbouring stops at once.

    Args:
        earliest: (B + 1,) by stop, non-decreasing.
        stops: the stops, at least 1.
    """
    longest = max((stop - earliest[stop] for stop in stops), default=1)
    n_stops = max(min(MAX_RANGES // max(longest, 1), isqrt(MAX_RANGES)), 1)
    for first in range(stops.start, stops.stop, n_stops):
        last = min(first + n_stops, stops.stop)
        yield RangeEnds(range(first, last), range(min(earliest[first], first - 1), last - 1))


@dataclass(frozen=True, slots=True)
class SharedUses:
    """Where blocks need bytes that a range stores once: a row a block and key, by ascending block.

    `previous` is the last block before it that needs the same, -1 without one.
    """

    blocks: IntArray
    previous: IntArray
    n_bytes: IntArray  # of the key

    @staticmethod
    def of(keys: Sequence[Sequence[int]], n_bytes: Sequence[int]) -> SharedUses:
        """The uses of `keys`, which every block has, and whose bytes are `n_bytes`; keys without bytes are left out."""
        sizes = np.array(n_bytes, dtype=np.int64)
        blocks = np.repeat(np.arange(len(keys)), list(map(len, keys)))
        used = np.fromiter(chain.from_iterable(keys), np.int64, len(blocks))
        # By key, then by block: the use before is that of the same key in an earlier block, or earlier in the block.
        order = np.lexsort((blocks, used))
        order = order[sizes[used[order]] > 0]
        blocks, used = blocks[order], used[order]
        follows = np.flatnonzero(used[1:] == used[:-1]) + 1
        previous = np.full(len(blocks), -1)
        previous[follows] = blocks[follows - 1]
        order = np.argsort(blocks, kind="stable")
        order = order[previous[order] < blocks[order]]  # a block needs a key once
        return SharedUses(blocks[order], previous[order], sizes[used[order]])

    def by_ends(self, ends: RangeEnds) -> IntArray:
        """Bytes of every key of a range once, (stops, starts).

        A use adds its bytes to the ranges that hold its block, but not the block before it with the same key, so all
        changes are made at the corners of a rectangle, and running sums over both axes fill it:

            stop \\ start    0   1   2   3   4        block 4 has a key that block 1 has, too:
                 4          .   .   .   .   .
                 5          .   .   +   +   +        from starts 0 and 1 the ranges hold it already, for block 1
                 6          .   .   +   +   +
        """
        first, last = np.searchsorted(self.blocks, (ends.starts.start, ends.stops.stop - 1))
        used = slice(int(first), int(last))
        blocks, n_bytes = self.blocks[used], self.n_bytes[used]
        if not len(blocks):
            return np.zeros((len(ends.stops), len(ends.starts)), dtype=np.int64)
        # A column more than starts: there end the rectangles that reach the last start, and those beyond it.
        change = np.zeros((len(ends.stops), len(ends.starts) + 1), dtype=np.int64)
        rows = np.maximum(blocks + 1 - ends.stops.start, 0)
        begin = np.clip(self.previous[used] + 1 - ends.starts.start, 0, len(ends.starts))
        end = np.minimum(blocks + 1 - ends.starts.start, len(ends.starts))
        np.add.at(change, (rows, begin), n_bytes)
        np.subtract.at(change, (rows, end), n_bytes)
        np.cumsum(change, axis=0, out=change)
        np.cumsum(change, axis=1, out=change)
        return change[:, :-1]


def bytes_by_ends(n_bytes: BlockBytes | RangeBytes, ends: RangeEnds) -> IntArray:
    """Bytes of every range of blocks, or of layers, (stops, starts); shared ones excepted."""
    starts = slice(ends.starts.start, ends.starts.stop)
    stop_bytes = np.array(n_bytes.stop_bytes[ends.stops.start : ends.stops.stop], dtype=np.int64)
    totals: IntArray = stop_bytes[:, None] - np.array(n_bytes.start_bytes[starts], dtype=np.int64)
    for column in n_bytes.maxima_bytes:
        totals += _largest(column, ends)
    return totals


def _largest(column: Sequence[int] | IntArray, ends: RangeEnds) -> IntArray:
    """The largest entry of a column in every range: a running maximum over the stops."""
    first_stop, first_start, n_starts = ends.stops.start, ends.starts.start, len(ends.starts)
    values = np.array(column[first_start : ends.stops.stop - 1], dtype=np.int64)
    before = values[: first_stop - first_start]  # the blocks of the ranges to the first stop
    # A row adds the block before its stop. The first row has the maxima of whole ranges, from every start on.
    rows = np.where(ends.are_ranges, values[first_stop - first_start - 1 :][:, None], -NEVER)
    rows[0, : len(before)] = np.maximum.accumulate(before[::-1])[::-1][:n_starts]
    return np.maximum.accumulate(rows, axis=0, out=rows)


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
        earliest = list(range(len(latest)))
        reached = 0  # the stops up to here have an earlier start
        for start, stop in enumerate(latest):
            earliest[reached + 1 : stop + 1] = [start] * (stop - reached)
            reached = max(reached, stop)
        return cls(earliest, list(latest), nested=all(stop <= following for stop, following in pairwise(latest)))

    @classmethod
    def of_devices(cls, blocks: Blocks, limits_bytes: Sequence[int]) -> list[Fitting]:
        """The ranges within the limit of every device; devices of equal costs, limit and stash share one object."""
        known: dict[tuple[int, int, int], Fitting] = {}
        fitting = []
        for device, limit_bytes in enumerate(limits_bytes):
            costs, entries = blocks.costs[device], blocks.stash_entries[device]
            key = id(costs), limit_bytes, entries
            if key not in known:
                known[key] = cls.of(costs, limit_bytes, entries)
            fitting.append(known[key])
        return fitting

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
        fits = np.zeros((len(ends.stops), len(ends.starts)), dtype=np.bool_)
        for own, uses in zip(unshared, shared, strict=True):
            fits |= bytes_by_ends(own, ends) + uses.by_ends(ends) <= limit_bytes
        fits &= ends.are_ranges
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
    by_form = [_earliest_starts(form, limit_bytes, stash_entries) for form in blocks.forms]
    return by_form[0] if len(by_form) == 1 else list(map(min, *by_form))


def _earliest_starts(memory: BlockMemory, limit_bytes: int, stash_entries: int) -> list[int]:
    """`earliest_starts` in one form. The window's bytes change with a block that joins it, and with one that leaves."""
    blocks = memory.one_in_flight.plus(stash_entries, memory.stash_entry)
    keys, shared_bytes = memory.shared_keys, memory.shared_bytes
    # A running maximum is subtracted, so that a window never needs less with an earlier start.
    stop_bytes, start_bytes = blocks.stop_bytes, list(accumulate(blocks.start_bytes, max))
    all_shared = sum(shared_bytes[key] for key in set(chain.from_iterable(keys)))
    if stop_bytes[-1] - start_bytes[0] + all_shared + sum(map(max, blocks.maxima_bytes)) <= limit_bytes:
        return [0] * len(stop_bytes)
    before, after = _uses(tuple(keys))
    # Every column with a queue for its maximum in the window: blocks with a larger entry than any later block.
    maxima: list[tuple[Sequence[int], deque[int]]] = [(column, deque()) for column in blocks.maxima_bytes]
    start, starts, shared = 0, [0], 0
    for last in range(len(keys)):
        # Keys that no block of the window has are new to it; they come first, by the last block that has them.
        for previous, key in before[last]:
            if previous >= start:
                break
            shared += shared_bytes[key]
        n_bytes = stop_bytes[last + 1] + shared
        for column, queue in maxima:
            while queue and column[queue[-1]] <= column[last]:
                queue.pop()
            queue.append(last)
            n_bytes += column[queue[0]]
        while start <= last and n_bytes - start_bytes[start] > limit_bytes:
            # The first block leaves, and with it the keys that no later block of the window has.
            for following, key in after[start]:
                if following <= last:
                    break
                shared -= shared_bytes[key]
                n_bytes -= shared_bytes[key]
            for column, queue in maxima:
                if queue[0] == start:
                    queue.popleft()
                    n_bytes += (column[queue[0]] if queue else 0) - column[start]
            start += 1
        starts.append(start)
    return starts


_Uses = list[list[tuple[int, int]]]
"""By block: every shared key that it needs, after another block that needs it."""


@lru_cache(maxsize=16)  # of the ranges of a model; batch sizes have the same keys
def _uses(keys: tuple[tuple[int, ...], ...]) -> tuple[_Uses, _Uses]:
    """By block the last block before it that needs each of its keys, ascending, and the next one after it, descending.

    -1 stands for no block before, and the number of blocks for none after. A block that joins a window adds the bytes
    of keys that no block of the window needs: they come first in this order.

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
