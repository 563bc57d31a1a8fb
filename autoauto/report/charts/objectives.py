"""Two objectives, latency against throughput where a study has not two, `objectives_chart`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from autoauto.records.units import digits, format_number
from autoauto.report.charts.chart import Axis, Chart, Mark, Panel, Series, Shape
from autoauto.report.charts.dots import best_ring, trial_series
from autoauto.report.charts.plan import time_unit
from autoauto.report.style import format_value
from autoauto.report.wording import objective_unit, trials_origin, unit_of
from autoauto.space.constraint import Constraint
from autoauto.space.objectives import Objective, objective_tuple
from autoauto.space.study_summary import StudySummary
from autoauto.space.trial import Trial

_WIDTH, _HEIGHT = 420, 234
_MARGIN = 1.06
"""Of an axis beyond its largest value."""
_FARTHEST = 2.0
"""A bound that is farther from 0 than the largest value by this factor is not drawn: dots would be too close."""


class _Measure(NamedTuple):
    """An objective along an axis.

    Attributes:
        position: of its value among those that a trial of the study has.
        unit: of the axis, for a title.
        unit_size: the axis' unit in that of the objective.
    """

    objective: Objective
    position: int
    unit: str
    unit_size: float = 1.0

    def of(self, trial: Trial) -> float | None:
        """The value of a trial in the unit of the objective; None if it needs plans that are not loaded."""
        if self.objective.number:
            return getattr(trial, self.objective.number) or None
        return trial.values[self.position] if trial.values else None

    def on_axis(self, trial: Trial) -> float:
        """The value of a trial that has one, in the unit of the axis."""
        return (self.of(trial) or 0.0) / self.unit_size

    def text(self, trial: Trial) -> str:
        value = self.of(trial) or 0.0
        if self.objective.is_throughput:
            return f"{format_number(value)} {trial.unit}"
        if self.objective.unit == "s":
            return format_value("latency_s", value)
        return f"{digits(value, 4)} {objective_unit(self.objective, [trial.knobs])}"


class _Measures(NamedTuple):
    """The objectives along both axes."""

    across: _Measure
    up: _Measure

    def mark(self, trial: Trial) -> Mark:
        texts = f"batch {trial.knobs.batch_size}, {self.across.text(trial)}, {self.up.text(trial)}"
        return Mark(self.across.on_axis(trial), self.up.on_axis(trial), f"trial {trial.number}: {texts}")


def _measures(summary: StudySummary) -> _Measures:
    """The two objectives of a study that has two, else throughput and latency."""
    objectives = objective_tuple(summary.objectives)
    across, up = Objective.THROUGHPUT, Objective.LATENCY
    if len(objectives) == 2 and set(objectives) != {across, up}:  # throughput is across, even if it is named second
        across, up = objectives
    return _Measures(_measure(summary, across), _measure(summary, up))


def _measure(summary: StudySummary, objective: Objective) -> _Measure:
    objectives = objective_tuple(summary.objectives)
    position = objectives.index(objective) if objective in objectives else 0
    configurations = [trial.knobs for trial in summary.trials]
    if objective.is_throughput:
        return _Measure(objective, position, unit_of(configurations))
    unit, unit_size = objective_unit(objective, configurations), 1.0
    if objective.unit == "s":
        longest_s = max((trial.latency_s for trial in summary.trials), default=0.0)
        unit_size, unit = time_unit(longest_s)
    return _Measure(objective, position, f"{objective.metric} ({unit})", unit_size)


def objectives_chart(summary: StudySummary) -> Chart | None:
    """Two objectives of all configurations that run, one against the other; None where none does."""
    measures = across, up = _measures(summary)
    running = [trial for trial in summary.trials if trial.runs and across.of(trial) and up.of(trial)]
    if not running:
        return None
    origin = trials_origin(summary)
    x, x_bounds = _axis(summary, across, running)
    y, y_bounds = _axis(summary, up, running)
    lines = [_limit(Mark(bound, y.low), Mark(bound, y.high)) for bound in x_bounds]
    lines += [_limit(Mark(x.low, bound), Mark(x.high, bound)) for bound in y_bounds]
    front = []
    if {across.objective, up.objective} == {*objective_tuple(summary.objectives)}:
        front.append(Series("", "front", Shape.LINE, tuple(map(measures.mark, summary.front))))
    best = best_ring(summary, measures.mark)
    series = (*lines, *front, *trial_series(running, measures.mark), *best)

    remarks = [f"Dots are {origin}"]
    if best:
        remarks.append("the ring is the best configuration")
    if front:
        remarks.append("the line is the Pareto front")
    if lines:
        remarks.append("orange lines are the constraints")
    text = f"{'; '.join(remarks)}. {len(running):,} of {len(summary.trials):,} configurations run."
    panel = Panel("", x, y, series, _WIDTH, _HEIGHT)
    title = f"{up.objective.metric.capitalize()} against {across.objective.metric}"
    return Chart("latency", title, text, (panel,))


def _axis(summary: StudySummary, measure: _Measure, running: Sequence[Trial]) -> tuple[Axis, list[float]]:
    """The axis of an objective, and the bounds of constraints that are drawn on it.

    A bound is drawn if it is near enough to the values; the axis then reaches beyond it.
    """
    largest = max(map(measure.on_axis, running))
    bounds: set[float] = set()
    for text in summary.attributes.get("constraints", "").split("; "):
        if text:
            bounds |= set(Constraint(text).bounds(measure.objective.number))
    on_axis = [bound / measure.unit_size for bound in sorted(bounds)]
    near = [bound for bound in on_axis if 0 < bound <= _FARTHEST * largest]
    return Axis(f"{measure.unit}, {trials_origin(summary)}", 0.0, _MARGIN * max([largest, *near])), near


def _limit(*ends: Mark) -> Series:
    return Series("", "limit", Shape.LINE, ends)
