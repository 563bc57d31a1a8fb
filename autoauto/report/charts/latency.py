"""Latency against throughput, `latency_chart`: a dot per configuration that runs, a line per bound of a constraint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autoauto.records.knobs.objectives import Constraint, Objective, objective_tuple
from autoauto.records.trials.study_summary import StudySummary
from autoauto.records.trials.trial import Trial
from autoauto.report.charts.chart import OTHER, RING, Axis, Chart, Mark, Panel, Series, Shape
from autoauto.report.charts.timeline import time_unit
from autoauto.report.style import format_value
from autoauto.report.wording import origin_of

_WIDTH, _HEIGHT = 420, 234
_MARGIN = 1.06
"""Of an axis beyond its largest value."""
_FARTHEST = 2.0
"""A bound that is farther from 0 than the largest value by this factor is not drawn: dots would be too close."""


def latency_chart(summary: StudySummary) -> Chart | None:
    """The chart; None where no configuration runs."""
    running = [trial for trial in summary.trials if trial.latency_s]
    if not running:
        return None
    largest_per_s, longest_s = max(trial.samples_per_s for trial in running), max(trial.latency_s for trial in running)
    bounds_per_s, bounds_s = _bounds(summary, "samples_per_s", largest_per_s), _bounds(summary, "latency_s", longest_s)
    unit_s, unit = time_unit(longest_s)
    origin = origin_of(summary)
    across = Axis(f"samples/s, {origin}", 0.0, _MARGIN * max([largest_per_s, *bounds_per_s]))
    up = Axis(f"latency ({unit}), {origin}", 0.0, _MARGIN * max([longest_s, *bounds_s]) / unit_s)
    lines = [
        *(_limit(Mark(bound, up.low), Mark(bound, up.high)) for bound in bounds_per_s),
        *(_limit(Mark(across.low, bound / unit_s), Mark(across.high, bound / unit_s)) for bound in bounds_s),
    ]
    front = _front(summary, unit_s)
    best = [Series("", RING, Shape.DOT, (_mark(winner, unit_s),)) for winner in summary.finalists[:1]]
    series = (*lines, *front, *_dots(running, unit_s), *best)
    remarks = {
        f"Dots are {origin}": running,
        "the ring is the best configuration": best,
        "the line is the Pareto front": front,
        "orange lines are the constraints": lines,
    }
    text = "; ".join(remark for remark, marks in remarks.items() if marks)
    text += f". {len(running):,} of {len(summary.trials):,} configurations run."
    panel = Panel("", across, up, series, _WIDTH, _HEIGHT)
    return Chart("latency", "Latency against throughput", text, (panel,))


def _limit(*ends: Mark) -> Series:
    return Series("", "limit", Shape.LINE, ends)


def _bounds(summary: StudySummary, name: str, largest: float) -> list[float]:
    """The bounds of a result by the constraints of the study that are near enough to be drawn."""
    texts = filter(None, summary.attributes.get("constraints", "").split("; "))
    bounds = {bound for text in texts for bound in Constraint(text).bounds(name)}
    return sorted(bound for bound in bounds if 0 < bound <= _FARTHEST * largest)


def _front(summary: StudySummary, unit_s: float) -> list[Series]:
    """A line through the Pareto front of these two objectives."""
    if set(objective_tuple(summary.objectives)) != {Objective.THROUGHPUT, Objective.LATENCY}:
        return []
    return [Series("", "front", Shape.LINE, tuple(_mark(trial, unit_s) for trial in summary.front))]


def _dots(running: Sequence[Trial], unit_s: float) -> Iterator[Series]:
    """A colour for every n_ipu, grey for what breaks a constraint."""
    broken = tuple(_mark(trial, unit_s) for trial in running if not trial.fits)
    if broken:
        yield Series("breaks a constraint", OTHER, Shape.DOT, broken)
    for index, n_ipu in enumerate(sorted({trial.knobs.n_ipu for trial in running if trial.fits})):
        marks = (_mark(trial, unit_s) for trial in running if trial.fits and trial.knobs.n_ipu == n_ipu)
        yield Series(f"n_ipu {n_ipu}", f"s{index % 8}", Shape.DOT, tuple(marks))


def _mark(trial: Trial, unit_s: float) -> Mark:
    knobs, latency = trial.knobs, format_value("latency_s", trial.latency_s)
    hover = f"trial {trial.number}: batch {knobs.batch_size}, {trial.samples_per_s:,.1f} samples/s, {latency}"
    return Mark(trial.samples_per_s, trial.latency_s / unit_s, hover)
