"""The study's own arithmetic; the benchmark itself takes minutes of an idle machine."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autoauto.records.knobs import Knobs
from autoauto.records.layers import LayerRange
from autoauto.records.plan import Plan, Stage
from autoauto.records.schedule import FORWARD, Codes, Order, Schedule
from autoauto.records.timeline import Run, Timeline


def plan(cycles: int) -> Plan:
    return Plan((Stage(LayerRange(0, 1), 0, cycles, 0, 0, 0, {}, 1),))


def steady(period_ms: float, n_pipelines: int = 1) -> Run:
    """Pipelines of one stage that is always busy."""
    period = int(period_ms * 1e6)
    codes = Codes(1, 8)
    schedule = Schedule(Order.INFERENCE, (0,), 8, (codes.of(FORWARD, 0, range(8)),))
    starts = np.arange(8) * period
    none = (np.zeros((0, 2), np.int64),)
    return Run(plan(period), (Timeline(schedule, (starts,), (starts + period,), none, 8 * period),) * n_pipelines)


def rival(study: ModuleType, cycles: int, replicas: int = 1, **fields: Any) -> Any:
    return study.Rival("rival", None, Knobs(1, 1.0, 4, replicas=replicas), plan(cycles), **fields)


def test_a_row_tells_throughput_latency_and_how_good_the_prediction_was(study: ModuleType) -> None:
    runs = [steady(20.0), steady(18.0), steady(90.0)]  # the median counts
    cells = study.row("model", study.Race(rival(study, 22_000_000), runs), 400.0)
    assert cells == ["model", "4", "rival", "200.00", "0.50", "20.0", "20.00", "22.00", "+10.0 %"]


def test_replicas_share_what_is_predicted(study: ModuleType) -> None:
    two = study.Race(rival(study, 20_000_000, replicas=2), [steady(20.0, 2)])
    assert study.samples_per_s(two) == pytest.approx(400.0)
    assert study.error(two) == pytest.approx(0.0)


def test_what_is_not_predicted_has_no_error(study: ModuleType) -> None:
    race = study.Race(rival(study, 1, predicted=False), [steady(20.0)])
    assert len(study.row("model", race, 1.0)) == len(study.COLUMNS) - 2


def test_the_summary_has_the_best_of_every_way_and_what_the_search_is_worth(study: ModuleType) -> None:
    races = [
        study.Race(rival(study, 20_000_000)._replace(name=name), [steady(period_ms)])
        for name, period_ms in ((study.ALONE, 20.0), (study.ALONE, 16.0), (study.REPLICAS, 10.0), (study.SEARCH, 8.0))
    ]
    cells = study.summary("model", races)
    assert cells == ["model", "-", "250.00", "400.00", "-", "-", "500.00", "1.25", "68.8 %"]
    assert len(cells) == len(study.SUMMARY) == len(study.SUMMARY_WIDTHS)


def test_contestants_take_turns(study: ModuleType) -> None:
    order: list[str] = []

    def contestant(name: str) -> Any:
        def run() -> Run:
            order.append(name)
            return steady(1.0)

        return SimpleNamespace(run=run)

    runs = study.rounds([contestant("a"), contestant("b")], 2)
    assert order == ["a", "b", "a", "b"]
    assert [len(its) for its in runs] == [2, 2]
