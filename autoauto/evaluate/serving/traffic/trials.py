"""Trials of configurations under requests that arrive at times of their own: `OpenTrials`, `OpenWay`.

    a rate is known      ->  simulated at it: must keep up, and keep the bounds
    bounds alone         ->  the highest rate that keeps them (goodput), which is the throughput of the trial

Bounds hold at the end of the interval of forecasts at which all bounds must (`AT_BOUND`); numbers are those of its
middle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isnan

import numpy as np

from autoauto.evaluate.serving.pools.ways import PooledWay, decode_knobs, prefill_knobs
from autoauto.evaluate.serving.rates import AT_BOUND, MIDDLE, End
from autoauto.evaluate.serving.traffic.forecast import replicas_of
from autoauto.evaluate.serving.traffic.goodput import OpenLoad, highest_rate
from autoauto.evaluate.serving.traffic.servers import OnePool, Servers, TwoPools, answers_of, prompts_of
from autoauto.evaluate.serving.ways import ReplicaWays, Way
from autoauto.records.costs.traffic.load import TrafficLoad
from autoauto.records.costs.traffic.requests import PERCENTS, Requests, TrafficResult
from autoauto.records.errors import BadInput, Unsupported
from autoauto.records.units import BoolArray, digits
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.numbers import PERCENTILES, REQUEST_LATENCY, ArrivalResult, PercentileResult, Result, TokenResult
from autoauto.space.trial import Status, Trial

SIMULATED = PERCENTILES | {"ttft_s", "tpot_s", "latency_s", REQUEST_LATENCY}
"""The names of results that the arrivals of requests decide."""

AnyWay = Way | PooledWay
MakeTrial = Callable[[Result, bool], Trial]
"""Makes the trial of a result, with constraints or without."""


class OpenTrials:
    """What a setting gives to requests that arrive at times of their own, within bounds on what they decide.

    The `rate_per_s` is None where the highest is searched.
    """

    def __init__(self, ways: ReplicaWays, traffic: TrafficLoad, constraints: Sequence[Constraint]) -> None:
        self.ways, self.traffic = ways, traffic
        self.bounds = [each for each in constraints if SIMULATED.intersection(each.names)]
        self.rate_per_s = traffic.known_rate_per_s

    def bound(self, knobs: Knobs, way: AnyWay, index: int, closed: TokenResult) -> tuple[TokenResult, float]:
        """The forecast of a way at a batch size, and by which share of it replicas lack throughput for the rate.

        Without a rate its throughput is an upper bound of goodput, else that of `closed`, clients that ask again.

        Raises:
            BadInput: no rate and no bound is given, or lengths are given twice.
            Infeasible, Unsupported: as `OpenLoad.at`.
        """
        requests = self.ways.costs.requests(knobs)
        about = self.rate_per_s or closed.tokens_per_s / requests.output_tokens
        largest = self.load(knobs, way, index, closed).largest_rate(about, AT_BOUND)
        if self.rate_per_s is not None:
            return closed, max(0.0, self.rate_per_s / largest - 1)
        return replace(closed, tokens_per_s=largest * requests.output_tokens), 0.0

    def load(
        self, knobs: Knobs, way: AnyWay, index: int, closed: TokenResult, n_replicas: int | None = None
    ) -> OpenLoad:
        """The first replicas of a way, or all, under requests at any rate; other arguments and errors as `bound`."""
        alike = self.ways.costs.requests(knobs)._replace(cached_share=self.ways.costs.target.cached_share)
        self._check(alike.input_tokens, alike.output_tokens)
        latency_s = closed.ttft_s + (alike.output_tokens - 1) * closed.tpot_s
        costs, made = self.ways.costs, dict[End, Servers]()

        def servers(requests: Requests, end: End) -> Servers:
            if end not in made:  # lengths are the same at every rate, up to the longest of a longer load
                if isinstance(way, Way):
                    made[end] = OnePool(replicas_of(costs, knobs, way, requests, index, end)[:n_replicas])
                else:
                    made[end] = self._two_pools(knobs, way, requests, index, end)
            return made[end]

        return OpenLoad(self.traffic, alike, servers, latency_s)

    def _two_pools(self, knobs: Knobs, way: PooledWay, requests: Requests, index: int, end: End) -> TwoPools:
        costs = self.ways.costs
        if self.ways.parts:
            raise Unsupported(
                "arrivals are simulated of two pools on one kind of GPUs, got several; try one of them, or leave "
                "--rate, --trace and bounds of percentiles out"
            )
        workers = replicas_of(costs, prefill_knobs(knobs), way.prefill, prompts_of(requests), 0, end)
        replicas = replicas_of(costs, decode_knobs(knobs), way.decode, answers_of(requests), index, end)
        # The host's work of a request is that of the worker; a prompt that is there joins the next step.
        joining = [each._replace(mixes=True, request_s=0.0) for each in replicas]
        return TwoPools(workers, joining, way.transfer_s / costs.requests(knobs).input_tokens)

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


class OpenWay:
    """A way of a configuration, at the only batch size that it has, under requests at any rate.

    Its methods raise as `OpenTrials.bound`. Clients that ask again at once send `about_per_s` requests a second.
    """

    def __init__(
        self, trials: OpenTrials, knobs: Knobs, way: AnyWay, make: MakeTrial, n_replicas: int | None = None
    ) -> None:
        """Take a way, of whose replicas the first `n_replicas` serve, or all."""
        self.knobs, self._rate_per_s, self._make = knobs, trials.rate_per_s, make
        self._closed = way.rates.of(0)
        self._n_output = trials.ways.costs.requests(knobs).output_tokens
        self._load = trials.load(knobs, way, 0, self._closed, n_replicas)
        self.about_per_s = self._closed.tokens_per_s / self._n_output

    def trial(self) -> Trial:
        """The trial at the rate of the traffic, or at the highest that keeps all bounds."""
        rate = self._rate_per_s
        if rate is None:
            rate = highest_rate(lambda rate: self.checked(rate).violation <= 0, self.about_per_s)
        if rate:
            trial, at_bound = self._make(self._at(rate, MIDDLE), False), self.checked(rate)
            return replace(trial, status=at_bound.status, reason=at_bound.reason, violation=at_bound.violation)
        lowest = self.about_per_s / 1000  # for the reason: which bound does not even hold there
        return replace(self.checked(lowest), status=Status.CONSTRAINED)

    def keeps(self, tokens_per_s: float) -> bool:
        """True if bounds hold at the rate that gives so many tokens a second."""
        return self.checked(tokens_per_s / self._n_output).violation <= 0

    def windows_that_hold(self, among: BoolArray | None) -> BoolArray:
        """Which windows of a trace keep bounds, each served by itself; False for those not in a given `among`."""
        rate = self._rate_per_s
        assert rate is not None
        holding: list[bool] = []
        for number, simulated in enumerate(self._load.by_window(rate, AT_BOUND, among)):
            if simulated is None:
                holding.append(among is None or bool(among[number]))  # none arrive
            else:
                holding.append(self._checked(open_result(simulated, rate, self._closed)).violation <= 0)
        return np.array(holding)

    def checked(self, rate_per_s: float) -> Trial:
        """The trial at a rate with its constraints, at the end of the intervals at which they must hold."""
        return self._checked(self._at(rate_per_s, AT_BOUND))

    def n_requests(self, rate_per_s: float) -> int:
        """How many arrive at a rate."""
        return self._load.n_requests(rate_per_s)

    def _at(self, rate_per_s: float, end: End) -> Result:
        tokens = self._closed
        if self._rate_per_s is None:
            tokens = replace(tokens, tokens_per_s=rate_per_s * self._n_output)
        return open_result(self._load.at(rate_per_s, end), rate_per_s, tokens)

    def _checked(self, result: Result) -> Trial:
        """The trial of a result with its constraints; it does not fit where its queue grows for ever."""
        trial = self._make(result, True)
        load = trial.result.load
        if load is None or not load.queue_growth_per_s or not load.rate_per_s:
            return trial
        reason = f"the queue grows by {digits(load.queue_growth_per_s)} requests a second at {digits(load.rate_per_s)}"
        violation = max(trial.violation, load.queue_growth_per_s / load.rate_per_s)
        return replace(trial, status=Status.CONSTRAINED, reason=reason, violation=violation)


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
