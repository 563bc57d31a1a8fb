"""Answers in JSON, errors as the protocol has them, and calls that must not make other requests wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from autoauto.records.errors import AutoautoError, BadInput
from autoauto.serve.batcher import NotServing, QueueFull
from autoauto.serve.bodies import LargeRequest, SlowRequest

if TYPE_CHECKING:
    from aiohttp import web

SHORT_BYTES = 1 << 16
"""Bytes up to which a body is read or an answer is written in the event loop, not in a thread."""

STATUS: Mapping[type[AutoautoError], int] = {
    BadInput: 400,
    SlowRequest: 408,
    LargeRequest: 413,
    QueueFull: 429,
    NotServing: 503,
}


async def unhurried(call: Callable[[], Any], n_bytes: int) -> Any:
    """The result of a call; one that reads or writes much is not made in the event loop."""
    return call() if n_bytes <= SHORT_BYTES else await asyncio.to_thread(call)


def silent_logger() -> logging.Logger:
    """Where aiohttp writes a traceback for every request that is no HTTP: nowhere, or clients could fill the disk."""
    logger = logging.Logger("autoauto.serve")
    logger.addHandler(logging.NullHandler())
    return logger


def json_response(content: object, status: int = 200) -> web.Response:
    """An answer in JSON."""
    from aiohttp import web

    return web.Response(body=msgspec.json.encode(content), status=status, content_type="application/json")


def error_response(status: int, message: str) -> web.Response:
    """An error as the protocol has it; where a later request may succeed it says so."""
    response = json_response({"error": message}, status)
    if status in (429, 503):
        response.headers["Retry-After"] = "1"
    return response
