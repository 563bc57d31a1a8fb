"""Requests that arrive at times of their own, `Requests`, when they are answered, `Served`, and `TrafficResult`.

What is asked, as a value: `TrafficLoad`, and how long its prompts and answers are: `Lengths`.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from math import ceil
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from autoauto.records.costs.decoder import Workload
from autoauto.records.costs.percentiles import Percentiles
from autoauto.records.errors import BadInput
from autoauto.records.units import FloatArray, IntArray


class Requests(NamedTuple):
    """Requests in the order in which they arrive, each array of shape (requests,).

    Attributes:
        arrival_s: seconds after the first moment of the load.
        input_tokens: of each prompt.
        output_tokens: of each answer.
        cached_tokens: of each prompt that the prefix cache has, fewer than all of them.
    """

    arrival_s: FloatArray
    input_tokens: IntArray
    output_tokens: IntArray
    cached_tokens: IntArray

    def check(self) -> None:
        """Make sure that there are some, in their order, with tokens.

        Raises:
            BadInput: there are none, one arrives before the one before it, or has no tokens to compute or to answer.
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
    """When requests were answered, in seconds after the first moment of the load, each array of shape (requests,).

    Attributes:
        admitted_s: when the first step with a part of each prompt began.
        first_token_s: when the first token of each answer came.
        end_s: when its last token came.
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
    """How requests that arrive at times of their own are served, by simulation.

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


MAX_TOKENS = 2**24
BLOCK_TOKENS = 512
"""Of a block of a prompt that others may share, in traces."""
_RARE = 0.001
"""Of the shortest and of the longest requests so many are alike."""
_NORMAL = NormalDist()
_MEAN_POINTS = 4096
_PERCENTILE = re.compile(r"p(\d{1,2}(?:\.\d+)?)=(\d+)")
_FORMS = "lengths are written 512, 512:2048 for all between evenly, or p50=512,p90=2048"


class Lengths(NamedTuple):
    """A distribution of tokens: all lengths of a range alike often, or by percentiles.

    Between and beyond percentiles the logarithm of the length is linear in the standard normal quantile: two
    percentiles are a log-normal distribution. What lies beyond p0.1 and p99.9 is as long as these.

    Attributes:
        text: as it was written.
        ends: of a range, both included; None by percentiles.
        z: standard normal quantiles of percentiles, ascending.
        logs: logarithms of the tokens there.
    """

    text: str
    ends: tuple[int, int] | None
    z: tuple[float, ...] = ()
    logs: tuple[float, ...] = ()

    @staticmethod
    def of(text: str) -> Lengths:
        """Read a distribution from text.

        Raises:
            BadInput: the text has another form, or lengths do not ascend.

        >>> Lengths.of("512:2048").mean, round(Lengths.of("p50=512,p90=2048").mean)
        (1280, 913)
        """
        first, colon, last = text.partition(":")
        if first.isdecimal() and (last.isdecimal() or not colon):
            ends = int(first), int(last or first)
            if not 1 <= ends[0] <= ends[1] <= MAX_TOKENS:
                raise BadInput(f"lengths must be from 1 to {MAX_TOKENS:,} tokens, the shorter first, got {text!r:.60}")
            return Lengths(text, ends)
        pairs = [_PERCENTILE.fullmatch(part) for part in text.split(",")]
        known = [(float(pair[1]), int(pair[2])) for pair in pairs if pair]
        if len(known) < max(len(pairs), 2):
            raise BadInput(f"{_FORMS}, got {text!r:.60}")
        percents, tokens = zip(*known, strict=True)
        if not percents[0] > 0 or list(percents) != sorted(set(percents)) or list(tokens) != sorted(tokens):
            raise BadInput(f"percentiles of lengths must lie between 0 and 100 and ascend, got {text!r:.60}")
        if not 1 <= tokens[0] <= tokens[-1] <= MAX_TOKENS:
            raise BadInput(f"lengths must be from 1 to {MAX_TOKENS:,} tokens, got {text!r:.60}")
        z = tuple(_NORMAL.inv_cdf(percent / 100) for percent in percents)
        return Lengths(text, None, z, tuple(float(log) for log in np.log(tokens)))

    @property
    def mean(self) -> int:
        """The mean number of tokens, rounded."""
        middles = (np.arange(_MEAN_POINTS) + 0.5) / _MEAN_POINTS
        return max(1, round(float(self.at(middles).mean())))

    def at(self, shares: FloatArray) -> IntArray:
        """The quantiles of the distribution at `shares`, each from 0 to below 1, in tokens."""
        if self.ends is not None:
            first, last = self.ends
            return np.asarray(first + np.floor(shares * (last - first + 1))).astype(np.int64)
        z = np.array([_NORMAL.inv_cdf(float(share)) for share in np.clip(shares, _RARE, 1 - _RARE)])
        # The segment between two percentiles that holds z; the outermost segments go on beyond their ends.
        right = np.clip(np.searchsorted(self.z, z), 1, len(self.z) - 1)
        known_z, logs = np.array(self.z), np.array(self.logs)
        slopes = (logs[right] - logs[right - 1]) / (known_z[right] - known_z[right - 1])
        tokens = np.exp(logs[right - 1] + slopes * (z - known_z[right - 1]))
        return np.asarray(np.clip(np.round(tokens), 1, MAX_TOKENS)).astype(np.int64)


_SEED = 20260
_MIN_REQUESTS, _MAX_REQUESTS = 1000, 20_000
_MIN_LOAD_S, _LATENCIES = 60.0, 20.0
"""A load lasts so long, or so many times as long as a request without a queue, so that queues show themselves."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests that were recorded.

    Attributes:
        digest: of the content of the file.
        requests: in the order of their arrival, the first at 0; more than one. Their cached tokens are those of one
            replica that loses none.
        blocks: of each prompt the names of its blocks of `BLOCK_TOKENS` tokens; none where the file does not say.
        n_left_out: rows without an answer.
    """

    digest: str
    requests: Requests = field(compare=False, repr=False)
    blocks: tuple[tuple[Hashable, ...], ...] = field(default=(), compare=False, repr=False)
    n_left_out: int = field(default=0, compare=False, repr=False)

    @property
    def knows_cached(self) -> bool:
        """Whether the file says what prompts share."""
        return bool(self.blocks)

    @property
    def rate_per_s(self) -> float:
        """Requests a second, in the mean."""
        return (len(self.requests.arrival_s) - 1) / float(self.requests.arrival_s[-1])

    @property
    def means(self) -> tuple[int, int, float]:
        """Tokens of a prompt, tokens of an answer, and the share of all prompts that is cached."""
        of_prompts = float(self.requests.input_tokens.mean())
        share = float(self.requests.cached_tokens.mean()) / of_prompts
        return max(1, round(of_prompts)), max(1, round(float(self.requests.output_tokens.mean()))), share


@dataclass(frozen=True, slots=True)
class TrafficLoad:
    """Requests that clients send without waiting for answers.

    Attributes:
        rate_per_s: requests a second; None for that of the trace, or where it is searched.
        variation: standard deviation of the times between arrivals over their mean: 1 is Poisson, 0 even.
        input_lengths, output_lengths: None where all requests are alike.
        trace: requests that were recorded, in place of all of these but the rate.
        window_s: in every so many seconds of the trace bounds must hold; None where they are over all requests.
    """

    rate_per_s: float | None = None
    variation: float = 1.0
    input_lengths: Lengths | None = None
    output_lengths: Lengths | None = None
    trace: Trace | None = None
    window_s: float | None = None

    @property
    def n_windows(self) -> int | None:
        """The number of equal parts of the trace in each of which bounds must hold; None without windows."""
        if self.trace is None or self.window_s is None:
            return None
        return max(1, round(float(self.trace.requests.arrival_s[-1]) / self.window_s))

    @property
    def known_rate_per_s(self) -> float | None:
        """Requests a second; None where it is to be searched."""
        if self.rate_per_s is None and self.trace is not None:
            return self.trace.rate_per_s
        return self.rate_per_s

    @property
    def mean_tokens(self) -> tuple[int | None, int | None]:
        """Mean tokens of a prompt and of an answer; None where all are alike and the configuration says how long."""
        if self.trace is not None:
            return self.trace.means[:2]
        mean_input = self.input_lengths and self.input_lengths.mean
        mean_output = self.output_lengths and self.output_lengths.mean
        return mean_input, mean_output

    def requests(self, rate_per_s: float, alike: Workload, latency_s: float) -> Requests:
        """The requests at a rate, the same at every call; at another rate they come faster or slower.

        Args:
            rate_per_s: of arrivals. A trace keeps its bursts, only faster or slower.
            alike: their lengths, where no others are given, and the share of prompts that is cached.
            latency_s: of a request without a queue: the load lasts many times as long.
        """
        if self.trace is not None:
            return self._cached(self.trace.requests.faster(rate_per_s / self.trace.rate_per_s), alike)
        # Long enough for a queue to show itself, and with enough requests for percentiles.
        lasts_s = max(_MIN_LOAD_S, _LATENCIES * latency_s)
        n = min(max(_MIN_REQUESTS, ceil(rate_per_s * lasts_s)), _MAX_REQUESTS)
        # A generator for each, so that more requests change none of the first ones.
        arrivals, prompts, answers = (np.random.default_rng([_SEED, i]) for i in range(3))
        gaps = np.ones(n)
        if self.variation:
            shape = self.variation**-2
            gaps = arrivals.gamma(shape, 1 / shape, n)
        arrival_s = (np.cumsum(gaps) - gaps[0]) / rate_per_s
        input_tokens, output_tokens = np.full(n, alike.input_tokens), np.full(n, alike.output_tokens)
        if self.input_lengths is not None:
            input_tokens = self.input_lengths.at(prompts.random(n))
        if self.output_lengths is not None:
            output_tokens = self.output_lengths.at(answers.random(n))
        return self._cached(Requests(arrival_s, input_tokens, output_tokens, np.zeros(n, dtype=np.int64)), alike)

    def _cached(self, requests: Requests, alike: Workload) -> Requests:
        if self.trace is not None and self.trace.knows_cached:
            return requests
        cached = np.round(requests.input_tokens * alike.cached_share).astype(np.int64)
        return requests._replace(cached_tokens=np.minimum(cached, requests.input_tokens - 1))


class _PrefixCache:
    """The blocks of prompts that a replica has, the least recently used first."""

    def __init__(self, n_blocks: int) -> None:
        self._n_blocks, self._blocks = n_blocks, dict[Hashable, None]()

    def take(self, blocks: Sequence[Hashable]) -> int:
        """Count the first blocks of a prompt that are cached, then cache all of its blocks as far as there is room."""
        n_hits = 0
        while n_hits < len(blocks) and blocks[n_hits] in self._blocks:
            n_hits += 1
        for block in reversed(blocks):  # the last are given up first: they are of no use without those before them
            self._blocks.pop(block, None)
            self._blocks[block] = None
        while len(self._blocks) > self._n_blocks:
            del self._blocks[next(iter(self._blocks))]
        return n_hits


def cached_tokens(blocks: Sequence[Sequence[Hashable]], n_input: IntArray, kv_tokens: Sequence[int]) -> IntArray:
    """Tokens of each prompt that its replica has in its cache, where prompts go to one replica after the other.

        blocks of prompts, one after the other:   a b c | a b d | e | a b c
        one replica with room for all:            0       2 hits  0   3 hits
        with room for three blocks:               0       2 hits  0   2 hits     "c" made room for "d" and "e"
        two replicas with room for all:           0       0       0   2 hits     the second had "a b d" only

    A cache is taken to have room for as many tokens of prompts as the KV cache holds, whatever else is in it, and a
    prompt to be there as soon as it has come. The last token of a prompt is always computed.

    Args:
        blocks: of each prompt the names of its blocks of `BLOCK_TOKENS` tokens; a name stands for all before it, too.
        n_input: tokens of each prompt, shape (requests,).
        kv_tokens: what the KV cache of each replica holds.

    Returns:
        Shape (requests,).
    """
    caches = [_PrefixCache(n_tokens // BLOCK_TOKENS) for n_tokens in kv_tokens]
    n_hits = [caches[number % len(caches)].take(prompt) for number, prompt in enumerate(blocks)]
    return np.minimum(np.array(n_hits, dtype=np.int64) * BLOCK_TOKENS, n_input - 1)
