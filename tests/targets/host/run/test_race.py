"""Runs that end early since they are slower than the best so far: which they are, and how often the best is among them.

Times are made up, drawn by a seed: no test depends on how fast the machine is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

import numpy as np
import pytest

from autoauto.records.interval import RunEnds
from autoauto.records.layers import LayerRange
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.plans.timeline import Run, Timeline
from autoauto.records.schedule import Schedule
from autoauto.records.target import Origin
from autoauto.records.units import Array
from autoauto.targets.host.machine import CLOCK_HZ
from autoauto.targets.host.run.pace import ALPHA, LOOKS, N_LOOKS, SteadyPace
from autoauto.targets.host.run.run import repeat_until_undisturbed
from tests.targets.host.run.conftest import Clock

N_SEARCHES, N_RUNS = 150, 8


def raced(clock: Clock, times_s: Iterator[float], best: RunEnds | None) -> tuple[SteadyPace, RunEnds, float]:
    """A run of one device whose micro-batches of a sample take such times: its pace, its interval, and its seconds."""
    pace = SteadyPace(1, 1, best.low_per_s if best else 0.0)
    start_s, n_outputs = clock.now_s, 0
    while not pace.is_steady:
        clock.now_s += next(times_s)
        pace.record_output(0)
        n_outputs += 1
    rate, error = n_outputs / (clock.now_s - start_s), pace.error
    assert error is not None
    return pace, RunEnds(rate / (1 + error), rate / (1 - error) if error < 1 else float("inf")), clock.now_s - start_s


def made_up(random: Random, mean_s: float) -> Iterator[float]:
    """Times of micro-batches around a mean, which drift as the disturbances of a machine do.

    A run as a whole is 1 % (one sigma) faster or slower than the configuration is; single micro-batches scatter by 5 %,
    and neighbours have half of that in common.
    """
    of_run, drift = random.gauss(1.0, 0.01), 0.0
    while True:
        drift = 0.5 * drift + random.gauss(0.0, 0.04)
        yield mean_s * of_run * max(1.0 + drift, 0.1)


def test_the_best_of_a_search_is_hardly_ever_ended_early(clock: Clock) -> None:
    """Of configurations 3 % apart, in any order: the promise is 5 % of all searches, and worse ones are ended."""
    random = Random(68)
    n_lost = n_early = 0
    of_early_s = list[float]()
    for _ in range(N_SEARCHES):
        means_s = [0.02 * 1.03**rank for rank in range(N_RUNS)]
        random.shuffle(means_s)
        best: RunEnds | None = None
        for mean_s in means_s:
            pace, ends, seconds = raced(clock, made_up(random, mean_s), best)
            if pace.is_beaten:
                n_early += 1
                of_early_s.append(seconds)
                n_lost += mean_s == min(means_s)
            elif best is None or ends.low_per_s > best.low_per_s:
                best = ends
    assert ALPHA * (N_LOOKS + N_RUNS) < 0.05
    assert n_lost <= 0.05 * N_SEARCHES
    assert n_early > N_SEARCHES  # more than one a search
    assert max(of_early_s) < 1.1


def test_a_run_that_is_much_slower_ends_at_the_first_look(clock: Clock) -> None:
    pace, ends, seconds = raced(clock, iter([0.005] * 1000), RunEnds(1000.0, 1100.0))
    assert pace.is_beaten
    assert ends.is_below(RunEnds(1000.0, 1100.0))
    assert seconds == pytest.approx(LOOKS[0], abs=0.011)


@pytest.mark.parametrize("best", [None, RunEnds(150.0, 160.0), RunEnds(205.0, 215.0)])
def test_a_run_that_may_be_the_best_goes_on_to_its_end(clock: Clock, best: RunEnds | None) -> None:
    """It gives 200 samples/s; no run tells one that differs by less than two runs of one do."""
    pace, _, seconds = raced(clock, iter([0.005] * 1000), best)
    assert not pace.is_beaten
    assert seconds >= LOOKS[-1]


def test_all_pipelines_count_together(clock: Clock) -> None:
    """Two pipelines of 100 samples/s each are not slower than 150."""
    pace = SteadyPace(2, 1, 150.0)
    while not pace.is_steady:
        clock.now_s += 0.005
        pace.record_output(0)
        clock.now_s += 0.005
        pace.record_output(1)
    assert not pace.is_beaten


def run_of(per_s: float, core_fraction: float = 1.0, *, early: bool = False) -> Run:
    """A run of a sample at a time, which is known to 4 %."""
    n = 5
    stops: Array = (np.arange(1, n + 1) * CLOCK_HZ / per_s).astype(np.int64)
    schedule = Schedule.of_inference([1], n)
    exchanges: Array = np.zeros((0, 2), np.int64)
    timeline = Timeline(schedule, (stops - 1,), (stops,), (exchanges,), int(stops[-1]), origin=Origin.MEASURED)
    plan = Plan((Stage(LayerRange(0, 1), 0, 5, 0, 1, 1, {"parameter": 3}, 9),))
    return Run(plan, (timeline,), core_fraction, period_error=0.04, ended_early=early)


def attempts(*runs: Run) -> tuple[Callable[[float], Run], list[float]]:
    """What makes these runs one after the other, and the throughputs below which each might have ended."""
    remaining, asked = iter(runs), list[float]()

    def attempt(worth_per_s: float) -> Run:
        asked.append(worth_per_s)
        return next(remaining)

    return attempt, asked


def chosen(runs: Sequence[Run], best: RunEnds | None, batch_size: int = 1) -> tuple[Run, list[float]]:
    attempt, asked = attempts(*runs)
    return repeat_until_undisturbed(attempt, 2, best, batch_size), asked


def test_a_beaten_run_is_not_repeated_although_it_was_disturbed() -> None:
    first = run_of(50, 0.6, early=True)
    assert chosen([first], RunEnds(100, 110, 0.6)) == (first, [100])
    to_its_end = run_of(50, 0.6)
    assert chosen([to_its_end], RunEnds(100, 110, 0.6)) == (to_its_end, [100])


def test_a_run_that_lacked_more_of_its_cores_than_the_best_is_repeated_to_its_end() -> None:
    """At half of its cores it gave half, which is no reason to leave it out."""
    early, again = run_of(60, 0.5, early=True), run_of(120)
    assert chosen([early, again], RunEnds(100, 110, 1.0)) == (again, [100, 0])


def test_one_that_ended_early_never_counts_for_one_that_had_to_be_repeated() -> None:
    early, again, third = run_of(60, 0.5, early=True), run_of(61, 0.4), run_of(62, 0.45)
    assert chosen([early, again, third], RunEnds(100, 110, 1.0)) == (third, [100, 0, 0])


def test_the_best_so_far_is_in_samples_and_a_run_in_micro_batches() -> None:
    _, asked = chosen([run_of(50)], RunEnds(100, 110), batch_size=4)
    assert asked == [25]
