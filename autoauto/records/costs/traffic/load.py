"""What load is simulated: `TrafficLoad`, by rates and lengths or as a recorded `Trace` has it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from autoauto.records.costs.decoder import Workload
from autoauto.records.costs.traffic.arrivals import POISSON, ArrivalProcess
from autoauto.records.costs.traffic.lengths import Lengths
from autoauto.records.costs.traffic.requests import Requests

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
