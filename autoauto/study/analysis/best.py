"""The best of measured trials: `best_of` by one objective, `front_of` by several.

For reports `summarise_study` reads a study, and `summarise` takes the trials of a search that has just ended. A study
that is resumed in another space holds trials outside it; the answer of its last search is the answer of all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

import numpy as np
from optuna import Study

from autoauto.evaluate.serving.margins import simplest_of_tie
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objectives, objective_tuple, parse_objectives, scores_of
from autoauto.space.space import SearchSpace
from autoauto.space.study_summary import ENGINE_MEASUREMENTS, Alternative, LeftOut, StudySummary
from autoauto.space.table import simplicity
from autoauto.space.trial import Counts, Trial
from autoauto.study.analysis.verification import VERIFIED, verifications, verified_winners, with_means
from autoauto.study.methods.forecast_curve import ForecastCurve
from autoauto.study.methods.protocol import Predictor
from autoauto.study.methods.simple_uses import simple_uses
from autoauto.study.store.database import attributes_of, reads, set_attribute, shown_storage
from autoauto.study.store.study import ANSWER, STARTED, space_of
from autoauto.study.store.trials import knobs_of, stored_trials, with_plans

if TYPE_CHECKING:
    from autoauto.space.engine_measurements import EngineMeasurements

ALTERNATIVES = "alternatives"
"""The attribute of a study that holds the alternatives of its last search."""
NOISE = "noise"
"""The attribute of a study that holds the noise of its last search as text; see `best_of`."""
STRICT = "strict"
"""The attribute of a study that says whether its last search takes the highest forecast, "True" or "False"."""
_NOT_SHOWN = (VERIFIED, ALTERNATIVES, ANSWER, STARTED, STRICT)
N_FINALISTS = 10
"""Number of the best configurations whose stages are read; reading those of thousands would take long."""
MIN_SCORE = 1e-9
N_REFINED = 8
"""Forecasts of a simple use between those of the survey, beside the best, where the search tried at most one."""


def best_of_study(study: Study, trials: Mapping[Knobs, Trial]) -> Trial | None:
    """The best of `trials` of a study, after the verification of its searches.

    None when nothing fits, and for a study of several objectives, whose best trials are `front_of`. Where engines were
    measured it is the best of these; None where none of them is known to keep the bounds.
    """
    measured = measurements_of(study)
    if measured is not None and measured.n_measured and any(row.knobs in trials for row in measured.rows):
        return trials.get(measured.best.knobs) if measured.best else None
    noise = float(attributes_of(study).get(NOISE, 0.0))
    strict = attributes_of(study).get(STRICT) == str(True)
    return best_of(trials, objectives_of_study(study), noise, verified_winners(study), strict=strict)


def measurements_of(study: Study) -> EngineMeasurements | None:
    """The measurements on engines of a study; None if there are none."""
    attributes = attributes_of(study)
    if ENGINE_MEASUREMENTS not in attributes:
        return None
    from autoauto.space.engine_measurements import EngineMeasurements

    return EngineMeasurements.read(attributes[ENGINE_MEASUREMENTS])


def objectives_of_study(study: Study) -> Objectives:
    """The objectives of a study."""
    return parse_objectives(attributes_of(study)["objective"])


def counts_of(trials: Collection[Trial], n_configurations: int | None = None) -> Counts:
    """Numbers of configurations with a finished trial, and of those that were measured."""
    return Counts(len(trials), sum(trial.was_measured for trial in trials), n_configurations)


def best_of(
    trials: Mapping[Knobs, Trial],
    objectives: Objectives,
    noise: float = 0.0,
    winners: Mapping[Knobs, Knobs] | None = None,
    *,
    strict: bool = False,
) -> Trial | None:
    """The best measured one of `trials`; among those that are worse by at most the share `noise`, the simplest.

    Of equally simple ones (`Knobs.simplicity`) it is the oldest. By several objectives no trial is the best. Of engines
    on GPUs those are ties that the error of forecasts does not tell apart (`simplest_of_tie`).

    Args:
        trials: finished trials, oldest first.
        noise: values that differ by at most this share tie.
        winners: best of a search -> the winner of its verification, where that is another one.
        strict: take the highest forecast of engines, whatever the error of forecasts is.
    """
    scores = _scores(trials, objectives)
    if not scores or len(objective_tuple(objectives)) > 1:
        return None
    lowest = max(scores.values())[0] * (1.0 - noise)
    ties = [knobs for knobs, (score,) in scores.items() if score >= lowest]
    best = min(ties, key=simplicity)
    if "tensor_parallel" in best.values and not strict and objective_tuple(objectives)[0].follows_throughput:
        best = simplest_of_tie(best, {knobs: score for knobs, (score,) in scores.items()})
    winner = (winners or {}).get(best, best)
    return trials[winner if winner in scores else best]


def front_of(trials: Mapping[Knobs, Trial], objectives: Objectives) -> tuple[Trial, ...]:
    """The Pareto front of `trials`: those that no other dominates, by descending score of the first objective.

    Of trials that are equal in all objectives it has the simplest.
    """
    return tuple(trials[knobs] for knobs in not_dominated(_scores(trials, objectives)))


def not_dominated(scores: Mapping[Knobs, tuple[float, ...]]) -> list[Knobs]:
    """The configurations that no other dominates by their scores; see `front_of`."""
    ranked = sorted(scores, key=lambda knobs: ([-score for score in scores[knobs]], simplicity(knobs)))
    front: list[Knobs] = []
    for knobs in ranked:  # a configuration that dominates another is ranked before it
        best = np.array([scores[other] for other in front])
        if not (front and (best >= scores[knobs]).all(axis=1).any()):
            front.append(knobs)
    return front


def _scores(trials: Mapping[Knobs, Trial], objectives: Objectives) -> dict[Knobs, tuple[float, ...]]:
    return {knobs: scores_of(objectives, trial.values) for knobs, trial in trials.items() if trial.fits}


def summarise_study(study: Study, storage: str, n_finalists: int = N_FINALISTS) -> StudySummary:
    """The trials of a study in the space of its last search, the best with their stages, and their verification."""
    stored = stored_trials(study)
    summary = summarise(study, storage, stored.own, n_finalists)
    return replace(summary, left_out=summary.left_out._replace(n_foreign=stored.n_foreign))


@reads
def summarise(study: Study, storage: str, trials: Iterable[Trial], n_finalists: int) -> StudySummary:
    """The summary of a study by `trials` that are known already; of a configuration with several the last counts.

    Where the verification of the best measured a trial again, its throughput and its objective are means of all turns.
    """
    ended = sorted(trials, key=lambda trial: trial.number)
    objectives, attributes = objectives_of_study(study), attributes_of(study)
    space = space_of(study)
    inside = [trial for trial in ended if space is None or trial.knobs in space]
    finished = {trial.knobs: trial for trial in inside if not trial.failed}
    front = front_of(finished, objectives) if len(objective_tuple(objectives)) > 1 else ()
    best = best_of_study(study, finished) or next(iter(front), None)
    verification = None
    if best is not None and best.origin is None:  # what engines measured was not verified: only forecasts are
        of_best = (entry for entry in verifications(study) if entry.winner.knobs == best.knobs)
        verification = next(of_best, None)
    if verification is not None:
        means = with_means(finished.values(), verification, objective_tuple(objectives)[0])
        finished = {trial.knobs: trial for trial in means}
    summary = StudySummary(
        study_name=study.study_name,
        storage=shown_storage(storage),
        objective=objective_tuple(objectives)[0],
        attributes={name: str(value) for name, value in attributes.items() if name not in _NOT_SHOWN},
        trials=tuple(sorted(finished.values(), key=lambda trial: trial.number)),
        failures=tuple(trial for trial in inside if trial.failed),
        finalists=() if best is None else (finished[best.knobs],),  # of several objectives the first decides
        verification=verification,
        space=space,
        alternatives=stored_alternatives(study),
        front=front,
        left_out=LeftOut(len(ended) - len(inside)),
    )
    ranked = () if best is None else summary.ranked[:n_finalists]  # forecasts may fit where nothing measured does
    return replace(summary, finalists=tuple(with_plans(study, trial) for trial in ranked))


def expected_alternatives(
    space: SearchSpace,
    predictor: Predictor,
    expect: Callable[[Knobs], Trial],
    tried: Collection[Knobs] = (),
    upper_bound: Callable[[Knobs], Trial | None] = lambda _: None,
) -> tuple[Alternative, ...]:
    """The best of every simple use of a space by a few estimates; nothing is measured.

    Args:
        predictor: the estimate as the search asked it; cells that cannot be the best of their use are not asked for.
        tried: what the search tried: batch sizes that are good for some pipelines are asked for others of that length.
        upper_bound: an estimated trial that is no worse and costs less to make; None where `expect` costs as little.
    """
    alternatives = []
    for use in simple_uses(space):
        cells = [cell for cell in space.cells if use.has(cell[0])]
        surveyed = _surveyed(cells, predictor, tried)
        # Batch sizes that the search tried of pipelines of this length are forecast for this number of them.
        like_these = {replace(knobs, replicas=use.replicas) for knobs in tried if not knobs.is_phased}
        n_like_these = 0
        for cell, curve in surveyed:
            for index, knobs in enumerate(cell):
                if knobs in like_these:
                    curve.forecast(index)
                    n_like_these += 1
        if n_like_these <= 1:
            curves = [curve for _, curve in surveyed]
            for _ in range(N_REFINED):
                curve = max(curves, key=_best_index)
                _refine(curve, _best_index(curve)[1])
        scores: dict[Knobs, float] = {}
        for cell, curve in surveyed:
            for index, forecast in curve.forecasts.items():
                if forecast.works and forecast.score is not None:
                    scores[cell[index]] = forecast.score
        best = max(scores, key=scores.__getitem__, default=surveyed[0][0][0])
        bound = None if best in tried else upper_bound(best)
        trial = bound or expect(best)
        speed = trial.samples_per_s if trial.fits else 0.0
        at_most = bound is not None and trial.fits
        alternatives.append(Alternative(use.name, best, speed, trial.reason, at_most))
    return tuple(alternatives)


def _surveyed(
    cells: Sequence[Sequence[Knobs]], predictor: Predictor, tried: Collection[Knobs]
) -> list[tuple[Sequence[Knobs], ForecastCurve]]:
    """Cells with forecasts, in their order: those whose limit is not below the best forecast, at least one.

    What was tried comes first, then the cells of the highest limits: so the others are never forecast.
    """
    every_tried = set(tried)
    limits = [inf if every_tried.intersection(cell) else max(map(predictor.limit, cell)) for cell in cells]
    best = 0.0
    curves: dict[int, ForecastCurve] = {}
    for index in sorted(range(len(cells)), key=lambda index: -limits[index]):
        if curves and limits[index] < max(best, MIN_SCORE):
            break
        curves[index] = ForecastCurve(cells[index], predictor)
        curves[index].survey(best)
        best = max(best, _best_index(curves[index])[0])
    return [(cells[index], curves[index]) for index in sorted(curves)]


def _refine(curve: ForecastCurve, best: int) -> None:
    """Forecast the middle of the wider gap beside a forecast; nothing where both neighbours have one."""
    known = sorted(curve.forecasts)
    position = known.index(best)
    beside = known[max(position - 1, 0) : position + 2]
    low, high = max(pairwise(beside), key=lambda ends: ends[1] - ends[0], default=(best, best))
    if high - low > 1:
        curve.forecast((low + high) // 2)


def _best_index(curve: ForecastCurve) -> tuple[float, int]:
    """The highest score of a curve that is expected, and its index; a score of 0 where nothing fits."""
    scores = []
    for index, forecast in curve.forecasts.items():
        score = forecast.score if forecast.works else None
        scores.append((score or 0.0, index))
    return max(scores)


def store_alternatives(study: Study, alternatives: Sequence[Alternative]) -> None:
    """Replace the alternatives of a study."""
    set_attribute(study, ALTERNATIVES, [entry._asdict() | {"knobs": entry.knobs.values} for entry in alternatives])


def stored_alternatives(study: Study) -> tuple[Alternative, ...]:
    """The alternatives of a study; none before its first search has ended."""
    entries = attributes_of(study).get(ALTERNATIVES, ())
    return tuple(Alternative(**{**entry, "knobs": knobs_of(entry["knobs"])}) for entry in entries)
