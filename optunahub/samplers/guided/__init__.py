"""A sampler for objectives that can be forecast: `GuidedSampler`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from autoauto.study.methods.engines.measure_next import MeasureNext
from autoauto.study.methods.engines.ratios import HYPOTHESES, Hypothesis, Ratios, correlations

__all__ = ["GuidedSampler"]

Params = Mapping[str, Any]
Distribution = CategoricalDistribution | FloatDistribution | IntDistribution


class GuidedSampler(BaseSampler):
    """Chooses by the largest expected improvement, of which a forecast says most and measured values the rest.

    A value is its forecast times a ratio. The logarithm of the ratio is a Gaussian process over the parameters; how far
    forecasts are off is learned from the first trials. So a trial anywhere corrects the forecasts everywhere, most near
    it. The rule is that of autoauto's searches on serving engines.

    Args:
        search_space: the distribution of every parameter. They are independent of each other.
        forecast: what the value of some parameters will probably be; above 0. It is called once for each candidate.
        noise: standard deviation of the logarithm of a value that is evaluated twice; the best ones may be evaluated
            again if it is above 0.
        n_candidates: where the space has more configurations, so many of them, random ones, are candidates.
        length: the part of a parameter's range after which the correlation of ratios falls to 1/e.
        hypotheses: how far forecasts may be off, see `autoauto.study.methods.engines.ratios`.
        seed: of random candidates, and of parameters that `search_space` lacks.
    """

    def __init__(
        self,
        search_space: Mapping[str, Distribution],
        forecast: Callable[[Params], float],
        *,
        noise: float = 0.0,
        n_candidates: int = 4096,
        length: float = 0.5,
        hypotheses: Sequence[Hypothesis] = HYPOTHESES,
        seed: int | None = None,
    ) -> None:
        self._space, self._forecast, self._noise = dict(search_space), forecast, noise
        self._length, self._hypotheses = length, tuple(hypotheses)
        self._rng, self._independent = np.random.default_rng(seed), RandomSampler(seed)
        self._candidates: list[dict[str, Any]] = []
        self._log_forecasts: list[float] = []
        self._index: dict[tuple[float, ...], int] = {}
        for params in self._configurations(n_candidates):
            self._index_of(params)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """All parameters that the sampler knows."""
        if len(study.directions) != 1:
            raise ValueError(f"GuidedSampler needs a study of one objective, got {len(study.directions)}")
        return dict(self._space)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The candidate with the largest expected improvement that no trial has; when all were tried, the best."""
        trials = study.get_trials(deepcopy=False)
        others = [each for each in trials if each.number != trial.number and self._space.keys() <= each.params.keys()]
        tried = {each.number: self._index_of(each.params) for each in others}
        is_maximised = study.direction == StudyDirection.MAXIMIZE
        sign = 1.0 if is_maximised else -1.0
        limits = np.full(len(self._candidates), math.inf)
        ratios = Ratios(self._correlation(), np.ones(len(limits)), self._noise, self._hypotheses)
        for each in others:
            if each.state == TrialState.COMPLETE:
                value = _positive("a value", each.value, each.params)
                # The rule's ratio is that of a time: above 1 the value is worse than its forecast.
                ratios.add(tried[each.number], sign * (self._log_forecasts[tried[each.number]] - math.log(value)))
            else:
                limits[tried[each.number]] = -math.inf  # it runs elsewhere, has failed or was pruned
        limits[ratios.measured] = math.inf
        scores = np.exp(sign * np.array(self._log_forecasts))
        return dict(self._candidates[self._chosen(MeasureNext(scores, limits, ratios, self._noise), limits)])

    def sample_independent(self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: Any) -> Any:
        """A random value of a parameter that the search space lacks."""
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def reseed_rng(self) -> None:
        """Give the random values of parallel trials seeds of their own."""
        self._independent.reseed_rng()

    def _chosen(self, rule: MeasureNext, limits: Any) -> int:
        index = rule.next()
        if index is None:
            index = rule.candidate()
        if index is not None and limits[index] > -math.inf:
            return index
        best = rule.answer()
        return int(self._rng.integers(len(limits))) if best is None else best

    def _configurations(self, n_candidates: int) -> Iterator[dict[str, Any]]:
        """All configurations of the space, or random ones where it has more than the candidates."""
        values = [_values_of(distribution, n_candidates) for distribution in self._space.values()]
        if all(values) and math.prod(map(len, values)) <= n_candidates:
            for configuration in product(*values):
                yield dict(zip(self._space, configuration, strict=True))
            return
        for _ in range(n_candidates):
            yield {name: self._random_value(distribution) for name, distribution in self._space.items()}

    def _random_value(self, distribution: Distribution) -> Any:
        if isinstance(distribution, CategoricalDistribution):
            return distribution.choices[self._rng.integers(len(distribution.choices))]
        low, high = _scaled(distribution, distribution.low), _scaled(distribution, distribution.high)
        drawn = self._rng.uniform(low, high)
        value = min(max(math.exp(drawn) if distribution.log else drawn, distribution.low), distribution.high)
        step = distribution.step
        if step is not None:
            value = distribution.low + step * round((value - distribution.low) / step)
        return int(value) if isinstance(distribution, IntDistribution) else float(value)

    def _index_of(self, params: Params) -> int:
        """The number of a candidate. What another sampler has tried becomes one."""
        own = {name: params[name] for name in self._space}
        key = tuple(self._space[name].to_internal_repr(value) for name, value in own.items())
        if key not in self._index:
            self._log_forecasts.append(math.log(_positive("a forecast", self._forecast(own), own)))
            self._index[key] = len(self._candidates)
            self._candidates.append(own)
        return self._index[key]

    def _correlation(self) -> Callable[[int], Any]:
        """Numbers are near by their values, or by their logarithms; categories are equal or not."""
        coordinates = np.zeros((len(self._candidates), len(self._space)))
        labels = np.zeros_like(coordinates)
        for axis, (name, distribution) in enumerate(self._space.items()):
            values = [params[name] for params in self._candidates]
            if isinstance(distribution, CategoricalDistribution):
                labels[:, axis] = [distribution.to_internal_repr(value) for value in values]
                continue
            low, high = _scaled(distribution, distribution.low), _scaled(distribution, distribution.high)
            length = self._length * (high - low) or 1.0
            coordinates[:, axis] = [_scaled(distribution, value) / length for value in values]
        return correlations(coordinates, labels, np.ones(len(self._candidates)))


def _values_of(distribution: Distribution, at_most: int) -> Sequence[Any]:
    """The values of a parameter; none where they are infinite or too many."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices
    if distribution.step is None:
        return ()
    n_values = 1 + round((distribution.high - distribution.low) / distribution.step)
    if n_values > at_most:
        return ()
    return [distribution.low + number * distribution.step for number in range(n_values)]


def _scaled(distribution: FloatDistribution | IntDistribution, value: float) -> float:
    return math.log(value) if distribution.log else float(value)


def _positive(what: str, value: float | None, params: Params) -> float:
    """A number of which there is a logarithm.

    Raises:
        ValueError: it is none.
    """
    if value is None or not (math.isfinite(value) and value > 0):
        raise ValueError(f"{what} must be a finite number above 0, got {value} of {dict(params)}")
    return float(value)
