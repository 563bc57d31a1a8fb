"""Several plans, one a line: the k best, a trade between costs, one for every n_ipu, replicas."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table

from autoauto.records.errors import DoesNotFit
from autoauto.records.plan import Plan
from autoauto.records.units import format_bytes
from autoauto.report.style import plain_table


def plans_table(title: str, label: str, rows: Iterable[tuple[str, Plan | DoesNotFit]]) -> Table:
    """One row a plan under what `label` counts; where nothing fits, how many bytes are missing."""
    costs = ["cost\ncycles", "compute\ncycles", "transfer\ncycles", "peak\nmemory"]
    table = plain_table(title, [label, *costs, "stages begin at layers"], costs)
    for name, plan in rows:
        table.add_row(name, *(_cells(plan) if isinstance(plan, Plan) else _missing(plan)))
    return table


def _cells(plan: Plan) -> tuple[str, ...]:
    cycles = (plan.cost_cycles, plan.compute_cycles, plan.transfer_cycles)
    begins = " ".join(str(layer) for layer in plan.partition[:-1])
    return (*(f"{quantity:,}" for quantity in cycles), format_bytes(plan.peak_memory_bytes), begins)


def _missing(failure: DoesNotFit) -> tuple[str, ...]:
    missing = f"does not fit: {format_bytes(failure.excess_bytes)} missing"
    return ("-", "-", "-", "-", missing if failure.excess_bytes else "too few places to cut")
