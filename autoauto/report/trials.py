"""The best trials of a study."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from autoauto.records.trial import Objective
from autoauto.report.style import MEASURED, format_value, plain_table

if TYPE_CHECKING:
    from pandas import DataFrame

_KNOBS = ["n_ipu", "memory_proportion", "batch_size", "schedule", "recompute", "n_micro_batches", "strategy"]


def trials_table(trials: DataFrame, top: int = 10, objective: Objective = Objective.THROUGHPUT) -> Table:
    """One row a trial, best first; trials without a throughput come last.

    Args:
        trials: number, state, samples_per_s and the knobs as columns; a throughput may be missing.
        top: how many to show.
        objective: what is best.
    """
    speeds = trials.reindex(columns=["samples_per_s"])["samples_per_s"].astype(float).fillna(0.0)
    merit = speeds / trials["n_ipu"] if objective is Objective.PER_IPU else speeds
    best = merit.sort_values(ascending=False, kind="stable").index[:top]
    knobs = [name for name in _KNOBS if name in trials]
    columns = ["rank", "trial", *knobs, "samples/s", "state"]
    table = plain_table(f"Trials by {objective}, {MEASURED}", columns, columns[:-1])
    for rank, index in enumerate(best, start=1):
        trial, speed = trials.loc[index], speeds[index]
        shown = format_value("samples_per_s", float(speed)) if speed else "-"
        table.add_row(*(str(cell) for cell in (rank, trial["number"], *trial[knobs], shown, trial["state"])))
    table.caption = f"{len(best)} of {len(trials)} trials"
    return table
