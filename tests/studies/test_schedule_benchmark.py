"""The simulator benchmark on small sizes, and its event-driven baseline."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autoauto.records.schedule import Transfers
from autoauto.schedule.orders.one_f_one_b import one_f_one_b
from autoauto.schedule.simulate.simulate import simulate
from studies import schedule_benchmark as bench


@pytest.mark.parametrize(("n_stages", "m"), [(4, 4), (6, 3), (8, 16), (4, 100)])
def test_the_baseline_has_the_same_makespan(n_stages: int, m: int) -> None:
    times = bench.unequal_times(n_stages)
    for make in bench.ORDERS.values():
        schedule = make(n_stages, m)
        assert schedule.n_stages == n_stages
        assert bench.event_driven(schedule, times) == simulate(schedule, times).stop_tick


def test_a_wrong_baseline_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule, times = one_f_one_b(4, 8), bench.unequal_times(4)
    assert bench.measure_baseline(schedule, times).n_actions == 64
    monkeypatch.setattr(bench, "event_driven", lambda schedule, times: 0)
    with pytest.raises(AssertionError):
        bench.measure_baseline(schedule, times)


@pytest.mark.slow
def test_every_order_is_measured_at_every_size(run_script: Callable[..., list[str]]) -> None:
    header, *rows, last = (line.split() for line in run_script("schedule_benchmark", "--quick"))
    assert tuple(header) == bench.COLUMNS
    assert last[:2] == ["At", "most"]
    measured = [(row[0], row[1], int(row[2]), int(row[3].replace(",", ""))) for row in rows]
    assert measured == [(o, t, *size) for o in bench.ORDERS for t in Transfers for size in bench.QUICK_SIZES]
    smallest = [row for row in rows if (int(row[2]), row[3]) == (8, "64")]
    assert all(row[7] == "1.00" for row in smallest)
    assert [len(row) for row in smallest] == [10, 8] * len(bench.ORDERS)  # the baseline where transfers overlap
