"""Trials of configurations under requests that arrive at times of their own: `OpenTrials`.

    a rate is known      ->  simulated at it: must keep up, and keep the bounds
    bounds alone         ->  the highest rate that keeps them (goodput), which is the throughput of the trial

Bounds hold at the end of the interval of forecasts at which all bounds must (`AT_BOUND`); numbers are those of its
middle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isnan
from typing import NamedTuple

import numpy as np

from autoauto.evaluate.serving.pools.ways import PooledWay, decode_knobs, prefill_knobs
from autoauto.evaluate.serving.rates import AT_BOUND, MIDDLE, End
from autoauto.evaluate.serving.traffic.forecast import replicas_of
from autoauto.evaluate.serving.traffic.goodput import OpenLoad, highest_rate
from autoauto.evaluate.serving.traffic.servers import OnePool, Servers, TwoPools, answers_of, prompts_of
from autoauto.evaluate.serving.ways import ReplicaWays, Way
from autoauto.records.costs.traffic.load import TrafficLoad
from autoauto.records.costs.traffic.percentiles import PERCENTS
from autoauto.records.costs.traffic.requests import Requests, TrafficResult
from autoauto.records.errors import BadInput, Unsupported
from autoauto.records.units import BoolArray
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.numbers import (
    PERCENTILES,
    REQUEST_LATENCY,
    ArrivalResult,
    PercentileResult,
    Result,
    TokenResult,
)
from autoauto.space.trial import Status, Trial

SIMULATED = PERCENTILES | {"ttft_s", "tpot_s", "latency_s", REQUEST_LATENCY}
"""The names of results that the arrivals of requests decide."""

AnyWay = Way | PooledWay
MakeTrial = Callable[[Result, bool], Trial]
"""Makes the trial of a result, with constraints or without."""


class LoadedWay(NamedTuple):
    """A way of a configuration under requests at any rate.

    Attributes:
        knobs: the configuration.
        about_per_s: requests a second of clients that ask again at once.
        n_requests: how many arrive at a rate.
        checked: the trial at a rate with its constraints, at the end of the intervals at which they must hold.
    """

    knobs: Knobs
    about_per_s: float
    n_requests: Callable[[float], int]
    checked: Callable[[float], Trial]


class OpenTrials:
    """What the configurations of a setting give to requests that arrive at times of their own.

    Attributes:
        traffic: what arrives.
        bounds: constraints on results that arrivals decide.
        rate_per_s: of the traffic; None where the highest is searched.
    """

    def __init__(self, ways: ReplicaWays, traffic: TrafficLoad, constraints: Sequence[Constraint]) -> None:
        """Take the ways on GPUs, what arrives, and what must hold."""
        self.traffic = traffic
        self.bounds = [each for each in constraints if SIMULATED.intersection(each.names)]
        self.rate_per_s = traffic.known_rate_per_s
        self._ways = ways

    def bound(self, knobs: Knobs, way: AnyWay, index: int, closed: TokenResult) -> tuple[TokenResult, float]:
        """The forecast of a way at a batch size, and by which share of it replicas lack throughput for the rate.

        Without a rate its throughput is an upper bound of goodput, else that for clients that ask again at once.

        Raises:
            BadInput, Infeasible, Unsupported: as `trial`.
        """
        requests = self._ways.costs.requests(knobs)
        about = self.rate_per_s or closed.tokens_per_s / requests.output_tokens
        largest = self._load(knobs, way, index, closed).largest_rate(about, AT_BOUND)
        if self.rate_per_s is not None:
            return closed, max(0.0, self.rate_per_s / largest - 1)
        return replace(closed, tokens_per_s=largest * requests.output_tokens), 0.0

    def keeps(self, knobs: Knobs, way: AnyWay, closed: TokenResult, make: MakeTrial, tokens_per_s: float) -> bool:
        """True if bounds hold at the rate that gives so many tokens a second; arguments and errors as `trial`."""
        rate = tokens_per_s / self._ways.costs.requests(knobs).output_tokens
        return _checked(self._results(knobs, way, closed)(rate, AT_BOUND), make).violation <= 0

    def trial(self, knobs: Knobs, way: AnyWay, closed: TokenResult, make: MakeTrial) -> Trial:
        """The trial of a way at the only batch size that it has.

        Args:
            knobs: the configuration.
            way: where its replicas stand.
            closed: what it gives clients that ask again at once.
            make: the trial of a result, with constraints or without.

        Raises:
            BadInput: no rate and no bound is given, or lengths are given twice.
            Infeasible, Unsupported: as `OpenLoad.at`.
        """
        at = self._results(knobs, way, closed)
        about = closed.tokens_per_s / self._ways.costs.requests(knobs).output_tokens
        rate = self.rate_per_s
        if rate is None:
            rate = highest_rate(lambda rate: _checked(at(rate, AT_BOUND), make).violation <= 0, about)
        if rate:
            trial, at_bound = make(at(rate, MIDDLE), False), _checked(at(rate, AT_BOUND), make)
            return replace(trial, status=at_bound.status, reason=at_bound.reason, violation=at_bound.violation)
        lowest = about / 1000  # for the reason: which bound does not even hold there
        return replace(_checked(at(lowest, AT_BOUND), make), status=Status.CONSTRAINED)

    def windows_that_hold(
        self, knobs: Knobs, way: AnyWay, closed: TokenResult, make: MakeTrial, among: BoolArray | None = None
    ) -> BoolArray:
        """Which windows of a trace keep bounds, each served by itself; arguments and errors as `trial`.

        Args:
            among: those that are asked, the others are false; None for all.
        """
        rate = self.rate_per_s
        assert rate is not None
        holding: list[bool] = []
        for number, simulated in enumerate(self._load(knobs, way, 0, closed).by_window(rate, AT_BOUND, among)):
            if simulated is None:
                holding.append(among is None or bool(among[number]))  # none arrive
            else:
                holding.append(_checked(open_result(simulated, rate, closed), make).violation <= 0)
        return np.array(holding)

    def loaded(self, knobs: Knobs, way: AnyWay, closed: TokenResult, make: MakeTrial, n_replicas: int) -> LoadedWay:
        """A way with the first of its replicas, so many; other arguments and errors as `trial`."""
        load = self._load(knobs, way, 0, closed, n_replicas)
        at = self._results(knobs, way, closed, n_replicas)
        about = closed.tokens_per_s / self._ways.costs.requests(knobs).output_tokens
        return LoadedWay(knobs, about, load.n_requests, lambda rate: _checked(at(rate, AT_BOUND), make))

    def _load(
        self, knobs: Knobs, way: AnyWay, index: int, closed: TokenResult, n_replicas: int | None = None
    ) -> OpenLoad:
        alike = self._ways.costs.requests(knobs)._replace(cached_share=self._ways.costs.target.cached_share)
        self._check(alike.input_tokens, alike.output_tokens)
        latency_s = closed.ttft_s + (alike.output_tokens - 1) * closed.tpot_s
        made: dict[End, Servers] = {}

        def servers(requests: Requests, end: End) -> Servers:
            if end not in made:  # lengths are the same at every rate, up to the longest of a longer load
                made[end] = self._servers(knobs, way, requests, index, end, n_replicas)
            return made[end]

        return OpenLoad(self.traffic, alike, servers, latency_s)

    def _servers(
        self, knobs: Knobs, way: AnyWay, requests: Requests, index: int, end: End, n_replicas: int | None
    ) -> Servers:
        if isinstance(way, Way):
            return OnePool(replicas_of(self._ways.costs, knobs, way, requests, index, end)[:n_replicas])
        if self._ways.parts:
            raise Unsupported(
                "arrivals are simulated of two pools on one kind of GPUs, got several; try one of them, or leave "
                "--rate, --trace and bounds of percentiles out"
            )
        workers = replicas_of(self._ways.costs, prefill_knobs(knobs), way.prefill, prompts_of(requests), 0, end)
        replicas = replicas_of(self._ways.costs, decode_knobs(knobs), way.decode, answers_of(requests), index, end)
        # The host's work of a request is that of the worker; a prompt that is there joins the next step.
        joining = [each._replace(mixes=True, request_s=0.0) for each in replicas]
        return TwoPools(workers, joining, way.transfer_s / self._ways.costs.requests(knobs).input_tokens)

    def _results(
        self, knobs: Knobs, way: AnyWay, closed: TokenResult, n_replicas: int | None = None
    ) -> Callable[[float, End], Result]:
        """What a way, or the first of its replicas, gives at a rate, at an end of the intervals."""
        load = self._load(knobs, way, 0, closed, n_replicas)
        n_output = self._ways.costs.requests(knobs).output_tokens

        def at(rate: float, end: End) -> Result:
            tokens = replace(closed, tokens_per_s=rate * n_output) if self.rate_per_s is None else closed
            return open_result(load.at(rate, end), rate, tokens)

        return at

    def _check(self, n_input: int, n_output: int) -> None:
        mean_input, mean_output = self.traffic.mean_tokens
        for name, given, mean in (("input", n_input, mean_input), ("output", n_output, mean_output)):
            if mean is not None and given != mean:
                raise BadInput(
                    f"the trace or --{name}-lengths says how long requests are, {mean:,} tokens in the mean, got "
                    f"--{name}-tokens {given:,}; leave it out"
                )
        if self.rate_per_s is None and not self.bounds:
            raise BadInput(
                "requests that arrive need a rate, or bounds of which the highest rate is found; try --rate R, or in a "
                'search --constraint "ttft_p99 <= 1s"'
            )


def open_result(simulated: TrafficResult, rate_per_s: float, tokens: TokenResult) -> Result:
    """All numbers of a configuration at a rate; intervals of means are not known here."""
    times = {"ttft": simulated.ttft_s, "tpot": simulated.tpot_s, "latency": simulated.latency_s}
    shares = {f"{name}_{percent}_s": getattr(each, percent) for name, each in times.items() for percent in PERCENTS}
    known = {name: value for name, value in shares.items() if not isnan(value)}  # no TPOT of answers of one token
    means = replace(
        tokens,
        ttft_s=simulated.ttft_s.mean,
        tpot_s=0.0 if isnan(simulated.tpot_s.mean) else simulated.tpot_s.mean,
    )
    return Result(
        samples_per_s=tokens.tokens_per_s,
        estimated_samples_per_s=tokens.tokens_per_s,
        latency_s=simulated.latency_s.mean,
        of_mode=means,
        percentiles=PercentileResult(**known),
        load=ArrivalResult(
            rate_per_s,
            simulated.busy_share,
            simulated.kv_share,
            simulated.n_waiting,
            *simulated.waits_for,
            simulated.n_preempted,
            simulated.queue_growth_per_s,
        ),
    )


def _checked(result: Result, make: MakeTrial) -> Trial:
    """The trial of a result with its constraints; it does not fit where its queue grows for ever."""
    trial = make(result, True)
    load = trial.result.load
    if load is None or not load.queue_growth_per_s or not load.rate_per_s:
        return trial
    reason = f"the queue grows by {load.queue_growth_per_s:.3g} requests a second at {load.rate_per_s:.3g}"
    violation = max(trial.violation, load.queue_growth_per_s / load.rate_per_s)
    return replace(trial, status=Status.CONSTRAINED, reason=reason, violation=violation)
