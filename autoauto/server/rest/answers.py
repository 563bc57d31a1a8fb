"""Answers as aiohttp sends them: `response_of` of a handler's, and `problem` of an error.

A person gets a page.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from autoauto.http.responses import json_response
from autoauto.server.call import Answer
from autoauto.server.pages.frame import again_page, problem_page
from autoauto.server.pages.session import login_path, wants_page

if TYPE_CHECKING:
    from aiohttp import web


def response_of(answer: Answer) -> web.Response:
    """What a handler answers."""
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
    title, line = HTTPStatus(status).phrase, " ".join(detail.split())
    if wants_page(request.headers):
        if status == HTTPStatus.UNAUTHORIZED and request.method == "GET":
            if request.headers.get("Sec-Fetch-Site") == "cross-site":
                return response_of(again_page(request.path_qs))
            return response_of(Answer(HTTPStatus.SEE_OTHER, None, login_path(request.path_qs)))
        response = response_of(problem_page(status, title, line, request_id))
    else:
        content = {
            **{"type": "about:blank", "title": title, "status": status},
            **{"detail": line, "request_id": request_id},
        }
        response = json_response(content, status, "application/problem+json")
    if status == HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = 'Bearer realm="autoauto"'
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        response.headers["Retry-After"] = "1"
    return response
