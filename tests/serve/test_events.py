"""What the server does at every event of its engine, without processes: counts, lines, ends, and lost requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import pytest

from autoauto.records.errors import AutoautoError, BadInput
from autoauto.records.target import Origin
from autoauto.serve import server as server_module
from autoauto.serve.artifact import Artifact, ServedModel
from autoauto.serve.batcher import MicroBatch, NotServing
from autoauto.serve.server import Server, ServerOptions
from tests.serve.conftest import port

MODEL = ServedModel(
    "m", 2, (port("x", 2, batch_size=2),), (port("y", 2, batch_size=2),), 1, 1, 0.1, 10.0, Origin.MEASURED
)


class Engine:
    """Does nothing by itself; `calls` are what the server asked it for."""

    def __init__(self, _: Artifact, events: Server) -> None:
        self.calls: list[str] = []
        self.batches: list[MicroBatch] = []
        self.events = events

    def submit(self, batch: MicroBatch) -> None:
        self.batches.append(batch)

    def __getattr__(self, name: str) -> Callable[[], None]:
        return lambda: self.calls.append(name)


class Running(NamedTuple):
    """A server that runs, its engine, the lines that it logged, and how often it was ready."""

    server: Server
    engine: Engine
    lines: list[str]
    ready: list[bool]
    end: asyncio.Task[None]

    def metric(self, name: str) -> float:
        lines = self.server._metrics.text()[0].decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))

    def ask(self, *values: float) -> asyncio.Task[Any]:
        inputs = {"x": np.array(values, np.float32)}
        return asyncio.get_running_loop().create_task(self.server._computed(inputs, len(values)))


def run(monkeypatch: pytest.MonkeyPatch, scenario: Callable[[Running], Awaitable[None]]) -> None:
    """Start a server in an event loop, and play a scenario with it."""
    monkeypatch.setattr(server_module, "PipelineEngine", Engine)

    async def play() -> None:
        lines: list[str] = []
        ready: list[bool] = []
        server = Server(cast("Artifact", type("Served", (), {"model": MODEL})), ServerOptions(), lines.append)
        end = asyncio.create_task(server.run(lambda: ready.append(True)))
        await asyncio.sleep(0)
        running = Running(server, cast("Engine", server._engine), lines, ready, end)
        assert running.engine.calls == ["start"]
        await asyncio.wait_for(scenario(running), 30)

    asyncio.run(play())


async def turns() -> None:
    """Let all that can go on go on."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_request_is_answered_and_a_stop_ends_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(running: Running) -> None:
        server, engine = running.server, running.engine
        with pytest.raises(NotServing, match="being loaded"):
            await running.ask(1, 2)
        server.on_started(None)
        await turns()
        assert (running.ready, running.metric("autoauto_ready"), running.lines) == ([True], 1, [])
        asked = running.ask(1, 2)
        await turns()
        (batch,) = engine.batches
        batch.take({"y": np.array([3, 4], np.float32)}, MODEL.outputs)
        server.on_finished(batch)
        assert (await asked)["y"].tolist() == [3, 4]
        assert (running.metric("autoauto_micro_batches_total"), running.metric("autoauto_samples_total")) == (1, 2)
        server.stop()
        await turns()
        assert engine.calls == ["start", "stop"]
        assert not running.end.done()  # the processes have not ended
        server.on_ended(None)
        await running.end
        assert engine.calls == ["start", "stop", "close"]
        with pytest.raises(NotServing, match="the server ends"):
            await running.ask(1, 2)

    run(monkeypatch, scenario)


def test_a_stop_waits_for_what_was_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(running: Running) -> None:
        running.server.on_started(None)
        asked = running.ask(1, 2)
        await turns()
        running.server.stop()
        await turns()
        assert running.engine.calls == ["start"]
        (batch,) = running.engine.batches
        batch.take({"y": np.array([3, 4], np.float32)}, MODEL.outputs)
        running.server.on_finished(batch)
        await turns()
        assert asked.done()
        assert running.engine.calls == ["start", "stop"]
        running.server.on_ended(None)
        await running.end

    run(monkeypatch, scenario)


def test_lost_processes_lose_requests_are_counted_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(running: Running) -> None:
        server = running.server
        server.on_started(None)
        asked = running.ask(1, 2)
        await turns()
        assert running.metric("autoauto_restarts_total") == 0
        server.on_lost("a process of stage 1 died")
        with pytest.raises(NotServing, match="a process of stage 1 died; the model is being loaded again"):
            await asked
        assert (running.metric("autoauto_ready"), running.metric("autoauto_restarts_total")) == (0, 1)
        assert running.metric("autoauto_in_flight_micro_batches") == 0
        assert running.lines == ["a process of stage 1 died; the processes are started again"]
        with pytest.raises(NotServing, match="being loaded"):
            await running.ask(1, 2)
        server.on_started(None)
        assert running.metric("autoauto_ready") == 1
        again = running.ask(1, 2)
        await turns()
        assert len(running.engine.batches) == 2
        server.on_ended(BadInput("given up"))
        with pytest.raises(BadInput, match="given up"):
            await running.end
        with pytest.raises(NotServing, match="the server ends; try another one"):
            await again
        assert running.engine.calls == ["start", "close"]  # an engine that has ended is not stopped

    run(monkeypatch, scenario)


def test_an_engine_that_never_starts_ends_the_server_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(running: Running) -> None:
        running.server.on_ended(AutoautoError("no memory"))
        with pytest.raises(AutoautoError, match="no memory"):
            await running.end
        assert running.ready == []

    run(monkeypatch, scenario)


def test_values_that_the_model_refuses_fail_their_request_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(running: Running) -> None:
        running.server.on_started(None)
        bad, good = running.ask(1), running.ask(2)
        await turns()
        (both,) = running.engine.batches
        running.server.on_refused(both, "index 99")
        await turns()
        alone = running.engine.batches[1:]
        assert [batch.n_samples for batch in alone] == [1, 1]
        running.server.on_refused(alone[0], "index 99")
        alone[1].take({"y": np.array([5, 5], np.float32)}, MODEL.outputs)
        running.server.on_finished(alone[1])
        with pytest.raises(BadInput, match="does not take these values: index 99"):
            await bad
        assert (await good)["y"].tolist() == [5]
        assert running.metric("autoauto_micro_batches_total") == 1  # those that were computed
        running.server.on_ended(None)
        await running.end

    run(monkeypatch, scenario)


def test_samples_that_depend_on_each_other_share_no_micro_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(running: Running) -> None:
        for _ in range(2):  # after a restart, too, but said once
            running.server.on_started("y mixes samples")
        assert running.lines == ["a request must hold 2 samples, because y mixes samples"]
        with pytest.raises(BadInput, match="must hold 2 samples, because y mixes samples; got 1"):
            await running.ask(1)
        running.server.on_ended(None)
        await running.end

    run(monkeypatch, scenario)


def test_processes_that_give_nothing_for_fifty_periods_and_half_a_minute_are_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The period is 0.1 s, so that half a minute is the longer; later it is 2 s in a pipeline of one process."""
    pause = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda _: pause(0))

    async def scenario(running: Running) -> None:
        server, now_s = running.server, asyncio.get_running_loop().time
        server.on_started(None)
        watch = asyncio.create_task(server._watch())
        server._progress_s = now_s() - 1e6
        await turns()
        assert "kill" not in running.engine.calls  # nothing is in flight
        asked = running.ask(1, 2)
        await turns()
        for model, silent_s, killed in ((MODEL, 20, 0), (MODEL, 40, 1), (SLOW, 90, 0), (SLOW, 110, 1)):
            running.engine.calls.clear()
            server._model = model
            server._progress_s = now_s() - silent_s
            await turns()
            assert running.engine.calls == ["kill"] * killed
        assert running.lines == [f"the processes gave nothing for {s} s; they are killed" for s in (30, 100)]
        watch.cancel()
        server.on_ended(None)
        await running.end
        with pytest.raises(NotServing):
            await asked

    run(monkeypatch, scenario)


SLOW = replace(MODEL, period_s=2.0)


@pytest.mark.parametrize(
    ("model", "options", "max_queue", "delay_s"),
    [
        (MODEL, ServerOptions(), 64, 0.01),  # a tenth of the period; 8 micro-batches of 2 samples are fewer
        (replace(MODEL, batch_size=9, n_pipelines=2), ServerOptions(), 144, 0.01),
        (MODEL, ServerOptions(max_queue=3, max_delay_s=0.0), 3, 0.0),
    ],
)
def test_as_many_samples_wait_as_are_said_or_fill_eight_micro_batches(
    model: ServedModel, options: ServerOptions, max_queue: int, delay_s: float
) -> None:
    """Of all bodies that arrive there are those that wait and those in flight, and four of the longest in JSON."""

    async def made() -> Server:
        return Server(cast("Artifact", type("Served", (), {"model": model})), options, lambda _: None)

    server = asyncio.run(made())
    assert server._batcher.max_queue == max_queue
    assert server._batcher.delay_s == pytest.approx(delay_s)
    bodies = server._bodies
    assert (bodies._max_bytes, bodies._max_s) == (16 << 20, 30.0)
    in_flight = 2 * model.batch_size * model.n_pipelines
    assert bodies._max_sum_bytes == (max_queue + in_flight) * 4 + 4 * (16 << 20)


def test_answers_that_wait_to_be_read_are_two_of_all_micro_batches_or_128_mib() -> None:
    """3 pipelines have two micro-batches each in flight, of 2 samples: 12 answers of 40 MiB, twice."""
    large = replace(MODEL, n_pipelines=3, outputs=(port("y", 2, 10 << 20, batch_size=2),))
    assert large.answer_bytes == 40 << 20

    async def made(model: ServedModel) -> Server:
        return Server(cast("Artifact", type("Served", (), {"model": model})), ServerOptions(answer_s=7.0), print)

    for model, n_bytes in ((MODEL, 128 << 20), (large, 2 * 6 * 2 * (40 << 20))):
        answers = asyncio.run(made(model))._answers
        assert (answers._max_sum_bytes, answers._max_s) == (n_bytes, 7.0)


def test_while_it_loads_or_ends_the_body_of_a_request_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Request:
        match_info: ClassVar[dict[str, str]] = {}

    async def scenario(running: Running) -> None:
        monkeypatch.setattr(running.server._bodies, "read", lambda _: pytest.fail("a body was read"))
        with pytest.raises(NotServing, match="being loaded"):
            await running.server._infer(cast("Any", Request()))
        running.server.on_started(None)
        running.server.stop()
        with pytest.raises(NotServing, match="the server ends"):
            await running.server._infer(cast("Any", Request()))
        running.server.on_ended(None)
        await running.end

    run(monkeypatch, scenario)


def test_a_client_that_has_gone_waits_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its samples leave the queue, so that a stop does not wait for them."""

    async def scenario(running: Running) -> None:
        running.server.on_started(None)
        first, second, third = running.ask(1, 2), running.ask(3, 4), running.ask(5, 6)
        await turns()
        assert running.metric("autoauto_queued_samples") == 2  # two micro-batches are in flight
        third.cancel()
        await turns()
        assert third.cancelled()
        assert running.metric("autoauto_queued_samples") == 0
        running.server.stop()
        for batch in tuple(running.engine.batches):
            batch.take({"y": np.array([3, 4], np.float32)}, MODEL.outputs)
            running.server.on_finished(batch)
        await turns()
        assert first.done()
        assert second.done()
        assert running.engine.calls == ["start", "stop"]
        running.server.on_ended(None)
        await running.end

    run(monkeypatch, scenario)
