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


def reach(blocks: Blocks, limit_bytes: int, stash_entries: int = 0) -> Reach:
    """Find the earliest starts within one limit, when so many micro-batches are kept besides the one in work.

    A stage that begins earlier never needs less, so the answers do not decrease and one window moves over the blocks:
    at most B steps at either end (PLANNER.md, preparation b).
    """
    window = _Window(blocks, stash_entries)
    starts, next_bytes = [0], None
    for _ in range(len(blocks)):
        window.grow()
        while window.start < window.stop and (n_bytes := window.n_bytes()) > limit_bytes:
            next_bytes = n_bytes if next_bytes is None else min(n_bytes, next_bytes)
            window.shrink()
        starts.append(window.start)
    return Reach(starts, next_bytes)


def earliest_starts_by_device(blocks: Blocks, limits_bytes: Sequence[int]) -> list[list[int]]:
    """The earliest starts within the limit of every device; devices of equal limit and stash share one list."""
    keys = list(zip(limits_bytes, blocks.stash_entries, strict=True))
    by_key = {key: reach(blocks, *key).starts for key in set(keys)}
    return [by_key[key] for key in keys]


class _Window:
    """The memory of the blocks `[start, stop)` while both ends move right."""

    __slots__ = ("_blocks", "_count", "_entries", "_peaks", "_shared", "_widest", "start", "stop")

    def __init__(self, blocks: Blocks, stash_entries: int) -> None:
        self.start = self.stop = 0
        self._blocks = blocks
        self._count = [0] * len(blocks.shared_bytes)  # how often the window names each shared key
        self._shared = 0
        self._peaks: deque[int] = deque()  # blocks whose peak no later block of the window reaches
        self._entries = stash_entries
        self._widest: deque[int] = deque()  # likewise for the inputs that are kept

    def n_bytes(self) -> int:
        """Bytes of a window that is not empty."""
        blocks = self._blocks
        exclusive = blocks.exclusive_prefix_bytes[self.stop] - blocks.exclusive_prefix_bytes[self.start]
        n_bytes = exclusive + self._shared + blocks.peak_bytes[self._peaks[0]] - blocks.not_kept_bytes[self.start]
        return n_bytes + self._entries * self._entry_bytes() if self._entries else n_bytes

    def _entry_bytes(self) -> int:
        """What is kept of one micro-batch, as `CostTable.entry_bytes`."""
        if self._widest:
            return self._blocks.recompute_bytes[self._widest[0]]
        return self._blocks.kept_bytes[self.stop] - self._blocks.not_kept_bytes[self.start]

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
        if self._blocks.recompute_bytes:
            self._grow_widest()
        self.stop += 1

    def _grow_widest(self) -> None:
        widest, n_bytes = self._widest, self._blocks.recompute_bytes
        while widest and n_bytes[widest[-1]] <= n_bytes[self.stop]:
            widest.pop()
        widest.append(self.stop)

    def shrink(self) -> None:
        """Let go of the block at `start`."""
        for key in self._blocks.shared_keys[self.start]:
            self._count[key] -= 1
            if self._count[key] == 0:
                self._shared -= self._blocks.shared_bytes[key]
        if self._peaks[0] == self.start:
            self._peaks.popleft()
        if self._widest and self._widest[0] == self.start:
            self._widest.popleft()
        self.start += 1
