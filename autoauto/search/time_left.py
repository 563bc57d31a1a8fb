"""How long the rest of a search will take, if it goes on as it has: `TimeLeft`."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from autoauto.records.progress import Phase


class TimeLeft:
    """Seconds that one more of what a method counts, cells or tries, takes by the mean so far.

    Every phase has a pace of its own; what is recalled from an earlier search takes no time and does not count. It is a
    guess: a guided search often ends before the mean says so.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._phase: Phase | None = None
        self._recalled = False
        self._begun_s, self._begun_at = 0.0, 0

    def seconds(self, phase: Phase, done: int, total: int, recalled: bool) -> float | None:
        """Seconds that are left of a phase; None before anything of it is done.

        Args:
            phase: what the search is at.
            done, total: how far it is.
            recalled: whether what comes next is known already.
        """
        now_s = self._clock()
        if self._recalled or recalled or phase is not self._phase or done < self._begun_at:
            self._phase, self._begun_s, self._begun_at = phase, now_s, done
        self._recalled = recalled
        n_done = done - self._begun_at
        return (now_s - self._begun_s) / n_done * (total - done) if n_done else None
