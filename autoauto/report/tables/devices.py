"""Tables with a row per device: where it stands, `placement_table`, and what it does, `timeline_table`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from autoauto.records.hardware import MachineDevice
from autoauto.records.plan import Plan
from autoauto.records.schedule import CHECK
from autoauto.records.timeline import Timeline
from autoauto.report.style import format_value
from autoauto.report.tables.table import Column, Table

MAX_COLUMNS = 8
"""Devices in a row; a machine with more of them has several rows."""


def placement_table(plan: Plan) -> Table | None:
    """One row a machine, and in it the replica and the stage that each of its devices holds.

    Replicas are counted in the order of their first devices.

    Returns:
        None where the stages say all, for one pipeline or single devices in one machine, and where the cluster is not
        known.
    """
    holders, n_replicas = _holders(plan), sum(len(each.placement) for each in plan.plans)
    if not any(device.machine for device in holders) and (n_replicas <= 1 or len(plan.stages) == 1):
        return None
    width = min(MAX_COLUMNS, max((device.device for device in holders), default=0) + 1)
    cells: dict[tuple[int, int], list[str]] = {}
    for (machine, device), holder in holders.items():
        row = cells.setdefault((machine, device // width), ["-"] * width)
        row[device % width] = holder
    several_rows = any(part for _, part in cells)
    rows = (
        (f"{machine}, from device {part * width}" if several_rows else str(machine), *row)
        for (machine, part), row in sorted(cells.items())
    )
    what = "replica and stage" if len(plan.stages) > 1 else "replica"
    columns = (Column("machine"), *(Column(f"device {device}") for device in range(width)))
    return Table(f"What every device holds: {what}", columns, tuple(rows))


def _holders(plan: Plan) -> dict[MachineDevice, str]:
    """What every used device holds."""
    holders: dict[MachineDevice, str] = {}
    for each, replicas in zip(plan.plans, plan.replica_numbers, strict=True):
        for (replica, devices), (number, stage) in product(
            zip(replicas, each.placement, strict=True), enumerate(each.stages)
        ):
            for device in map(devices.__getitem__, stage.devices):
                if device in holders:
                    holders[device] += f", {number}"
                else:
                    holders[device] = f"{replica}: {number}" if len(each.stages) > 1 else str(replica)
    return holders


def timeline_table(timeline: Timeline, stash_entries: Iterable[int]) -> Table:
    """One row per device: its cycles by use and the most activations that it holds at once.

    Args:
        timeline: what to show.
        stash_entries: the activations that the stash of every device has room for.
    """
    uses = (Column(f"{use}\ncycles", "cycles") for use in ("busy", "exchange", "bubble"))
    columns = (
        Column("device"),
        *uses,
        Column("bubble", "bubble_fraction"),
        Column("peak in\nflight", "n_in_flight"),
        Column("stash\nentries", "n_entries"),
    )
    cycles = zip(timeline.busy_cycles, timeline.exchange_cycles, timeline.bubble_cycles, strict=True)
    activations = zip(timeline.schedule.peak_in_flight, stash_entries, strict=True)
    rows = (
        (str(device), *by_use, by_use[-1] / (timeline.makespan_cycles or 1), *counts)
        for device, (by_use, counts) in enumerate(zip(cycles, activations, strict=True))
    )
    return Table(f"Devices, {timeline.origin}", columns, tuple(rows), _totals(timeline))


def step_parts_text(timeline: Timeline) -> str:
    """The parts of a step of training in a line; empty where the end of the step is not known."""
    if timeline.step_end is None:
        return ""
    parts = (f"{name} {format_value('cycles', cycles)}" for name, cycles in timeline.step_parts.items())
    return f"step: {', '.join(parts)} cycles\n"


def _totals(timeline: Timeline) -> str:
    makespan, ideal, period = (
        format_value("cycles", cycles)
        for cycles in (timeline.makespan_cycles, timeline.ideal_cycles, timeline.period_cycles)
    )
    checks = ", checks count as idle" if timeline.schedule.has(CHECK) else ""
    return (
        f"makespan: {makespan} cycles, ideal: {ideal}\n"
        f"{step_parts_text(timeline)}"
        f"steady period: {period} cycles a micro-batch\n"
        f"bubble: {100 * timeline.bubble_fraction:.1f} % of all devices' time{checks}"
    )
