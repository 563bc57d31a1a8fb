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
