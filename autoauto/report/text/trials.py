"""Tables of a search: `best_table`, `trials_table`, `cells_table`, `front_table`, and `dry_run_table` before it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, isnan
from typing import TYPE_CHECKING, Any

from rich.table import Table

from autoauto.records.knobs import Knobs, Objective, Objectives, Strategy, objective_tuple, objectives_text
from autoauto.records.phased import PhasedPlan
from autoauto.records.plan import Plan
from autoauto.records.trial import Cell, Counts, ExpectedCell
from autoauto.report.style import (
    ESTIMATED,
    MEASURED_BY_COST_MODEL,
    MEASURED_BY_DEVICES,
    SIMULATED,
    difference_percent,
    format_difference,
    format_value,
    plain_table,
)
from autoauto.report.wording import knob_value

if TYPE_CHECKING:
    from pandas import DataFrame

FrontRow = tuple[int, Knobs, float, float, tuple[float, ...]]
"""Trial, configuration, samples per second, latency in seconds, and the values of the objectives."""

_TRIAL_KNOBS = (
    "n_ipu",
    "replicas",
    "memory_proportion",
    "batch_size",
    "schedule",
    "recompute",
    "n_micro_batches",
    "strategy",
)
_FRONT_KNOBS = ("n_ipu", "memory_proportion", "batch_size")
_FRONT_KNOBS_IF_VARYING = ("replicas", "schedule", "recompute", "n_micro_batches", "strategy")


def best_table(
    knobs: Knobs,
    measured: Plan | PhasedPlan,
    samples_per_s: float,
    estimated_samples_per_s: float,
    counts: Counts,
    makespan_cycles: float | None = None,
    origin: str = MEASURED_BY_COST_MODEL,
    latency_s: float = 0.0,
) -> Table:
    """One row per fact of a configuration; every number is shown with its origin.

    Args:
        knobs: the configuration.
        measured: its plan with measured costs.
        samples_per_s: its measured throughput.
        estimated_samples_per_s: its throughput by the estimate; 0 when there was none.
        counts: how many configurations were tried and measured.
        makespan_cycles: of a step of training; None for inference.
        origin: the origin of the measured numbers.
        latency_s: from a micro-batch's entry to its result, or of a step of training; 0 when it is not known.
    """
    table = plain_table("Best configuration", ["", "", ""])
    table.show_header = False
    table.add_row("n_ipu", str(knobs.n_ipu))
    if knobs.replicas > 1:
        table.add_row("replicas", str(knobs.replicas))
    table.add_row("memory_proportion", str(knobs.memory_proportion))
    table.add_row("batch_size", str(knobs.batch_size))
    if knobs.strategy is Strategy.PHASED:
        table.add_row("strategy", f"{knobs.strategy}, {knobs.n_micro_batches} steps")
    if knobs.training:
        table.add_row("schedule", str(knobs.schedule))
        table.add_row("recompute", knob_value(knobs, "recompute"))
        table.add_row("n_micro_batches", str(knobs.n_micro_batches))
    table.add_row("partition", " ".join(map(str, measured.partition)))
    table.add_row("throughput", f"{samples_per_s:,.1f} samples/s", origin)
    if estimated_samples_per_s:
        difference = format_difference(difference_percent(estimated_samples_per_s, samples_per_s))
        table.add_row("", f"{estimated_samples_per_s:,.1f} samples/s", f"{ESTIMATED}, {difference}")
    if origin == MEASURED_BY_DEVICES:
        table.add_row("period", f"{1e3 * knobs.n_samples / samples_per_s:,.3f} ms", origin)
    else:
        name = "all phases" if isinstance(measured, PhasedPlan) else "period"
        table.add_row(name, f"{measured.cost_cycles:,} cycles", origin)
    if latency_s:
        table.add_row("latency", f"{format_value('latency_s', latency_s)}", origin)
    if makespan_cycles is not None:
        table.add_row("makespan", f"{makespan_cycles:,.0f} cycles", SIMULATED)
    of_all = "" if counts.n_configurations is None else f" of {counts.n_configurations:,}"
    table.add_row("tried", f"{counts.n_tried:,}{of_all} configurations")
    others = "the estimate ruled out the others" if counts.n_measured < counts.n_tried else ""
    table.add_row("measured", f"{counts.n_measured:,} of those tried", others)
    return table


def trials_table(
    trials: DataFrame, top: int = 10, objective: Objectives = Objective.THROUGHPUT, origin: str = MEASURED_BY_COST_MODEL
) -> Table:
    """One row per trial, best first by the first objective; those that do not fit or break a constraint come last.

    Args:
        trials: number, state, value, samples_per_s, latency_s and the knobs as columns; numbers may be missing.
        top: how many to show.
        objective: the objective, or several.
        origin: the origin of the throughputs.
    """
    measured = trials.reindex(columns=["samples_per_s", "latency_s"]).astype(float).fillna(0.0)
    speeds, latencies = measured["samples_per_s"], measured["latency_s"]
    less_is_better = objective_tuple(objective)[0] is not Objective.THROUGHPUT
    best = trials["value"].astype(float).sort_values(ascending=less_is_better, kind="stable").index[:top]
    knobs = [name for name in _TRIAL_KNOBS if name in trials]
    heads = [name.replace("memory_", "memory\n") for name in knobs]
    if "replicas" in knobs:  # or the table is wider than 80 columns
        heads[knobs.index("batch_size")] = "batch\nsize"
    columns = ["rank", "trial", *heads, "samples/s", "latency", "state"]
    table = plain_table(f"Trials by {objectives_text(objective)}, {origin}", columns, columns[:-1])
    for rank, index in enumerate(best, start=1):
        trial, speed, latency = trials.loc[index], speeds[index], latencies[index]
        speed_text = format_value("samples_per_s", float(speed)) if speed else "-"
        latency_text = format_value("latency_s", float(latency)) if latency else "-"
        values = (_knob_text(name, trial[name]) for name in knobs)
        table.add_row(str(rank), str(trial["number"]), *values, speed_text, latency_text, trial["state"])
    table.caption = f"{len(best)} of {len(trials)} trials"
    return table


def _knob_text(name: str, value: Any) -> str:
    """A knob's value; pandas turns the whole numbers of a column into floats when some are missing."""
    if value is None or (isinstance(value, float) and isnan(value)):
        return "-"
    if name == "recompute":
        return ("off", "on")[bool(value)]
    return str(value) if name == "memory_proportion" or isinstance(value, str) else f"{value:.0f}"


def cells_table(cells: Sequence[Cell]) -> Table:
    """One row per cell of a search for training: the largest batch size that fits, and the best throughput of any.

    The caption names the schedule that fits larger batches than others.
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
    numbers = [name for name in columns if name not in ("schedule", "recompute")]
    table = plain_table(f"What fits, {MEASURED_BY_COST_MODEL}", columns, numbers)
    for cell in cells:
        knobs = cell.knobs
        table.add_row(
            str(knobs.n_ipu),
            str(knobs.memory_proportion),
            str(knobs.schedule),
            knob_value(knobs, "recompute"),
            str(knobs.n_micro_batches),
            _largest_batch(cell),
            format_value("samples_per_s", cell.samples_per_s) if cell.samples_per_s else "-",
        )
    table.caption = _what_fits_most(cells)
    return table


def _largest_batch(cell: Cell) -> str:
    if cell.batch_size is None:
        return "none"
    return f"{cell.batch_size}" if cell.too_large else f">= {cell.batch_size}"


def _what_fits_most(cells: Sequence[Cell]) -> str:
    """The schedule with the largest batch, and those for which that batch was too large in every cell.

    A cell whose largest batch was not limited by memory (`too_large` is None) proves nothing about larger ones.
    """
    largest: dict[str, int] = {}
    too_large: dict[str, float] = {}
    for cell in cells:
        name = str(cell.knobs.schedule)
        largest[name] = max(largest.get(name, 0), cell.batch_size or 0)
        too_large[name] = max(too_large.get(name, 0), cell.too_large or inf)
    (first, most), *others = sorted(largest.items(), key=lambda item: -item[1])
    less = " and ".join(f"{name} ({n or 'none'})" for name, n in others if too_large[name] <= most)
    return f"{first} fits batches of {most}, which {less} cannot" if less else ""


def front_table(
    rows: Iterable[FrontRow], objectives: Objectives, counts: Counts, origin: str = MEASURED_BY_COST_MODEL
) -> Table:
    """One row per configuration of the Pareto front: no other beats it in one objective without losing in another.

    Args:
        rows: best by the first objective on top.
        objectives: the objectives.
        counts: how many configurations were tried and measured.
        origin: the origin of the numbers.
    """
    rows = list(rows)
    varying = [name for name in _FRONT_KNOBS_IF_VARYING if len({getattr(knobs, name) for _, knobs, *_ in rows}) > 1]
    names = (*_FRONT_KNOBS, *varying)
    per_ipu = [index for index, objective in enumerate(objective_tuple(objectives)) if objective is Objective.PER_IPU]
    heads = [name.replace("memory_", "memory\n") for name in names]
    columns = ["trial", *heads, "samples/s", "latency", *("cycles x n_ipu\n/ sample" for _ in per_ipu)]
    title = f"No other is better in {' and '.join(objective_tuple(objectives))}, {origin}"
    table = plain_table(title, columns, columns)
    for number, knobs, samples_per_s, latency_s, values in rows:
        texts = (knob_value(knobs, name) for name in names)
        speeds = format_value("samples_per_s", samples_per_s), format_value("latency_s", latency_s)
        table.add_row(str(number), *texts, *speeds, *(f"{values[index]:,.0f}" for index in per_ipu))
    of_all = "" if counts.n_configurations is None else f" of {counts.n_configurations:,}"
    table.caption = f"{len(rows)} of {counts.n_measured:,} measured; {counts.n_tried:,}{of_all} configurations tried"
    return table


def dry_run_table(cells: Sequence[ExpectedCell]) -> Table:
    """One row per cell: the best batch size by the estimate, its throughput, and how many configurations are tried."""
    columns = ["n_ipu", "memory\nproportion", "other knobs", "best\nbatch", "samples/s", "tries"]
    table = plain_table(f"Cells, best first, {ESTIMATED}", columns, [name for name in columns if name != "other knobs"])
    for cell in sorted(cells, key=lambda cell: -cell.samples_per_s):
        fits = cell.samples_per_s > 0
        table.add_row(
            str(cell.knobs.n_ipu),
            str(cell.knobs.memory_proportion),
            _other_knobs(cell.knobs),
            str(cell.knobs.batch_size) if fits else "none",
            format_value("samples_per_s", cell.samples_per_s) if fits else "-",
            str(cell.n_tries),
        )
    return table


def _other_knobs(knobs: Knobs) -> str:
    parts = []
    if knobs.strategy is Strategy.PHASED:
        parts.append(f"{knobs.strategy}, {knobs.n_micro_batches} steps")
    elif knobs.training:
        parts.append(f"{knobs.schedule}, {knobs.n_micro_batches} micro-batches")
    if knobs.recompute:
        parts.append("recompute")
    if knobs.replicas > 1:
        parts.append(f"{knobs.replicas} replicas")
    return ", ".join(parts)
