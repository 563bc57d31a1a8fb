"""Answers as aiohttp sends them: `response_of` of a handler's, `problem` of an error, `protocol_of` of what is no HTTP.

A person gets a page.
"""

from __future__ import annotations

import asyncio
import uuid
from http import HTTPStatus
from typing import TYPE_CHECKING

from typing_extensions import override

from autoauto.http.responses import json_response
from autoauto.server.call import Answer
from autoauto.server.pages.frame import again_page, problem_page
from autoauto.server.pages.session import login_path, wants_page

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.web_protocol import RequestHandler

MAX_LINE_BYTES = 8_190
"""Maximum length of a URL or a header, that of aiohttp."""


def response_of(answer: Answer) -> web.Response:
    """The HTTP response for the answer of a handler."""
    from aiohttp import web

    if answer.raw is None and answer.content is None:
        response = web.Response(status=answer.status)
    elif answer.raw is None:
        response = json_response(answer.content, answer.status)
    else:
        body, media_type = answer.raw
        response = web.Response(body=body, status=answer.status, headers={"Content-Type": media_type})
    response.headers.extend(answer.headers)
    if answer.location:
        response.headers["Location"] = answer.location
    if answer.cookie is not None:
        response.headers["Set-Cookie"] = answer.cookie
    return response


def problem(request: web.Request, status: int, detail: str, request_id: str) -> web.Response:
    """An error as problem details (RFC 9457); its detail says what must hold, what was given, what to try.

    Who reads pages gets one, and is asked for a token where there is none.
    """
    title = HTTPStatus(status).phrase
    line = " ".join(detail.encode(errors="replace").decode().split())
    if wants_page(request.headers):
        if status == HTTPStatus.UNAUTHORIZED and request.method == "GET":
            if request.headers.get("Sec-Fetch-Site") == "cross-site":
                return response_of(again_page(request.path_qs))
            return response_of(Answer(HTTPStatus.SEE_OTHER, None, login_path(request.path_qs)))
        response = response_of(problem_page(status, title, line, request_id))
    else:
        response = _details(status, line, request_id)
    if status == HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = 'Bearer realm="autoauto"'
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        response.headers["Retry-After"] = "1"
    return response


def _details(status: int, detail: str, request_id: str) -> web.Response:
    title = HTTPStatus(status).phrase
    content = {"type": "about:blank", "title": title, "status": status, "detail": detail, "request_id": request_id}
    return json_response(content, status, "application/problem+json")


def protocol_of(server: web.Server) -> RequestHandler:
    """The request reader of aiohttp for a connection, which answers problem details to what is no request."""
    from aiohttp.http_exceptions import LineTooLong
    from aiohttp.web_protocol import RequestHandler

    class ProblemHandler(RequestHandler):
        """Answers what cannot be read as HTTP."""

        __slots__ = ()

        @override
        def handle_error(
            self,
            request: web.BaseRequest,
            status: int = 500,
            exc: BaseException | None = None,
            message: str | None = None,
        ) -> web.StreamResponse:
            super().handle_error(request, status, exc, message)  # raises where an answer has begun
            if isinstance(exc, LineTooLong):
                status = HTTPStatus.REQUEST_URI_TOO_LONG
                message = f"a URL or a header may have {MAX_LINE_BYTES} bytes"
            detail = " ".join((message or "the server failed").split())[:200]
            response = _details(status, f"{detail}; send a shorter or another request", uuid.uuid4().hex)
            response.force_close()
            return response

    return ProblemHandler(server, loop=asyncio.get_running_loop(), **server._kwargs)
