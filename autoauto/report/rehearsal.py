"""What a search is expected to do, cell by cell."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from autoauto.records.trial import ExpectedCell, Knobs, Strategy
from autoauto.report.style import ESTIMATED, format_value, plain_table


def rehearsal_table(cells: Sequence[ExpectedCell]) -> Table:
    """One row a cell: the best batch size by the estimate, its throughput, and how many configurations are tried."""
    columns = ["n_ipu", "memory\nproportion", "other knobs", "best\nbatch", "samples/s", "tries"]
    table = plain_table(f"Cells, best first, {ESTIMATED}", columns, [name for name in columns if name != "other knobs"])
    for cell in sorted(cells, key=lambda cell: -cell.samples_per_s):
        fits = cell.samples_per_s > 0
        table.add_row(
            str(cell.knobs.n_ipu),
            str(cell.knobs.memory_proportion),
            _others(cell.knobs),
            str(cell.knobs.batch_size) if fits else "none",
            format_value("samples_per_s", cell.samples_per_s) if fits else "-",
            str(cell.n_tries),
        )
    return table


def _others(knobs: Knobs) -> str:
    told = []
    if knobs.strategy is Strategy.PHASED:
        told.append(f"{knobs.strategy}, {knobs.n_micro_batches} steps")
    elif knobs.training:
        told.append(f"{knobs.schedule}, {knobs.n_micro_batches} micro-batches")
    if knobs.recompute:
        told.append("recompute")
    if knobs.replicas > 1:
        told.append(f"{knobs.replicas} replicas")
    return ", ".join(told)
