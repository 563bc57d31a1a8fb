"""What simple uses of a cluster give by the estimate: `expected_alternatives`, stored in the study of a search."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, replace
from itertools import chain, pairwise
from math import inf

from optuna import Study

from autoauto.records.knobs.knobs import Knobs
from autoauto.records.knobs.space import SearchSpace
from autoauto.records.knobs.table import Strategy
from autoauto.records.trials.study_summary import Alternative
from autoauto.records.trials.trial import Trial
from autoauto.study.methods.forecast_curve import ForecastCurve
from autoauto.study.methods.protocol import Predictor
from autoauto.study.methods.simple_uses import SimpleUse, simple_uses
from autoauto.study.store.database import through_restarts
from autoauto.study.store.trials import knobs_of

ALTERNATIVES = "alternatives"
"""The attribute of a study that holds the alternatives of its last search."""
MIN_SCORE = 1e-9
N_REFINED = 8
"""Forecasts of a simple use between those of the survey, beside the best, where the search tried at most one."""


def expected_alternatives(
    space: SearchSpace,
    predictor: Predictor,
    expect: Callable[[Knobs], Trial],
    tried: Collection[Knobs] = (),
    at_best: Callable[[Knobs], Trial | None] = lambda _: None,
) -> tuple[Alternative, ...]:
    """The best of every simple use of a space by a few estimates; nothing is measured.

    Args:
        space: of the search.
        predictor: the estimate as the search asked it; cells that cannot be the best of their use are not asked for.
        expect: the estimated trial of a configuration.
        tried: what the search tried: batch sizes that are good for some pipelines are asked for others of that length.
        at_best: an estimated trial that is no worse and costs less to make; None where `expect` costs as little.
    """
    return tuple(_best_of(use, space, predictor, expect, tried, at_best) for use in simple_uses(space))


def _best_of(
    use: SimpleUse,
    space: SearchSpace,
    predictor: Predictor,
    expect: Callable[[Knobs], Trial],
    tried: Collection[Knobs],
    at_best: Callable[[Knobs], Trial | None],
) -> Alternative:
    cells = [cell for cell in space.cells if use.has(cell[0])]
    cells, curves = _surveyed(cells, predictor, tried)
    pipelines = (knobs for knobs in tried if knobs.strategy is Strategy.PIPELINE)
    like_these = {replace(knobs, replicas=use.replicas) for knobs in pipelines}
    for cell, curve in zip(cells, curves, strict=True):
        for index, knobs in enumerate(cell):
            if knobs in like_these:
                curve.forecast(index)
    for _ in range(0 if len(like_these & set(chain(*cells))) > 1 else N_REFINED):
        curve = max(curves, key=_best_index)
        _refine(curve, _best_index(curve)[1])
    scores = {
        cell[index]: forecast.score
        for cell, curve in zip(cells, curves, strict=True)
        for index, forecast in curve.forecasts.items()
        if forecast.works and forecast.score is not None
    }
    best = max(scores, key=lambda knobs: scores[knobs], default=cells[0][0])
    bound = None if best in tried else at_best(best)
    trial = bound or expect(best)
    speed = trial.samples_per_s if trial.fits else 0.0
    return Alternative(use.name, best, speed, trial.reason, at_most=bound is not None and trial.fits)


def _surveyed(
    cells: list[list[Knobs]], predictor: Predictor, tried: Collection[Knobs]
) -> tuple[list[list[Knobs]], list[ForecastCurve]]:
    """The cells whose limit is not below the best forecast of those with a higher one, at least one, with forecasts.

    What was tried comes first.
    """
    limits = [inf if set(cell) & set(tried) else max(map(predictor.limit, cell)) for cell in cells]
    best, curves = 0.0, dict[int, ForecastCurve]()
    for index in sorted(range(len(cells)), key=lambda index: -limits[index]):
        if curves and limits[index] < max(best, MIN_SCORE):
            break
        curves[index] = curve = ForecastCurve(cells[index], predictor.forecast)
        curve.survey(best)
        best = max(best, _best_index(curve)[0])
    return [cells[index] for index in sorted(curves)], [curves[index] for index in sorted(curves)]


def _refine(curve: ForecastCurve, best: int) -> None:
    """Forecast the middle of the wider gap beside a forecast; nothing where both neighbours have one."""
    known = sorted(curve.forecasts)
    position = known.index(best)
    ends = [(low, high) for low, high in pairwise(known[max(position - 1, 0) : position + 2]) if high - low > 1]
    if ends:
        low, high = max(ends, key=lambda pair: pair[1] - pair[0])
        curve.forecast((low + high) // 2)


def _best_index(curve: ForecastCurve) -> tuple[float, int]:
    """The highest score of a curve that is expected, and its index; a score of 0 where nothing fits."""
    return max((forecast.score or 0.0 if forecast.works else 0.0, i) for i, forecast in curve.forecasts.items())


@through_restarts
def store_alternatives(study: Study, alternatives: Sequence[Alternative]) -> None:
    """Replace the alternatives of a study."""
    study.set_user_attr(ALTERNATIVES, [entry._asdict() | {"knobs": asdict(entry.knobs)} for entry in alternatives])


def stored_alternatives(study: Study) -> tuple[Alternative, ...]:
    """The alternatives of a study; none in studies of older versions."""
    entries = study.user_attrs.get(ALTERNATIVES, ())
    return tuple(Alternative(**{**entry, "knobs": knobs_of(entry["knobs"])}) for entry in entries)
