"""The load that is simulated, `TrafficLoad`: rates and lengths, or a `Trace`; `cached_tokens` of prompts."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from math import ceil
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from autoauto.records.costs.decoder import Workload
from autoauto.records.costs.traffic.arrivals import POISSON, ArrivalProcess
from autoauto.records.costs.traffic.requests import Requests
from autoauto.records.errors import BadInput
from autoauto.records.units import FloatArray, IntArray

MAX_TOKENS = 2**24
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
        """Read a distribution from text. Raises BadInput if it has another form, or lengths do not ascend."""
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


BLOCK_TOKENS = 512
"""Of a block of a prompt that others may share, in traces."""
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
        """True if the file says what prompts share."""
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
        input_lengths, output_lengths: None where all requests are alike.
        trace: requests that were recorded, in place of all of these but the rate.
        window_s: in every so many seconds of the trace bounds must hold; None where they are over all requests.
    """

    rate_per_s: float | None = None
    process: ArrivalProcess = POISSON
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
        mean_input = None if self.input_lengths is None else self.input_lengths.mean
        mean_output = None if self.output_lengths is None else self.output_lengths.mean
        return mean_input, mean_output

    def requests(self, rate_per_s: float, alike: Workload, latency_s: float) -> Requests:
        """The requests at a rate, the same at every call; at another rate they, and bursts of a trace, come faster.

        Args:
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
        gaps = self.process.gaps(arrivals, n)
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
        n_input: tokens of each prompt, shape (requests,), as the result.
        kv_tokens: what the KV cache of each replica holds.
    """
    caches = [_PrefixCache(n_tokens // BLOCK_TOKENS) for n_tokens in kv_tokens]
    n_hits = [caches[number % len(caches)].take(prompt) for number, prompt in enumerate(blocks)]
    return np.minimum(np.array(n_hits, dtype=np.int64) * BLOCK_TOKENS, n_input - 1)
