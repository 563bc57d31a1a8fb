"""Connections to clients, and answers on their way to them, within limits: `Connections`, `Answers`.

A client that only connects takes a descriptor, and one that does not read its answer takes memory. When there is no
room, the connection that has been idle longest is closed, or the answer that has been written longest is given up.
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiohttp import web

    Answer = Callable[[web.Request, Any], Awaitable[web.StreamResponse]]

SPARE_DESCRIPTORS = 12
"""Descriptors that a start of processes takes for a moment, beyond those that it holds at its end."""
MAX_BACKLOG = 128
CHUNK_BYTES = 1 << 18
MIN_BYTES_PER_S = 1 << 18
"""The slowest pace at which a client may read what takes longer than the deadline of every answer."""
NOTE_AGAIN_S = 60.0


class Connections:
    """The connections of a server; never more are open than descriptors allow."""

    def __init__(self, server: web.Server) -> None:
        self._server = server
        self._open: dict[asyncio.Transport, bool] = {}  # whether a request is answered, the longest idle first
        self._n_descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.backlog = max(2, min(MAX_BACKLOG, self._n_descriptors // 32))
        self._limit = 1
        self.make_room()

    def protocol(self, make: Callable[[web.Server], web.RequestHandler]) -> Any:
        """The protocol of a new connection, for `create_server`; `make` makes what reads its requests."""
        return _Watched(self, make(self._server))

    def make_room(self) -> None:
        """Leave the descriptors that are open now, but for connections, to what opened them, and a few to spare."""
        n_others = len(os.listdir("/proc/self/fd")) - len(self._open)
        self._limit = max(1, self._n_descriptors - n_others - SPARE_DESCRIPTORS - self.backlog)
        self._close_idle()

    def add(self, transport: asyncio.Transport) -> None:
        """Note a connection that is open now, and close others where there are too many."""
        self._open[transport] = False
        self._close_idle()

    def remove(self, transport: asyncio.Transport) -> None:
        """Forget a connection that is closed."""
        self._open.pop(transport, None)

    def _close_idle(self) -> None:
        """Close connections without a request, the oldest first; then the newest, until no more are open than may."""
        idle = [each for each, is_busy in self._open.items() if not is_busy]
        busy = [each for each, is_busy in self._open.items() if is_busy]
        n_closed = max(0, len(self._open) - self._limit)
        for transport in (idle + busy[::-1])[:n_closed]:
            self._open.pop(transport)
            transport.abort()

    @contextmanager
    def busy(self, transport: asyncio.BaseTransport | None) -> Iterator[None]:
        """A connection has a request; after the context it is the one that has been idle for the shortest time."""
        assert isinstance(transport, asyncio.Transport | None)
        if transport in self._open:
            self._open[transport] = True
        try:
            yield
        finally:
            if transport is not None and self._open.pop(transport, None) is not None:
                self._open[transport] = False  # last in the order of the dictionary


class _Watched:
    """The protocol of a connection: aiohttp's, whose begin and end `Connections` notes."""

    def __init__(self, connections: Connections, protocol: web.RequestHandler) -> None:
        self._connections = connections
        self._protocol = protocol

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._protocol.connection_made(transport)
        self._connections.add(transport)

    def connection_lost(self, error: BaseException | None) -> None:
        self._connections.remove(self._transport)
        self._protocol.connection_lost(error)

    def __getattr__(self, name: str) -> Any:
        """Methods of the protocol that the event loop calls besides."""
        return getattr(self._protocol, name)


@contextmanager
def lost(request: web.BaseRequest) -> Iterator[None]:
    """Ends where a client is too slow (TimeoutError), which then loses its connection, or has gone."""
    try:
        yield
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    except ConnectionError:
        pass


class Answers:
    """Writes answers; when all together have too many bytes, the one that has been written longest is given up."""

    def __init__(self, max_sum_bytes: int, max_s: float) -> None:
        self._max_sum_bytes = max_sum_bytes
        self._max_s = max_s
        self._written: dict[asyncio.Timeout, int] = {}

    async def write(self, request: web.BaseRequest, answer: web.StreamResponse) -> web.StreamResponse:
        """Write an answer, and return it as it was written; a client that is too slow loses its connection."""
        from aiohttp import web

        response = answer
        chunks: list[memoryview] = []
        body = answer.body if isinstance(answer, web.Response) else None
        n_bytes = len(body) if isinstance(body, bytes) else 0
        if isinstance(body, bytes) and n_bytes > CHUNK_BYTES and request.method != "HEAD":
            # In chunks, between which aiohttp waits for the client: it would buffer a whole body for the connection.
            response = web.StreamResponse(status=answer.status, headers=answer.headers)
            response.content_length = n_bytes
            chunks = [memoryview(body)[start : start + CHUNK_BYTES] for start in range(0, n_bytes, CHUNK_BYTES)]
        limit = asyncio.timeout(self._max_s + n_bytes / MIN_BYTES_PER_S)
        try:
            with lost(request):
                async with limit:
                    self._add(limit, n_bytes)
                    await response.prepare(request)
                    while chunks:
                        await response.write(chunks.pop(0))
                    await response.write_eof()
        finally:
            self._written.pop(limit, None)
        return response

    def _add(self, limit: asyncio.Timeout, n_bytes: int) -> None:
        self._written[limit] = n_bytes
        total = sum(self._written.values())
        for oldest in [each for each, n in self._written.items() if n > CHUNK_BYTES and each is not limit]:
            if total <= self._max_sum_bytes:
                break
            total -= self._written.pop(oldest)
            oldest.reschedule(0.0)  # its time is over: its connection is closed


def answered(connections: Callable[[], Connections | None], answer: Answer) -> Any:
    """A middleware of aiohttp that answers requests, whose connections are busy meanwhile."""
    from aiohttp import web

    @web.middleware
    async def middleware(request: web.Request, handler: Any) -> web.StreamResponse:
        known = connections()
        if known is None:
            return await answer(request, handler)
        with known.busy(request.transport):
            return await answer(request, handler)

    return middleware


def note_errors(loop: asyncio.AbstractEventLoop, log: Callable[[str], None]) -> None:
    """Log what goes wrong in an event loop in one line in place of a traceback, each kind once a minute."""
    noted_s: dict[str, float] = {}

    def note(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        kind = f"{context['message']}: {type(error).__name__}"
        if loop.time() - noted_s.get(kind, -NOTE_AGAIN_S) >= NOTE_AGAIN_S and len(noted_s) < 1000:
            noted_s[kind] = loop.time()
            log(" ".join(f"{context['message']}: {error}".split()))

    loop.set_exception_handler(note)
