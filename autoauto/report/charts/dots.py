"""Dots that several charts of trials have: `trial_series` by the number of stages, and `best_ring` around the best."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from autoauto.report.charts.chart import OTHER, RING, Mark, Series, Shape
from autoauto.report.wording import words_of
from autoauto.space.study_summary import StudySummary
from autoauto.space.trial import Trial

N_COLOURS = 8
"""The styles "s0" to "s7"."""


def colour(index: int) -> str:
    """The style of the series with this index; more than `N_COLOURS` repeat the colours."""
    return f"s{index % N_COLOURS}"


def trial_series(trials: Iterable[Trial], mark: Callable[[Trial], Mark]) -> list[Series]:
    """A dot per trial: grey for what breaks a constraint, else a colour for every number of stages."""
    every = list(trials)
    series = []
    broken = tuple(mark(trial) for trial in every if not trial.fits)
    if broken:
        series.append(Series("breaks a constraint", OTHER, Shape.DOT, broken))
    called = words_of(trial.knobs for trial in every).name("n_ipu")
    for index, n_ipu in enumerate(sorted({trial.knobs.n_ipu for trial in every if trial.fits})):
        marks = (mark(trial) for trial in every if trial.fits and trial.knobs.n_ipu == n_ipu)
        series.append(Series(f"{called} {n_ipu}", colour(index), Shape.DOT, tuple(marks)))
    return series


def best_ring(summary: StudySummary, mark: Callable[[Trial], Mark]) -> list[Series]:
    """A ring around the best configuration; none where nothing fits."""
    if summary.winner is None:
        return []
    return [Series("", RING, Shape.DOT, (mark(summary.winner),))]
