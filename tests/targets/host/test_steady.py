import pytest

from autoauto.targets.host import steady
from autoauto.targets.host.steady import Steady, is_steady


class Clock:
    """Seconds that a test decides."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> int:
        return int(self.now * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(steady, "monotonic_ns", clock)
    return clock


def n_until_steady(clock: Clock, intervals: list[float], n_stages: int = 2) -> int:
    """How many micro-batches have left when one pipeline is steady."""
    watch = Steady(1, n_stages)
    for number, interval in enumerate(intervals):
        clock.now += interval
        watch.left(0)
        if watch.reached:
            return number + 1
    raise AssertionError("never steady")


def test_an_even_pace_is_steady_after_the_least_time(clock: Clock) -> None:
    assert n_until_steady(clock, [0.125] * 100) == 9  # a second after the first left


def test_a_slow_start_is_waited_for(clock: Clock) -> None:
    """Eight intervals of one second, then of a tenth: the last two quarters must both lie in the fast part."""
    n = n_until_steady(clock, [1.0] * 8 + [0.1] * 100)
    assert n > 8
    assert clock.now < 12


def test_an_uneven_pace_is_what_it_is_after_the_most_time(clock: Clock) -> None:
    wild = [0.1 * 1.5 ** (i // 3 % 5) for i in range(200)]
    n_until_steady(clock, wild)
    assert 1.0 <= clock.now < steady.MOST_S + 1


def test_long_micro_batches_need_not_be_many(clock: Clock) -> None:
    assert n_until_steady(clock, [20.0] * 100, n_stages=1) == 4


def test_all_pipelines_must_be_steady(clock: Clock) -> None:
    watch = Steady(2, 1)
    for _ in range(20):
        clock.now += 0.1
        watch.left(0)
    assert not watch.reached
    for _ in range(20):
        clock.now += 0.1
        watch.left(0)
        watch.left(1)
    assert watch.reached


def test_a_few_intervals_tell_nothing() -> None:
    assert not is_steady([0, 1, 2, 3])
