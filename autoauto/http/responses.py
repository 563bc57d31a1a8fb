"""Answers in JSON, and calls that must not make other requests wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from aiohttp import web

SHORT_BYTES = 1 << 16
"""Bytes up to which a body is read or an answer is written in the event loop, not in a thread."""


async def unhurried(call: Callable[[], Any], n_bytes: int) -> Any:
    """The result of a call; one that reads or writes much is not made in the event loop."""
    return call() if n_bytes <= SHORT_BYTES else await asyncio.to_thread(call)


def json_response(content: object, status: int = 200, media_type: str = "application/json") -> web.Response:
    """An answer in JSON."""
    from aiohttp import web

    return web.Response(body=msgspec.json.encode(content), status=status, content_type=media_type)
