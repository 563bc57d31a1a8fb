"""The bytes of many ranges at once, by stop and start: `bytes_by_ends`, and which of them to ask for, `parts`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import isqrt

import numpy as np

from autoauto.plan.pipeline.blocks import BlockBytes
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

    Attributes:
        blocks: the block.
        previous: the last block before it that needs the same, -1 without one.
        n_bytes: of the key.
    """

    blocks: IntArray
    previous: IntArray
    n_bytes: IntArray

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
