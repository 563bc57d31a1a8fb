"""The HTTP server of a model, on aiohttp: `serve`, `ServerOptions`.

    body ──▶ Job ──▶ Batcher ──▶ PipelineEngine ──▶ processes
    408, 413    400     429         503

A request is answered when its job has ended, or with a status below the arrow at which it was refused.
Everything here but the thread of the engine runs in one event loop, so that nothing needs a lock. What is in memory is
bounded: by the limit of a body, by the sum of all bodies, and by the samples that may wait.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from socket import gethostname
from typing import TYPE_CHECKING, Any

from autoauto.http.application import Address, serving
from autoauto.http.bodies import Bodies, LargeRequest, SlowRequest
from autoauto.http.connections import Answers, Connections, answered
from autoauto.http.hosts import check_host
from autoauto.http.responses import json_response, unhurried
from autoauto.processes.circles import collect_often
from autoauto.records.errors import AutoautoError, BadInput
from autoauto.records.installation import VERSION
from autoauto.serve.artifact import Artifact
from autoauto.serve.batcher import Batcher, Job, MicroBatch, NotServing, QueueFull
from autoauto.serve.engine import PipelineEngine
from autoauto.serve.metrics import ServerMetrics
from autoauto.serve.protocol import read_request, write_response
from autoauto.serve.root import root_response

if TYPE_CHECKING:
    from aiohttp import web

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

MODEL_VERSION = "1"
MIN_STALL_S, STALL_PERIODS = 30.0, 50.0
"""Pipelines that give no outputs for that long, though they have a micro-batch, hang."""
SHUTDOWN_S = 10.0
"""The time that clients have to take the last answers."""
MIN_ANSWERS_BYTES = 128 << 20
"""The limit of the bytes of all answers that wait to be read is this, or twice those of all micro-batches."""
MIN_REQUEST_BYTES, JSON_FACTOR = 16 << 20, 4
"""By default a body may hold a micro-batch whose numbers take so many times their bytes, as they may in JSON."""

_STATUS: Mapping[type[AutoautoError], int] = {
    BadInput: 400,
    SlowRequest: 408,
    LargeRequest: 413,
    QueueFull: 429,
    NotServing: 503,
}


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Options of a server of one model.

    Attributes:
        host, port: where; port 0 is any that is free.
        max_queue: the maximum number of samples that wait; None for eight micro-batches a pipeline, 64 samples or more.
        max_delay_s: the maximum time for which samples wait for company; None for a tenth of the period of the plan.
        max_request_bytes: the maximum length of a body; None for a micro-batch in JSON, 16 MiB or more.
        body_s: the maximum time from the head of a request to the end of its body.
        allowed_hosts: names of this server in `Host` headers, beside `host`, localhost and addresses.
        answer_s: the time that a client has to read an answer, more where it is long.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    max_queue: int | None = None
    max_delay_s: float | None = None
    max_request_bytes: int | None = None
    body_s: float = 30.0
    answer_s: float = 30.0
    allowed_hosts: tuple[str, ...] = ()


async def serve(
    artifact: Artifact, options: ServerOptions, on_ready: Callable[[str], None], log: Callable[[str], None]
) -> None:
    """Serve a model until SIGINT or SIGTERM, and answer then what was taken; a second signal ends this process.

    Args:
        on_ready: is called once with the URL of the server, when it answers requests.
        log: is called with a line about what begins or went wrong.

    Raises:
        BadInput: the port is taken, or there is no such host.
        OutOfMemory: a stage does not fit its device.
        WorkerLost: the processes end again and again.
    """
    collect_often()
    server = Server(artifact, options, log)
    address = Address(options.host, options.port)
    async with serving(server.app(), address, log, server.stop, SHUTDOWN_S, handler_cancellation=True) as (
        server.connections,
        url,
    ):
        n_processes = artifact.model.n_pipelines * artifact.model.n_processes
        processes = f"{n_processes} processes" if n_processes > 1 else "1 process"
        log(f"starting {processes} of {artifact.model.name}")
        await server.run(lambda: on_ready(url))


class Server:
    """Answers requests to one model; implements `EngineEvents`."""

    def __init__(self, artifact: Artifact, options: ServerOptions, log: Callable[[str], None]) -> None:
        self._model = model = artifact.model
        self._log = log
        self._loop = asyncio.get_running_loop()
        batch_size = model.batch_size
        max_queue = options.max_queue or max(8 * batch_size * model.n_pipelines, 64)
        # By default a sample waits for company a tenth of a period.
        delay_s = model.period_s / 10 if options.max_delay_s is None else options.max_delay_s
        self._batcher = Batcher(model, max_queue, delay_s)
        max_bytes = options.max_request_bytes or max(JSON_FACTOR * model.sample_bytes * batch_size, MIN_REQUEST_BYTES)
        # Bodies may hold all samples that wait or are computed, and a few requests more that arrive.
        max_samples = max_queue + self._batcher.capacity * batch_size
        self._bodies = Bodies(max_bytes, max_samples * model.sample_bytes + 4 * max_bytes, options.body_s)
        self._answers = Answers(
            max(2 * self._batcher.capacity * batch_size * model.answer_bytes, MIN_ANSWERS_BYTES), options.answer_s
        )
        self.connections: Connections | None = None
        self._metrics = ServerMetrics(model, self._batcher)
        self._engine = PipelineEngine(artifact, self)
        self._hosts = frozenset((options.host, gethostname(), *options.allowed_hosts))
        self._timer: asyncio.TimerHandle | None = None
        self._progress_s = 0.0
        self._is_ready = self._is_stopping = False
        self._changed = asyncio.Event()
        self._ended: asyncio.Future[None] = self._loop.create_future()

    def app(self) -> web.Application:
        """The application with all its paths."""
        from aiohttp import web

        app = web.Application(middlewares=[answered(lambda: self.connections, self._answer)])
        app.router.add_get("/", self._root)
        app.router.add_get("/v2", self._server_metadata)
        app.router.add_get("/v2/health/live", self._live)
        app.router.add_get("/v2/health/ready", self._ready)
        app.router.add_get("/metrics", self._prometheus)
        for path in ("/v2/models/{model}", f"/v2/models/{{model}}/versions/{MODEL_VERSION}"):
            app.router.add_get(path, self._model_metadata)
            app.router.add_get(f"{path}/ready", self._ready)
            app.router.add_post(f"{path}/infer", self._infer)
        return app

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Start the processes, answer requests until `stop`, and end the processes.

        Raises AutoautoError if these do not start, or end again and again.
        """
        self._engine.start()
        watch = self._loop.create_task(self._watch())
        try:
            await self._until(lambda: self._is_ready or self._is_stopping)
            if self._is_ready:
                on_ready()
            await self._until(lambda: self._is_stopping and self._batcher.is_empty)
            if not self._ended.done():
                self._engine.stop()
            await self._ended
        finally:
            watch.cancel()
            self._is_ready = False
            self._batcher.lose(NotServing("the server ends; try another one"), self._loop.time())
            if self._ended.done():
                self._engine.close()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition() and not self._ended.done():
            self._changed.clear()
            await self._changed.wait()

    def stop(self) -> None:
        """Take no more requests, and end when those that were taken are answered; the second call ends at once."""
        if self._is_stopping:
            os._exit(130)  # the kernel ends the processes with this one
        self._is_stopping = True
        self._changed.set()

    async def _watch(self) -> None:
        """Kill processes that hang, so that they are started again."""
        while True:
            await asyncio.sleep(1.0)
            stall_s = max(MIN_STALL_S, STALL_PERIODS * self._model.n_processes * self._model.period_s)
            if self._batcher.in_flight and self._loop.time() - self._progress_s > stall_s:
                self._log(f"the processes gave nothing for {stall_s:g} s; they are killed")
                self._progress_s = self._loop.time()
                self._engine.kill()

    def on_started(self, dependence: str | None) -> None:
        """All processes are loaded and warm; requests share no micro-batch where their samples depend on each other."""
        if dependence is not None and self._batcher.dependence is None:
            self._batcher.dependence = dependence
            self._log(f"a request must hold {self._model.batch_size} samples, because {dependence}")
        if self.connections is not None:
            self.connections.make_room()
        self._is_ready = True
        self._metrics.ready.set(1)
        self._changed.set()

    def on_finished(self, batch: MicroBatch) -> None:
        """The jobs of a micro-batch have its outputs."""
        self._metrics.count(batch)
        self._batcher.finish(batch, self._loop.time())
        self._go_on()

    def on_refused(self, batch: MicroBatch, reason: str) -> None:
        """The model does not take the values of a micro-batch."""
        self._batcher.refuse(batch, reason, self._loop.time())
        self._go_on()

    def on_lost(self, reason: str) -> None:
        """The processes ended, and what was in flight is lost; they are started again."""
        self._is_ready = False
        self._metrics.ready.set(0)
        self._metrics.restarts.inc()
        self._log(f"{reason}; the processes are started again")
        self._batcher.lose(NotServing(f"{reason}; the model is being loaded again, try again later"), self._loop.time())
        self._changed.set()

    def on_ended(self, error: AutoautoError | None) -> None:
        """No process is left."""
        self._is_ready = False
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)
        self._changed.set()

    def _go_on(self) -> None:
        self._progress_s = self._loop.time()
        self._submit()
        if self._batcher.is_empty:
            self._changed.set()

    def _submit(self) -> None:
        """Hand over the micro-batches that are due, and come back when the next one is."""
        now_s = self._loop.time()
        while self._is_ready and (batch := self._batcher.next(now_s)) is not None:
            if len(self._batcher.in_flight) == 1:  # before, nothing was computed that could hang
                self._progress_s = now_s
            self._engine.submit(batch)
        if self._timer is not None:
            self._timer.cancel()
        wake_s = self._batcher.wake_s
        self._timer = None if wake_s is None else self._loop.call_at(wake_s, self._submit)

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        from aiohttp import web

        try:
            check_host(request.headers.get("Host", ""), self._hosts, "serve --allow-host")
            response: web.StreamResponse = await handler(request)
        except AutoautoError as error:
            response = _error_response(_STATUS.get(type(error), 400), str(error))
        except web.HTTPException as error:
            response = _error_response(error.status, f"{error.reason}: {request.method} {request.path[:200]}")
        except Exception as error:  # noqa: BLE001 (one request must not end the server)
            self._log(f"{request.method} {request.path}: {error!r}")
            response = _error_response(500, "the server failed; its log has the reason")
        if request.method == "POST":
            self._metrics.requests.labels(response.status).inc()
        return await self._answers.write(request, response)

    async def _infer(self, request: web.Request) -> web.Response:
        from aiohttp import web

        self._check_model(request)
        self._check_serving()
        start_s = self._loop.time()
        async with self._bodies.read(request) as body:
            length = request.headers.get("Inference-Header-Content-Length")
            read = partial(read_request, body, length, self._model.inputs, self._model.outputs, self._batcher.max_queue)
            wanted = await unhurried(read, len(body))
            outputs = await self._computed(wanted.inputs, wanted.n_samples)
        self._metrics.seconds.observe(self._loop.time() - start_s)
        n_bytes = sum(array.nbytes for array in outputs.values())
        write = partial(write_response, wanted, self._model.name, MODEL_VERSION, outputs)
        parts, json_length = await unhurried(write, n_bytes)
        if json_length is None:
            return web.Response(body=parts[0], content_type="application/json")
        headers = {"Inference-Header-Content-Length": str(json_length), "Content-Type": "application/octet-stream"}
        return web.Response(body=b"".join(parts), headers=headers)

    async def _computed(self, inputs: Mapping[str, Any], n_samples: int) -> Mapping[str, Any]:
        self._check_serving()  # again: the body has taken its time
        has_ended = asyncio.Event()
        job = Job(inputs, n_samples, lambda _: has_ended.set())
        self._batcher.add(job, self._loop.time())
        self._submit()
        try:
            await has_ended.wait()
        except asyncio.CancelledError:  # the client has gone
            self._batcher.drop(job, NotServing("the client has gone"))
            self._changed.set()
            raise
        if job.error is not None:
            raise job.error
        return job.outputs

    def _check_serving(self) -> None:
        if self._is_stopping:
            raise NotServing("the server ends; try another one")
        if not self._is_ready:
            raise NotServing("the model is being loaded; try again later")

    def _check_model(self, request: web.Request) -> None:
        from aiohttp import web

        if request.match_info.get("model", self._model.name) != self._model.name:
            raise web.HTTPNotFound(reason=f"the model here is {self._model.name}")

    async def _root(self, request: web.Request) -> web.Response:
        base = f"{request.scheme}://{request.host}"
        is_ready = self._is_ready and not self._is_stopping
        return root_response(self._model, base, request.headers.get("Accept", ""), is_ready=is_ready)

    async def _live(self, _: web.Request) -> web.Response:
        return json_response({"live": True})

    async def _ready(self, request: web.Request) -> web.Response:
        self._check_model(request)
        self._check_serving()
        return json_response({"name": self._model.name, "ready": True})

    async def _server_metadata(self, _: web.Request) -> web.Response:
        return json_response({"name": "autoauto", "version": VERSION, "extensions": ["binary_tensor_data"]})

    async def _model_metadata(self, request: web.Request) -> web.Response:
        self._check_model(request)
        return json_response(self._model.metadata(MODEL_VERSION))

    async def _prometheus(self, _: web.Request) -> web.Response:
        from aiohttp import web

        text, media_type = self._metrics.text()
        return web.Response(body=text, headers={"Content-Type": media_type})


def _error_response(status: int, message: str) -> web.Response:
    """An error in the form of the protocol, with Retry-After if a later request may succeed."""
    response = json_response({"error": message}, status)
    if status in (429, 503):
        response.headers["Retry-After"] = "1"
    return response
