"""Tables of a measured run: `compare_table` of `compare_rows`, by stage and category, and `run_table`.

`compare_pipelined_model_profile` of [auto-pipeline] compares estimated and measured values in the same way.
"""

from __future__ import annotations

from statistics import fmean
from typing import NamedTuple, TypedDict

from autoauto.records.plans.plan import Plan
from autoauto.records.plans.timeline import Run, Timeline
from autoauto.records.target import Origin
from autoauto.report.style import difference_percent, format_value
from autoauto.report.tables.table import Column, Table, Value
from autoauto.report.wording import duration


class Speeds(NamedTuple):
    """Throughput in samples per second."""

    estimated: float
    simulated: float
    measured: float


class CompareRow(TypedDict):
    """One quantity; `stage` is None for the whole plan, a memory category is the quantity "memory_bytes.CATEGORY".

    `difference_percent` compares the estimate, or the simulated value where nothing was estimated, with the measured
    value.
    """

    stage: int | None
    quantity: str
    estimated: float | None
    simulated: float | None
    measured: float
    difference_percent: float | None


def compare_rows(estimated: Plan, simulated: Timeline, run: Run, speeds: Speeds) -> list[CompareRow]:
    """One row per quantity, named by its field: first those of every stage, then those of the whole plan."""
    assert estimated.partition == run.plan.partition
    measured = run.timelines[0]
    rows = []
    for index, (planned, ran) in enumerate(zip(estimated.stages, run.plan.stages, strict=True)):
        for quantity in ("forward_cycles", "backward_cycles", "receive_cycles", "send_cycles"):
            rows.append(_row(index, quantity, getattr(planned, quantity), None, getattr(ran, quantity)))
        for category in dict.fromkeys((*planned.memory_bytes, *ran.memory_bytes)):
            n_bytes, n_measured_bytes = planned.memory_bytes.get(category, 0), ran.memory_bytes.get(category, 0)
            rows.append(_row(index, f"memory_bytes.{category}", n_bytes, None, n_measured_bytes))
        rows.append(_row(index, "total_bytes", planned.total_bytes, None, ran.total_bytes))
        busy = (stage_busy_fraction(timeline, index) for timeline in (simulated, measured))
        rows.append(_row(index, "busy_fraction", None, *busy))
    for quantity in ("compute_cycles", "transfer_cycles"):
        rows.append(_row(None, quantity, getattr(estimated, quantity), None, getattr(run.plan, quantity)))
    # The period of a run is that of all its pipelines together, estimate and simulation are of one pipeline. Where
    # pipelines have different plans, all rows are of the first plan, which is the slowest.
    period_cycles = run.period_cycles * len(run.timelines)
    if run.plan.other_plans:
        period_cycles = measured.period_cycles
    rows.append(_row(None, "period_cycles", estimated.cost_cycles, simulated.period_cycles, period_cycles))
    rows.append(_row(None, "latency_cycles", None, simulated.latency_cycles, run.latency_cycles))
    rows.append(_row(None, "samples_per_s", *speeds))
    return rows


def _row(
    stage: int | None, quantity: str, estimated: float | None, simulated: float | None, measured: float
) -> CompareRow:
    predicted = simulated if estimated is None else estimated
    return {
        "stage": stage,
        "quantity": quantity,
        "estimated": estimated,
        "simulated": simulated,
        "measured": measured,
        "difference_percent": None if predicted is None else difference_percent(predicted, measured),
    }


def busy_fraction(timeline: Timeline, device: int) -> float:
    """The share of the time from its first to the end of its last action during which a device computes."""
    starts, stops = timeline.starts[device], timeline.stops[device]
    return float((stops - starts).sum() / max(stops[-1] - starts[0], 1))


def stage_busy_fraction(timeline: Timeline, stage: int) -> float:
    """The mean `busy_fraction` of the devices that run a stage."""
    return fmean(busy_fraction(timeline, device) for device in timeline.schedule.devices_of(stage))


def compare_table(
    estimated: Plan, simulated: Timeline, run: Run, speeds: Speeds, origin: Origin, clock_hz: float | None = None
) -> Table:
    """The rows of `compare_rows` as a table, without those in which estimate and measurement are 0."""
    columns = (
        Column("stage"),
        Column("quantity"),
        Column(Origin.ESTIMATED, "number"),
        Column(Origin.SIMULATED, "number"),
        Column(origin, "number"),
        Column("difference", "difference_percent"),
    )
    rows: list[tuple[Value, ...]] = []
    for row in compare_rows(estimated, simulated, run, speeds):
        if not row["estimated"] and not row["measured"]:
            continue
        stage = "plan" if row["stage"] is None else str(row["stage"])
        name = _quantity_name(row["quantity"], clock_hz)
        values = (row["estimated"], row["simulated"], row["measured"])
        texts = []
        for value in values:  # by the unit of the quantity, or cycles as time
            if value is None:
                texts.append("")
            elif clock_hz is None or not row["quantity"].endswith("_cycles"):
                texts.append(format_value(row["quantity"], value))
            else:
                texts.append(duration(value, clock_hz))
        rows.append((stage, name, *texts, row["difference_percent"]))
    title = f"{Origin.ESTIMATED.capitalize()}, {Origin.SIMULATED} and {origin}"
    remarks = []
    if run.plan.other_plans:
        replicas = ", ".join(map(str, run.plan.replica_numbers[0]))
        remarks.append(f"of replica {replicas}, the slowest; samples_per_s are those of all replicas")
    if disturbance := _disturbance(run):
        remarks.append(disturbance)
    return Table(title, columns, tuple(rows), "; ".join(remarks), grouped=True)


def _quantity_name(quantity: str, clock_hz: float | None) -> str:
    """The name of a quantity in a table; time is no number of cycles.

    >>> _quantity_name("memory_bytes.parameter", 1e9), _quantity_name("period_cycles", None)
    ('parameter memory', 'period_cycles')
    """
    _, dot, category = quantity.partition(".")
    if dot:
        return f"{category} memory"
    return quantity if clock_hz is None else quantity.removesuffix("_cycles")


def run_table(run: Run, origin: Origin) -> Table:
    """One row per device of every pipeline: the shares of its time in which it computed, moved tensors, and waited."""
    columns = (
        Column("pipeline"),
        Column("stage"),
        Column("device"),
        Column("micro-batches", "n"),
        Column("computes", "busy_fraction"),
        Column("moves", "busy_fraction"),
        Column("waits", "busy_fraction"),
    )
    rows: list[tuple[Value, ...]] = []
    for number, timeline in enumerate(run.timelines):
        for stage in range(timeline.schedule.n_stages):
            for device in timeline.schedule.devices_of(stage):
                rows.append((str(number), str(stage), str(device), *_shares(timeline, device)))
    hidden = []
    if run.plan.n_devices <= len(run.plan.stages):
        hidden.append("device")
    if len(run.timelines) == 1:
        hidden.append("pipeline")
    return Table(f"What every stage did, {origin}", columns, tuple(rows), _disturbance(run)).without(*hidden)


def _shares(timeline: Timeline, device: int) -> tuple[float, ...]:
    """The micro-batches of a device, and the shares of its time in which it computes, moves and waits."""
    starts, stops, moved = timeline.starts[device], timeline.stops[device], timeline.exchanges[device]
    # Its time is from the start of its first exchange to the end of its last one.
    whole = max(int(moved[-1, 1] - moved[0, 0]), 1)
    computes = int((stops - starts).sum()) / whole
    moves = int((moved[:, 1] - moved[:, 0]).sum()) / whole
    return len(starts), computes, moves, 1 - computes - moves


def _disturbance(run: Run) -> str:
    """The caption of a run that other processes disturbed; empty for an undisturbed one."""
    if run.undisturbed:
        return ""
    core = f"a stage had {100 * run.core_fraction:.0f} % of its core"
    return f"{core}, other processes, or a tenant with whom it is shared, the rest; measure again on an idle machine"
