"""The table of a timeline: `timeline_table`, a row per device."""

from __future__ import annotations

from collections.abc import Iterable

from autoauto.records.schedule import CHECK
from autoauto.records.timeline import Timeline
from autoauto.report.style import format_value
from autoauto.report.tables.table import Column, Table


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
