"""The engine with pipelines of this process, by thread or directly: what is computed, refused, lost, and probed."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import pytest

from autoauto.records.errors import AutoautoError, BadInput, Unsupported, WorkerLost
from autoauto.records.target import Origin
from autoauto.serve import engine as engine_module
from autoauto.serve.artifact import Artifact, ServedModel
from autoauto.serve.batcher import Job, MicroBatch, Piece
from autoauto.serve.engine import MAX_DIRECT_BYTES, PipelineEngine
from autoauto.targets.host.run.independence import UNCHECKED, BatchTensor, SampleProbe, Variation
from tests.serve.conftest import port

MODEL = ServedModel(
    "m", 2, (port("x", 2, batch_size=2),), (port("y", 2, batch_size=2),), 1, 1, 0.1, 10.0, Origin.MEASURED
)
NEGATIVE, DIES = -1.0, 1e9


WAYS = {"no process alone": None, "large tensors": MAX_DIRECT_BYTES + 1, "directly": MAX_DIRECT_BYTES}
"""Bytes of the tensors of the only process, if it is alone; the event loop copies small ones itself."""


class Exchange:
    """A process that computes at once; `filled_fd` is readable when outputs are there, `died_fd` once it has died."""

    capacity = 2

    def __init__(self, pipelines: Pipelines, n_bytes: int) -> None:
        self.n_bytes, self._pipelines = n_bytes, pipelines
        self.filled_fd, self.died_fd = os.eventfd(0, os.EFD_SEMAPHORE), os.eventfd(0)
        self._computed: list[Any] = []

    def send(self, write: Callable[[Any], None]) -> None:
        x = np.full(2, np.nan, np.float32)
        write({"x": x})
        if not select.select([self.died_fd], [], [], 0)[0]:
            try:
                self._computed.append(self._pipelines.compute(x))
                os.eventfd_write(self.filled_fd, 1)
            except RuntimeError:
                os.eventfd_write(self.died_fd, 1)

    def receive(self, take: Callable[[Any], None]) -> str | None:
        os.eventfd_read(self.filled_fd)
        y = self._computed.pop(0)
        if y is None:
            return "index -1"
        take({"y": y})
        return None


class Pipelines:
    """Computes y = 2 x; refuses what is negative, and dies of what is very large. `inputs` are all that came."""

    pids: tuple[int, ...] = ()

    def __init__(self, inputs: list[list[float]], n_bytes: int | None, mixes: bool) -> None:
        self.inputs, self._mixes = inputs, mixes
        self._exchange = None if n_bytes is None else Exchange(self, n_bytes)

    def exchange(self) -> Exchange | None:
        return self._exchange

    def wait(self, descriptor: int) -> None:
        assert self._exchange is not None
        ready = select.select([descriptor, self._exchange.died_fd], [], [])[0]
        if self._exchange.died_fd in ready:
            raise RuntimeError("a process of\nstage 1 died")

    def close(self) -> None:
        if self._exchange is not None:
            os.close(self._exchange.filled_fd)
            os.close(self._exchange.died_fd)

    def compute(self, x: Any) -> Any:
        """The outputs, None where they are refused."""
        self.inputs.append(x.tolist())
        if x.max() >= DIES:
            raise RuntimeError("a process of\nstage 1 died")
        return None if x.min() < 0 else 2 * x + (x.mean() if self._mixes else 0)

    def stream(self, batches: Iterator[Any], take: Any, refuse: Any, arrivals_fd: int, write: Any) -> None:
        number = 0
        while select.select([arrivals_fd], [], []):
            if (batch := next(batches, None)) is None:
                return
            x = np.full(2, np.nan, np.float32)
            write(batch, {"x": x})
            if (y := self.compute(x)) is None:
                refuse(number, "index -1")
            else:
                take(0, number, {"y": y})
            number += 1


class Served:
    """An artifact: how often its pipelines were started, and errors of the next starts."""

    model = MODEL

    def __init__(self, n_bytes: int | None, variations: list[Variation], mixes: bool, errors: list[Exception]) -> None:
        self.n_starts, self.inputs, self.errors = 0, list[list[float]](), errors
        self._n_bytes, self._variations, self._mixes = n_bytes, variations, mixes

    def probe(self) -> Any:
        return type("Probe", (), {"variations": lambda _: self._variations})() if self._variations else None

    @contextmanager
    def pipelines(self) -> Iterator[Pipelines]:
        self.n_starts += 1
        if self.errors:
            raise self.errors.pop(0)
        pipelines = Pipelines(self.inputs, self._n_bytes, self._mixes)
        try:
            yield pipelines
        finally:
            pipelines.close()


class Events:
    """Every event of the engine as it comes, in the event loop."""

    def __init__(self) -> None:
        self._queue = asyncio.Queue[tuple[Any, ...]]()

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args: self._queue.put_nowait((name, *args))

    async def next(self) -> tuple[Any, ...]:
        return await self._queue.get()

    @property
    def is_empty(self) -> bool:
        return self._queue.empty()


def batch_of(*values: float) -> tuple[MicroBatch, Job]:
    job = Job({"x": np.array(values, np.float32)}, len(values), lambda _: None)
    return MicroBatch([Piece(job, 0, len(values))]), job


Scenario = Callable[[PipelineEngine, Events, Served], Awaitable[None]]


def run(
    n_bytes: int | None,
    scenario: Scenario,
    *variations: Variation,
    mixes: bool = False,
    errors: tuple[Exception, ...] = (),
) -> None:
    """Play a scenario with an engine that was started; every event must have been awaited in it."""

    async def play() -> None:
        served, events = Served(n_bytes, list(variations), mixes, list(errors)), Events()
        engine = PipelineEngine(cast("Artifact", served), events)
        engine.start()
        await asyncio.wait_for(scenario(engine, events, served), 30)
        assert (engine._exchange, engine._pids) == (None, [])
        await asyncio.to_thread(engine.close)
        assert events.is_empty
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.eventfd_read(engine._arrivals_fd)

    asyncio.run(play())


@pytest.fixture(params=WAYS)
def n_bytes(request: pytest.FixtureRequest) -> int | None:
    """Of the tensors of the only process."""
    return WAYS[request.param]


async def stopped(engine: PipelineEngine, events: Events) -> None:
    engine.stop()
    assert await events.next() == ("on_ended", None)


def test_micro_batches_are_computed_in_order_until_a_stop(n_bytes: int | None) -> None:
    async def scenario(engine: PipelineEngine, events: Events, served: Served) -> None:
        assert await events.next() == ("on_started", None)
        made = [batch_of(1, 2), batch_of(3)]
        for batch, _ in made:
            engine.submit(batch)
        for batch, _ in made:
            assert await events.next() == ("on_finished", batch)
        assert [job.outputs["y"].tolist() for _, job in made] == [[2, 4], [6]]
        assert served.inputs == [[1, 2], [3, 3]]  # the last sample fills up
        late = batch_of(5, 6)[0]
        engine.submit(late)
        if n_bytes == MAX_DIRECT_BYTES:  # all that was given directly must have ended
            assert await events.next() == ("on_finished", late)
            await stopped(engine, events)
        else:  # computes what was given
            engine.stop()
            assert await events.next() == ("on_finished", late)
            assert await events.next() == ("on_ended", None)
        assert served.n_starts == 1

    run(n_bytes, scenario)


def test_refused_values_are_an_event_and_the_next_ones_are_computed(n_bytes: int | None) -> None:
    async def scenario(engine: PipelineEngine, events: Events, _: Served) -> None:
        await events.next()
        bad, good = batch_of(1, NEGATIVE)[0], batch_of(1, 2)[0]
        engine.submit(bad)
        engine.submit(good)
        assert await events.next() == ("on_refused", bad, "index -1")
        assert await events.next() == ("on_finished", good)
        await stopped(engine, events)

    run(n_bytes, scenario)


def test_lost_processes_are_started_again_and_what_was_handed_over_is_dropped(n_bytes: int | None) -> None:
    async def scenario(engine: PipelineEngine, events: Events, served: Served) -> None:
        await events.next()
        engine.submit(batch_of(DIES)[0])
        engine.submit(batch_of(7, 7)[0])
        assert await events.next() == ("on_lost", "a process of stage 1 died")  # in a line
        assert await events.next() == ("on_started", None)
        batch = batch_of(1, 2)[0]
        engine.submit(batch)
        assert await events.next() == ("on_finished", batch)
        await stopped(engine, events)
        assert (served.inputs, served.n_starts) == ([[DIES, DIES], [1, 2]], 2)

    run(n_bytes, scenario)


def test_three_losses_in_a_row_end_the_engine_and_what_was_computed_between_begins_anew(n_bytes: int | None) -> None:
    async def scenario(engine: PipelineEngine, events: Events, served: Served) -> None:
        for first in (DIES, DIES, 1.0, NEGATIVE, DIES):
            assert await events.next() == ("on_started", None)
            if first != DIES:  # something was computed, or refused, and then they are lost
                engine.submit(batch_of(first)[0])
                assert (await events.next())[0] == ("on_finished" if first > 0 else "on_refused")
            engine.submit(batch_of(DIES)[0])
            assert (await events.next())[0] == "on_lost"
        await events.next()
        engine.submit(batch_of(DIES)[0])
        event, error = await events.next()
        assert (event, type(error), str(error)) == (
            "on_ended",
            WorkerLost,
            "a process failed: a process of\nstage 1 died",
        )
        assert served.n_starts == 6

    run(n_bytes, scenario)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (BadInput("no such file"), "no such file"),
        (Unsupported("an operator"), "a process failed: an operator"),  # the file was read at the start
        (MemoryError("none"), "a process failed: none"),
    ],
)
def test_an_engine_that_never_started_gives_up_at_once(n_bytes: int | None, error: Exception, message: str) -> None:

    async def scenario(_: PipelineEngine, events: Events, served: Served) -> None:
        event, ended = await events.next()
        assert event == "on_ended"
        assert isinstance(ended, AutoautoError)
        assert str(ended) == message
        assert served.n_starts == 1

    run(n_bytes, scenario, errors=(error,))


def test_a_lack_of_descriptors_is_waited_for_however_often(
    n_bytes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four times; processes that end so often would end the engine."""
    slept: list[float] = []
    monkeypatch.setattr(engine_module, "sleep", slept.append)

    async def scenario(engine: PipelineEngine, events: Events, served: Served) -> None:
        await events.next()
        served.errors += [OSError(errno.EMFILE, os.strerror(errno.EMFILE)) for _ in range(4)]
        engine.submit(batch_of(DIES)[0])
        for _ in range(5):
            assert (await events.next())[0] == "on_lost"
        assert await events.next() == ("on_started", None)
        await stopped(engine, events)
        assert slept == [1.0] * 4

    run(n_bytes, scenario)


def variation(first: float) -> Variation:
    """Two samples, and others for their places."""
    inputs, outputs = ([BatchTensor(name, (2,), "float32", 0)] for name in ("x", "y"))
    samples, others = (np.array([first, 2], np.float32), np.array([10, 11], np.float32))
    return Variation(SampleProbe(inputs, outputs, 2), {"x": samples}, {"x": others})


def test_samples_are_probed_before_the_first_start_only(n_bytes: int | None) -> None:
    """Twice as they are, one in its place beside another, either way, and both in the place of the other."""

    async def scenario(engine: PipelineEngine, events: Events, served: Served) -> None:
        assert await events.next() == ("on_started", None)
        assert served.inputs == [[1, 2], [1, 2], [10, 2], [1, 11], [2, 1]]
        engine.submit(batch_of(DIES)[0])
        assert (await events.next())[0] == "on_lost"
        assert await events.next() == ("on_started", None)
        assert len(served.inputs) == 6
        await stopped(engine, events)

    run(n_bytes, scenario, variation(1))


def test_samples_that_change_each_other_are_said_at_the_start(n_bytes: int | None) -> None:
    async def scenario(engine: PipelineEngine, events: Events, served: Served) -> None:
        event, dependence = await events.next()
        assert event == "on_started"
        assert "y" in dependence
        assert len(served.inputs) == 3  # no more than needed
        await stopped(engine, events)

    run(n_bytes, scenario, variation(1), mixes=True)


def test_a_probe_that_the_model_refuses_goes_on_with_the_next_and_else_nothing_is_known(n_bytes: int | None) -> None:
    async def known(engine: PipelineEngine, events: Events, served: Served) -> None:
        assert await events.next() == ("on_started", None)
        assert served.inputs[:2] == [[NEGATIVE, 2], [1, 2]]
        assert len(served.inputs) == 6
        await stopped(engine, events)

    async def unknown(engine: PipelineEngine, events: Events, _: Served) -> None:
        assert await events.next() == ("on_started", UNCHECKED)
        await stopped(engine, events)

    run(n_bytes, known, variation(NEGATIVE), variation(1))
    run(n_bytes, unknown, variation(NEGATIVE))


def test_every_process_is_killed_though_another_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three processes, of which the first has ended already."""
    killed: list[tuple[int, int]] = []

    def kill(pid: int, number: int) -> None:
        killed.append((pid, number))
        if pid == 11:
            raise ProcessLookupError

    async def scenario(engine: PipelineEngine, events: Events, served: Served) -> None:
        await events.next()
        monkeypatch.setattr("autoauto.serve.engine.os.kill", kill)
        engine._pids = [11, 12, 13]
        engine.kill()
        monkeypatch.undo()
        assert killed == [(11, signal.SIGKILL), (12, signal.SIGKILL), (13, signal.SIGKILL)]
        engine._pids = []
        await stopped(engine, events)

    run(None, scenario)
