"""The benchmark's own machinery, on small sizes."""

from __future__ import annotations

from types import ModuleType

import pytest

from autoauto.records.schedule import Transfers
from autoauto.schedule.orders.one_f_one_b import one_f_one_b
from autoauto.schedule.simulate.simulate import simulate


@pytest.mark.parametrize(("n_stages", "m"), [(4, 4), (6, 3), (8, 16), (4, 100)])
def test_the_baseline_finds_the_same_makespan(study: ModuleType, n_stages: int, m: int) -> None:
    times = study.unequal_times(n_stages)
    for make in study.ORDERS.values():
        schedule = make(n_stages, m)
        assert schedule.n_stages == n_stages
        assert study.event_driven(schedule, times) == simulate(schedule, times).stop_tick


def test_a_wrong_baseline_is_found_out(study: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule, times = one_f_one_b(4, 8), study.unequal_times(4)
    assert study.measure_baseline(schedule, times).n_actions == 64
    monkeypatch.setattr(study, "event_driven", lambda schedule, times: 0)
    with pytest.raises(AssertionError):
        study.measure_baseline(schedule, times)


def test_every_order_is_measured_at_every_size(study: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    study.main(["--quick"])
    header, *rows, last = (line.split() for line in capsys.readouterr().out.splitlines())
    assert tuple(header) == study.COLUMNS
    assert last[:2] == ["At", "most"]
    found = [(row[0], row[1], int(row[2]), int(row[3].replace(",", ""))) for row in rows]
    assert found == [(o, t, *size) for o in study.ORDERS for t in Transfers for size in study.QUICK_SIZES]
    smallest = [row for row in rows if (int(row[2]), row[3]) == (8, "64")]
    assert all(row[7] == "1.00" for row in smallest)
    assert [len(row) for row in smallest] == [10, 8] * len(study.ORDERS)  # the baseline where transfers overlap
