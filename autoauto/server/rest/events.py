"""Changes of searches as server-sent events: `send_events`, and `Changes`, which names them.

search     a search as it is when the stream begins
started    a worker has it
best       its best so far has changed
progress   anything else has
ended      it has ended
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from autoauto.http.connections import lost
from autoauto.server.client import ENDED

if TYPE_CHECKING:
    from aiohttp import web

EVENTS = "text/event-stream"
PERIOD_S = 1.0
"""How often searches are read."""
KEEPALIVE_S = 15.0
"""The longest time without a byte, so that proxies keep the connection."""
WRITE_S = 10.0
"""The time that a client has to read an event."""
Read = Callable[[], Awaitable[Sequence[Mapping[str, Any]]]]


class Changes:
    """Finds the searches that have changed since they were read the last time."""

    def __init__(self) -> None:
        self._known: dict[str, Mapping[str, Any]] = {}

    def since(self, now: Sequence[Mapping[str, Any]]) -> Iterator[bytes]:
        """An event for every search that has changed, as it is written."""
        for search in now:
            before = self._known.get(search["id"])
            if search != before:
                data = msgspec.json.encode(search)
                yield b"event: %s\ndata: %s\n\n" % (_name(before, search).encode(), data)
        self._known = {search["id"]: search for search in now}

    @property
    def have_ended(self) -> bool:
        """True if all searches have ended, so that nothing changes until one is resumed."""
        return all(search["state"] in ENDED for search in self._known.values())


def _name(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> str:
    if before is None:
        return "search"
    if now["state"] != before["state"] and now["state"] in ENDED:
        return "ended"
    if now["state"] == "running" != before["state"]:
        return "started"
    return "best" if now["best"] != before["best"] else "progress"


async def send_events(
    request: web.Request, response: web.StreamResponse, read: Read, is_ending: asyncio.Event, *, is_one: bool
) -> None:
    """Send changes until the client or the server goes, or, where `is_one`, the search has ended.

    Raises:
        AutoautoError: what `read` raises the first time.
    """
    changes = Changes()
    first = b"retry: 2000\n\n" + b"".join(changes.since(await read()))
    with lost(request):
        async with asyncio.timeout(WRITE_S):
            await response.prepare(request)
            await response.write(first)
        silent_s = 0.0
        while not (is_ending.is_set() or (is_one and changes.have_ended)):
            with suppress(TimeoutError):
                async with asyncio.timeout(PERIOD_S):
                    await is_ending.wait()
            silent_s += PERIOD_S
            events = b"".join(changes.since(await read()))
            if not events and silent_s >= KEEPALIVE_S:
                events = b": still here\n\n"  # a comment, which clients skip
            if events:
                silent_s = 0.0
                async with asyncio.timeout(WRITE_S):
                    await response.write(events)
        async with asyncio.timeout(WRITE_S):
            await response.write_eof()
