"""Loads: how many requests they send when, and their numbers by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import nan
from typing import Any

import numpy as np
import pytest

from autoauto.load import measure
from autoauto.load.measure import RunningLoad, measure_tokens
from autoauto.load.openai import StreamedAnswer
from autoauto.load.tokens import OpenLoop, TokenLoad, TokenMeasurement
from autoauto.records.errors import BadInput, MeasurementsFailed
from tests.load.conftest import DONE, StandIn, answers, text_event, usage_event

Start = Callable[..., StandIn]
LOAD = TokenLoad(n_clients=3, input_tokens=20, output_tokens=4, vocabulary_size=1000, n_requests=12, n_warmup=3, seed=5)


@pytest.fixture(autouse=True)
def busy_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server answers at once, so the client is always busy."""
    monkeypatch.setattr(measure, "BUSY_CLIENT", 2.0)


def test_prompts_have_the_exact_length_and_nothing_in_common(stand_in: Start) -> None:
    server = stand_in()
    measured = measure_tokens(server.url, LOAD)
    prompts = [tuple(body["prompt"]) for body in server.bodies]
    assert len(prompts) == LOAD.n_requests + 3
    assert {len(prompt) for prompt in prompts} == {20}
    assert len({prompt[:4] for prompt in prompts}) == len(prompts)
    assert all(0 <= token < 1000 for prompt in prompts for token in prompt)
    assert (measured.n_requests, measured.n_failed, measured.n_tokens, measured.notes) == (12, 0, 48, ())


def test_a_shared_prefix_is_shared(stand_in: Start) -> None:
    server = stand_in()
    measure_tokens(server.url, replace(LOAD, shared_prefix_tokens=15))
    prompts = [tuple(body["prompt"]) for body in server.bodies]
    assert len({prompt[:15] for prompt in prompts}) == 1
    assert len({prompt[15:] for prompt in prompts}) == len(prompts)


def test_a_closed_loop_has_as_many_requests_in_flight_as_clients(stand_in: Start) -> None:
    """Requests of the first round are answered when all have arrived, so all clients have one."""

    async def together(server: StandIn, body: dict[str, Any]) -> list[bytes]:
        await server.wait_for(lambda: len(server.bodies) >= 3)
        return await answers(server, body)

    server = stand_in(together)
    assert measure_tokens(server.url, LOAD).n_requests == 12
    assert server.most_in_flight == 3


def test_poisson_arrivals_do_not_wait_for_answers(stand_in: Start) -> None:
    """The server answers nothing before all have arrived."""

    async def at_the_end(server: StandIn, body: dict[str, Any]) -> list[bytes]:
        await server.wait_for(lambda: len(server.bodies) >= 12)
        return await answers(server, body)

    server = stand_in(at_the_end)
    measured = measure_tokens(server.url, replace(LOAD, n_warmup=0, arrivals=OpenLoop(2000.0)))
    assert (measured.n_requests, server.most_in_flight) == (12, 12)


def test_a_failing_warm_up_ends_the_load(stand_in: Start) -> None:
    async def refuses(_server: StandIn, _body: dict[str, Any]) -> tuple[int, str]:
        return 500, "no memory"

    server = stand_in(refuses)
    with pytest.raises(MeasurementsFailed, match="got 3 failed: status 500: no memory"):
        measure_tokens(server.url, LOAD)
    assert len(server.bodies) == 3


def test_a_server_that_dies_under_load_is_left_alone(stand_in: Start) -> None:
    """It fails for good after 6 of the 15 requests; one more in turn than clients ends the load."""

    async def dies(server: StandIn, body: dict[str, Any]) -> list[bytes]:
        return await answers(server, body) if len(server.bodies) <= 6 else [b""]

    server = stand_in(dies)
    measured = measure_tokens(server.url, replace(LOAD, n_requests=100))
    assert measured.n_requests + measured.n_failed + 3 == len(server.bodies) < 20
    assert "requests failed, the first because " in measured.notes[0]


def test_what_disturbs_is_said(stand_in: Start) -> None:
    async def other(_server: StandIn, _body: dict[str, Any]) -> list[bytes]:
        return [text_event(), text_event(), usage_event(2, 21, 16), DONE]

    notes = measure_tokens(stand_in(other).url, LOAD).notes
    assert notes[:2] == (
        "answers have 2 to 2 tokens by the server's count, asked were 4",
        "prompts have 21 to 21 tokens by the server's count, asked were 20",
    )
    assert notes[2].startswith("192 tokens of prompts were cached")


def test_a_client_that_takes_a_core_is_said(stand_in: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "thread_time", iter([0.0, 1e6]).__next__)
    assert measure_tokens(stand_in().url, LOAD).notes[-1].endswith(" of a core, which may limit the throughput")


def test_the_vocabulary_is_what_the_server_says_or_assumed(stand_in: Start) -> None:
    server = stand_in()
    assumed = measure_tokens(server.url, replace(LOAD, vocabulary_size=None))
    assert assumed.notes == ("the vocabulary was assumed to have 10,000 tokens or more",)
    server.models = [{"id": "m", "meta": {"n_vocab": 2}}]
    server.bodies.clear()
    assert measure_tokens(server.url, replace(LOAD, vocabulary_size=None)).notes == ()
    assert {token for body in server.bodies for token in body["prompt"]} == {0, 1}


def test_chats_have_text_of_the_length(stand_in: Start) -> None:
    """A template of 9 tokens, and a token a word: 11 words make 20 tokens."""

    async def chat(_server: StandIn, body: dict[str, Any]) -> list[bytes]:
        n_prompt = 9 + len(body["messages"][0]["content"].split())
        return [text_event()] * body["max_tokens"] + [usage_event(body["max_tokens"], n_prompt), DONE]

    server = stand_in(chat)
    assert measure_tokens(server.url, LOAD, chat=True).notes == ()
    assert {len(body["messages"][0]["content"].split()) for body in server.bodies[3:]} == {11}
    with pytest.raises(BadInput, match="input_tokens must be more than the template"):
        measure_tokens(server.url, replace(LOAD, input_tokens=5), chat=True)


def test_the_engine_is_asked_how_it_is(stand_in: Start) -> None:
    async def counts(server: StandIn, body: dict[str, Any]) -> list[bytes]:
        n = len(server.bodies)
        server.metrics = f"llamacpp:requests_processing 0\nllamacpp:tokens_predicted_total {4 * n}\n"
        return await answers(server, body)

    server = stand_in(counts)
    server.metrics = "llamacpp:requests_processing 2\nllamacpp:tokens_predicted_total 0\n"
    measured = measure_tokens(server.url, LOAD)
    assert measured.server is not None
    assert (measured.server.before.output_tokens, measured.server.after.output_tokens) == (0, 60)
    assert measured.server.running == 2
    assert measured.notes == ("the server computed 2 requests before the load; try it alone",)


@pytest.mark.parametrize("url", ["nonsense", "http://127.0.0.1:1"])
def test_what_is_no_server_is_refused(url: str) -> None:
    with pytest.raises(BadInput, match=url):
        measure_tokens(url, LOAD)


def test_a_model_that_is_not_served_is_refused(stand_in: Start) -> None:
    server = stand_in()
    server.models = [{"id": "a"}, {"id": "b"}]
    for name in ("", "c"):
        with pytest.raises(BadInput, match="the model must be one of a, b, got "):
            measure_tokens(server.url, LOAD, name)
    measure_tokens(server.url, LOAD, "b")
    assert {body["model"] for body in server.bodies} == {"b"}


@pytest.mark.parametrize(
    "wrong", [{"n_clients": 0}, {"input_tokens": 0}, {"shared_prefix_tokens": 20}, {"max_requests": 11}]
)
def test_a_load_that_cannot_be_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(BadInput, match=next(iter(wrong))):
        replace(LOAD, **wrong)  # type: ignore[arg-type]


class Clock:
    """Time that only passes where a test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class TimedEndpoint:
    """Answers one request after the other: its first token after 2 s, then one every `gaps` seconds in turn."""

    def __init__(self, clock: Clock, gaps: Iterator[float]) -> None:
        self._clock, self._gaps = clock, gaps

    async def generate(self, _prompt: object, n_tokens: int, on_event: Callable[[float], None]) -> StreamedAnswer:
        await asyncio.sleep(0)  # other clients send, too
        answer = StreamedAnswer(self._clock(), n_tokens=n_tokens, n_prompt_tokens=20)
        self._clock.now_s += 2.0
        for index in range(n_tokens):
            self._clock.now_s += next(self._gaps) if index else 0.0
            answer.event_s.append(self._clock())
            on_event(self._clock())
        return answer

    async def server_state(self) -> None:
        return None


def timed(load: TokenLoad, gaps: Iterator[float], monkeypatch: pytest.MonkeyPatch) -> TokenMeasurement:
    clock = Clock()
    monkeypatch.setattr(measure, "perf_counter", clock)
    monkeypatch.setattr("autoauto.load.arrivals.perf_counter", clock)
    endpoint: Any = TimedEndpoint(clock, gaps)

    async def put_on() -> TokenMeasurement:
        running = RunningLoad(endpoint, load, lambda _: [])
        await running.put_on()
        return running.result("here")

    return asyncio.run(put_on())


def every(*gaps: float) -> Iterator[float]:
    while True:
        yield from gaps


ONE = replace(LOAD, n_clients=1, n_warmup=1)


def test_numbers_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens at 2, 3, 4 and 7 s of a request: 4 tokens in 7 s, requests of one client end to end."""
    measured = timed(ONE, every(1.0, 1.0, 3.0), monkeypatch)
    assert measured.tokens_per_s == pytest.approx(4 / 7)
    assert measured.requests_per_s == pytest.approx(1 / 7)
    assert measured.wall_s == 12 * 7
    for of in (measured.ttft_s, measured.tpot_s, measured.latency_s):
        assert len({round(value, 9) for value in of}) == 1
    assert (measured.ttft_s.mean, measured.tpot_s.mean, measured.latency_s.mean) == pytest.approx((2, 5 / 3, 7))
    assert (measured.itl_s.mean, measured.itl_s.p50, measured.itl_s.p99) == pytest.approx((5 / 3, 1, 3))


def test_the_warm_up_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tokens take 100 s each."""
    gaps = (gap for gap in [100.0] * 3 + [1.0] * 3 * 12)
    measured = timed(ONE, gaps, monkeypatch)
    assert (measured.tpot_s.p99, measured.latency_s.p99, measured.wall_s) == (1.0, 5.0, 60.0)
    assert measured.tokens_per_s == pytest.approx(4 / 5)


def test_a_load_stops_when_its_throughput_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    bounded = replace(ONE, n_requests=10, half_width=0.05, max_requests=400)
    steady = timed(bounded, every(1.0), monkeypatch)
    assert steady.half_width <= 0.05
    unsteady = timed(bounded, every(*[1.0] * 30, *[4.0] * 30), monkeypatch)
    assert 10 <= steady.n_requests < unsteady.n_requests < 400
    assert unsteady.half_width <= 0.05
    slower = timed(replace(bounded, n_requests=50), (1.0 + n / 100 for n in range(10**6)), monkeypatch)
    assert slower.n_requests == 400
    assert "asked was 5.0%" in slower.notes[0]


def test_the_throughput_is_within_its_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 tokens in 2 s and 15 random gaps of 1 s in the mean; 95 of 100 are expected."""
    load = replace(ONE, n_requests=8, output_tokens=16, half_width=0.1, max_requests=10_000)
    n_within = 0
    for seed in range(100):
        measured = timed(load, iter(np.random.default_rng(seed).exponential(size=10**5)), monkeypatch)
        n_within += abs(measured.tokens_per_s / (16 / 17) - 1) <= measured.half_width
    assert n_within >= 90


def test_a_load_without_a_steady_part_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one request nothing lies between the end of the warm-up and the first client without work."""
    measured = timed(replace(ONE, n_requests=1, n_clients=2, n_warmup=0), every(1.0), monkeypatch)
    assert measured.tokens_per_s == pytest.approx(4 / 5)
    assert measured.notes == (
        "the load is too short for a steady part, so tokens/s includes its begin and end; try more requests",
    )


def test_json_has_null_for_what_was_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer of one token has no TPOT and no gaps."""
    printed = timed(replace(ONE, output_tokens=1), every(nan), monkeypatch).to_json()
    assert printed["tpot_s"] == {"mean": None, "p50": None, "p90": None, "p95": None, "p99": None}
    assert (printed["source"], printed["ttft_s"]["mean"], printed["n_tokens"]) == ("measured", 2.0, 12)
