"""The best trade-offs of a search for several objectives."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table

from autoauto.records.trial import Aim, Counts, Knobs, Objective, objectives_of
from autoauto.report.knob_words import knob_value
from autoauto.report.style import MEASURED, format_value, plain_table

Row = tuple[int, Knobs, float, float, tuple[float, ...]]
"""Trial, configuration, samples per second, latency in seconds, and the values of the objectives."""

_ALWAYS = ("n_ipu", "memory_proportion", "batch_size")
_ELSE = ("replicas", "schedule", "recompute", "n_micro_batches", "strategy")


def front_table(rows: Iterable[Row], aim: Aim, counts: Counts, origin: str = MEASURED) -> Table:
    """One row a configuration that no other beats in one objective without losing in another.

    Args:
        rows: best by the first objective on top.
        aim: the objectives.
        counts: how far the search went.
        origin: where the numbers come from.
    """
    rows = list(rows)
    others = [name for name in _ELSE if len({getattr(knobs, name) for _, knobs, *_ in rows}) > 1]
    costs = [place for place, objective in enumerate(objectives_of(aim)) if objective is Objective.PER_IPU]
    heads = [name.replace("memory_", "memory\n") for name in (*_ALWAYS, *others)]
    columns = ["trial", *heads, "samples/s", "latency", *("cycles x n_ipu\n/ sample" for _ in costs)]
    title = f"No other is better in {' and '.join(objectives_of(aim))}, {origin}"
    table = plain_table(title, columns, columns)
    for number, knobs, samples_per_s, latency_s, values in rows:
        told = (knob_value(knobs, name) for name in (*_ALWAYS, *others))
        speeds = format_value("samples_per_s", samples_per_s), format_value("latency_s", latency_s)
        table.add_row(str(number), *told, *speeds, *(f"{values[place]:,.0f}" for place in costs))
    of_all = "" if counts.n_configurations is None else f" of {counts.n_configurations:,}"
    table.caption = f"{len(rows)} of {counts.n_measured:,} measured; {counts.n_tried:,}{of_all} configurations tried"
    return table
