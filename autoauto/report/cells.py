"""What fits in every cell of a search: how a schedule's memory bounds the batch."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from autoauto.records.trial import Cell
from autoauto.report.style import MEASURED, format_value, plain_table


def cells_table(cells: Sequence[Cell]) -> Table:
    """One row a cell of a search for training: the largest batch size that fits, and the best throughput."""
    columns = ["n_ipu", "memory\nproportion", "schedule", "recompute", "micro-\nbatches", "largest\nbatch", "samples/s"]
    table = plain_table(
        f"What fits, {MEASURED}", columns, [name for name in columns if name not in ("schedule", "recompute")]
    )
    for cell in cells:
        knobs = cell.knobs
        table.add_row(
            str(knobs.n_ipu),
            str(knobs.memory_proportion),
            str(knobs.schedule),
            "on" if knobs.recompute else "off",
            str(knobs.n_micro_batches),
            "none" if cell.batch_size is None else str(cell.batch_size),
            format_value("samples_per_s", cell.samples_per_s) if cell.samples_per_s else "-",
        )
    return table
