"""Configurations of engines, of which the best are measured: `EngineLoop` asks `MeasureNext`, and adds what fails.

The ratio of a configuration is that of the objective's time, forecast score / measured score. A bound is on a quantity
of its own, TPOT or TTFT, whose ratio may be another: by how much, is the mean of the measured ones, drawn to none.

    log ratio of the quantity = log ratio of the score + offset of the bound
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, log

import numpy as np

from autoauto.records.units import FloatArray
from autoauto.space.constraint import Constraint
from autoauto.space.engine_measurements import EngineRow, FittedRatio
from autoauto.space.knobs import Knobs
from autoauto.space.numbers import DERIVED, NAMES_OF_GENERATION, Result, TokenResult
from autoauto.space.objectives import Objective
from autoauto.space.table import numbers
from autoauto.space.trial import Status, Trial
from autoauto.study.methods.engines.measure_next import MeasureNext
from autoauto.study.methods.engines.ratios import Likeness, Ratios, coordinates, correlations
from autoauto.study.methods.protocol import constraint_ratio

N_CANDIDATES = 2000
"""So many configurations with the best forecasts may be measured."""
DOUBTED = 0.2
"""Standard deviation of log ratios by which these are chosen where bounds are near."""
INTERVAL = 0.8
_IN_TIME = NAMES_OF_GENERATION - {"kv_cache_bytes"} | {"latency_s", "samples_per_s", *DERIVED}
_AXES = ("tensor_parallel", "expert_parallel")
_ROOM = "max_batched_tokens"
"""The knob of a session of which more takes more memory."""


class EngineLoop:
    """The configurations that may be measured, and what was.

    Args:
        forecasts: of the space, without plans.
        noise: share of a throughput that is noise.
        known: configurations that were started before, which may be measured in any case.
    """

    def __init__(
        self,
        forecasts: Sequence[Trial],
        objective: Objective,
        constraints: Sequence[Constraint],
        noise: float,
        known: Sequence[Knobs] = (),
    ) -> None:
        self._objective = objective
        self._bounds = [bound for bound in constraints if _IN_TIME.intersection(bound.names)]
        others = [bound for bound in constraints if bound not in self._bounds]
        trials = _promising([trial for trial in forecasts if _can_run(trial, others)], objective, self._bounds, known)
        self.trials = trials
        self._indices = {trial.knobs: index for index, trial in enumerate(trials)}
        self._scores = np.array([objective.worth(trial) for trial in trials])
        # The log of every bounded quantity over its limit: (trials, bounds); above 0 the bound is broken.
        self._levels = np.array([self._levels_of(trial) for trial in trials]).reshape(len(trials), -1)
        self._measured_levels: dict[int, list[FloatArray]] = {}
        ones = np.ones(len(trials))
        alike = correlations(coordinates([_likeness(trial.knobs) for trial in trials]), _labels(trials), ones)
        self.next_of = MeasureNext(self._scores, self._limits(), Ratios(alike, ones, noise), noise)

    def _levels_of(self, trial: Trial) -> list[float]:
        """The logarithms of the quantities of all bounds over their limits."""
        values = values_of(trial)
        return [_log(constraint_ratio(bound.violation(values))) for bound in self._bounds]

    def _limits(self) -> FloatArray:
        """The largest log ratio of every configuration with which its bounds hold; exact for what was measured."""
        if not self._bounds:
            return np.full(len(self.trials), inf)
        limits: FloatArray = -(self._levels + self._offsets()).max(axis=1)
        for index, levels in self._measured_levels.items():
            # How much larger the ratio may be than it is, until the bound that is nearest to breaking breaks.
            limits[index] = self._log_ratio(index) - np.mean(levels, axis=0).max()
        return limits

    def _offsets(self) -> FloatArray:
        """By how much the log ratio of every bound's quantity is above that of the score."""
        total = np.zeros(len(self._bounds))
        for index, levels in self._measured_levels.items():
            offsets = np.mean(levels, axis=0) - self._levels[index] - self._log_ratio(index)
            total += np.nan_to_num(offsets, posinf=0.0, neginf=0.0)  # a time may be 0: of one token there is no TPOT
        return total / (len(self._measured_levels) + 1)  # one more, of 0: few measurements are drawn to none

    def _log_ratio(self, index: int) -> float:
        ratios = self.next_of.ratios
        turns = zip(ratios.measured, ratios.log_ratios, strict=True)
        return float(np.mean([log_ratio for measured, log_ratio in turns if measured == index]))

    def has(self, knobs: Knobs) -> bool:
        """True if the configuration may be measured."""
        return knobs in self._indices

    def add(self, row: EngineRow, first_turn: int = 0) -> None:
        """Take what was measured of a configuration, from one of its turns on."""
        index = self._indices[row.knobs]
        for turn in row.turns[first_turn:]:
            tpot_s = 0.0 if np.isnan(turn.tpot_s.mean) else turn.tpot_s.mean
            trial = plain_trial(row.knobs, turn.tokens_per_s, tpot_s, turn.ttft_s.mean, turn.latency_s.mean)
            devices = self.trials[index].result.devices
            trial = trial.with_values(result=replace(trial.result, devices=devices))
            self.next_of.ratios.add(index, log(self._scores[index] / self._objective.worth(trial)))
            self._measured_levels.setdefault(index, []).append(np.array(self._levels_of(trial)))
        self.next_of.limit(self._limits())

    def rule_out(self, is_out: Callable[[Knobs], bool]) -> int:
        """Never measure configurations; returns how many of them were not measured."""
        measured = self.next_of.measured
        out = [i for i, trial in enumerate(self.trials) if i not in measured and is_out(trial.knobs)]
        self.next_of.rule_out(out)
        return len(out)

    def candidate(self) -> Knobs | None:
        """The configuration to measure next, perhaps a finalist a second time; None when none is worth the time."""
        return self._knobs(self.next_of.next())

    def finalist(self) -> Knobs | None:
        """A measured configuration to measure again; None when no finalist needs it."""
        return self._knobs(self.next_of.finalist())

    def answer(self) -> Knobs | None:
        """The best that was measured."""
        return self._knobs(self.next_of.answer()) if self.next_of.measured else None

    def ties(self) -> list[Knobs]:
        """The measured configurations that may be as good as `answer`."""
        return [self.trials[index].knobs for index in self.next_of.ties()] if self.next_of.measured else []

    def _knobs(self, index: int | None) -> Knobs | None:
        return None if index is None else self.trials[index].knobs

    def ratios(self) -> tuple[FittedRatio, ...]:
        """Of each measured engine the probable ratio of truth to forecast of its other configurations."""
        belief = self.next_of.ratios.belief()
        low, high = belief.interval(INTERVAL)
        measured = self.next_of.measured
        engines = [engine_of(trial.knobs) for trial in self.trials]
        fitted = []
        for engine in dict.fromkeys(engines[index] for index in measured):
            of_engine = [index for index, name in enumerate(engines) if name == engine]
            others = [index for index in of_engine if index not in measured] or of_engine
            fitted.append(
                FittedRatio(
                    engine,
                    len(set(measured).intersection(of_engine)),
                    _geometric_mean(np.exp(belief.mean)[others]),
                    _geometric_mean(low[others]),
                    _geometric_mean(high[others]),
                )
            )
        return tuple(fitted)


def _geometric_mean(ratios: FloatArray) -> float:
    return float(np.exp(np.log(ratios).mean()))


def plain_trial(knobs: Knobs, tokens_per_s: float, tpot_s: float, ttft_s: float, latency_s: float) -> Trial:
    """A trial without plans that has measured numbers."""
    tokens = TokenResult(tokens_per_s, tpot_s, ttft_s)
    return Trial(knobs, Status.OK, result=Result(tokens_per_s, latency_s=latency_s, of_mode=tokens))


def values_of(trial: Trial) -> dict[str, float]:
    """The values by name that constraints may refer to, of a trial without plans."""
    return {**numbers(trial.knobs), **trial.result.values, **trial.result.derived}


def engine_of(knobs: Knobs) -> str:
    """The name of the engine that serves a configuration."""
    return str(knobs.values["engine"])


def takes_as_much(knobs: Knobs, other: Knobs) -> bool:
    """True if a configuration has the groups, stages and formats of another, and needs no less memory."""
    if knobs.n_ipu != other.n_ipu or knobs.mode != other.mode or knobs.batch_size < other.batch_size:
        return False
    own, others = dict(knobs.session.values), dict(other.session.values)
    room = own.pop(_ROOM, 0)
    other_room = others.pop(_ROOM, 0)
    return own == others and bool(room >= other_room)


def _likeness(knobs: Knobs) -> Likeness:
    tensor_parallel, expert_parallel = (float(knobs.session.values[name]) for name in _AXES)
    return Likeness(knobs.batch_size * knobs.n_ipu, tensor_parallel, knobs.n_ipu, expert_parallel)


def _labels(trials: Sequence[Trial]) -> FloatArray:
    """The other knobs of sessions as numbers that are equal or not, (trials, knobs)."""
    every = [trial.knobs.session.values for trial in trials]
    columns = []
    for name in every[0] if every else ():
        if name not in _AXES:
            kinds = list(dict.fromkeys(each[name] for each in every))
            columns.append([float(kinds.index(each[name])) for each in every])
    return np.array(columns).T


def _can_run(trial: Trial, bounds: Sequence[Constraint]) -> bool:
    """True if a configuration fits, and keeps the bounds that time does not change."""
    if not trial.runs:
        return False
    values = values_of(trial)
    for bound in bounds:
        # A bound of what only plans have was checked when the trial was made.
        holds = bound.violation(values) <= 0 if set(bound.names) <= values.keys() else trial.fits
        if not holds:
            return False
    return True


def _promising(
    trials: Sequence[Trial], objective: Objective, bounds: Sequence[Constraint], known: Sequence[Knobs]
) -> list[Trial]:
    """Known ones, then the best forecasts: scores times the probability that the bounds hold."""
    from scipy.special import ndtr

    def worth(trial: Trial) -> float:
        values = values_of(trial)
        largest = max((_log(constraint_ratio(bound.violation(values))) for bound in bounds), default=-inf)
        return objective.worth(trial) * float(ndtr(-largest / DOUBTED))

    first = set(known)
    return sorted(trials, key=lambda trial: (trial.knobs not in first, -worth(trial)))[:N_CANDIDATES]


def _log(ratio: float) -> float:
    return log(ratio) if ratio > 0 else -inf
