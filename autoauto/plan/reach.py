"""How far back a stage may begin before its memory overflows: two pointers over the blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from autoauto.plan.blocks import Blocks


def earliest_starts(blocks: Blocks, limit_bytes: int) -> list[int]:
    """For every stop, the smallest start with `bytes(start, stop) <= limit_bytes`; the stop itself where there is none.

    A stage that begins earlier never needs less, so the answers do not decrease and one window moves over the blocks:
    at most B steps at either end (PLANNER.md, preparation b).
    """
    window = _Window(blocks)
    starts = [0]
    for _ in range(len(blocks)):
        window.grow()
        while window.start < window.stop and window.n_bytes() > limit_bytes:
            window.shrink()
        starts.append(window.start)
    return starts


def earliest_starts_by_device(blocks: Blocks, limits_bytes: Sequence[int]) -> list[list[int]]:
    """`earliest_starts` for the limit of every device; equal limits share one list."""
    by_limit = {limit: earliest_starts(blocks, limit) for limit in set(limits_bytes)}
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
