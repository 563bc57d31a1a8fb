import pytest

from autoauto.targets.host.machine.speed_probe import Yardstick
from autoauto.targets.host.measure import worker as measure
from autoauto.targets.host.measure.worker import Reading, Times, quietest, spread, spread_line, time_runs


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Clocks that stand still: wall and core, in nanoseconds; naps of attempts take no time."""
    now = [0, 0]
    monkeypatch.setattr(measure, "perf_counter_ns", lambda: now[0])
    monkeypatch.setattr(measure, "thread_time_ns", lambda: now[1])
    monkeypatch.setattr(measure, "sleep", lambda _: None)
    return now


class Steady(Yardstick):
    """A core that is slow after so many blocks of runs, the first few."""

    def __init__(self, n_slow: int = 0) -> None:
        self.n_slow, self.n_waits = n_slow, 0

    def wait(self) -> bool:
        self.n_waits += 1
        return False

    def factor(self) -> float:
        self.n_slow -= 1
        return 1.6 if self.n_slow >= 0 else 1.0


def run_for(clock: list[int], *core_ns: int, elsewhere_ns: int = 0) -> Times:
    """Time runs that take so long, the last of them again and again."""
    left = list(core_ns)

    def run() -> None:
        took = left.pop(0) if len(left) > 1 else left[0]
        clock[0] += took + elsewhere_ns
        clock[1] += took

    return time_runs(run, Steady())


def test_short_runs_are_repeated_until_they_add_up(clock: list[int]) -> None:
    assert run_for(clock, 1_000_000) == Times(1_000_000, 1_000_000, 0.0, 20)


def test_a_run_of_middling_length_is_repeated_five_times(clock: list[int]) -> None:
    assert run_for(clock, 100_000_000).n_runs == 5


def test_long_runs_are_few(clock: list[int]) -> None:
    assert run_for(clock, 2_000_000_000).n_runs == 3


def test_the_first_two_runs_do_not_count(clock: list[int]) -> None:
    assert run_for(clock, 900_000_000, 800_000_000, 10_000_000).core_ns == 10_000_000


def test_noise_is_repeated_longer(clock: list[int]) -> None:
    noisy = run_for(clock, *[8_000_000, 10_000_000, 12_000_000] * 100)
    assert noisy.core_ns == 10_000_000
    assert noisy.spread == 0.2
    assert noisy.n_runs > 90  # a second


@pytest.mark.parametrize(("n_slow", "n_counted"), [(0, 0), (2, 0), (3, 0), (4, 1)])
def test_runs_that_end_on_a_slow_core_do_not_count_three_times(clock: list[int], n_slow: int, n_counted: int) -> None:
    left = [30_000_000] * (2 + n_slow)

    def run() -> None:
        took = left.pop(0) if left else 10_000_000
        clock[0] += took
        clock[1] += took

    core = Steady(n_slow)
    times = time_runs(run, core)
    assert times.core_ns == 10_000_000
    assert times.n_runs == n_counted + (6 if n_counted == 0 else 4)
    assert core.n_waits == min(n_slow, 3) + 3


def test_a_busy_machine_is_seen(clock: list[int]) -> None:
    assert not run_for(clock, 10_000_000).busy
    busy = run_for(clock, 10_000_000, elsewhere_ns=5_000_000)
    assert busy.busy
    assert busy.core_ns == 10_000_000


@pytest.mark.parametrize(
    ("attempts", "least"),
    [
        ([Times(11, 11, 0, 5), Times(12, 12, 0, 5), Times(10, 10, 0, 5), Times(9, 9, 0, 5)], 10),
        ([Times(10**9, 10**9, 0, 3), Times(10**8, 10**8, 0, 3)], 10**9),  # long runs
        ([Times(10**9, 2 * 10**9, 0, 3), Times(10**8, 2 * 10**8, 0, 3)] * 2, 10**8),  # on a busy core
    ],
)
def test_the_shortest_of_three_attempts_counts_and_long_ones_have_one_on_a_quiet_core(
    clock: list[int], attempts: list[Times], least: int
) -> None:
    left = iter(attempts)
    assert quietest(lambda: next(left)).core_ns == least


def test_the_spread_of_equal_runs_is_zero() -> None:
    assert spread([5, 5, 5]) == 0
    assert spread([0, 0]) == 0


def test_the_spread_of_measurements_is_told() -> None:
    quiet, busy = (Reading(Times(10, wall_ns, share, 5), 0, 0, 0) for wall_ns, share in ((10, 0.01), (30, 0.08)))
    told = "3 measurements; half of their repeats lie within 1.0 % of the median, 1.0 % in the worst"
    assert spread_line([quiet] * 3) == told
    assert spread_line([quiet, busy]).endswith(
        "8.0 % in the worst; other processes had the core during 1, try again on a quiet machine"
    )
