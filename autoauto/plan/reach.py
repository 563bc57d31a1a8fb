"""How far back a stage may begin before its memory overflows: two pointers over the blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from autoauto.plan.blocks import Blocks


class Reach(NamedTuple):
    """How far back stages may begin within a limit.

    Attributes:
        starts: for every stop, the smallest start with `bytes(start, stop) <= limit_bytes`; the stop if there is none.
        next_bytes: the smallest limit that would let any stage begin earlier; None when all may begin at 0.
    """

    starts: list[int]
    next_bytes: int | None


def reach(blocks: Blocks, limit_bytes: int) -> Reach:
    """Find the earliest starts within one limit.

    A stage that begins earlier never needs less, so the answers do not decrease and one window moves over the blocks:
    at most B steps at either end (PLANNER.md, preparation b).
    """
    window = _Window(blocks)
    starts, next_bytes = [0], None
    for _ in range(len(blocks)):
        window.grow()
        while window.start < window.stop and (n_bytes := window.n_bytes()) > limit_bytes:
            next_bytes = n_bytes if next_bytes is None else min(n_bytes, next_bytes)
            window.shrink()
        starts.append(window.start)
    return Reach(starts, next_bytes)


def earliest_starts_by_device(blocks: Blocks, limits_bytes: Sequence[int]) -> list[list[int]]:
    """The earliest starts within the limit of every device; equal limits share one list."""
    by_limit = {limit: reach(blocks, limit).starts for limit in set(limits_bytes)}
    return [by_limit[limit] for limit in limits_bytes]


class _Window:
    """The memory of the blocks `[start, stop)` while both ends move right."""

    __slots__ = ("_blocks", "_count", "_peaks", "_shared", "start", "stop")

    def __init__(self, blocks: Blocks) -> None:
        self.start = self.stop = 0
        self._blocks = blocks
        self._count = [0] * len(blocks.shared_bytes)  # how often the window names each shared key
        self._shared = 0
        self._peaks: deque[int] = deque()  # blocks whose peak no later block of the window reaches

    def n_bytes(self) -> int:
        """Bytes of a window that is not empty."""
        blocks = self._blocks
        exclusive = blocks.exclusive_prefix_bytes[self.stop] - blocks.exclusive_prefix_bytes[self.start]
        return exclusive + self._shared + blocks.peak_bytes[self._peaks[0]] - blocks.kept_bytes[self.start]

    def grow(self) -> None:
        """Take in the block at `stop`."""
        for key in self._blocks.shared_keys[self.stop]:
            if self._count[key] == 0:
                self._shared += self._blocks.shared_bytes[key]
            self._count[key] += 1
        peaks, peak_bytes = self._peaks, self._blocks.peak_bytes
        while peaks and peak_bytes[peaks[-1]] <= peak_bytes[self.stop]:
            peaks.pop()
        peaks.append(self.stop)
        self.stop += 1

    def shrink(self) -> None:
        """Let go of the block at `start`."""
        for key in self._blocks.shared_keys[self.start]:
            self._count[key] -= 1
            if self._count[key] == 0:
                self._shared -= self._blocks.shared_bytes[key]
        if self._peaks[0] == self.start:
            self._peaks.popleft()
        self.start += 1
