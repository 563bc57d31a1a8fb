"""What fits in every cell of a search: how a schedule's memory bounds the batch."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from rich.table import Table

from autoauto.records.trial import Cell
from autoauto.report.style import MEASURED, format_value, plain_table


def cells_table(cells: Sequence[Cell]) -> Table:
    """One row a cell of a search for training: the largest batch size that fits, and the best throughput of any.

    The caption says which schedule fits what the others cannot.
    """
    columns = [
        "n_ipu",
        "memory\nproportion",
        "schedule",
        "recompute",
        "micro-\nbatches",
        "largest\nbatch",
        "best\nsamples/s",
    ]
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
            _largest(cell),
            format_value("samples_per_s", cell.samples_per_s) if cell.samples_per_s else "-",
        )
    table.caption = _what_fits_most(cells)
    return table


def _largest(cell: Cell) -> str:
    if cell.batch_size is None:
        return "none"
    return f"{cell.batch_size}" if cell.too_large else f">= {cell.batch_size}"


def _what_fits_most(cells: Sequence[Cell]) -> str:
    """A schedule cannot what was tried in all its cells, or less."""
    largest: dict[str, int] = {}
    too_large: dict[str, float] = {}
    for cell in cells:
        name = str(cell.knobs.schedule)
        largest[name] = max(largest.get(name, 0), cell.batch_size or 0)
        too_large[name] = max(too_large.get(name, 0), cell.too_large or inf)
    (first, most), *others = sorted(largest.items(), key=lambda item: -item[1])
    less = " and ".join(f"{name} ({n or 'none'})" for name, n in others if too_large[name] <= most)
    return f"{first} fits batches of {most}, which {less} cannot" if less else ""
