"""When the pace of pipelines is steady, by a simulated clock."""

import pytest

from autoauto.records.errors import BadInput
from autoauto.targets.host.run.pace import SteadyPace, pace_error
from tests.targets.host.run.conftest import Clock


def n_until_steady(clock: Clock, intervals: list[float], n_stages: int = 2) -> int:
    """How many micro-batches have left the only pipeline when its pace is steady."""
    pace = SteadyPace(1, n_stages)
    for number, interval in enumerate(intervals):
        clock.now_s += interval
        pace.record_output(0)
        if pace.is_steady:
            return number + 1
    raise AssertionError("never steady")


def test_an_even_pace_is_steady_after_the_minimum_time(clock: Clock) -> None:
    assert n_until_steady(clock, [0.125] * 100) == 9  # a second after the first output


def test_a_slow_start_delays_the_steady_pace(clock: Clock) -> None:
    """Three intervals of 0.3 s, then of a tenth: the first quarter must hold all the slow ones."""
    n = n_until_steady(clock, [0.1] + [0.3] * 3 + [0.1] * 100)
    assert n == 1 + 4 * 3
    assert clock.now_s < 2.0


def test_an_uneven_pace_counts_as_steady_after_the_maximum_time(clock: Clock) -> None:
    wild = [0.1 * 1.5 ** (i // 3 % 5) for i in range(200)]
    n_until_steady(clock, wild)
    assert 1.0 <= clock.now_s < 2.0 + 1


def test_a_few_long_micro_batches_suffice(clock: Clock) -> None:
    assert n_until_steady(clock, [20.0] * 100, n_stages=1) == 4


def test_long_micro_batches_in_flight_count(clock: Clock) -> None:
    """Three are in flight whenever one leaves; with them there are enough after the second."""
    pace, n_outputs = SteadyPace(1, 1), 0
    for _ in range(3):
        pace.record_input()
    while not pace.is_steady:
        pace.record_input()
        clock.now_s += 3.0
        pace.record_output(0)
        n_outputs += 1
    assert n_outputs == 2


def test_all_pipelines_must_have_a_steady_pace(clock: Clock) -> None:
    pace = SteadyPace(2, 1)
    for _ in range(20):
        clock.now_s += 0.1
        pace.record_output(0)
    assert not pace.is_steady
    for _ in range(20):
        clock.now_s += 0.1
        pace.record_output(0)
        pace.record_output(1)
    assert pace.is_steady


def test_a_pace_that_varies_more_is_measured_for_longer(clock: Clock) -> None:
    even, uneven = ([0.1, 0.1 * (1 + share)] * 100 for share in (0.001, 0.1))
    n_even = n_until_steady(clock, even)
    clock.now_s = 0.0
    assert n_until_steady(clock, uneven) > n_even


def test_the_environment_sets_the_minimum_time(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOAUTO_RUN_S", "0.5")
    assert n_until_steady(clock, [0.125] * 100) == 5
    monkeypatch.setenv("AUTOAUTO_RUN_S", "long")
    with pytest.raises(BadInput, match="AUTOAUTO_RUN_S must be a number of seconds, 0 or more, got 'long'; try 1"):
        SteadyPace(1, 1)


def test_two_intervals_are_too_few() -> None:
    assert pace_error([0, 1, 2]) == float("inf")
