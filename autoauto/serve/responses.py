"""Errors as the protocol has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from autoauto.http.bodies import LargeRequest, SlowRequest
from autoauto.http.responses import json_response
from autoauto.records.errors import AutoautoError, BadInput
from autoauto.serve.batcher import NotServing, QueueFull

if TYPE_CHECKING:
    from aiohttp import web

STATUS: Mapping[type[AutoautoError], int] = {
    BadInput: 400,
    SlowRequest: 408,
    LargeRequest: 413,
    QueueFull: 429,
    NotServing: 503,
}


def error_response(status: int, message: str) -> web.Response:
    """An error as the protocol has it; where a later request may succeed it says so."""
    response = json_response({"error": message}, status)
    if status in (429, 503):
        response.headers["Retry-After"] = "1"
    return response
