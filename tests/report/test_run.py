from collections.abc import Callable
from dataclasses import replace

import numpy as np

from autoauto.records.layers import LayerRange
from autoauto.records.plan import Plan, Stage
from autoauto.records.run import Run
from autoauto.records.schedule import FORWARD, Codes, Order, Schedule
from autoauto.records.timeline import Timeline
from autoauto.report.run import run_table

# one stage, two micro-batches:  0 copies 1 computes 7 sends 8 waits 10 copies 11 computes 19 sends 20
MOVED = np.array([[0, 1], [7, 8], [10, 11], [19, 20]])


def ran(n_pipelines: int) -> Run:
    codes = Codes(1, 2)
    schedule = Schedule(Order.INFERENCE, (0,), 2, (codes.of(FORWARD, 0, range(2)),))
    timeline = Timeline(schedule, (np.array([1, 11]),), (np.array([7, 19]),), (MOVED,), 20, source="measured")
    return Run(Plan((Stage(LayerRange(0, 1), 0, 7, 0, 0, 2, {}, 1),)), (timeline,) * n_pipelines)


def test_the_time_of_a_stage_is_divided_into_what_it_did(text: Callable[..., str]) -> None:
    row = text(run_table(ran(1), "measured")).splitlines()[-1]
    assert row.replace(" %", "").split() == ["0", "2", "70.0", "20.0", "10.0"]


def test_pipelines_side_by_side_are_numbered(text: Callable[..., str]) -> None:
    table = text(run_table(ran(2), "measured"))
    assert "pipeline" in table
    assert [line.split()[:2] for line in table.splitlines()[-2:]] == [["0", "0"], ["1", "0"]]


def test_a_busy_machine_is_told(text: Callable[..., str]) -> None:
    assert "quiet" not in text(run_table(replace(ran(1), core_fraction=0.97), "measured"))
    told = " ".join(text(run_table(replace(ran(1), core_fraction=0.7), "measured")).split())
    assert (
        "a stage had 70 % of its core, other processes, or a tenant with whom it is shared, the rest; measure again"
        in told
    )
