"""The tables of a study's page: cells, trials, failures, attributes."""

from __future__ import annotations

from collections.abc import Iterator

from autoauto.records.study_summary import CellFindings, Findings, Tried
from autoauto.report.charts.markup import table, tag, words
from autoauto.report.reasons import reason_of, why_not
from autoauto.report.style import ESTIMATED, format_difference
from autoauto.report.text.compare import difference_percent
from autoauto.report.wording import knob_value, origin_of, shown_knobs

N_ROWS = 500
"""So many trials the page lists; thousands would make it slow."""


def cells_table(found: Findings) -> str:
    """One row a cell: what it could do at best, and why it lost or could not run."""
    knobs = shown_knobs(found)
    numbers = ["tried", "measured", "largest batch", "best batch", "samples/s", "difference"]
    rows = [_cell(cell, found, knobs) for cell in found.cells]
    caption = f"samples/s are {origin_of(found)}; the largest batch is of those that were tried and fit"
    return table([*knobs, *numbers, "why"], rows, [*knobs, *numbers], caption)


def _cell(cell: CellFindings, found: Findings, knobs: list[str]) -> list[str]:
    best, largest = cell.best, cell.largest
    said = tag("span", words(why_not(cell, found)), class_="why")
    return [
        *(words(knob_value(cell.knobs, name)) for name in knobs),
        f"{len(cell.tried):,}",
        f"{cell.n_compiled:,}",
        str(largest.knobs.batch_size) if largest else "none",
        str(best.knobs.batch_size) if best else "-",
        f"{best.samples_per_s:,.1f}" if best else "-",
        _loss(best, found) if best else "-",
        said,
    ]


def _loss(best: Tried, found: Findings) -> str:
    loss = found.loss_percent(best)
    return words(format_difference(-loss)) if loss else "winner"


def trials_table(found: Findings) -> str:
    """One row a trial, best first, then those that do not fit; only so many that the page stays quick."""
    knobs = shown_knobs(found)
    ordered = [*found.ranked, *(tried for tried in found.tried if not tried.fits)]
    shown = ordered[:N_ROWS]
    caption = f"{len(ordered):,} trials, best first"
    if len(shown) < len(ordered):
        more = f"autoauto trials {found.study_name} --csv"
        caption = f"the first {len(shown):,} of {caption}; `{more}` prints all"
    names = ["trial", *knobs, "batch_size", origin_of(found), ESTIMATED, "difference"]
    rows = [list(_trial(tried, knobs)) for tried in shown]
    return table([*names, "why it does not fit"], rows, names, f"{caption}; throughputs in samples/s")


def _trial(tried: Tried, knobs: list[str]) -> Iterator[str]:
    yield str(tried.number)
    yield from (words(knob_value(tried.knobs, name)) for name in knobs)
    yield str(tried.knobs.batch_size)
    yield f"{tried.samples_per_s:,.1f}" if tried.fits else "-"
    known = tried.estimated_samples_per_s
    yield f"{known:,.1f}" if known else "-"
    yield words(format_difference(difference_percent(known, tried.samples_per_s))) if known and tried.fits else "-"
    yield words(reason_of(tried))


def failures_table(found: Findings) -> str:
    """One row a trial that ended without an answer."""
    rows = [
        [str(one.number), words(", ".join(f"{name} {value}" for name, value in one.params.items())), words(one.reason)]
        for one in found.failures[:N_ROWS]
    ]
    return table(["trial", "configuration", "what went wrong"], rows, ["trial"], f"{len(found.failures):,} failed")


def attributes_table(found: Findings) -> str:
    """What the study keeps about itself: versions, model and cluster digests, the command."""
    told = {"study": found.study_name, "storage": found.storage, **dict(sorted(found.attributes.items()))}
    rows = [[words(name), tag("code", words(value))] for name, value in told.items()]
    return table(["attribute", "value"], rows)
