"""Two objectives, latency against throughput where a study has not two, `objectives_chart`.

A dot per configuration that runs, a line per bound of a constraint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from autoauto.report.charts.chart import OTHER, RING, Axis, Chart, Mark, Panel, Series, Shape
from autoauto.report.charts.plan import time_unit
from autoauto.report.style import format_value
from autoauto.report.wording import objective_unit, trials_origin, unit_of, words_of
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
        objective: the objective.
        position: of its value among those that a trial of the study has.
        unit: of the axis, for a title.
        unit_size: the axis' unit in that of the objective.
    """

    objective: Objective
    position: int
    unit: str
    unit_size: float = 1.0

    def of(self, trial: Trial) -> float | None:
        """Its value, in its own unit; None where the trial has none without its plans."""
        if self.objective.number:
            return getattr(trial, self.objective.number) or None
        return trial.values[self.position] if trial.values else None

    def on_axis(self, trial: Trial) -> float:
        """The value of a trial that has one, in the unit of the axis."""
        return (self.of(trial) or 0.0) / self.unit_size

    def text(self, trial: Trial) -> str:
        """Its value with its unit."""
        value = self.of(trial) or 0.0
        if self.objective.is_throughput:
            return f"{value:,.1f} {trial.unit}"
        return (
            format_value("latency_s", value)
            if self.objective.unit == "s"
            else f"{value:,.4g} {objective_unit(self.objective, [trial.knobs])}"
        )


class _Measures(NamedTuple):
    """The objectives along both axes."""

    across: _Measure
    up: _Measure

    def mark(self, trial: Trial) -> Mark:
        """The dot of a trial."""
        texts = f"batch {trial.knobs.batch_size}, {self.across.text(trial)}, {self.up.text(trial)}"
        return Mark(self.across.on_axis(trial), self.up.on_axis(trial), f"trial {trial.number}: {texts}")


def _measures(summary: StudySummary) -> _Measures:
    """The two objectives of a study that has two, else throughput and latency."""
    objectives = objective_tuple(summary.objectives)
    pair = objectives if len(objectives) == 2 else (Objective.THROUGHPUT, Objective.LATENCY)
    if pair == (Objective.LATENCY, Objective.THROUGHPUT):
        pair = pair[::-1]
    return _Measures(*(_measure(summary, each, objectives.index(each) if each in objectives else 0) for each in pair))


def _measure(summary: StudySummary, objective: Objective, position: int) -> _Measure:
    if objective.is_throughput:
        return _Measure(objective, position, unit_of(trial.knobs for trial in summary.trials))
    unit = objective_unit(objective, [trial.knobs for trial in summary.trials])
    made = _Measure(objective, position, f"{objective.metric} ({unit})")
    if objective.unit != "s":
        return made
    unit_s, unit = time_unit(max((made.of(trial) or 0.0 for trial in summary.trials), default=0.0))
    return made._replace(unit=f"{objective.metric} ({unit})", unit_size=unit_s)


def objectives_chart(summary: StudySummary) -> Chart | None:
    """Two objectives of all configurations that run, one against the other; None where none does."""
    measures = across, up = _measures(summary)
    running = [trial for trial in summary.trials if trial.runs and across.of(trial) and up.of(trial)]
    if not running:
        return None
    bounds = [_bounds(summary, each, max(map(each.on_axis, running))) for each in measures]
    x, y = (
        Axis(f"{each.unit}, {trials_origin(summary)}", 0.0, _MARGIN * max([*map(each.on_axis, running), *its_bounds]))
        for each, its_bounds in zip(measures, bounds, strict=True)
    )
    lines = [
        *(_limit(Mark(bound, y.low), Mark(bound, y.high)) for bound in bounds[0]),
        *(_limit(Mark(x.low, bound), Mark(x.high, bound)) for bound in bounds[1]),
    ]
    front = _front(summary, measures)
    best = [Series("", RING, Shape.DOT, (measures.mark(winner),)) for winner in summary.finalists[:1]]
    series = (*lines, *front, *_dots(running, measures), *best)
    remarks = {
        f"Dots are {trials_origin(summary)}": running,
        "the ring is the best configuration": best,
        "the line is the Pareto front": front,
        "orange lines are the constraints": lines,
    }
    text = "; ".join(remark for remark, marks in remarks.items() if marks)
    text += f". {len(running):,} of {len(summary.trials):,} configurations run."
    panel = Panel("", x, y, series, _WIDTH, _HEIGHT)
    title = f"{up.objective.metric.capitalize()} against {across.objective.metric}"
    return Chart("latency", title, text, (panel,))


def _limit(*ends: Mark) -> Series:
    return Series("", "limit", Shape.LINE, ends)


def _bounds(summary: StudySummary, measure: _Measure, largest: float) -> list[float]:
    """The bounds of a result by the constraints of the study, on its axis, that are near enough to be drawn."""
    texts = filter(None, summary.attributes.get("constraints", "").split("; "))
    bounds = {bound for text in texts for bound in Constraint(text).bounds(measure.objective.number)}
    on_axis = (bound / measure.unit_size for bound in sorted(bounds))
    return [bound for bound in on_axis if 0 < bound <= _FARTHEST * largest]


def _front(summary: StudySummary, measures: _Measures) -> list[Series]:
    """A line through the Pareto front of these two objectives."""
    if {each.objective for each in measures} != {*objective_tuple(summary.objectives)}:
        return []
    return [Series("", "front", Shape.LINE, tuple(map(measures.mark, summary.front)))]


def _dots(running: Sequence[Trial], measures: _Measures) -> Iterator[Series]:
    """A colour for every n_ipu, grey for what breaks a constraint."""
    broken = tuple(measures.mark(trial) for trial in running if not trial.fits)
    if broken:
        yield Series("breaks a constraint", OTHER, Shape.DOT, broken)
    called = words_of(trial.knobs for trial in running).name("n_ipu")
    for index, n_ipu in enumerate(sorted({trial.knobs.n_ipu for trial in running if trial.fits})):
        marks = (measures.mark(trial) for trial in running if trial.fits and trial.knobs.n_ipu == n_ipu)
        yield Series(f"{called} {n_ipu}", f"s{index % 8}", Shape.DOT, tuple(marks))
