"""How long and how often runs are timed, by simulated clocks."""

import pytest

from autoauto.targets.host.machine import SpeedProbe
from autoauto.targets.host.measure import worker
from autoauto.targets.host.measure.worker import Measurement, RunTimes, shortest_attempt, spread, spread_line, time_runs


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Simulated clocks, wall and CPU time, in ns, which only runs move on; pauses take no time."""
    now = [0, 0]
    monkeypatch.setattr(worker, "perf_counter_ns", lambda: now[0])
    monkeypatch.setattr(worker, "sleep", lambda _: None)
    return now


class ScriptedProbe(SpeedProbe):
    """The probe of a core that is slow after the first `n_slow` blocks of runs."""

    def __init__(self, n_slow: int = 0) -> None:
        self.n_slow, self.n_waits = n_slow, 0

    def wait(self) -> bool:
        self.n_waits += 1
        return False

    def factor(self) -> float:
        self.n_slow -= 1
        return 1.6 if self.n_slow >= 0 else 1.0


def run_for(clock: list[int], *core_ns: int, elsewhere_ns: int = 0) -> RunTimes:
    """Time runs with these durations; the last one repeats."""
    durations = list(core_ns)

    def run() -> None:
        duration_ns = durations.pop(0) if len(durations) > 1 else durations[0]
        clock[0] += duration_ns + elsewhere_ns
        clock[1] += duration_ns

    return time_runs(run, ScriptedProbe(), lambda: clock[1])


def test_short_runs_are_repeated_for_the_minimum_time(clock: list[int]) -> None:
    assert run_for(clock, 1_000_000) == RunTimes(1_000_000, 1_000_000, 0.0, 20)


def test_runs_of_medium_length_are_repeated_five_times(clock: list[int]) -> None:
    assert run_for(clock, 100_000_000).n_runs == 5


def test_long_runs_are_repeated_three_times(clock: list[int]) -> None:
    assert run_for(clock, 2_000_000_000).n_runs == 3


def test_the_first_two_runs_do_not_count(clock: list[int]) -> None:
    assert run_for(clock, 900_000_000, 800_000_000, 10_000_000).core_ns == 10_000_000


def test_noisy_runs_are_repeated_for_a_second(clock: list[int]) -> None:
    noisy = run_for(clock, *[8_000_000, 10_000_000, 12_000_000] * 100)
    assert noisy.core_ns == 10_000_000
    assert noisy.spread == 0.2
    assert noisy.n_runs > 90


@pytest.mark.parametrize(("n_slow", "n_counted"), [(0, 0), (2, 0), (3, 0), (4, 1)])
def test_up_to_three_blocks_of_runs_on_a_slow_core_do_not_count(clock: list[int], n_slow: int, n_counted: int) -> None:
    slow_ns = [30_000_000] * (2 + n_slow)

    def run() -> None:
        duration_ns = slow_ns.pop() if slow_ns else 10_000_000
        clock[0] += duration_ns
        clock[1] += duration_ns

    probe = ScriptedProbe(n_slow)
    times = time_runs(run, probe, lambda: clock[1])
    assert times.core_ns == 10_000_000
    assert times.n_runs == n_counted + (6 if n_counted == 0 else 4)
    assert probe.n_waits == min(n_slow, 3) + 3


def test_runs_with_more_time_on_the_clock_than_on_the_core_are_busy(clock: list[int]) -> None:
    assert not run_for(clock, 10_000_000).busy
    busy = run_for(clock, 10_000_000, elsewhere_ns=5_000_000)
    assert busy.busy
    assert busy.core_ns == 10_000_000


@pytest.mark.parametrize(
    ("attempts", "shortest_ns"),
    [
        ([RunTimes(11, 11, 0, 5), RunTimes(12, 12, 0, 5), RunTimes(10, 10, 0, 5), RunTimes(9, 9, 0, 5)], 10),
        ([RunTimes(10**9, 10**9, 0, 3), RunTimes(10**8, 10**8, 0, 3)], 10**9),  # long runs
        ([RunTimes(10**9, 2 * 10**9, 0, 3), RunTimes(10**8, 2 * 10**8, 0, 3)] * 2, 10**8),  # on a busy core
    ],
)
def test_the_shortest_of_three_attempts_counts_and_long_runs_have_one_on_an_idle_core(
    clock: list[int], attempts: list[RunTimes], shortest_ns: int
) -> None:
    remaining = iter(attempts)
    assert shortest_attempt(lambda: next(remaining)).core_ns == shortest_ns


def test_the_spread_of_equal_runs_is_zero() -> None:
    assert spread([5, 5, 5]) == 0
    assert spread([0, 0]) == 0


def test_the_line_about_the_spread_counts_busy_measurements() -> None:
    idle, busy = (Measurement(RunTimes(10, wall_ns, share, 5), 0, 0, 0) for wall_ns, share in ((10, 0.01), (30, 0.08)))
    line = "3 measurements; half of their repeats lie within 1.0 % of the median, 1.0 % in the worst"
    assert spread_line([idle] * 3) == line
    assert spread_line([idle, busy]).endswith(
        "8.0 % in the worst; other processes had the core during 1, try again on an idle machine"
    )
