"""Text generation by the protocol of OpenAI [openai-api]: `OpenAiEndpoint` sends prompts and reads streamed answers.

    send ───── TTFT ─────▶ event ── ITL ──▶ event ── ITL ──▶ event          usage: {completion_tokens: n}
    └────────────────────────────── latency ────────────────────┘           TPOT = (latency - TTFT) / (n - 1)

An event may hold several tokens, or none; so the number of tokens is what `usage` says, never a count of events.
The times are those of [serve-bench]: to the first event with text of the answer, and to the last.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from autoauto.engines.metrics import ServerState
from autoauto.engines.registry import server_state
from autoauto.load.refusals import unreached
from autoauto.records.errors import BadInput, MeasurementsFailed

if TYPE_CHECKING:
    from aiohttp import ClientSession

KEY_VARIABLE = "OPENAI_API_KEY"
_OK = 200
_MAX_REASON = 200
"""Characters of a server's own words that an error repeats."""


class EventStream:
    """Cuts server-sent events [sse] out of what the network delivers: a read may hold half an event, or several."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, content: bytes) -> Iterator[bytes]:
        """The data of every event that ends in this content."""
        *lines, self._rest = (self._rest + content).split(b"\n")
        for line in (line.removesuffix(b"\r") for line in lines):
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                yield b"\n".join(self._data)
                self._data = []


@dataclass(slots=True)
class StreamedAnswer:
    """The answer to one request; times are of `perf_counter`.

    Attributes:
        event_s: when each event with text arrived; of an answer without text, when it ended.
        n_tokens: of the answer, as the server counts them.
        n_cached_tokens: of the prompt, which the server did not compute; None where it does not say.
        failure: why there is no answer; "" where there is one.
    """

    sent_s: float
    event_s: list[float] = field(default_factory=list)
    n_tokens: int = 0
    n_prompt_tokens: int = 0
    n_cached_tokens: int | None = None
    failure: str = ""

    @property
    def ttft_s(self) -> float:
        """Time to first token: from sending to the first event with text."""
        return self.event_s[0] - self.sent_s

    @property
    def latency_s(self) -> float:
        """From sending to the last event with text."""
        return self.event_s[-1] - self.sent_s

    @property
    def tpot_s(self) -> float:
        """Time per output token after the first; there must be two events or more."""
        return (self.event_s[-1] - self.event_s[0]) / (self.n_tokens - 1)

    @property
    def has_tpot(self) -> bool:
        """True if tokens came at two times or more."""
        return self.n_tokens > 1 and len(self.event_s) > 1


class OpenAiEndpoint:
    """The model of a server."""

    def __init__(self, session: ClientSession, url: str, model: str, chat: bool, extra: Mapping[str, object]) -> None:
        self._session, self._base, self._chat = session, base_of(url), chat
        self._url = f"{self._base}/v1/{'chat/completions' if chat else 'completions'}"
        self._model, self._extra = model, extra

    async def generate(
        self, prompt: Sequence[int] | str, n_tokens: int, on_event: Callable[[float], None]
    ) -> StreamedAnswer:
        """Send a prompt and read its answer of `n_tokens` tokens; `on_event` gets the time of every event with text."""
        from aiohttp import ClientError

        body: dict[str, object] = {
            "model": self._model,
            "max_tokens": n_tokens,
            "ignore_eos": True,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self._chat:
            body["messages"] = [{"role": "user", "content": prompt}]
        else:
            body["prompt"] = prompt
        content = msgspec.json.encode(body | dict(self._extra))
        answer = StreamedAnswer(perf_counter())
        try:
            async with self._session.post(
                self._url, data=content, headers=_headers(), allow_redirects=False
            ) as response:
                if response.status != _OK:
                    answer.failure = f"status {response.status}: {_error_in(await response.read())}"
                    return answer
                stream = EventStream()
                async for read in response.content.iter_any():
                    now_s = perf_counter()  # of all events of a read, before the first of them is decoded
                    for event in stream.feed(read):
                        _note(answer, event, now_s, on_event)
        except (ClientError, TimeoutError, OSError, msgspec.DecodeError) as error:
            answer.failure = f"{type(error).__name__}: {error}"
        if not answer.failure and not answer.n_tokens:
            answer.failure = "the stream ended without usage.completion_tokens"
        if not answer.event_s:  # so that every answer has an end
            answer.event_s.append(perf_counter())
        answer.failure = _without_key(answer.failure)[:_MAX_REASON]
        return answer

    async def n_tokens_of(self, prompt: str) -> int:
        """The number of tokens that the server counts in a prompt; raises MeasurementsFailed without an answer."""
        answer = await self.generate(prompt, 1, lambda _: None)
        if answer.failure:
            raise MeasurementsFailed(f"{self._url} must answer requests, got {answer.failure}")
        return answer.n_prompt_tokens

    async def server_state(self) -> ServerState | None:
        """The state that the engine reports at `/metrics`; None if it reports none, or in an unknown form."""
        from aiohttp import ClientError

        try:
            async with self._session.get(f"{self._base}/metrics", allow_redirects=False) as response:
                return server_state(await response.text()) if response.status == _OK else None
        except (ClientError, OSError, TimeoutError, ValueError):
            return None


def base_of(url: str) -> str:
    """The address of a server from its URL.

    >>> base_of("http://host:8000/v1/"), base_of("http://host:8000")
    ('http://host:8000', 'http://host:8000')

    Raises:
        BadInput: it is no HTTP address.
    """
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        (parts.hostname or "").encode("idna")
    except ValueError:
        is_url = False
    if not is_url:
        raise BadInput(f"URL must be that of a server, got {url!r:.100}; try http://127.0.0.1:8000")
    return url.rstrip("/").removesuffix("/v1")


async def served_model(session: ClientSession, url: str, name: str) -> Mapping[str, Any]:
    """The entry of a model in the server's list of models; it has at least an "id".

    Args:
        name: of the model; "" for the only one.

    Raises:
        BadInput: nothing answers there by the protocol, or it has no such model.
    """
    from aiohttp import ClientError, InvalidURL

    try:
        async with session.get(f"{base_of(url)}/v1/models", headers=_headers(), allow_redirects=False) as response:
            content = await response.read()
            if response.status != _OK:
                raise BadInput(f"{url} must list its models, got status {response.status}: {_error_in(content)}")
            models: dict[str, Mapping[str, Any]] = {
                model["id"]: model for model in msgspec.json.decode(content)["data"]
            }
    except (ClientError, InvalidURL, OSError, TimeoutError, msgspec.DecodeError, KeyError, TypeError) as error:
        raise BadInput(f"{url} must be a server of the OpenAI protocol: {_without_key(unreached(error))}") from None
    if not name and len(models) == 1:
        return next(iter(models.values()))
    if name in models:
        return models[name]
    raise BadInput(f"the model must be one of {', '.join(models)}, got {name!r:.80}; name one that {url} serves")


def api_key() -> str:
    """The key of `KEY_VARIABLE`; empty where it is not set.

    Raises:
        BadInput: it cannot stand in a header. The message does not have it.
    """
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise BadInput(f"{KEY_VARIABLE} must be printable ASCII, got other characters; set it anew")
    return key


def _headers() -> dict[str, str]:
    """The key is read for every request and stored nowhere."""
    headers = {"Content-Type": "application/json"}
    if key := api_key():
        headers["Authorization"] = f"Bearer {key}"
    return headers


def _without_key(text: str) -> str:
    key = os.environ.get(KEY_VARIABLE, "").strip()
    return text.replace(key, "***") if key else text


def _note(answer: StreamedAnswer, data: bytes, now_s: float, on_event: Callable[[float], None]) -> None:
    if data == b"[DONE]":
        return
    event = msgspec.json.decode(data, type=_Event)
    if event.error is not None:
        answer.failure = f"the server reported {event.error}"
    if event.choices and _has_text(event):
        answer.event_s.append(now_s)
        on_event(now_s)
    if event.usage is not None:
        answer.n_tokens, answer.n_prompt_tokens = event.usage.completion_tokens, event.usage.prompt_tokens
        details = event.usage.prompt_tokens_details
        answer.n_cached_tokens = None if details is None else details.cached_tokens


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    completion_tokens: int = 0
    prompt_tokens: int = 0
    prompt_tokens_details: _Details | None = None


class _Event(msgspec.Struct):
    choices: list[dict[str, Any]] = []
    usage: _Usage | None = None
    error: Any = None


def _has_text(event: _Event) -> bool:
    """True if a choice brings tokens of the answer, even such as have no text yet (half a character).

    The role, with which a chat begins, is no token; nor is the event that only says why the answer ends.
    """
    choice = event.choices[0]
    delta = choice.get("delta")
    if delta is None:  # a completion
        text = choice.get("text")
        is_end = choice.get("finish_reason") and event.usage
        return bool(text) or (text is not None and not is_end)
    texts = [text for name, text in delta.items() if name != "role" and text is not None]
    return any(texts) or ("role" not in delta and bool(texts))


def _error_in(content: bytes) -> str:
    """The words of an error; servers wrap them in one way or another."""
    try:
        error = msgspec.json.decode(content)
        error = error.get("error", error)
        if isinstance(error, dict):
            error = error.get("message", error)
        text = str(error)
    except (msgspec.DecodeError, AttributeError):
        text = content.decode(errors="replace")
    return _without_key(" ".join(text.split()))[:_MAX_REASON]
