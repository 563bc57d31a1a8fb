"""Requests that arrive at times of their own, `Requests`, when they are answered, `Served`, and `TrafficResult`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from autoauto.records.errors import BadInput
from autoauto.records.units import FloatArray, IntArray


class Percentiles(NamedTuple):
    """The mean and percentiles of one quantity of requests, in its unit; NaN if there were no requests.

    A percentile between two values is interpolated linearly, as NumPy does.
    """

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float

    @classmethod
    def of(cls, values: Sequence[float] | FloatArray) -> Percentiles:
        """Compute the mean and the percentiles of some values."""
        mean = float(np.mean(values)) if len(values) else float("nan")
        return cls(mean, *(percentile(values, percent_of(name)) for name in PERCENTS))


PERCENTS = Percentiles._fields[1:]
"""The names of percentiles: "p50" is the value that half of all do not exceed."""


def percent_of(name: str) -> float:
    """The percent of a percentile's name: digits after the second are decimals.

    >>> percent_of("p50"), percent_of("p999")
    (50.0, 99.9)
    """
    return float(f"{name[1:3]}.{name[3:] or 0}")


def percentile(values: Sequence[float] | FloatArray, percent: float) -> float:
    """The value that `percent` of the values do not exceed; NaN if there are no values."""
    return float(np.percentile(values, percent)) if len(values) else float("nan")


class Requests(NamedTuple):
    """Requests in the order in which they arrive, each array of shape (requests,).

    Attributes:
        arrival_s: seconds after the first moment of the load.
        cached_tokens: of each prompt that the prefix cache has, fewer than all of them.
    """

    arrival_s: FloatArray
    input_tokens: IntArray
    output_tokens: IntArray
    cached_tokens: IntArray

    def check(self) -> None:
        """Make sure that there are requests, in the order in which they arrive, with tokens to compute and to answer.

        Raises BadInput where this is not so.
        """
        if not len(self.arrival_s):
            raise BadInput("a load must have a request or more, got none")
        if not (np.all(np.isfinite(self.arrival_s)) and np.all(np.diff(self.arrival_s) >= 0)):
            raise BadInput("requests must be in the order in which they arrive; sort them by their times")
        n_computed = self.input_tokens - self.cached_tokens
        for name, numbers in (("output_tokens", self.output_tokens), ("input_tokens less cached_tokens", n_computed)):
            if np.min(numbers) < 1:
                raise BadInput(f"{name} must be at least 1 of every request, got {np.min(numbers)}")

    def first(self, n: int) -> Requests:
        """The first `n` requests, or all if there are fewer."""
        return self.chosen(np.arange(min(n, len(self.arrival_s))))

    def faster(self, factor: float) -> Requests:
        """The requests with all arrivals `factor` times as fast."""
        return self._replace(arrival_s=self.arrival_s / factor)

    def chosen(self, indices: IntArray) -> Requests:
        """The requests with these indices."""
        return Requests(
            self.arrival_s[indices],
            self.input_tokens[indices],
            self.output_tokens[indices],
            self.cached_tokens[indices],
        )


class WaitsFor(NamedTuple):
    """Requests that wait to be admitted where there is no room, by room in what; in the mean over time.

    Attributes:
        kv: in the KV cache.
        tokens: in a step, all of whose tokens are taken.
        sequences: among the sequences of a replica, which are as many as it may have.
    """

    kv: float
    tokens: float
    sequences: float


class Served(NamedTuple):
    """Times of answers to requests, in seconds after the first moment of the load, each array of shape (requests,).

    Attributes:
        admitted_s: when the first step with a part of each prompt began.
        first_token_s: when the first token of each answer came.
        busy_share: of the time in which the replicas computed steps.
        kv_share: of the tokens that their KV caches hold, in the mean over time.
        n_waiting: requests that waited to be admitted, in the mean over time.
        waits_for: of these those that no step took that began meanwhile.
        n_preempted: times that a sequence lost its keys and values to others.
    """

    admitted_s: FloatArray
    first_token_s: FloatArray
    end_s: FloatArray
    busy_share: float
    kv_share: float
    n_waiting: float
    waits_for: WaitsFor
    n_preempted: int

    def chosen(self, indices: IntArray) -> Served:
        """The times of the requests with these indices; shares and counts stay those over all requests."""
        return self._replace(
            admitted_s=self.admitted_s[indices], first_token_s=self.first_token_s[indices], end_s=self.end_s[indices]
        )


class TrafficResult(NamedTuple):
    """Latencies and load of requests that arrive at times of their own, by simulation.

    Attributes:
        ttft_s: from a request to its first token.
        tpot_s: between two tokens of an answer; of answers of two tokens or more.
        latency_s: from a request to its last token.
        requests_per_s: answered, from the first request to the last token.
        tokens_per_s: of answers, in the same time.
        busy_share: of the time in which replicas compute.
        kv_share: of the KV caches that is held, in the mean over time.
        n_waiting: requests that wait to be admitted, in the mean over time.
        waits_for: of these those that no step took that began meanwhile.
        n_preempted: times that a sequence was taken back and computed again.
        queue_growth_per_s: requests by which the queue grows a second; 0 where replicas keep up.
    """

    ttft_s: Percentiles
    tpot_s: Percentiles
    latency_s: Percentiles
    requests_per_s: float
    tokens_per_s: float
    busy_share: float
    kv_share: float
    n_waiting: float
    waits_for: WaitsFor
    n_preempted: int
    queue_growth_per_s: float

    @property
    def is_overloaded(self) -> bool:
        """True if the queue grows as long as requests come: then latencies are those of this many requests alone."""
        return self.queue_growth_per_s > 0
