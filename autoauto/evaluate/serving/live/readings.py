"""What loads on servers of this machine gave, and which server is faster: `Readings`, `StepFit`, `times_faster`.

    CPU time a token
      |  x                    x one load; other programs make it longer by up to 40 %, never shorter
      |        x
      |     x     x  x        the least two agree: the load is repeated no further

Other programs make wall times longer without bound. So servers with as many threads are compared by the least CPU time
a token of each, and by how many cores they use only where other programs leave all loads alike shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import NamedTuple

MIN_TURNS, MAX_TURNS = 3, 8
AGREEMENT = 0.01
"""The loads of a server end when its two least CPU times a token differ by no more than this share."""
TURNS_S = 30.0
"""After so long no further turn begins, if there were two."""
SHARE_SPREAD = 0.05
"""A machine is quiet where the loads of a server get shares of its cores that differ by no more."""


class LoadReading(NamedTuple):
    """The numbers of one load.

    Attributes:
        cpu_s: of the servers, for a token of an answer.
        cores: that the servers had in the mean.
        tokens_per_s: of answers, from the first request to the last answer.
        tpot_s, ttft_s, latency_s: what clients saw in the mean of requests.
    """

    cpu_s: float
    cores: float
    tokens_per_s: float = 0.0
    tpot_s: float = 0.0
    ttft_s: float = 0.0
    latency_s: float = 0.0


@dataclass(slots=True)
class Readings:
    """The loads of one configuration."""

    readings: list[LoadReading] = field(default_factory=list)

    @property
    def cpu_s(self) -> float:
        """The least CPU time a token."""
        return min(reading.cpu_s for reading in self.readings)

    @property
    def cores(self) -> float:
        """The most cores that it had."""
        return max(reading.cores for reading in self.readings)

    @property
    def best(self) -> LoadReading:
        """The least disturbed load."""
        return max(self.readings, key=lambda reading: reading.tokens_per_s)

    @property
    def is_enough(self) -> bool:
        """Whether the two least CPU times a token agree."""
        times = sorted(reading.cpu_s for reading in self.readings)
        return len(times) >= MIN_TURNS and times[1] <= times[0] * (1.0 + AGREEMENT)

    @property
    def is_undisturbed(self) -> bool:
        """Whether other programs left it alike shares of the cores in all loads."""
        shares = [reading.cores for reading in self.readings]
        return len(shares) >= MIN_TURNS and min(shares) >= max(shares) * (1.0 - SHARE_SPREAD)


class StepFit(NamedTuple):
    """CPU seconds of a step that gives a token of every sequence."""

    fixed_s: float  # of every step
    each_s: float  # of every sequence, its share of prompts included
    cores: float  # that all servers have

    @staticmethod
    def of(single_s: float, all_s: float, n_sequences: int, cores: float) -> StepFit:
        """The fit to the CPU time a token of one sequence and of `n_sequences` of a server.

        >>> StepFit.of(single_s=9.0, all_s=2.0, n_sequences=8, cores=1.0)
        StepFit(fixed_s=8.0, each_s=1.0, cores=1.0)
        """
        if n_sequences == 1:
            return StepFit(0.0, all_s, cores)
        fixed_s = max((single_s - all_s) / (1.0 - 1.0 / n_sequences), 0.0)
        return StepFit(fixed_s, max(single_s - fixed_s, 0.05 * all_s), cores)

    def tokens_per_s(self, n_sequences: int) -> float:
        """Tokens/s of all servers in steps of so many sequences each."""
        return self.cores * n_sequences / (self.fixed_s + n_sequences * self.each_s)


def goes_on(servers: Sequence[Readings], start_s: float) -> bool:
    """Whether another turn begins."""
    n_turns = len(servers[0].readings)
    if n_turns < 2:
        return True
    is_over = n_turns >= MAX_TURNS or perf_counter() - start_s > TURNS_S
    return not is_over and not all(each.is_enough for each in servers)


def times_faster(own: Readings, other: Readings) -> float:
    """Tokens/s of a server as a multiple of those of another with as many threads, whose loads took turns with its.

    The work of a token is the ratio of the least CPU times. How well a server uses its threads shows only on a quiet
    machine.
    """
    work = other.cpu_s / own.cpu_s
    return work * own.cores / other.cores if own.is_undisturbed and other.is_undisturbed else work
