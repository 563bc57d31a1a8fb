"""Tables of a study: the winner against others, what limits it, cells, trials, failures and attributes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from autoauto.records.costs.rate_curve import RateCurves
from autoauto.records.files.uploads import named_uploads
from autoauto.records.interval import Interval
from autoauto.records.target import Origin
from autoauto.report.reasons import reason_of_choice, short_reason, what_binds, why_not
from autoauto.report.style import difference_percent
from autoauto.report.tables.table import Column, Style, Table, TableCell, Value, speeds_column
from autoauto.report.tables.traffic import load_facts
from autoauto.report.tables.trials import objective_columns, objective_values
from autoauto.report.wording import (
    choice_text,
    compared_name,
    configuration,
    counted,
    difference,
    differing,
    head,
    knob_value,
    label,
    measured_ratio,
    origin_of,
    shown_knobs,
    speed_text,
    trials_origin,
    unit_of,
    words_of,
)
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objectives
from autoauto.space.study_summary import (
    CHOICES,
    CLOCK,
    POOLS,
    RATE_CURVES,
    SIZING,
    USERS_FRONT,
    Comparison,
    KnobChoice,
    StudySummary,
)
from autoauto.space.table import shown
from autoauto.space.trial import Cell, Trial

_SHOWN_OTHERWISE = (USERS_FRONT, RATE_CURVES, CHOICES, SIZING, POOLS, "engine_measurements", "request", CLOCK)
_MOST_VALUES = 8
"""Of a knob that are listed; of more the first, the last and their number."""
N_ROWS = 500
"""The most trials that a page lists; thousands would make it slow."""


def uses_table(comparisons: Sequence[Comparison], origin: Origin) -> Table:
    """One row per simple use of the cluster: its throughput, the origin of that, and how much better the winner is.

    Args:
        comparisons: with the winner; those with other configurations are left out.
        origin: of throughputs that are not estimated.
    """
    unit = unit_of(comparison.knobs for comparison in comparisons if comparison.knobs)
    columns = (Column(""), speeds_column(unit), Column(""), Column("winner", "gain_percent"))
    rows = tuple(_use(comparison, origin, unit) for comparison in comparisons if comparison.is_simple_use)
    caption = "winner: how much faster it is; by its own estimate where the other is estimated"
    return Table("What simpler uses of the cluster give", columns, rows, caption)


def _use(comparison: Comparison, origin: Origin, unit: str) -> tuple[Value, ...]:
    name, speed, note = comparison.name, comparison.speed, comparison.note.partition(";")[0]
    if speed is None:
        return name, None, note, None
    shown_origin = str(Origin.ESTIMATED if comparison.estimated else origin)
    if comparison.gain_percent is not None and note:
        shown_origin += f" {note}"
    return (
        name,
        speed_text(speed, unit),
        shown_origin,
        note if comparison.gain_percent is None else comparison.gain_percent,
    )


def choices_table(summary: StudySummary) -> Table | None:
    """One row per other value of a knob of the winner: what it would give, or why not; None without forecasts of it."""
    if summary.winner is None or not summary.choices:
        return None
    winner = summary.winner
    columns = (
        Column("in its place"),
        speeds_column(winner.unit),
        Column("of the\nwinner", "ratio"),
        Column(""),
    )
    rows = tuple(_choice(summary, choice) for choice in summary.choices)
    caption = "replicas and batch size are the best for each value; ratios are by forecast where nothing is said"
    return Table(f"What each choice is worth, {Origin.ESTIMATED}", columns, rows, caption)


def _choice(summary: StudySummary, choice: KnobChoice) -> tuple[Value, ...]:
    assert summary.winner is not None
    name = choice_text(choice)
    if choice.ratio is None:
        return name, None, None, reason_of_choice(choice.reason)
    follows = differing(choice.knobs, summary.winner.knobs, choice.name)
    ratio = measured_ratio(summary, choice)
    measured = "" if ratio is None else f"measured {ratio:.2f}"
    tie = "not told apart" if choice.is_tie and ratio is None else ""
    said = filter(None, [measured, tie, "" if choice.is_searched else "not searched", follows])
    return name, choice.samples_per_s, f"{choice.ratio:.2f}", ", ".join(said)


def comparisons_table(summary: StudySummary, comparisons: Sequence[Comparison]) -> Table:
    """The winner, then one row per configuration that it is compared with."""
    assert summary.winner is not None
    trial, verification = summary.winner, summary.verification
    name = f"{configuration(trial.knobs)}, {origin_of(summary)}"
    speed = verification.winner.speed if verification else None
    winner: tuple[Value, ...] = (
        "winner",
        speed_text(speed or Interval(trial.samples_per_s, None), trial.unit),
        "",
        name,
    )
    caption = ""
    if verification is not None and verification.n_turns > 1:
        counts = sorted({len(row.scores) for row in verification.repeated})
        turns = f"means of {' or '.join(map(str, counts))} turns and their 95 % confidence intervals"
        caption = f"{turns}, {origin_of(summary)}"
    columns = (Column(""), speeds_column(trial.unit), Column("winner", "gain_percent"), Column(""))
    title = f"Why this one, by {summary.objective}" if summary.of_several else "Why this one"
    return Table(title, columns, (winner, *(_comparison(each, trial) for each in comparisons)), caption)


def _comparison(comparison: Comparison, winner: Trial) -> tuple[Value, ...]:
    knobs, speed = comparison.knobs, comparison.speed
    other = difference(knobs, winner.knobs) if knobs else ""
    note = "\n".join(filter(None, [comparison.note, other]))
    shown_speed = speed_text(speed, winner.unit) if speed else None
    return compared_name(comparison), shown_speed, comparison.gain_percent, note


def binding_table(
    trial: Trial,
    origin: Origin,
    transferred: Sequence[tuple[str, int]] = (),
    clock_hz: float | None = None,
    curves: RateCurves | None = None,
) -> Table:
    """One row per limit of a configuration with its plan: compute, transfer, memory, the bubble in training, arrivals.

    The largest tensors of the longest transfer are named where they are known, as those of a study's winner. With the
    clock of the cycles time is shown instead of these.
    """
    facts = (*what_binds(trial, origin is Origin.MEASURED, transferred, clock_hz), *load_facts(trial, curves))
    rows = tuple((fact.name, fact.headline, fact.text) for fact in facts)
    return Table(f"What binds, {origin}", (Column(""),) * 3, rows)


def cells_table(summary: StudySummary) -> Table:
    """One row per cell: its largest and its best batch size, its throughput, and why it lost or could not run."""
    knobs = shown_knobs(summary)
    columns = (
        *_knob_columns(knobs, [cell.knobs for cell in summary.cells]),
        Column("tried", "n_tried"),
        Column(trials_origin(summary), "n_measured"),
        Column("largest\nbatch", "batch_size"),
        Column("best\nbatch", "batch_size"),
        speeds_column(unit_of(cell.knobs for cell in summary.cells), "best\n"),
        Column("difference", "difference_percent"),
        Column("why"),
    )
    rows = ((*_knob_values(cell.knobs, knobs), *_cell_values(cell, summary)) for cell in summary.cells)
    return _of_combinations(summary, columns, rows)


def _of_combinations(summary: StudySummary, columns: tuple[Column, ...], rows: Iterable[tuple[Value, ...]]) -> Table:
    caption = "the largest batch is of those that were tried and fit"
    title = f"Tried combinations of knobs at their best batch, {trials_origin(summary)}"
    return Table(title, columns, tuple(rows), caption)


def _cell_values(cell: Cell, summary: StudySummary) -> tuple[Value, ...]:
    best, largest = cell.best, cell.largest
    return (
        len(cell.trials),
        cell.n_measured,
        largest.knobs.batch_size if largest else "none",
        best.knobs.batch_size if best else None,
        best.samples_per_s if best else None,
        0.0 - summary.loss_percent(best) if best else None,
        why_not(cell, summary),
    )


def reasons_table(summary: StudySummary) -> Table:
    """One row per cell, for a terminal: knobs in words, and why; cells that do not fit for one reason share a row."""
    knobs = shown_knobs(summary)
    reasons = {cell.knobs: why_not(cell, summary) for cell in summary.cells}
    unfit = Counter(reasons[cell.knobs] for cell in summary.cells if cell.best is None)
    rows: list[tuple[Value, ...]] = []
    for cell in summary.cells:
        why, own = reasons[cell.knobs], {knob.name for knob in shown(cell.knobs)}
        name = label(cell.knobs, [name for name in knobs if name in own])
        if cell.best is None:
            n_alike = unfit.pop(why, 0)
            name = f"{counted(n_alike, 'combination')}, the first {name}" if n_alike > 1 else name
            if not n_alike:
                continue
        largest, _, speed, difference, _ = _cell_values(cell, summary)[2:]
        rows.append((name, largest, speed, difference, why))
    columns = (
        Column("combination"),
        Column("largest\nbatch", "batch_size"),
        speeds_column(unit_of(cell.knobs for cell in summary.cells), "best\n"),
        Column("difference", "difference_percent"),
        Column("why"),
    )
    return _of_combinations(summary, columns, rows)


def ranked_table(summary: StudySummary, n_rows: int = N_ROWS) -> Table:
    """One row per trial, best first, then those that do not fit; at most `n_rows`."""
    knobs = shown_knobs(summary)
    ordered = [*summary.ranked, *(trial for trial in summary.trials if not trial.fits)]
    caption = f"{counted(len(ordered), 'trial')}, best first"
    if n_rows < len(ordered):
        caption = f"the first {n_rows:,} of {caption}; `autoauto trials {summary.study_name} --csv` prints all"
    unit = unit_of(trial.knobs for trial in ordered)
    columns = (
        Column("trial", "number"),
        *_knob_columns([*knobs, "batch_size"], [trial.knobs for trial in ordered]),
        Column(trials_origin(summary), speeds_column(unit).quantity),
        Column(Origin.ESTIMATED, speeds_column(unit).quantity),
        Column("difference", "difference_percent"),
        Column("latency", "latency_s"),
        *objective_columns(summary.objectives, [trial.knobs for trial in ordered]),
        Column("why it does not fit"),
    )
    rows = tuple(_ranked(trial, knobs, summary.objectives) for trial in ordered[:n_rows])
    return Table(f"Trials, throughputs in {unit}", columns, rows, caption)


def _ranked(trial: Trial, knobs: list[str], objectives: Objectives) -> tuple[Value, ...]:
    estimated = trial.estimated_samples_per_s
    return (
        str(trial.number),
        *_knob_values(trial.knobs, [*knobs, "batch_size"]),
        trial.samples_per_s if trial.fits else None,
        estimated or None,
        difference_percent(estimated, trial.samples_per_s) if estimated and trial.fits else None,
        trial.latency_s or None,
        *objective_values(objectives, trial),
        short_reason(trial),
    )


def _knob_columns(names: Sequence[str], configurations: Sequence[Knobs]) -> list[Column]:
    called = words_of(configurations).name
    return [Column(head(called(name)), name) for name in names]


def _knob_values(knobs: Knobs, names: Sequence[str]) -> list[str]:
    return [knob_value(knobs, name) for name in names]


def failures_table(summary: StudySummary) -> Table:
    """One row per trial that ended without a result."""
    rows = (
        (str(failure.number), configuration(failure.knobs), failure.reason) for failure in summary.failures[:N_ROWS]
    )
    columns = (Column("trial", "number"), Column("configuration"), Column("what went wrong"))
    return Table("Failed trials", columns, tuple(rows), f"{len(summary.failures):,} failed")


def _space_text(summary: StudySummary, values: Mapping[str, Sequence[object]]) -> str:
    """The values of all knobs that the configurations of a study have, as their target calls them."""
    configurations = [trial.knobs for trial in summary.trials]
    called, own = words_of(configurations).name, {name for knobs in configurations for name in knobs.values}
    texts = []
    for name, some in values.items():
        if name in own and some:
            listed = ", ".join(map(str, some))
            if len(some) > _MOST_VALUES:
                listed = f"{some[0]} to {some[-1]}, {len(some)} values"
            texts.append(f"{called(name)} {listed}")
    return "; ".join(texts)


def attributes_table(summary: StudySummary) -> Table:
    """The study's attributes: versions, model and cluster digests, the command."""
    own = {name: value for name, value in sorted(summary.attributes.items()) if name not in _SHOWN_OTHERWISE}
    if "space" in own:
        own["space"] = _space_text(summary, json.loads(own["space"]))
    attributes = {"study": summary.study_name, "storage": summary.storage, **own}
    rows = ((name, TableCell(named_uploads(str(value)), Style.CODE)) for name, value in attributes.items())
    return Table("Attributes", (Column("attribute"), Column("value")), tuple(rows))
