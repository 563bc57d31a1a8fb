"""Put a load on a server that generates text: `measure_tokens`.

    requests  ├── warm-up ──┼───────────── counted ─────────────┤
    in flight ▁▃▅███████████│███████████████████████████████████│▅▃▁
                            └──────────── steady part ──────────┘

The steady part begins when the warm-up is answered and ends when a client has nothing more to send. Tokens/s is of this
part alone: every answer's tokens count where its events arrived, so that requests that the ends cut count in part.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from math import ceil, sqrt
from time import perf_counter, thread_time

import numpy as np

from autoauto.engines.metrics import ServerState
from autoauto.load.arrivals import closed_loop, open_loop
from autoauto.load.openai import OpenAiEndpoint, StreamedAnswer, served_model
from autoauto.load.prompts import TextPrompts, token_prompt
from autoauto.load.tokens import ServerLoad, TokenLoad, TokenMeasurement
from autoauto.records.costs.traffic.requests import Percentiles
from autoauto.records.errors import MeasurementsFailed
from autoauto.records.units import Array

Prompt = Callable[[int], Sequence[int] | str]
ASSUMED_VOCABULARY = 10_000
N_BATCHES = 10
"""Equal parts of the steady part, whose means give the confidence interval of the throughput."""
STUDENT_T = 2.262
"""The 97.5 % quantile of Student's t distribution with `N_BATCHES` - 1 degrees of freedom: for intervals of 95 %."""
MIN_STEADY_SHARE = 0.5
SAMPLE_EVERY_S = 0.2
CHECK_GROWTH = 1.5
"""The next look at the interval is after so many times the requests: one that is looked at often is too narrow once."""
CHANCE_SHARE = 0.01
"""The share of a prompt's tokens that prompts may have in common by chance."""
BUSY_CLIENT = 0.8
"""The share of a core from which on the client may be what limits the throughput."""
_SILENCE_S = 600.0
"""A request fails when the server sends nothing for so long."""


def measure_tokens(url: str | Sequence[str], load: TokenLoad, model: str = "", chat: bool = False) -> TokenMeasurement:
    """Put a load on a server of the OpenAI protocol, or on several of one model.

    Args:
        url: of the server, with or without /v1; of several servers, which share the load.
        model: its name there; "" for the only one.

    Raises:
        BadInput: nothing answers there by the protocol, or there is no such model.
        MeasurementsFailed: requests of the warm-up or all others failed.
    """
    urls = (url,) if isinstance(url, str) else tuple(url)
    return asyncio.run(_measure(urls, load, model, chat))


async def _measure(urls: Sequence[str], load: TokenLoad, model: str, chat: bool) -> TokenMeasurement:
    from aiohttp import ClientSession, ClientTimeout, TCPConnector

    timeout = ClientTimeout(total=None, sock_connect=10.0, sock_read=_SILENCE_S)
    # some servers close a connection after a stream without a word, so that the next request on it fails;
    # with TLS a connection costs too much to open one for each request
    connector = TCPConnector(limit=0, force_close=not urls[0].startswith("https:"))
    async with ClientSession(connector=connector, timeout=timeout) as session:
        every = [await served_model(session, url, model) for url in urls]
        endpoints: list[OpenAiEndpoint] = []
        for url, served in zip(urls, every, strict=True):
            endpoints.append(OpenAiEndpoint(session, url, served["id"], chat, load.extra))
        assumed: tuple[str, ...] = ()
        prompt: Prompt
        if chat:
            prompt = await TextPrompts.fitted(load, endpoints[0].n_tokens_of)
        else:
            size = load.vocabulary_size or (every[0].get("meta") or {}).get("n_vocab")
            if not size:
                assumed = (f"the vocabulary was assumed to have {ASSUMED_VOCABULARY:,} tokens or more",)
            prompt = partial(token_prompt, load, size or ASSUMED_VOCABULARY)
        running = RunningLoad(SharedServers(endpoints), load, prompt)
        await running.put_on()
        return running.result(", ".join(urls), assumed)


class SharedServers:
    """Servers of one model, one or more; a request goes to that with the fewest under way."""

    def __init__(self, endpoints: Sequence[OpenAiEndpoint]) -> None:
        self._endpoints = endpoints
        self._n_in_flight = [0] * len(endpoints)

    async def generate(
        self, prompt: Sequence[int] | str, n_tokens: int, on_event: Callable[[float], None]
    ) -> StreamedAnswer:
        """Send a prompt to one of them; see `OpenAiEndpoint.generate`."""
        chosen = self._n_in_flight.index(min(self._n_in_flight))
        self._n_in_flight[chosen] += 1
        try:
            return await self._endpoints[chosen].generate(prompt, n_tokens, on_event)
        finally:
            self._n_in_flight[chosen] -= 1

    async def server_state(self) -> ServerState | None:
        """The state of all servers together; None if one does not state its own."""
        states = []
        for endpoint in self._endpoints:
            state = await endpoint.server_state()
            if state is None:
                return None
            states.append(state)
        return together(states)


def together(states: Sequence[ServerState]) -> ServerState:
    """Numbers of several servers added up; of the use of KV caches the largest.

    >>> together([ServerState("e", 1.0, 0.0, 0.2, None, 5.0), ServerState("e", 2.0, 1.0, 0.5, None, 6.0)])
    ServerState(engine='e', running=3.0, waiting=1.0, kv_usage=0.5, preemptions=None, output_tokens=11.0)
    """

    def combined(name: str, of: Callable[[list[float]], float]) -> float | None:
        values = [getattr(state, name) for state in states]
        return None if None in values else of(values)

    running = sum(state.running for state in states)
    waiting, kv_usage = combined("waiting", sum), combined("kv_usage", max)
    return ServerState(
        states[0].engine, running, waiting, kv_usage, combined("preemptions", sum), combined("output_tokens", sum)
    )


class RunningLoad:
    """Requests under way, and what came of them."""

    def __init__(self, endpoint: SharedServers, load: TokenLoad, prompt: Prompt) -> None:
        self._endpoint, self._load, self._prompt = endpoint, load, prompt
        self._answers: dict[int, StreamedAnswer] = {}
        self._event_s = array("d")
        self._n_warm, self._n_failed_in_turn = 0, 0
        self._start_s = self._end_s = float("nan")
        self._client_cpu_s = 0.0
        self._states: list[ServerState] = []
        self._sampled_s = 0.0
        self._sampling: list[asyncio.Task[None]] = []
        self._enough_at = load.n_requests

    async def put_on(self) -> None:
        """Send all requests and read their answers."""
        load = self._load
        await self._sample()
        begin_cpu_s, begin_s = thread_time(), perf_counter()
        if not load.n_before:
            self._start_s = begin_s
        arrivals = load.arrivals
        if arrivals is None:
            await closed_loop(self._send, load.n_clients, self._numbers())
        else:
            rate, process = arrivals
            await open_loop(self._send, rate, self._numbers(), load.seed, process)
        self._client_cpu_s = (thread_time() - begin_cpu_s) / (perf_counter() - begin_s)
        await asyncio.gather(*self._sampling)
        await self._sample()

    def _numbers(self) -> Iterator[int]:
        """The numbers of requests until enough are counted; then a client has nothing to send: the steady part ends."""
        for number in count():
            if self._is_enough(number - self._load.n_before):
                break
            yield number
        self._end_s = perf_counter()

    def _is_enough(self, n_counted: int) -> bool:
        load = self._load
        # A server that fails in the warm-up, or for all clients in turn, need not be asked further.
        if self._n_failed_in_turn > load.n_clients or (n_counted <= 0 and self._n_failed_in_turn):
            return True
        if n_counted < self._enough_at:
            return False
        if n_counted >= load.most_requests or load.half_width is None:
            return True
        self._enough_at = min(max(n_counted + 1, ceil(n_counted * CHECK_GROWTH)), load.most_requests)
        return _half_width(self._event_s, self._start_s, perf_counter()) <= load.half_width

    async def _send(self, number: int, _due_s: float) -> None:
        load = self._load
        answer = await self._endpoint.generate(self._prompt(number), load.output_tokens, self._event_s.append)
        self._answers[number] = answer
        self._n_failed_in_turn = self._n_failed_in_turn + 1 if answer.failure else 0
        if number < load.n_before:
            self._n_warm += 1
            if self._n_warm == load.n_before:  # the last of the warm-up is answered: the steady part begins
                self._start_s = perf_counter()
        if len(self._answers) % load.n_clients == 0 and perf_counter() > self._sampled_s + SAMPLE_EVERY_S:
            self._sampled_s = perf_counter()
            self._sampling.append(asyncio.create_task(self._sample()))

    async def _sample(self) -> None:
        state = await self._endpoint.server_state()
        if state is not None:
            self._states.append(state)

    def result(self, url: str, assumed: Sequence[str] = ()) -> TokenMeasurement:
        """Compute the measurement of the load.

        Raises MeasurementsFailed if requests of the warm-up failed, or all others.
        """
        load = self._load
        failed = [answer for answer in self._answers.values() if answer.failure]
        counted = [self._answers[n] for n in sorted(self._answers) if n >= load.n_before]
        answered = [answer for answer in counted if not answer.failure]
        if not answered:
            raise MeasurementsFailed(f"{url} must answer requests, got {len(failed)} failed: {failed[0].failure}")
        n_tokens = sum(answer.n_tokens for answer in answered)
        wall_s = max(answer.event_s[-1] for answer in answered) - min(answer.sent_s for answer in counted)
        tokens_per_s = n_tokens / wall_s
        n_steady_tokens = self._n_steady_tokens()
        is_steady = n_steady_tokens >= MIN_STEADY_SHARE * n_tokens
        if is_steady:
            tokens_per_s = n_steady_tokens / (self._end_s - self._start_s)
        half_width = _half_width(self._event_s, self._start_s, self._end_s)
        notes = [*assumed, *self._notes(answered, failed)]
        if not is_steady:
            notes.append(
                "the load is too short for a steady part, so tokens/s includes its begin and end; try more requests"
            )
        elif load.half_width is not None and half_width > load.half_width:
            notes.append(f"the throughput is known within {half_width:.1%}, asked was {load.half_width:.1%}")
        gaps: list[float] = []
        for answer in answered:
            gaps += np.diff(answer.event_s).tolist()
        return TokenMeasurement(
            tokens_per_s=tokens_per_s,
            half_width=half_width,
            ttft_s=Percentiles.of([answer.ttft_s for answer in answered]),
            tpot_s=Percentiles.of([answer.tpot_s for answer in answered if answer.has_tpot]),
            itl_s=Percentiles.of(gaps),
            latency_s=Percentiles.of([answer.latency_s for answer in answered]),
            n_requests=len(answered),
            n_failed=len(failed),
            n_tokens=n_tokens,
            wall_s=wall_s,
            notes=tuple(notes),
            server=self._server(),
        )

    def _n_steady_tokens(self) -> float:
        """Tokens of the steady part: each event of an answer has an equal share of its tokens."""
        n_tokens = 0.0
        for answer in self._answers.values():
            if not answer.failure:
                n_events = sum(self._start_s < event_s <= self._end_s for event_s in answer.event_s)
                n_tokens += answer.n_tokens * n_events / len(answer.event_s)
        return n_tokens

    def _notes(self, answered: Sequence[StreamedAnswer], failed: Sequence[StreamedAnswer]) -> Iterator[str]:
        load = self._load
        if failed:
            yield f"{len(failed)} requests failed, the first because {failed[0].failure}"
        for what, expected, given in (
            ("answers", load.output_tokens, [answer.n_tokens for answer in answered]),
            ("prompts", load.input_tokens, [answer.n_prompt_tokens for answer in answered]),
        ):
            if {*given} != {expected}:
                yield f"{what} have {min(given)} to {max(given)} tokens by the server's count, asked were {expected}"
        n_cached = sum(answer.n_cached_tokens or 0 for answer in answered)
        n_known = load.shared_prefix_tokens * len(answered) + CHANCE_SHARE * load.input_tokens * len(answered)
        if n_cached > n_known:
            yield f"{n_cached} tokens of prompts were cached, so not computed; try another seed or a fresh server"
        n_at_once = sum(len(answer.event_s) == 1 and answer.n_tokens > 1 for answer in answered)
        if n_at_once:
            yield f"{n_at_once} answers of several tokens came in one event, so have no TPOT and a late TTFT"
        if self._client_cpu_s > BUSY_CLIENT:
            yield f"the client took {self._client_cpu_s:.2f} of a core, which may limit the throughput"
        if self._states and self._states[0].running:
            yield f"the server computed {self._states[0].running:.0f} requests before the load; try it alone"

    def _server(self) -> ServerLoad | None:
        if not self._states:
            return None
        waiting = [state.waiting for state in self._states if state.waiting is not None]
        usage = [state.kv_usage for state in self._states if state.kv_usage is not None]
        return ServerLoad(
            before=self._states[0],
            after=self._states[-1],
            running=max(state.running for state in self._states),
            waiting=max(waiting, default=None),
            kv_usage=max(usage, default=None),
        )


def _half_width(event_s: Sequence[float], start_s: float, end_s: float) -> float:
    """The relative half-width of the 95 % confidence interval of the rate of events; infinite where there are few.

    Batch means: equal parts of the time, long enough to be nearly independent.
    """
    if not end_s > start_s:
        return float("inf")
    edges = np.linspace(start_s, end_s, N_BATCHES + 1)
    n_events: Array = np.diff(np.searchsorted(np.asarray(event_s), edges, side="right"))
    mean = n_events.mean()
    if not mean:
        return float("inf")
    return float(STUDENT_T * n_events.std(ddof=1) / sqrt(N_BATCHES) / mean)
