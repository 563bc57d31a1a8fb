"""Load on a server that generates text and what it measures, as records: `TokenLoad`, `TokenMeasurement`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from math import isfinite
from typing import Any, NamedTuple

from autoauto.engines.metrics import ServerState
from autoauto.records.costs.traffic.arrivals import POISSON, ArrivalProcess
from autoauto.records.costs.traffic.requests import Percentiles
from autoauto.records.errors import BadInput


class OpenLoop(NamedTuple):
    """Requests that are sent without waiting for answers."""

    requests_per_s: float
    process: ArrivalProcess = POISSON


@dataclass(frozen=True)
class TokenLoad:
    """Requests for text.

    Attributes:
        n_clients: of the closed loop: as many requests are in flight. After as many answers the engine is asked how it
            is; in an open loop, too.
        input_tokens: of every prompt, without a common prefix.
        vocabulary_size: prompts are random token ids below this; None for what the server says, or 10,000.
        n_warmup: requests before these; None for as many as clients.
        seed: of prompts and arrivals. A server with a cache of prefixes has the prompts of a seed only once to compute.
        arrivals: of an open loop, in place of clients; None for a closed loop.
        half_width: relative half-width of the 95 % confidence interval of the throughput at which the load may stop;
            None to stop after `n_requests`.
        max_requests: counted ones at which it stops in any case; None for 10 times `n_requests`.
        shared_prefix_tokens: of the prompt, which all requests have in common.
    """

    n_clients: int
    input_tokens: int
    output_tokens: int
    vocabulary_size: int | None
    n_requests: int
    n_warmup: int | None = None
    seed: int = 0
    extra: Mapping[str, object] = field(default_factory=dict)
    arrivals: OpenLoop | None = None
    half_width: float | None = None
    max_requests: int | None = None
    shared_prefix_tokens: int = 0

    def __post_init__(self) -> None:
        for name in ("n_clients", "input_tokens", "output_tokens", "vocabulary_size", "n_requests"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise BadInput(f"{name} must be 1 or more, got {value}")
        if not 0 <= self.shared_prefix_tokens < self.input_tokens:
            raise BadInput(f"shared_prefix_tokens must be below input_tokens, got {self.shared_prefix_tokens}")
        if self.max_requests is not None and self.max_requests < self.n_requests:
            raise BadInput(f"max_requests must be {self.n_requests} or more, got {self.max_requests}")

    def to_json(self) -> dict[str, Any]:
        """All settings as JSON has them; those of arrivals stand beside the others."""
        settings: dict[str, Any] = _plain(self)
        del settings["arrivals"]
        requests_per_s: float | None = None
        variation: float | None = None
        if self.arrivals is not None:
            requests_per_s, variation = self.arrivals.requests_per_s, self.arrivals.process.variation
        return settings | {"requests_per_s": requests_per_s, "arrival_variation": variation}

    @property
    def n_before(self) -> int:
        """Requests of the warm-up."""
        return self.n_clients if self.n_warmup is None else self.n_warmup

    @property
    def most_requests(self) -> int:
        """The number of counted requests at which the load stops in any case."""
        if self.half_width is None:
            return self.n_requests
        return self.max_requests or 10 * self.n_requests


@dataclass(frozen=True)
class ServerLoad:
    """The state of the engine before, under and after a load.

    Attributes:
        running: the most requests that were computed at once.
        waiting: the most that were in the queue; None where the engine does not say.
        kv_usage: the largest share of the KV cache that was used; None where the engine does not say.
    """

    before: ServerState
    after: ServerState
    running: float
    waiting: float | None
    kv_usage: float | None

    @property
    def n_preemptions(self) -> float | None:
        """Under load; None where the engine does not say."""
        if self.before.preemptions is None or self.after.preemptions is None:
            return None
        return self.after.preemptions - self.before.preemptions


@dataclass(frozen=True)
class TokenMeasurement:
    """The throughput and latencies of the counted requests of a load, by the definitions of [serve-bench].

    Attributes:
        tokens_per_s: of answers in the steady part.
        half_width: of its 95 % confidence interval, relative; by the means of equal parts.
        ttft_s: of requests: from sending to the first event with text.
        tpot_s: of requests whose tokens came in two events or more: from the first event to the last / (tokens - 1).
        itl_s: of all gaps between two events of a request.
        latency_s: of requests: from sending to the last event with text.
        n_failed: that were not, with the warm-up's.
        wall_s: from the first request to the last answer, ramp and end included.
        server: what the engine said of itself; None where it says nothing.
    """

    tokens_per_s: float
    half_width: float
    ttft_s: Percentiles
    tpot_s: Percentiles
    itl_s: Percentiles
    latency_s: Percentiles
    n_requests: int
    n_failed: int
    n_tokens: int
    wall_s: float
    notes: tuple[str, ...] = ()
    server: ServerLoad | None = None

    @property
    def requests_per_s(self) -> float:
        """Requests that were answered a second, in the steady part."""
        return self.tokens_per_s * self.n_requests / self.n_tokens

    def to_json(self) -> dict[str, Any]:
        """All numbers as JSON has them: null for what was not measured."""
        numbers: dict[str, Any] = _plain(self)
        if self.server is not None:
            numbers["server"]["n_preemptions"] = self.server.n_preemptions
        return {"source": "measured", "requests_per_s": self.requests_per_s, **numbers}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(each) for name, each in value._asdict().items()}
    if isinstance(value, float) and not isfinite(value):
        return None
    return value
