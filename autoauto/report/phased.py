"""Phases in the order in which they run, and the buffers between them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from autoauto.records.phased import BufferRow, Phase, PhasedPlan, PhaseKind
from autoauto.records.units import format_bytes
from autoauto.report.style import plain_table

_PASSES = {PhaseKind.FORWARD: "F", PhaseKind.BACKWARD: "B", PhaseKind.BOTH: "F B"}


def phases_table(plan: PhasedPlan, origin: str) -> Table:
    """One row a phase, two lines high: what it runs, its cycles, the rows it loads and stores, its memory.

    Of its thousands of cycles first those of the variables above those of all steps, then the parts of one step.

    Args:
        plan: what to show.
        origin: where the numbers come from, for example `ESTIMATED`.
    """
    numbers = ["variables\nall steps", "load\nkcycles", "compute\nkcycles", "store\nkcycles"]
    columns = ["phase\npasses", "layers\ngraph(row)", *numbers, "loads\nstores", "memory of\nits limit"]
    table = plain_table(f"Phases, {origin}", columns, numbers)
    for index, (phase, cycles) in enumerate(zip(plan.phases, plan.phase_cycles, strict=True)):
        table.add_row(
            f"{index}\n{_PASSES[phase.kind]}",
            f"{phase.layers}\n{phase.graph}({phase.row})",
            f"{_thousands(phase.variable_cycles)}\n{_thousands(cycles)}",
            *map(_thousands, (phase.load_cycles, phase.compute_cycles, phase.store_cycles)),
            f"{_rows(phase.loads, _source(phase))}\n{_rows(phase.stores, _sink(phase, plan))}",
            f"{format_bytes(phase.total_bytes)}\n{100 * phase.total_bytes / max(phase.limit_bytes, 1):.0f} %",
        )
    gain = plan.naive_cycles / max(plan.cost_cycles, 1)
    how = f"{plan.steps} steps, {plan.io_mode}"
    table.caption = f"{how}: {plan.cost_cycles:,} cycles; naive loop {plan.naive_cycles:,} ({gain:.2f} times)"
    return table


def buffers_table(plan: PhasedPlan) -> Table:
    """One row a buffer in streaming memory: rows are phases, steps are micro-batches."""
    columns = ["buffer", "rows", "steps", "bytes of\nan entry", "all"]
    table = plain_table("Buffers in streaming memory", columns, columns[1:])
    for buffer in plan.buffers:
        sizes = (format_bytes(buffer.entry_bytes), format_bytes(buffer.n_bytes))
        table.add_row(buffer.name, f"{buffer.rows:,}", f"{buffer.steps:,}", *sizes)
    return table


def _thousands(cycles: int) -> str:
    return f"{cycles / 1000:,.0f}"


def _rows(rows: Sequence[BufferRow], otherwise: str) -> str:
    return " ".join(map(str, rows)) or otherwise


def _source(phase: Phase) -> str:
    return "host" if phase.layers.start == 0 and phase.kind is not PhaseKind.BACKWARD else "-"


def _sink(phase: Phase, plan: PhasedPlan) -> str:
    return "host" if phase.layers.stop == plan.partition[-1] and phase.kind is PhaseKind.FORWARD else "-"
