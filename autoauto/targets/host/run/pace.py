"""The pace of a run while it lasts: when it is known well enough, and when it is slower than another (`SteadyPace`).

    seconds       0    1/8   1/4     1/2            1                             2
                  |-----|-----|-------|-------------|---------- ... -------------|
    beaten?             x     x       x             x            no further look
    steady?                                         x  x  x  x  x  x  x  x  x  x  ends in any case

A run is beaten at a look where its interval lies wholly below the best so far. Each end of an interval misses the true
pace with a probability of `ALPHA`, where the means of blocks are normal and independent. The truly best configuration
is dropped only where the end of its own interval misses, at one of `N_LOOKS`, or that of the best so far does, which is
one of the runs before it. So the probability is at most ALPHA (N_LOOKS + n) after n runs [bonferroni], 5 % for 46.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import hypot, inf
from time import monotonic_ns

from autoauto.records.interval import interval
from autoauto.records.target import RUNS_PLANS
from autoauto.targets.host.machine import seconds_of

RUN_S, MAX_RATIO = 1.0, 2.0
"""Minimum duration of a run, and how many times as long an unsteady one may take, with what is then in flight.
`AUTOAUTO_RUN_S` sets another minimum."""

PRECISION = 0.01
"""A pace is steady when half the width of the 95 % confidence interval of its mean is at most this part of it."""

N_BLOCKS, MIN_BLOCKS = 8, 3
"""Blocks of intervals whose means count as independent of each other, and the minimum of them."""

ALPHA = 0.001
"""The probability with which the true pace lies beyond one end of the interval of a run."""
LOOKS = (0.125, 0.25, 0.5, 1.0)
"""When a run is compared with the best so far, as parts of its minimum duration."""
N_LOOKS = len(LOOKS)
RUN_NOISE = 3.09 * RUNS_PLANS.noise
"""By so much of its pace one run differs from the next, with a probability of `ALPHA` on either side: what a process
gets of caches and memory is drawn when it starts, which no interval of a single run shows."""


class SteadyPace:
    """Records the outputs of pipelines, and decides when the pace of each is steady.

    A pace is steady when its mean is known well enough (`pace_error`), after `RUN_S` seconds or more. Any pace counts
    as steady when `MAX_RATIO` times `RUN_S` seconds will have passed once all micro-batches in flight have left: those
    of large models take seconds, and are measured as well.

    Args:
        worth_per_s: the lower end of the best throughput so far, in micro-batches/s of all pipelines; 0 without one.

    Attributes:
        is_beaten: whether no more are needed because the throughput lies below `worth_per_s`.
    """

    def __init__(self, n_pipelines: int, n_devices: int, worth_per_s: float = 0.0) -> None:
        self.is_steady = self.is_beaten = False
        self._min_s = seconds_of("AUTOAUTO_RUN_S", RUN_S)
        self._worth_per_s = worth_per_s
        self._looks_s = [share * self._min_s for share in LOOKS[::-1]]  # the next one is last
        self._n_inputs = 0
        self._output_times_ns: list[list[int]] = [[] for _ in range(n_pipelines)]
        self._min_outputs = n_devices + 3

    def record_input(self) -> None:
        """A micro-batch enters a pipeline now."""
        self._n_inputs += 1

    def record_output(self, pipeline: int) -> None:
        """A micro-batch has left a pipeline now."""
        self._output_times_ns[pipeline].append(monotonic_ns())
        counts = list(map(len, self._output_times_ns))
        start_ns = min(times[0] for times in self._output_times_ns if times)
        seconds = (monotonic_ns() - start_ns) / 1e9
        n_outputs = min(counts)  # of the slowest pipeline
        if n_outputs < 2 or self.is_beaten:
            return
        if self._is_look(seconds) and self._lies_below():
            self.is_steady = self.is_beaten = True
            return
        # If the inputs ended now, the micro-batches in flight would still come, at the pace so far.
        n_in_the_end = n_outputs + max(self._n_inputs - sum(counts), 0) // len(counts)
        seconds_in_the_end = seconds * (n_in_the_end - 1) / (n_outputs - 1)
        if n_in_the_end >= self._min_outputs and seconds_in_the_end >= MAX_RATIO * self._min_s:
            self.is_steady = True
        elif seconds >= self._min_s and n_outputs >= self._min_outputs:
            self.is_steady = max(map(pace_error, self._output_times_ns)) <= PRECISION

    @property
    def error(self) -> float | None:
        """Half the width of the interval of the time between two outputs of all pipelines, as a share of it.

        Its confidence is 1 - 2 `ALPHA`; it holds what differs between runs (`RUN_NOISE`). None for too few outputs.
        """
        within = pace_error(self._of_all_ns(), 1.0 - 2 * ALPHA)
        return None if within == inf else hypot(within, RUN_NOISE)

    def _is_look(self, seconds: float) -> bool:
        """True if a look is due; several that passed during one long micro-batch are a single look."""
        n_before = len(self._looks_s)
        while self._looks_s and seconds >= self._looks_s[-1]:
            self._looks_s.pop()
        return len(self._looks_s) < n_before

    def _lies_below(self) -> bool:
        """True if even the upper end of the interval of the throughput is below what it must reach."""
        if not self._worth_per_s:
            return False
        error = self.error
        if error is None or error >= 1.0:
            return False
        times_ns = self._of_all_ns()
        first = len(times_ns) // 4  # as `pace_error`
        mean_s = (times_ns[-1] - times_ns[first]) / (len(times_ns) - 1 - first) / 1e9
        return 1.0 / (mean_s * (1.0 - error)) < self._worth_per_s

    def _of_all_ns(self) -> list[int]:
        return sorted(time_ns for times_ns in self._output_times_ns for time_ns in times_ns)


def pace_error(times: Sequence[int], confidence: float = 0.95) -> float:
    """Half the width of the confidence interval of the mean time between outputs, relative to it; inf for too few.

    The first quarter is left out, because a pipeline fills then. The rest is divided into `N_BLOCKS` blocks of equally
    many outputs: a disturbance outlasts single micro-batches, but means of blocks hardly depend on each other.

    >>> pace_error(range(0, 1000, 10)), pace_error([0, 10, 20]), round(pace_error([0, 10, 20, 30, 41]), 2)
    (0.0, inf, 0.14)
    """
    n = len(times) - 1
    first = n // 4
    n_blocks = min(N_BLOCKS, n - first)
    if n_blocks < MIN_BLOCKS:
        return inf
    bounds = [first + (n - first) * i // n_blocks for i in range(n_blocks + 1)]
    block_means = [(times[stop] - times[start]) / (stop - start) for start, stop in pairwise(bounds)]
    mean, error = interval(block_means, confidence)
    return (error or 0.0) / max(mean, 1.0)
