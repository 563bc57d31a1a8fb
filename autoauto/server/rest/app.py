"""The HTTP server of the service, on aiohttp: `serve_searches`.

    Host ──▶ token ──▶ role ──▶ body ──▶ handler, in a thread ──▶ answer
     400      401      403    400, 408, 413     400, 404, 409, 503

Every path goes this way, as the table in `routes.py` says. Bodies, connections and answers have the limits of `http/`.
"""

from __future__ import annotations

import asyncio
import re
import signal
import tempfile
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from socket import gethostname
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import msgspec

from autoauto.http.bodies import Bodies, LargeRequest, SlowRequest
from autoauto.http.connections import Answers, Connections, answered, listen, note_errors, raise_descriptors
from autoauto.http.responses import silent_logger
from autoauto.processes.hosts import is_allowed_host
from autoauto.records.errors import AutoautoError, BadInput
from autoauto.server.call import Call, ReadRequest, Service
from autoauto.server.metrics import ServiceMetrics
from autoauto.server.pages.session import came_by_tls, check_same_site, token_in_cookie
from autoauto.server.rest.answers import problem, response_of
from autoauto.server.rest.routes import ROUTES, BodyKind, Route, openapi_document
from autoauto.server.store.searches import Conflict, Forbidden, NotFound
from autoauto.server.store.tables import DatabaseAway, ServiceDatabase
from autoauto.server.store.users import LOCAL, Role, User, user_of

if TYPE_CHECKING:
    from aiohttp import web

KEEPALIVE_S, SHUTDOWN_S, BODY_S, ANSWER_S = 75.0, 5.0, 30.0, 30.0
MAX_SUBMISSION_BYTES = 1 << 20
MAX_SUBMISSIONS_BYTES = 64 << 20
MAX_ANSWERS_BYTES = 128 << 20
UPLOAD_S = 1800.0
N_THREADS = 8
MAX_WAITING = 500
"""Requests that wait for a thread at most; others are refused (429)."""
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
Log = Callable[[Mapping[str, Any]], None]


class Unauthorised(AutoautoError):
    """The request has no token that is in force."""


class Busy(AutoautoError):
    """Too many requests wait."""


STATUS: Mapping[type[AutoautoError], int] = {
    **{BadInput: 400, Unauthorised: 401, Forbidden: 403, NotFound: 404, SlowRequest: 408, Conflict: 409},
    **{LargeRequest: 413, Busy: 429, DatabaseAway: 503},
}


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """How the service is offered.

    Attributes:
        host, port: where; port 0 is any that is free.
        allowed_hosts: names of this server in `Host` headers, beside `host`, localhost and addresses.
        is_open: whether requests need no token; only for an address of this machine alone.
        max_model_bytes: of an uploaded file.

    Raises:
        BadInput: it is open to other machines.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    allowed_hosts: tuple[str, ...] = ()
    is_open: bool = False
    max_model_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        if self.is_open and not _is_loopback(self.host):
            raise BadInput(
                f"without tokens a server must listen at this machine alone, got {self.host}; try --listen "
                f"127.0.0.1:{self.port}, or leave out --open"
            )


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


async def serve_searches(
    database: ServiceDatabase,
    read_request: ReadRequest,
    options: ServiceOptions,
    on_ready: Callable[[str], None],
    log: Log,
) -> None:
    """Answer requests until SIGINT or SIGTERM.

    Args:
        database: of the service.
        read_request: reads the options of a submission.
        options: see `ServiceOptions`.
        on_ready: is called once with the URL, when requests are answered.
        log: is called with an event for every request, and for what went wrong.

    Raises:
        BadInput: the address is taken, or there is no such host.
    """
    from aiohttp import web

    raise_descriptors()
    loop, is_ending = asyncio.get_running_loop(), asyncio.Event()
    note_errors(loop, lambda line: log({"event": "error", "message": line}))
    service = Service(database, read_request, ServiceMetrics(), msgspec.json.encode(openapi_document()))
    door = _Door(service, options, log)
    runner = web.AppRunner(
        door.app(),
        access_log=None,
        logger=silent_logger(),
        handler_cancellation=False,  # a submission that was taken is stored, also where its sender has gone
        keepalive_timeout=KEEPALIVE_S,
        shutdown_timeout=SHUTDOWN_S,
        auto_decompress=False,
    )
    await runner.setup()
    listener = None
    try:
        door.connections, listener, url = await listen(runner, options.host, options.port)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, is_ending.set)
        on_ready(url)
        await is_ending.wait()
    finally:
        if listener is not None:
            listener.close()
        await runner.cleanup()
        door.close()


class _Door:
    """Checks requests, and gives them to their handlers."""

    def __init__(self, service: Service, options: ServiceOptions, log: Log) -> None:
        self._service, self._options, self._log = service, options, log
        self._bodies = Bodies(MAX_SUBMISSION_BYTES, MAX_SUBMISSIONS_BYTES, BODY_S, "send one search in a body")
        hint = "raise --max-model-mib of the server"
        self._files = Bodies(options.max_model_bytes, 4 * options.max_model_bytes, UPLOAD_S, hint)
        self._answers = Answers(MAX_ANSWERS_BYTES, ANSWER_S)
        self._threads = ThreadPoolExecutor(N_THREADS, "autoauto-server")
        self._n_waiting = 0
        self._hosts = frozenset((options.host, gethostname(), *options.allowed_hosts))
        self.connections: Connections | None = None

    def app(self) -> web.Application:
        """The application with the paths of the table."""
        from aiohttp import web

        app = web.Application(middlewares=[answered(lambda: self.connections, self._respond)])
        for route in ROUTES:
            if route.method == "GET":
                app.router.add_get(route.path, self._handler(route))
            else:
                app.router.add_route(route.method, route.path, self._handler(route))
        return app

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _handler(self, route: Route) -> Any:
        async def handle(request: web.Request) -> web.Response:
            request["route"] = route.path
            check_same_site(request.method, request.headers)
            user = LOCAL if route.role is None else await self._user(request, route.role)
            request["user"] = user.name
            return await self._called(route, request, user)

        return handle

    async def _user(self, request: web.Request, role: Role) -> User:
        """Who sends a request.

        Raises:
            Unauthorised: it has no token that is in force.
            Forbidden: its user has not the role.
        """
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            token = token_in_cookie(request.headers)
        user: User | None = None
        if token:
            user = await self._in_thread(lambda: user_of(self._service.database, token.strip()))
        elif not scheme and self._options.is_open:
            return LOCAL
        if user is None:
            raise Unauthorised(
                "a request must have the header Authorization: Bearer and a token that is in force, got "
                f"{'another token' if token else 'none'}; try autoauto server token create NAME"
            )
        if not user.role.includes(role):
            raise Forbidden(f"this needs the role {role}, {user.name} has {user.role}; ask for another token")
        return user

    async def _called(self, route: Route, request: web.Request, user: User) -> web.Response:
        path, query = dict(request.match_info), dict(request.query)
        if len(query) < len(request.query):
            raise BadInput("a parameter is given once, got one twice; leave one out")
        by_tls = came_by_tls(request.scheme, request.headers)
        if route.body in (BodyKind.JSON, BodyKind.FORM):
            async with self._bodies.read(request) as body:
                call = Call(user, path, query, bytes(body), by_tls=by_tls)
                return response_of(await self._in_thread(lambda: route.answer(self._service, call)))
        if route.body in (BodyKind.FILE, BodyKind.FORM_WITH_FILES):
            with cast("BinaryIO", tempfile.TemporaryFile()) as file:
                await self._files.save(request, file)
                call = Call(user, path, query, file=file)
                return response_of(await self._in_thread(lambda: route.answer(self._service, call)))
        call = Call(user, path, query)
        if route.path == "/health":  # also where all threads wait for a database that is away
            return response_of(await asyncio.to_thread(route.answer, self._service, call))
        return response_of(await self._in_thread(lambda: route.answer(self._service, call)))

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        if self._n_waiting >= MAX_WAITING:
            raise Busy(f"at most {MAX_WAITING} requests wait for the server, and so many do; try again later")
        self._n_waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        finally:
            self._n_waiting -= 1

    async def _respond(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """The answer of a handler, or its error as problem details; with the id of the request, and logged."""
        from aiohttp import web

        started_s = asyncio.get_running_loop().time()
        given = request.headers.get("X-Request-Id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        allowed: str | None = None
        try:
            self._check_host(request)
            response: web.Response = await handler(request)
        except AutoautoError as error:
            response = problem(request, STATUS.get(type(error), 400), str(error), request_id)
        except web.HTTPException as error:
            allowed = error.headers.get("Allow")
            what = f"{request.method} {request.path[:100]!r}"
            detail = f"{error.reason}: {what}; GET /openapi.json has all paths"
            response = problem(request, error.status, detail, request_id)
        except Exception as error:  # noqa: BLE001 (one request must not end the server)
            self._log({"event": "error", "id": request_id, "message": f"{type(error).__name__}: {error}"})
            detail = "the server failed; its log has the reason under the request's id"
            response = problem(request, 500, detail, request_id)
        if allowed:
            response.headers["Allow"] = allowed
        response.headers["X-Request-Id"] = request_id
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Content-Type-Options"] = "nosniff"
        written = await self._answers.write(request, response)
        self._note(request, response.status, request_id, asyncio.get_running_loop().time() - started_s)
        return written

    def _check_host(self, request: web.Request) -> None:
        host = request.headers.get("Host", "")
        if not is_allowed_host(host, self._hosts):
            raise BadInput(
                f"the Host header must be an address, localhost or a name of this server, got {host!r:.80}; "
                "try server --allow-host"
            )

    def _note(self, request: web.Request, status: int, request_id: str, seconds: float) -> None:
        path = request.get("route", "other")
        method = request.method if path != "other" else "other"
        self._service.metrics.count(method, path, status, seconds)
        self._log(
            {
                **{"event": "request", "id": request_id, "method": request.method, "path": request.path[:200]},
                **{"status": status, "ms": round(1000 * seconds, 1), "user": request.get("user")},
            }
        )
