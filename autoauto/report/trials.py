"""The best trials of a study."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, Any

from rich.table import Table

from autoauto.records.trial import Aim, Objective, aim_name, objectives_of
from autoauto.report.style import MEASURED, format_value, plain_table

if TYPE_CHECKING:
    from pandas import DataFrame

_FIRST = ("n_ipu", "replicas", "memory_proportion", "batch_size")
_KNOBS = (*_FIRST, "schedule", "recompute", "n_micro_batches", "strategy")


def trials_table(
    trials: DataFrame, top: int = 10, objective: Aim = Objective.THROUGHPUT, origin: str = MEASURED
) -> Table:
    """One row a trial, best first by the first objective; those that do not fit or break a constraint come last.

    Args:
        trials: number, state, value, samples_per_s, latency_s and the knobs as columns; numbers may be missing.
        top: how many to show.
        objective: what is best.
        origin: where the throughputs come from.
    """
    measured = trials.reindex(columns=["samples_per_s", "latency_s"]).astype(float).fillna(0.0)
    speeds, latencies = measured["samples_per_s"], measured["latency_s"]
    less_is_better = objectives_of(objective)[0] is not Objective.THROUGHPUT
    best = trials["value"].astype(float).sort_values(ascending=less_is_better, kind="stable").index[:top]
    knobs = [name for name in _KNOBS if name in trials]
    heads = [name.replace("memory_", "memory\n") for name in knobs]
    if "replicas" in knobs:  # or the table is wider than 80 columns
        heads[knobs.index("batch_size")] = "batch\nsize"
    columns = ["rank", "trial", *heads, "samples/s", "latency", "state"]
    table = plain_table(f"Trials by {aim_name(objective)}, {origin}", columns, columns[:-1])
    for rank, index in enumerate(best, start=1):
        trial, speed, latency = trials.loc[index], speeds[index], latencies[index]
        shown = format_value("samples_per_s", float(speed)) if speed else "-"
        after = format_value("latency_s", float(latency)) if latency else "-"
        cells = (_shown(name, trial[name]) for name in knobs)
        table.add_row(str(rank), str(trial["number"]), *cells, shown, after, trial["state"])
    table.caption = f"{len(best)} of {len(trials)} trials"
    return table


def _shown(name: str, value: Any) -> str:
    """A knob's value; whole numbers of a column in which some are missing are floats there."""
    if value is None or (isinstance(value, float) and isnan(value)):
        return "-"
    if name == "recompute":
        return ("off", "on")[bool(value)]
    return str(value) if name == "memory_proportion" or isinstance(value, str) else f"{value:.0f}"
