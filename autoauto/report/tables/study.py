"""Tables of a study: the winner against others, what limits it, cells, trials, failures and attributes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from autoauto.records.costs.rate_curve import RateCurves
from autoauto.records.files.uploads import named_uploads
from autoauto.records.interval import Interval
from autoauto.records.target import Origin
from autoauto.report.reasons import reason_of_choice, short_reason, what_binds, why_not
from autoauto.report.style import difference_percent
from autoauto.report.tables.columns import (
    TRIAL_LATENCY,
    TRIAL_NUMBER,
    RowColumn,
    knob_columns,
    objective_columns,
    table_of,
)
from autoauto.report.tables.table import Column, Style, Table, TableCell, Value, speeds_column
from autoauto.report.tables.traffic import load_facts
from autoauto.report.wording import (
    choice_text,
    compared_name,
    configuration,
    counted,
    differing,
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
from autoauto.space.study_summary import (
    CHOICES,
    CLOCK,
    POOLS,
    RATE_CURVES,
    SIZING,
    USERS_FRONT,
    Comparison,
    StudySummary,
)
from autoauto.space.table import shown
from autoauto.space.trial import Cell, Trial

_SHOWN_OTHERWISE = (USERS_FRONT, RATE_CURVES, CHOICES, SIZING, POOLS, "engine_measurements", "request", CLOCK)
_MOST_VALUES = 8
"""Of a knob that are listed; of more the first, the last and their number."""
N_ROWS = 500
"""The most trials that a page lists; thousands would make it slow."""

_LARGEST: RowColumn[Cell] = RowColumn(
    Column("largest\nbatch", "batch_size"), lambda cell: cell.largest.knobs.batch_size if cell.largest else "none"
)


def uses_table(comparisons: Sequence[Comparison], origin: Origin) -> Table:
    """One row per simple use of the cluster: its throughput, the origin of that, and how much better the winner is."""
    unit = unit_of(comparison.knobs for comparison in comparisons if comparison.knobs)
    columns = (Column(""), speeds_column(unit), Column(""), Column("winner", "gain_percent"))
    rows: list[tuple[Value, ...]] = []
    for use in comparisons:
        note = use.note.partition(";")[0]
        of_speed = Origin.ESTIMATED if use.estimated else origin
        if use.is_simple_use and use.speed is None:
            rows.append((use.name, None, note, None))
        elif use.is_simple_use and use.speed is not None:
            speed = speed_text(use.speed, unit)
            if use.gain_percent is None:
                rows.append((use.name, speed, of_speed, note))
            else:
                rows.append((use.name, speed, f"{of_speed} {note}".strip(), use.gain_percent))
    caption = "winner: how much faster it is; by its own estimate where the other is estimated"
    return Table("What simpler uses of the cluster give", columns, tuple(rows), caption)


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
    rows: list[tuple[Value, ...]] = []
    for choice in summary.choices:
        name = choice_text(choice)
        if choice.ratio is None:
            rows.append((name, None, None, reason_of_choice(choice.reason)))
            continue
        remarks = []
        measured = measured_ratio(summary, choice)
        if measured is not None:
            remarks.append(f"measured {measured:.2f}")
        elif choice.is_tie:
            remarks.append("not told apart")
        if not choice.is_searched:
            remarks.append("not searched")
        if follows := differing(choice.knobs, winner.knobs, choice.name):
            remarks.append(follows)
        rows.append((name, choice.samples_per_s, f"{choice.ratio:.2f}", ", ".join(remarks)))
    caption = "replicas and batch size are the best for each value; ratios are by forecast where nothing is said"
    return Table(f"What each choice is worth, {Origin.ESTIMATED}", columns, tuple(rows), caption)


def comparisons_table(summary: StudySummary, comparisons: Sequence[Comparison]) -> Table:
    """The winner, then one row per configuration that it is compared with."""
    assert summary.winner is not None
    winner, origin, verification = summary.winner, origin_of(summary), summary.verification
    speed = Interval(winner.samples_per_s, None)
    caption = ""
    if verification is not None:
        speed = verification.winner.speed or speed
        if verification.n_turns > 1:
            counts = sorted({len(row.scores) for row in verification.repeated})
            turns = f"means of {' or '.join(map(str, counts))} turns and their 95 % confidence intervals"
            caption = f"{turns}, {origin}"
    name = f"{configuration(winner.knobs)}, {origin}"
    rows: list[tuple[Value, ...]] = [("winner", speed_text(speed, winner.unit), "", name)]
    for each in comparisons:
        notes = [each.note] if each.note else []
        if each.knobs:
            notes.append(differing(each.knobs, winner.knobs) or "the same configuration")
        text = speed_text(each.speed, winner.unit) if each.speed else None
        rows.append((compared_name(each), text, each.gain_percent, "\n".join(notes)))
    columns = (Column(""), speeds_column(winner.unit), Column("winner", "gain_percent"), Column(""))
    title = f"Why this one, by {summary.objective}" if summary.of_several else "Why this one"
    return Table(title, columns, tuple(rows), caption)


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
    columns: list[RowColumn[Cell]] = [
        *knob_columns(shown_knobs(summary), [cell.knobs for cell in summary.cells]),
        RowColumn(Column("tried", "n_tried"), lambda cell: len(cell.trials)),
        RowColumn(Column(trials_origin(summary), "n_measured"), lambda cell: cell.n_measured),
        _LARGEST,
        RowColumn(Column("best\nbatch", "batch_size"), lambda cell: cell.best.knobs.batch_size if cell.best else None),
    ]
    return _of_combinations(summary, columns, summary.cells)


def _of_combinations(summary: StudySummary, columns: list[RowColumn[Cell]], cells: Iterable[Cell]) -> Table:
    """A table of cells with these columns and what each gave: its best throughput, and why it is not the best."""

    def difference_of(cell: Cell) -> float | None:
        return None if cell.best is None else 0.0 - summary.loss_percent(cell.best)

    speeds = speeds_column(unit_of(cell.knobs for cell in summary.cells), "best\n")
    columns.append(RowColumn(speeds, lambda cell: cell.best.samples_per_s if cell.best else None))
    columns.append(RowColumn(Column("difference", "difference_percent"), difference_of))
    columns.append(RowColumn(Column("why"), lambda cell: why_not(cell, summary)))
    caption = "the largest batch is of those that were tried and fit"
    title = f"Tried combinations of knobs at their best batch, {trials_origin(summary)}"
    return table_of(title, columns, cells, caption)


def reasons_table(summary: StudySummary) -> Table:
    """One row per cell, for a terminal: knobs in words, and why; cells that do not fit for one reason share a row."""
    knobs = shown_knobs(summary)
    alike: dict[str, list[Cell]] = {}  # cells that do not fit, by the reason
    for cell in summary.cells:
        if cell.best is None:
            alike.setdefault(why_not(cell, summary), []).append(cell)
    names: dict[Knobs, str] = {}
    cells = []
    for cell in summary.cells:
        own = {knob.name for knob in shown(cell.knobs)}
        name = label(cell.knobs, [name for name in knobs if name in own])
        if cell.best is None:
            first, *others = alike[why_not(cell, summary)]
            if cell is not first:
                continue
            if others:
                name = f"{counted(1 + len(others), 'combination')}, the first {name}"
        names[cell.knobs] = name
        cells.append(cell)
    combination: RowColumn[Cell] = RowColumn(Column("combination"), lambda cell: names[cell.knobs])
    return _of_combinations(summary, [combination, _LARGEST], cells)


def ranked_table(summary: StudySummary, n_rows: int = N_ROWS) -> Table:
    """One row per trial, best first, then those that do not fit; at most `n_rows`."""
    ordered = [*summary.ranked, *(trial for trial in summary.trials if not trial.fits)]
    caption = f"{counted(len(ordered), 'trial')}, best first"
    if n_rows < len(ordered):
        caption = f"the first {n_rows:,} of {caption}; `autoauto trials {summary.study_name} --csv` prints all"
    configurations = [trial.knobs for trial in ordered]
    unit = unit_of(configurations)
    speeds = speeds_column(unit).quantity
    columns: list[RowColumn[Trial]] = [
        TRIAL_NUMBER,
        *knob_columns([*shown_knobs(summary), "batch_size"], configurations),
        RowColumn(Column(trials_origin(summary), speeds), lambda trial: trial.samples_per_s if trial.fits else None),
        RowColumn(Column(Origin.ESTIMATED, speeds), lambda trial: trial.estimated_samples_per_s or None),
        RowColumn(Column("difference", "difference_percent"), _estimate_error),
        TRIAL_LATENCY,
        *objective_columns(summary.objectives, configurations),
        RowColumn(Column("why it does not fit"), short_reason),
    ]
    return table_of(f"Trials, throughputs in {unit}", columns, ordered[:n_rows], caption)


def _estimate_error(trial: Trial) -> float | None:
    """How far the estimate is from the measured throughput, in percent; None without both."""
    if not trial.estimated_samples_per_s or not trial.fits:
        return None
    return difference_percent(trial.estimated_samples_per_s, trial.samples_per_s)


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
    called = words_of(configurations).name
    own = {name for knobs in configurations for name in knobs.values}
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
    attributes = {"study": summary.study_name, "storage": summary.storage}
    for name, value in sorted(summary.attributes.items()):
        if name == "space":
            attributes[name] = _space_text(summary, json.loads(value))
        elif name not in _SHOWN_OTHERWISE:
            attributes[name] = value
    rows = ((name, TableCell(named_uploads(value), Style.CODE)) for name, value in attributes.items())
    return Table("Attributes", (Column("attribute"), Column("value")), tuple(rows))
