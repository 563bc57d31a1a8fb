"""Streams of answers: what counts as a token, when, and what a failure is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from autoauto.load.openai import EventStream, OpenAiEndpoint, StreamedAnswer, api_key, base_of
from autoauto.records.errors import BadInput
from tests.load.conftest import DONE, StandIn, event, text_event, usage_event

Start = Callable[..., StandIn]
STREAM = b': ping\n\ndata: {"a": 1}\r\n\r\nevent: x\ndata: two\ndata: lines\n\ndata:[DONE]\n\n'
DATA = [b'{"a": 1}', b"two\nlines", b"[DONE]"]


@pytest.mark.parametrize("cut", range(len(STREAM) + 1))
def test_a_read_may_end_anywhere(cut: int) -> None:
    stream = EventStream()
    assert [*stream.feed(STREAM[:cut]), *stream.feed(STREAM[cut:])] == DATA


def test_a_read_may_be_one_byte() -> None:
    stream = EventStream()
    assert [data for byte in STREAM for data in stream.feed(bytes([byte]))] == DATA


def test_times_are_those_of_the_field() -> None:
    """Sent at 10; 5 tokens in 3 events: TTFT 2, latency 8, TPOT 6 / 4."""
    answer = StreamedAnswer(10.0, [12.0, 13.0, 18.0], n_tokens=5)
    assert (answer.ttft_s, answer.latency_s, answer.tpot_s) == (2.0, 8.0, 1.5)


def generate(server: StandIn, chat: bool = False, **extra: object) -> StreamedAnswer:
    from aiohttp import ClientSession

    async def answer() -> StreamedAnswer:
        async with ClientSession() as session:
            endpoint = OpenAiEndpoint(session, server.url, "m", chat, extra)
            return await endpoint.generate("hello" if chat else [7, 8, 9], 4, lambda _: None)

    return asyncio.run(answer())


def answering(*pieces: bytes) -> Callable[..., Any]:
    async def script(_server: StandIn, _body: dict[str, Any]) -> list[bytes]:
        return list(pieces)

    return script


def test_tokens_are_those_of_usage_and_not_events(stand_in: Start) -> None:
    """Two events have four tokens, `usage` comes alone; half of an event comes in a write of its own."""
    half = text_event("c d")
    answer = generate(stand_in(answering(text_event("a b"), half[:9], half[9:], usage_event(4, 3, 2), DONE)))
    assert (answer.failure, answer.n_tokens, answer.n_prompt_tokens, answer.n_cached_tokens) == ("", 4, 3, 2)
    assert len(answer.event_s) == 2


def test_the_event_that_only_ends_an_answer_is_no_token(stand_in: Start) -> None:
    usage = {"completion_tokens": 2, "prompt_tokens": 3}
    answer = generate(stand_in(answering(text_event(), text_event(), text_event("", "length", usage=usage), DONE)))
    assert (answer.failure, answer.n_tokens, len(answer.event_s)) == ("", 2, 2)


def test_a_token_without_text_yet_counts(stand_in: Start) -> None:
    answer = generate(stand_in(answering(text_event(""), text_event("é", "length"), usage_event(2, 3))))
    assert (answer.failure, len(answer.event_s)) == ("", 2)


def test_the_role_of_a_chat_is_no_token(stand_in: Start) -> None:
    def delta(finish: str | None = None, **fields: object) -> bytes:
        return event(choices=[{"index": 0, "delta": fields, "finish_reason": finish}])

    server = stand_in(
        answering(delta(role="assistant", content=""), delta(content="a"), delta(reasoning_content="b"), delta("stop"))
    )
    answer = generate(server, chat=True)
    assert len(answer.event_s) == 2
    assert server.bodies[0]["messages"] == [{"role": "user", "content": "hello"}]
    assert server.bodies[0]["kind"] == "chat/completions"


def test_an_answer_without_text_has_the_time_of_its_end(stand_in: Start) -> None:
    answer = generate(stand_in(answering(text_event("", "length", usage={"completion_tokens": 4}))))
    assert (answer.failure, len(answer.event_s), answer.has_tpot) == ("", 1, False)


def test_a_request_asks_for_an_exact_number_of_tokens_and_for_usage(stand_in: Start) -> None:
    server = stand_in(answering(text_event(), usage_event(1, 3)))
    generate(server, cache_prompt=False)
    body = server.bodies[0]
    assert body["prompt"] == [7, 8, 9]
    assert (body["max_tokens"], body["ignore_eos"], body["stream"], body["cache_prompt"]) == (4, True, True, False)
    assert body["stream_options"] == {"include_usage": True}


async def refuses(_server: StandIn, _body: dict[str, Any]) -> tuple[int, str]:
    return 400, '{"error": {"message": "too long"}}'


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (refuses, "status 400: too long"),
        (answering(text_event(), event(error={"message": "out of memory"})), "out of memory"),
        (answering(text_event(), DONE), "without usage.completion_tokens"),
        (answering(b"data: {nonsense\n\n"), "DecodeError"),
        (answering(text_event(), b'data: {"cho', b""), "ClientPayloadError"),
    ],
)
def test_a_failure_has_its_reason(script: Callable[..., Any], reason: str, stand_in: Start) -> None:
    assert reason in generate(stand_in(script)).failure


def test_a_key_is_sent_and_never_shown(stand_in: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")

    async def repeats(_server: StandIn, _body: dict[str, Any]) -> tuple[int, str]:
        return 401, "wrong key sk-secret"

    server = stand_in(repeats)
    answer = generate(server)
    assert server.headers[0]["Authorization"] == "Bearer sk-secret"
    assert answer.failure == "status 401: wrong key ***"


def test_a_key_of_a_file_has_no_line_end_and_no_other_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret\n")
    assert api_key() == "sk-secret"
    monkeypatch.setenv("OPENAI_API_KEY", "sk-s\u20acret")
    with pytest.raises(BadInput, match="must be printable ASCII") as refused:
        api_key()
    assert "ret" not in str(refused.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:abc", "http://[::1", "http://x_y..z/", "ftp://a", "http://"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(BadInput, match="URL must be that of a server"):
        base_of(url)


def test_without_a_key_none_is_sent(stand_in: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    server = stand_in(answering(text_event(), usage_event(1, 3)))
    generate(server)
    assert "Authorization" not in server.headers[0]
