"""`Door` checks host, sender and body of every request, and calls its handler.

    Host ──▶ token ──▶ role ──▶ body ──▶ handler, in a thread ──▶ answer
     400      401      403    400, 408, 413     400, 404, 409, 503

Every path goes this way, as the table in `routes.py` says. Bodies, connections and answers have the limits of `http/`.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from socket import gethostname
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from autoauto.http.bodies import Bodies, LargeRequest, SlowRequest
from autoauto.http.connections import Answers, Connections, answered
from autoauto.http.hosts import check_host
from autoauto.records.errors import AutoautoError, BadInput
from autoauto.server.call import Answer, Call, ReadSearches, Service
from autoauto.server.pages.session import check_same_site, server_url
from autoauto.server.rest.answers import problem, response_of
from autoauto.server.rest.events import EVENTS, send_events
from autoauto.server.rest.identity import ServiceOptions, Unauthorised, sender_of
from autoauto.server.rest.parameters import read_parameters
from autoauto.server.rest.routes import ROUTES, BodyKind, Route
from autoauto.server.store.models import CannotKeep, OverQuota
from autoauto.server.store.room import no_room
from autoauto.server.store.searches import Conflict, Forbidden, NotFound
from autoauto.server.store.tables import DatabaseAway, StorageFull
from autoauto.server.store.users import LOCAL, Role, User
from autoauto.server.work.commands import CommandFailed, CommandTooLong

if TYPE_CHECKING:
    from aiohttp import web

BODY_S, ANSWER_S = 30.0, 30.0
MAX_SUBMISSION_BYTES = 1 << 20
MAX_SUBMISSIONS_BYTES = 64 << 20
MAX_ANSWERS_BYTES = 128 << 20
UPLOAD_S = 1800.0
N_THREADS = 8
MAX_WAITING = 500
"""Maximum number of requests that wait for a thread; others are refused (429)."""
MAX_COMMANDS_WAITING = 50
MAX_STREAMS, MAX_STREAMS_OF_USER = 200, 20
"""Maximum number of streams of events at a time, of all users and of one."""
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
Log = Callable[[Mapping[str, Any]], None]


class Busy(AutoautoError):
    """Too many requests wait."""


STATUS: Mapping[type[AutoautoError], int] = {
    BadInput: 400,
    Unauthorised: 401,
    Forbidden: 403,
    NotFound: 404,
    SlowRequest: 408,
    Conflict: 409,
    CommandTooLong: 409,
    LargeRequest: 413,
    OverQuota: 413,
    Busy: 429,
    DatabaseAway: 503,
    CommandFailed: 503,
    StorageFull: 507,
    CannotKeep: 507,
}


class Door:
    """Checks requests, and gives them to their handlers."""

    def __init__(self, service: Service, options: ServiceOptions, log: Log, is_ending: asyncio.Event) -> None:
        self._service = service
        self._log = log
        self._is_ending = is_ending
        self._options = options
        self._bodies = Bodies(MAX_SUBMISSION_BYTES, MAX_SUBMISSIONS_BYTES, BODY_S, "send one search in a body")
        hint = "raise --max-model-mib of the server"
        self._files = Bodies(options.max_model_bytes, 4 * options.max_model_bytes, UPLOAD_S, hint)
        self._answers = Answers(MAX_ANSWERS_BYTES, ANSWER_S)
        self._threads = ThreadPoolExecutor(N_THREADS, "autoauto-server")
        self._command_thread = ThreadPoolExecutor(1, "autoauto-commands")
        self._n_waiting: Counter[ThreadPoolExecutor] = Counter()
        self._n_streams: Counter[str] = Counter()
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
        for threads in (self._threads, self._command_thread):
            threads.shutdown(wait=False, cancel_futures=True)

    def _handler(self, route: Route) -> Any:
        async def handle(request: web.Request) -> Answer:
            request["route"] = route.path
            check_same_site(request.method, request.headers)
            user = LOCAL if route.role is None else await self._user(request, route.role)
            request["user"] = user.name
            answer = await self._called(route, request, user)
            if answer.events is not None:
                self._check_streams(user.name)
            return answer

        return handle

    def _check_streams(self, user: str) -> None:
        if self._n_streams[user] >= MAX_STREAMS_OF_USER:
            raise Busy(
                f"at most {MAX_STREAMS_OF_USER} streams of events of one user are read, and so many are; end one"
            )
        if self._n_streams.total() >= MAX_STREAMS:
            raise Busy(f"at most {MAX_STREAMS} streams of events of all users are read, and so many are; end one")

    def _sender(self, request: web.Request) -> User:
        return sender_of(self._service.database, self._options, request.headers, request.remote or "")

    async def _user(self, request: web.Request, role: Role) -> User:
        user: User = await self._in_thread(lambda: self._sender(request))
        if not user.role.includes(role):
            raise Forbidden(f"this needs the role {role}, {user.name} has {user.role}; ask for another token")
        return user

    async def _called(self, route: Route, request: web.Request, user: User) -> Answer:
        path, given = dict(request.match_info), dict(request.query)
        if len(given) < len(request.query):
            raise BadInput("a parameter is given once, got one twice; leave one out")
        server = server_url(request.scheme, request.headers)
        call = Call(user, path, read_parameters(given, route.query), server=server)
        if route.body in (BodyKind.JSON, BodyKind.FORM):
            async with self._bodies.read(request) as body:
                return await self._answer(route, call._replace(body=bytes(body)))
        if route.body in (BodyKind.FILE, BodyKind.FORM_WITH_FILES):
            with cast("BinaryIO", tempfile.TemporaryFile()) as file:
                await self._files.save(request, file)
                return await self._answer(route, call._replace(file=file))
        if route.path == "/health":  # also where all threads wait for a database that is away
            return await asyncio.to_thread(route.answer, self._service, call)
        return await self._answer(route, call)

    async def _answer(self, route: Route, call: Call) -> Answer:
        threads = self._command_thread if route.runs_command else self._threads
        answer: Answer = await self._in_thread(lambda: route.answer(self._service, call), threads)
        return answer

    async def _in_thread(self, call: Callable[[], Any], threads: ThreadPoolExecutor | None = None) -> Any:
        threads = threads or self._threads
        n_most = MAX_WAITING if threads is self._threads else MAX_COMMANDS_WAITING
        if self._n_waiting[threads] >= n_most:
            raise Busy(f"at most {n_most} such requests wait for the server, and so many do; try again later")
        self._n_waiting[threads] += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, call)
        finally:
            self._n_waiting[threads] -= 1

    async def _respond(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """The answer of a handler, or its error as problem details; with the id of the request, and logged."""
        started_s = asyncio.get_running_loop().time()
        given = request.headers.get("X-Request-Id", "")
        request["id"] = request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        response, events = await self._response(request, handler)
        response.headers["X-Request-Id"] = request_id
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Content-Type-Options"] = "nosniff"
        if events is None:
            response = await self._answers.write(request, response)
        else:
            await self._send_events(request, response, events)
        seconds = asyncio.get_running_loop().time() - started_s
        path = request.get("route", "other")
        method = request.method if path != "other" else "other"
        self._service.metrics.count(method, path, response.status, seconds)
        self._log(
            {
                "event": "request",
                "id": request_id,
                "method": request.method,
                "path": request.path[:200],
                "status": response.status,
                "ms": round(1000 * seconds, 1),
                "user": request.get("user"),
            }
        )
        return response

    async def _response(self, request: web.Request, handler: Any) -> tuple[web.StreamResponse, ReadSearches | None]:
        """The response with the answer of a handler or its error; and what reads the events that follow."""
        from aiohttp import web

        try:
            check_host(request.headers.get("Host", ""), self._hosts, "server --allow-host")
            answer: Answer = await handler(request)
        except AutoautoError as error:
            return problem(request, STATUS.get(type(error), 400), str(error), request["id"]), None
        except web.HTTPException as error:
            detail = f"{error.reason}: {request.method} {request.path[:100]!r}; GET /openapi.json has all paths"
            response = problem(request, error.status, detail, request["id"])
            if "Allow" in error.headers:
                response.headers["Allow"] = error.headers["Allow"]
            return response, None
        except OSError as error:  # of a temporary file or folder
            self._log({"event": "error", "id": request["id"], "message": f"{type(error).__name__}: {error}"})
            return problem(request, STATUS[StorageFull], str(no_room(error)), request["id"]), None
        except Exception as error:  # noqa: BLE001 (one request must not end the server)
            self._log({"event": "error", "id": request["id"], "message": f"{type(error).__name__}: {error}"})
            detail = "the server failed; its log has the reason under the request's id"
            return problem(request, 500, detail, request["id"]), None
        if answer.events is not None:
            return web.StreamResponse(headers={"Content-Type": EVENTS}), answer.events
        return response_of(answer), None

    async def _send_events(self, request: web.Request, response: web.StreamResponse, events: ReadSearches) -> None:
        def read() -> Sequence[Mapping[str, Any]]:
            self._sender(request)  # a token that was revoked ends the stream
            return events()

        user = request["user"]
        self._n_streams[user] += 1
        try:
            is_one = "search_id" in request.match_info
            await send_events(request, response, lambda: self._in_thread(read), self._is_ending, is_one=is_one)
        finally:
            self._n_streams[user] -= 1
