"""All forecast, few measured: `few`, of targets on which a measurement takes long (`TargetTraits.most_measured`).

    forecasts of all ──▶ MeasureNext ──▶ forecast again ──▶ measure ──▶ ratio measured / forecast ─╮
                              ▲                │ None: a rule of faults that were seen              │
                              ╰────────────────┴───────────────────────────────────────────────────╯

The distance of two configurations follows from their knobs: of numbers it is the power of 2 between them, of words
whether they are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from math import inf, log
from typing import Any

import numpy as np

from autoauto.records.units import FloatArray
from autoauto.space.knobs import Knobs
from autoauto.space.space import SearchSpace
from autoauto.space.table import simplicity
from autoauto.study.methods.engines.measure_next import MeasureNext
from autoauto.study.methods.engines.ratios import Ratios, correlations
from autoauto.study.methods.protocol import Forecast, Observation, Predictor, Proposal, Proposals, constraint_ratio

OCTAVES = 4.0
"""Powers of 2 between two numbers after which the correlation of errors falls to 1/e."""


def few(space: SearchSpace, known: Mapping[Knobs, Observation], predictor: Predictor, noise: float) -> Proposals:
    """Measure what `MeasureNext` chooses, until nothing else is likely better; the caller limits how many.

    Of configurations with equal forecasts that with the most defaults comes first. One that fails is left out, and so
    is what is no longer forecast to run.

    Args:
        predictor: the forecasts, which must be exact.
        noise: share of a value that is noise.
    """
    every = sorted((knobs for cell in space.cells for knobs in cell), key=_plainness)
    forecasts, observed = dict[Knobs, Forecast](), dict(known)
    for number, knobs in enumerate(every):
        yield Proposal(None, number, len(every), knobs)
        forecasts[knobs] = predictor.forecast(knobs)
    while (proposed := _next(every, forecasts, observed, noise)) is not None:
        if predictor.refine is not None and forecasts[proposed].score is not None:
            forecasts[proposed] = predictor.refine(proposed)
            if forecasts[proposed].score is None:
                continue
        observation = yield Proposal(proposed, len(every), len(every))
        assert observation is not None
        observed[proposed] = observation


def _next(
    every: Sequence[Knobs], forecasts: Mapping[Knobs, Forecast], observed: Mapping[Knobs, Observation], noise: float
) -> Knobs | None:
    """What to measure next; where nothing is forecast to run, once the nearest to that, so that a trial has the reason.

    A configuration that failed counts no further.
    """
    usable: list[Knobs] = []
    scores, limits = [], []
    ratios: dict[int, float] = {}  # of measured ones, by their index among the usable
    for knobs in every:
        forecast, observation = forecasts[knobs], observed.get(knobs)
        if forecast.score is None:
            continue
        if observation is not None:
            ratio = _log_ratio(forecast, observation)
            if ratio is None:
                continue
            ratios[len(usable)] = ratio
        usable.append(knobs)
        scores.append(forecast.score)
        # The largest log ratio of times with which the constraints hold; infinite without any.
        limits.append(inf if forecast.violation == -inf else -log(constraint_ratio(forecast.violation)))
    if not usable:
        if observed:
            return None
        return min(every, key=lambda knobs: forecasts[knobs].shortfall, default=None)
    doubts = np.ones(len(usable))
    known = Ratios(correlations(*_positions(usable), doubts), doubts, noise)
    for index, ratio in ratios.items():
        known.add(index, ratio)
    chosen = MeasureNext(np.array(scores), np.array(limits), known, noise).next()
    return None if chosen is None or chosen in ratios else usable[chosen]


def _log_ratio(forecast: Forecast, observation: Observation) -> float | None:
    """The logarithm of measured / forecast of a time; None where nothing ran."""
    assert forecast.score is not None
    if observation.score is not None:
        return log(forecast.score / observation.score)
    if observation.violation > 0 and forecast.violation > -inf:
        return log(constraint_ratio(observation.violation) / constraint_ratio(forecast.violation))
    return None


def _positions(usable: Sequence[Knobs]) -> tuple[FloatArray, FloatArray]:
    """The coordinates and the labels of configurations, as `correlations` takes them: (configurations, axes) each."""
    axes = [np.zeros(len(usable))]  # so that there is one, and one label
    labels = [np.zeros(len(usable))]
    every = [knobs.values for knobs in usable]
    for name in dict.fromkeys(chain.from_iterable(every)):
        column = [values.get(name) for values in every]
        if all(type(value) is int and value > 0 for value in column):
            axes.append(np.log2(np.array(column, dtype=float)) / OCTAVES)
        else:
            kinds = list(dict.fromkeys(column))
            labels.append(np.array([kinds.index(value) for value in column], dtype=float))
    return np.array(axes).T, np.array(labels).T


def _plainness(knobs: Knobs) -> tuple[Any, ...]:
    session: Mapping[str, Any] = knobs.session.values
    defaults = {knob.field: knob.default for knob in knobs.session.knobs}
    return (*simplicity(knobs), sum(defaults.get(name) != value for name, value in session.items()))
