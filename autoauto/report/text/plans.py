"""Plans in the terminal: `stages_table`, `plans_table`, `explanation_table`.

Of a phased plan: `phases_table`, `buffers_table`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from autoauto.records.errors import DoesNotFit
from autoauto.records.phased import BufferRow, Phase, PhasedPlan, PhaseKind
from autoauto.records.plan import Explanation, Move, Plan, Stage
from autoauto.records.units import format_bytes
from autoauto.report.style import MEASURED_BY_DEVICES, LayerName, plain_table

_PASSES = {PhaseKind.FORWARD: "F", PhaseKind.BACKWARD: "B", PhaseKind.BOTH: "F B"}


def stages_table(plan: Plan, names: Sequence[str] | None, origin: str) -> RenderableType:
    """One row per stage, two lines high.

    The largest compute and the largest transfer of a device make the period (`Plan`). "slowest" and "longest" mark
    every stage of such a device. Where devices have several stages, the first column also has the device.

    Args:
        plan: the plan.
        names: the name of every layer; None when they are not known.
        origin: the origin of the numbers, for example "estimated".
    """
    named = [] if names is None else ["first, last layer"]
    cycles = ["compute\ncycles", "transfer\ncycles"]
    table = plain_table(f"Stages, {origin}", ["stage", "layers", *named, *cycles, "memory of\nits limit"], cycles)
    compute, transfer = plan.device_compute_cycles, plan.device_transfer_cycles
    several = len(compute) < len(plan.stages)
    for index, stage in enumerate(plan.stages):
        table.add_row(
            f"{index} on {stage.device}" if several else str(index),
            str(stage.layers),
            *_ends(stage, names),
            _cycles(
                stage.compute_cycles,
                "slowest" if plan.compute_binds and compute[stage.device] == plan.compute_cycles else "",
            ),
            _cycles(
                stage.transfer_cycles,
                "longest" if plan.transfer_binds and transfer[stage.device] == plan.transfer_cycles else "",
            ),
            _memory(stage),
        )
    if origin == MEASURED_BY_DEVICES:  # the period was then measured and does not follow from the stages' cycles
        return table
    return Group(table, Text(f"period: {plan.cost_cycles:,} cycles, {_period(plan)}", "table.caption"))


def _period(plan: Plan) -> str:
    """What the period consists of."""
    if plan.host_binds:
        return "the host's transfers behind the devices"
    return (
        f"{'the larger of the slowest compute and' if plan.overlap else 'the slowest compute +'} the longest transfer"
    )


def _ends(stage: Stage, names: Sequence[str] | None) -> list[Group]:
    if names is None:
        return []
    return [Group(LayerName(names[stage.layers.start]), LayerName(names[stage.layers.stop - 1]))]


def _cycles(cycles: int, mark: str) -> Text:
    return Text(f"{cycles:,}\n{mark}", "bold" if mark else "")


def _memory(stage: Stage) -> Group:
    percent = 100 * stage.total_bytes / max(stage.limit_bytes, 1)
    return Group(
        Text(f"{format_bytes(stage.total_bytes)}, {percent:.0f} %"),
        ProgressBar(total=stage.limit_bytes, completed=stage.total_bytes, width=16),
    )


def plans_table(title: str, label: str, rows: Iterable[tuple[str, Plan | DoesNotFit]]) -> Table:
    """One row per plan, or per failure with the bytes that are missing; `label` heads the column of the rows' names."""
    costs = ["cost\ncycles", "compute\ncycles", "transfer\ncycles", "peak\nmemory"]
    table = plain_table(title, [label, *costs, "stages begin at layers"], costs)
    for name, plan in rows:
        table.add_row(name, *(_plan_cells(plan) if isinstance(plan, Plan) else _failure_cells(plan)))
    return table


def _plan_cells(plan: Plan) -> tuple[str, ...]:
    cycles = (plan.cost_cycles, plan.compute_cycles, plan.transfer_cycles)
    begins = " ".join(str(layer) for layer in plan.partition[:-1])
    return (*(f"{quantity:,}" for quantity in cycles), format_bytes(plan.peak_memory_bytes), begins)


def _failure_cells(failure: DoesNotFit) -> tuple[str, ...]:
    missing = f"does not fit: {format_bytes(failure.excess_bytes)} missing"
    return ("-", "-", "-", "-", missing if failure.excess_bytes else "too few positions to cut")


def explanation_table(explanation: Explanation, plan: Plan) -> Table:
    """One row per cut, with the additional cost if the cut moved to the next legal position on either side."""
    columns = ["cut", "earlier", "costs more\ncycles", "later", "costs more \ncycles"]
    table = plain_table("If one cut moved", columns, columns[2::2])
    for cut in explanation.cuts:
        table.add_row(str(cut.layer), *_move_cells(cut.earlier, plan), *_move_cells(cut.later, plan))
    table.caption = "\n".join(
        [
            *_binding("compute", explanation.compute_stages),
            *_binding("transfer", explanation.transfer_stages),
            f"least memory to spare: stage {explanation.memory_stage}, {format_bytes(explanation.spare_bytes)}",
        ]
    )
    return table


def _binding(what: str, stages: tuple[int, ...]) -> list[str]:
    """A line with the stages whose compute or transfer sets the period; empty when no stage does."""
    return [f"{what} binds: stage {', '.join(map(str, stages))}"] if stages else []


def _move_cells(move: Move | None, plan: Plan) -> tuple[str, str]:
    if move is None:
        return "-", "-"
    if move.excess_bytes:
        return str(move.layer), f"{format_bytes(move.excess_bytes)} missing"
    return str(move.layer), f"{move.cost_cycles - plan.cost_cycles:+,}"


def phases_table(plan: PhasedPlan, origin: str) -> Table:
    """One row per phase, two lines high: what it runs, its cycles, the rows it loads and stores, its memory.

    The first column of kilocycles has the variables above all steps; the other three are the parts of one step.

    Args:
        plan: the plan.
        origin: the origin of the numbers, for example "estimated".
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
    mode = f"{plan.steps} steps, {plan.io_mode}"
    table.caption = f"{mode}: {plan.cost_cycles:,} cycles; naive loop {plan.naive_cycles:,} ({gain:.2f} times)"
    return table


def buffers_table(plan: PhasedPlan) -> Table:
    """One row per buffer in streaming memory: rows are phases, steps are micro-batches."""
    columns = ["buffer", "rows", "steps", "bytes of\nan entry", "all"]
    table = plain_table("Buffers in streaming memory", columns, columns[1:])
    for buffer in plan.buffers:
        sizes = (format_bytes(buffer.entry_bytes), format_bytes(buffer.n_bytes))
        table.add_row(buffer.name, f"{buffer.rows:,}", f"{buffer.steps:,}", *sizes)
    return table


def _thousands(cycles: int) -> str:
    return f"{cycles / 1000:,.0f}"


def _rows(rows: Sequence[BufferRow], if_none: str) -> str:
    return " ".join(map(str, rows)) or if_none


def _source(phase: Phase) -> str:
    return "host" if phase.layers.start == 0 and phase.kind is not PhaseKind.BACKWARD else "-"


def _sink(phase: Phase, plan: PhasedPlan) -> str:
    return "host" if phase.layers.stop == plan.partition[-1] and phase.kind is PhaseKind.FORWARD else "-"
