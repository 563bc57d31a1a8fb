"""A server that speaks the protocol of OpenAI as a test tells it to: `StandIn`."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from tests.running import PATIENCE_S

Script = Callable[["StandIn", dict[str, Any]], Awaitable[list[bytes] | tuple[int, str]]]
"""What a server does with the body of a request: the pieces that it writes, or a status and a text."""


def event(**fields: object) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def text_event(text: str = "a", finish: str | None = None, **more: object) -> bytes:
    return event(choices=[{"index": 0, "text": text, "finish_reason": finish}], **more)


def usage_event(n_tokens: int, n_prompt: int, n_cached: int | None = None) -> bytes:
    details = {} if n_cached is None else {"prompt_tokens_details": {"cached_tokens": n_cached}}
    return event(choices=[], usage={"completion_tokens": n_tokens, "prompt_tokens": n_prompt, **details})


DONE = b"data: [DONE]\n\n"


async def answers(server: StandIn, body: dict[str, Any]) -> list[bytes]:
    """A token an event, and `usage` alone."""
    n_tokens = body["max_tokens"]
    return [text_event()] * n_tokens + [usage_event(n_tokens, len(body["prompt"])), DONE]


class StandIn:
    """A server in a thread.

    Attributes:
        url: of the server.
        bodies, headers: of all requests for text, in the order in which they came.
        n_in_flight, most_in_flight: requests for text that are not answered.
        metrics: the text of /metrics.
        models: what /v1/models lists.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.n_in_flight = self.most_in_flight = 0
        self.metrics = ""
        self.models: list[dict[str, Any]] = [{"id": "m"}]
        self.arrived = asyncio.Condition()
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        assert started.wait(PATIENCE_S)

    def _run(self, started: threading.Event) -> None:
        self._loop.run_until_complete(self._start())
        started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._runner.cleanup())
        self._loop.close()

    async def _start(self) -> None:
        from aiohttp import web

        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/v1/{kind:.*}", self._generate)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _models(self, _request: Any) -> Any:
        from aiohttp import web

        return web.json_response({"data": self.models})

    async def _metrics(self, _request: Any) -> Any:
        from aiohttp import web

        return web.Response(text=self.metrics, status=200 if self.metrics else 404)

    async def _generate(self, request: Any) -> Any:
        from aiohttp import web

        body = await request.json()
        self.bodies.append({**body, "kind": request.match_info["kind"]})
        self.headers.append(dict(request.headers))
        self.n_in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.n_in_flight)
        async with self.arrived:
            self.arrived.notify_all()
        try:
            pieces = await self.script(self, body)
            if isinstance(pieces, tuple):
                return web.Response(status=pieces[0], text=pieces[1])
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            for piece in pieces:
                if not piece:  # the connection breaks
                    request.transport.abort()
                    return response
                await response.write(piece)
            return response
        finally:
            self.n_in_flight -= 1

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition on the requests that have arrived is true."""
        async with self.arrived:
            await self.arrived.wait_for(condition)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)


@pytest.fixture
def stand_in() -> Iterator[Callable[..., StandIn]]:
    """Start a server with a script; it ends with the test."""
    pytest.importorskip("aiohttp")
    servers: list[StandIn] = []

    def start(script: Script = answers) -> StandIn:
        servers.append(StandIn(script))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()
