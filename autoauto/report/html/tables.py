"""The tables of a study's page: cells, trials, failures, attributes."""

from __future__ import annotations

from collections.abc import Iterator

from autoauto.records.study_summary import CellSummary, StudySummary, TrialSummary
from autoauto.report.charts.markup import table, tag, words
from autoauto.report.reasons import short_reason, why_not
from autoauto.report.style import ESTIMATED, difference_percent, format_difference
from autoauto.report.wording import knob_value, origin_of, shown_knobs

N_ROWS = 500
"""The most trials that the page lists; thousands would make it slow."""


def cells_table(summary: StudySummary) -> str:
    """One row per cell: its largest and its best batch size, and why it lost or could not run."""
    knobs = shown_knobs(summary)
    numbers = ["tried", "measured", "largest batch", "best batch", "samples/s", "difference"]
    rows = [_cell(cell, summary, knobs) for cell in summary.cells]
    caption = f"samples/s are {origin_of(summary)}; the largest batch is of those that were tried and fit"
    return table([*knobs, *numbers, "why"], rows, [*knobs, *numbers], caption)


def _cell(cell: CellSummary, summary: StudySummary, knobs: list[str]) -> list[str]:
    best, largest = cell.best, cell.largest
    reason = tag("span", words(why_not(cell, summary)), class_="why")
    return [
        *(words(knob_value(cell.knobs, name)) for name in knobs),
        f"{len(cell.trials):,}",
        f"{cell.n_compiled:,}",
        str(largest.knobs.batch_size) if largest else "none",
        str(best.knobs.batch_size) if best else "-",
        f"{best.samples_per_s:,.1f}" if best else "-",
        _loss(best, summary) if best else "-",
        reason,
    ]


def _loss(best: TrialSummary, summary: StudySummary) -> str:
    loss = summary.loss_percent(best)
    return words(format_difference(-loss)) if loss else "winner"


def trials_table(summary: StudySummary) -> str:
    """One row per trial, best first, then those that do not fit; at most `N_ROWS`."""
    knobs = shown_knobs(summary)
    ordered = [*summary.ranked, *(trial for trial in summary.trials if not trial.fits)]
    shown = ordered[:N_ROWS]
    caption = f"{len(ordered):,} trials, best first"
    if len(shown) < len(ordered):
        command = f"autoauto trials {summary.study_name} --csv"
        caption = f"the first {len(shown):,} of {caption}; `{command}` prints all"
    names = ["trial", *knobs, "batch_size", origin_of(summary), ESTIMATED, "difference"]
    rows = [list(_trial(trial, knobs)) for trial in shown]
    return table([*names, "why it does not fit"], rows, names, f"{caption}; throughputs in samples/s")


def _trial(trial: TrialSummary, knobs: list[str]) -> Iterator[str]:
    yield str(trial.number)
    yield from (words(knob_value(trial.knobs, name)) for name in knobs)
    yield str(trial.knobs.batch_size)
    yield f"{trial.samples_per_s:,.1f}" if trial.fits else "-"
    estimated = trial.estimated_samples_per_s
    error = difference_percent(estimated, trial.samples_per_s) if estimated and trial.fits else None
    yield f"{estimated:,.1f}" if estimated else "-"
    yield words(format_difference(error))
    yield words(short_reason(trial))


def failures_table(summary: StudySummary) -> str:
    """One row per trial that ended without a result."""
    rows = [
        [
            str(failure.number),
            words(", ".join(f"{name} {value}" for name, value in failure.params.items())),
            words(failure.reason),
        ]
        for failure in summary.failures[:N_ROWS]
    ]
    return table(["trial", "configuration", "what went wrong"], rows, ["trial"], f"{len(summary.failures):,} failed")


def attributes_table(summary: StudySummary) -> str:
    """The study's attributes: versions, model and cluster digests, the command."""
    attributes = {"study": summary.study_name, "storage": summary.storage, **dict(sorted(summary.attributes.items()))}
    rows = [[words(name), tag("code", words(value))] for name, value in attributes.items()]
    return table(["attribute", "value"], rows)
