"""What binds a plan, and what its cuts could do instead."""

from __future__ import annotations

from rich.table import Table

from autoauto.records.explanation import Explanation, Move
from autoauto.records.plan import Plan
from autoauto.records.units import format_bytes
from autoauto.report.style import plain_table


def explanation_table(explanation: Explanation, plan: Plan) -> Table:
    """One row a cut, with what the plan would cost more if the cut moved to the next legal place on either side."""
    columns = ["cut", "earlier", "costs more\ncycles", "later", "costs more \ncycles"]
    table = plain_table("If one cut moved", columns, columns[2::2])
    for cut in explanation.cuts:
        table.add_row(str(cut.layer), *_cells(cut.earlier, plan), *_cells(cut.later, plan))
    table.caption = "\n".join(
        [
            *_binding("compute", explanation.compute_stages),
            *_binding("transfer", explanation.transfer_stages),
            f"least memory to spare: stage {explanation.memory_stage}, {format_bytes(explanation.spare_bytes)}",
        ]
    )
    return table


def _binding(what: str, stages: tuple[int, ...]) -> list[str]:
    """A line that says whose compute or transfer sets the period, if any does."""
    return [f"{what} binds: stage {', '.join(map(str, stages))}"] if stages else []


def _cells(move: Move | None, plan: Plan) -> tuple[str, str]:
    if move is None:
        return "-", "-"
    if move.excess_bytes:
        return str(move.layer), f"{format_bytes(move.excess_bytes)} missing"
    return str(move.layer), f"{move.cost_cycles - plan.cost_cycles:+,}"
