"""Estimated, simulated and measured values of a run, and what its stages did."""

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from autoauto.records.hardware import MachineDevice, Period
from autoauto.records.layers import LayerRange
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.plans.timeline import Run, Timeline
from autoauto.records.schedule import FORWARD, Codes, Order, Schedule, Transfers
from autoauto.records.target import Origin
from autoauto.report.tables.compare import (
    Speeds,
    busy_fraction,
    compare_rows,
    compare_table,
    run_table,
    stage_busy_fraction,
)
from autoauto.schedule.orders.registry import make_schedule
from autoauto.schedule.simulate.simulate import simulate
from autoauto.schedule.times import plan_times, timeline_of
from autoauto.space.knobs import Knobs

Text = Callable[..., str]
SPEEDS = Speeds(920.0, 920.0, 1000.0)
COMPARED = """\
Estimated, simulated and modelled
stage  quantity           estimated  simulated  modelled  difference
────────────────────────────────────────────────────────────────────
0      forward_cycles         2,200                2,000     +10.0 %
0      receive_cycles            50                   50      +0.0 %
0      send_cycles              150                  150      +0.0 %
0      vertexCode memory    1.0 KiB              1.0 KiB      +0.0 %
0      parameter memory       512 B                  0 B           -
0      temporary memory         0 B              1.0 KiB    -100.0 %
0      total_bytes          1.5 KiB              2.0 KiB     -25.0 %
0      busy_fraction                    90.4 %    89.6 %      +1.0 %

1      forward_cycles         1,000                1,000      +0.0 %
1      receive_cycles           200                  200      +0.0 %
1      send_cycles              100                  100      +0.0 %
1      vertexCode memory    1.5 KiB              3.0 KiB     -50.0 %
1      total_bytes          1.5 KiB              3.0 KiB     -50.0 %
1      busy_fraction                    44.4 %    48.0 %      -7.4 %

plan   compute_cycles         2,200                2,000     +10.0 %
plan   transfer_cycles          300                  300      +0.0 %
plan   period_cycles          2,500    2,500.0   2,300.0      +8.7 %
plan   latency_cycles                    3,400     3,200      +6.2 %
plan   samples_per_s          920.0      920.0   1,000.0      -8.0 %"""
# One stage, two micro-batches:  0 copies 1 computes 7 sends 8 waits 10 copies 11 computes 19 sends 20
MOVED = np.array([[0, 1], [7, 8], [10, 11], [19, 20]])


def simulated(plan: Plan) -> Timeline:
    """The timeline of six micro-batches; exchanges wait for the slowest compute."""
    times = plan_times(plan, False)
    return simulate(make_schedule(Order.INFERENCE, len(plan.stages), 6, times=times), times, Transfers.BARRIER)


def run_of(n_pipelines: int) -> Run:
    """A run of the one stage in `MOVED`, in as many pipelines."""
    codes = Codes(1, 2)
    schedule = Schedule(Order.INFERENCE, (0,), 2, (codes.of(FORWARD, 0, range(2)),))
    timeline = Timeline(schedule, (np.array([1, 11]),), (np.array([7, 19]),), (MOVED,), 20, origin=Origin.MEASURED)
    return Run(Plan((Stage(LayerRange(0, 1), 0, 7, 0, 0, 2, {}, 1),)), (timeline,) * n_pipelines)


def test_a_comparison_is_drawn(measured: Plan, estimated: Plan, text: Text) -> None:
    run = Run(measured, (simulated(measured),))
    table = compare_table(estimated, simulated(estimated), run, SPEEDS, Origin.MODELLED)
    assert text(table, 100) == COMPARED


def test_a_disturbed_comparison_has_a_caption(measured: Plan, text: Text) -> None:
    run = Run(measured, (simulated(measured),), core_fraction=0.5)
    table = text(compare_table(measured, simulated(measured), run, SPEEDS, Origin.MEASURED), 100)
    assert "a stage had 50 % of its core" in table


def test_rows_are_plain_values_named_by_fields(measured: Plan, estimated: Plan) -> None:
    rows = compare_rows(estimated, simulated(estimated), Run(measured, (simulated(measured),)), SPEEDS)
    assert json.loads(json.dumps(rows)) == rows
    assert rows[0] == {
        "stage": 0,
        "quantity": "forward_cycles",
        "estimated": 2200,
        "simulated": None,
        "measured": 2000,
        "difference_percent": 10.0,
    }
    assert [row["quantity"] for row in rows if row["stage"] is None] == [
        "compute_cycles",
        "transfer_cycles",
        "period_cycles",
        "latency_cycles",
        "samples_per_s",
    ]


def test_categories_add_up_to_the_total(measured: Plan, estimated: Plan) -> None:
    rows = compare_rows(estimated, simulated(estimated), Run(measured, (simulated(measured),)), SPEEDS)
    for stage in (0, 1):
        sizes = {row["quantity"]: row for row in rows if row["stage"] == stage}
        parts = [row for quantity, row in sizes.items() if quantity.startswith("memory_bytes.")]
        assert sum(row["estimated"] or 0 for row in parts) == sizes["total_bytes"]["estimated"]
        assert sum(row["measured"] for row in parts) == sizes["total_bytes"]["measured"]


def test_a_plan_does_not_differ_from_itself(measured: Plan) -> None:
    timeline = simulated(measured)
    rows = compare_rows(measured, timeline, Run(measured, (timeline,)), Speeds(4.0, 4.0, 4.0))
    assert {row["difference_percent"] for row in rows} == {0.0}


def test_a_device_is_busy_for_the_share_of_a_period_that_it_computes(measured: Plan) -> None:
    timeline = simulated(measured)
    # six computations of 1000 and five periods of 2300 between the first start and the last
    assert busy_fraction(timeline, 1) == pytest.approx(6 * 1000 / (5 * 2300 + 1000))


def test_the_time_of_a_stage_is_divided_into_compute_moves_and_waits(text: Text) -> None:
    row = text(run_table(run_of(1), Origin.MEASURED)).splitlines()[-1]
    assert row.replace(" %", "").split() == ["0", "2", "70.0", "20.0", "10.0"]


def test_pipelines_side_by_side_are_numbered(text: Text) -> None:
    table = text(run_table(run_of(2), Origin.MEASURED))
    assert "pipeline" in table
    assert [line.split()[:2] for line in table.splitlines()[-2:]] == [["0", "0"], ["1", "0"]]


def test_stage_replicas_are_compared_by_stage_and_shown_by_device(measured: Plan, text: Text) -> None:
    """Two devices run the first stage, of 2,200 cycles: each computes 2,000 of them; the last one 1,000 of 1,300."""
    first, second = measured.stages
    plan = replace(measured, stages=(replace(first, n_replicas=2), replace(second, device=2)), period=Period.SERIAL)
    timeline = timeline_of(Knobs(n_ipu=3, memory_proportion=1.0, batch_size=1, stage_replicas=True).step, plan)
    assert stage_busy_fraction(timeline, 0) == pytest.approx(
        (busy_fraction(timeline, 0) + busy_fraction(timeline, 1)) / 2
    )
    run = Run(plan, (replace(timeline, origin=Origin.MEASURED),))
    rows = compare_rows(plan, timeline, run, SPEEDS)
    assert {row["difference_percent"] for row in rows if row["quantity"] == "busy_fraction"} == {0.0}
    moved = tuple(np.stack((starts, starts), axis=1) for starts in timeline.starts)
    table = text(run_table(Run(plan, (replace(timeline, exchanges=moved),)), Origin.MEASURED))
    assert [line.split()[:3] for line in table.splitlines()[-3:]] == [
        ["0", "0", "8"],
        ["0", "1", "8"],
        ["1", "2", "16"],
    ]


def test_only_a_disturbed_run_has_a_caption(text: Text) -> None:
    assert "measure again" not in text(run_table(replace(run_of(1), core_fraction=0.97), Origin.MEASURED))
    table = " ".join(text(run_table(replace(run_of(1), core_fraction=0.7), Origin.MEASURED)).split())
    assert (
        "a stage had 70 % of its core, other processes, or a tenant with whom it is shared, the rest; measure again"
        in table
    )


def test_plans_of_several_replicas_say_whose_rows_they_are(measured: Plan, estimated: Plan) -> None:
    """Replica 1, by its first device, has another plan."""
    placed = replace(measured, placement=((MachineDevice(0, 0), MachineDevice(0, 1)),))
    other = Plan((replace(measured.stages[0], layers=LayerRange(0, 5)),), placement=((MachineDevice(0, 2),),))
    several = replace(placed, other_plans=(other,))
    timelines = (simulated(placed), simulated(other))
    table = compare_table(estimated, simulated(estimated), Run(several, timelines), SPEEDS, Origin.MODELLED)
    assert "of replica 0, the slowest; samples_per_s are those of all replicas" in table.caption
    alone = compare_table(estimated, simulated(estimated), Run(measured, timelines[:1]), SPEEDS, Origin.MODELLED)
    assert "of replica" not in alone.caption


def test_cycles_are_shown_as_time_where_they_are_made_of_seconds(measured: Plan, estimated: Plan) -> None:
    """2,000 cycles of a clock of 1 MHz are 2 ms; bytes and shares stay as they are."""
    run = Run(measured, (simulated(measured),))
    table = compare_table(estimated, simulated(estimated), run, SPEEDS, Origin.MODELLED, 1e6)
    rows = {(row[0], row[1]): row[2:5] for row in ([cell.text for cell in row] for row in table.cells())}
    assert rows["0", "forward"][0].startswith("2.2")
    assert rows["0", "forward"][0].endswith(" ms")
    assert rows["0", "vertexCode memory"][0] == "1.0 KiB"
    assert rows["plan", "samples_per_s"][2] == "1,000.0"
