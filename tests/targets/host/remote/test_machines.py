"""Pipelines over several machines, which here are two agents of this one, each with the address 127.0.0.1."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import numpy as np
import pytest

from autoauto.processes.channel import Channel
from autoauto.processes.start import ChildProcess, descendants
from autoauto.records.costs.options import SessionOptions
from autoauto.records.errors import OutOfMemory, WorkerLost
from autoauto.records.layers import LayerRange
from autoauto.records.units import MIB
from autoauto.targets.host.machine import cores_of
from autoauto.targets.host.measure.client import Meter
from autoauto.targets.host.remote.agent import agent
from autoauto.targets.host.remote.machines import LocalMachine, RemoteMachine, connect
from autoauto.targets.host.run.pipelines import Pipelines
from autoauto.targets.host.run.stage import StageResources
from autoauto.targets.host.runtimes.onnxruntime.session import OnnxRuntimeSession
from autoauto.targets.host.transport.tcp import TcpReader, new_token
from tests.running import PATIENCE_S, is_running, n_descriptors, wait_until

pytestmark = pytest.mark.slow
Models = Callable[[int, int], Any]
HALVES = (LayerRange(0, 2), LayerRange(2, 5))
ENOUGH = StageResources(cores_of(0, 1), SessionOptions(1, OnnxRuntimeSession()), 512 * MIB)


class Agents(NamedTuple):
    machines: tuple[RemoteMachine, RemoteMachine]
    guards: tuple[ChildProcess, ChildProcess]

    @property
    def processes(self) -> list[int]:
        return [pid for guard in self.guards for pid in (guard.pid, *descendants(guard.pid))]


@contextmanager
def started() -> Iterator[Agents]:
    token = new_token()
    with ExitStack() as stack, TemporaryFile() as log:
        guards = [ChildProcess(agent, ("127.0.0.1", token), log, has_guard=True) for _ in range(2)]
        machines = []
        for name, guard in zip(("left", "right"), guards, strict=True):
            stack.enter_context(closing(guard))
            assert wait([guard.channel.fileno()], PATIENCE_S)
            machines.append(stack.enter_context(RemoteMachine(name, ("127.0.0.1", guard.channel.recv()), token)))
        yield Agents((machines[0], machines[1]), (guards[0], guards[1]))


@pytest.fixture
def agents() -> Iterator[Agents]:
    with started() as agents:
        yield agents


def batches(n: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(3)
    return [{"x": rng.standard_normal((2, 64), np.float32)} for _ in range(n)]


def check_outputs(model: Any, pipelines: Pipelines, n: int = 12) -> Sequence[Any]:
    """The outputs are those of one session, in order within a pipeline; returns the times of all processes."""
    sent, received = batches(n), dict[int, Any]()

    def take(_pipeline: int, number: int, outputs: Mapping[str, Any]) -> None:
        received[number] = {name: array.copy() for name, array in outputs.items()}

    spans = pipelines.stream(iter(sent), take)
    for number, inputs in enumerate(sent):
        [expected] = model.outputs(inputs, 2)
        np.testing.assert_allclose(received[number]["y"], expected, rtol=1e-5, atol=1e-5)
    return spans


def test_stages_and_replicas_on_two_machines_compute_what_one_session_does(residual_model: Models) -> None:
    resource_tracker.ensure_running()  # with the first process, for all that follow
    model, before = residual_model(2, 64), n_descriptors()
    with started() as agents:
        left, right = agents.machines
        rows = [[left, right], [right, right]]  # one over both machines, one on the second alone
        with Pipelines(model.graph, model.source, HALVES, 2, [[ENOUGH] * 2] * 2, machines=rows) as pipelines:
            spans = check_outputs(model, pipelines)
        for first, second in spans:
            assert len(first.times) == len(second.times) > 0
            late_ns = 100_000_000  # for a busy machine; the clocks of two machines may be hours apart
            assert (first.times[:, 2] <= second.times[:, 1] + late_ns).all()  # computed, then read by the next
        processes = agents.processes
    wait_until(lambda: not any(map(is_running, processes)), "all processes of both machines have ended")
    assert n_descriptors() == before


def test_a_killed_stage_is_named_and_ends_the_others(agents: Agents, residual_model: Models) -> None:
    model = residual_model(2, 64)
    with (
        Pipelines(model.graph, model.source, HALVES, 2, [[ENOUGH] * 2], machines=[agents.machines]) as pipelines,
        pytest.raises(WorkerLost, match=r"^stage 1 of pipeline 0 on right ended without a message, .* -9$"),
    ):
        kill_then_stream(pipelines, stage_of(agents.guards[1]))
    for machine in agents.machines:
        machine.__exit__()
    wait_until(lambda: not any(map(is_running, agents.processes[1:])), "nothing is left running on either machine")


def test_a_lost_machine_is_named(agents: Agents, residual_model: Models) -> None:
    model = residual_model(2, 64)
    with (
        Pipelines(model.graph, model.source, HALVES, 2, [[ENOUGH] * 2], machines=[agents.machines]) as pipelines,
        pytest.raises(WorkerLost, match=r"^right is lost: its Dask worker has ended, or its network$"),
    ):
        kill_then_stream(pipelines, agents.guards[1].pid)


def stage_of(guard: ChildProcess) -> int:
    """The process of the only stage on a machine."""
    [_, stage] = descendants(guard.pid)  # behind the agent
    return stage


def kill_then_stream(pipelines: Pipelines, pid: int) -> None:
    """Kill a process after some micro-batches, of which there is no end."""

    def endless() -> Iterator[dict[str, Any]]:
        while True:
            yield from batches(1)

    def take(_pipeline: int, number: int, _outputs: Mapping[str, Any]) -> None:
        if number == 5:
            os.kill(pid, signal.SIGKILL)

    pipelines.stream(endless(), take)


def never(connection: Channel, channel: Any) -> None:
    connection.send(os.getpid())
    channel.wait() if isinstance(channel, TcpReader) else connection.recv()


def test_the_other_end_notices_that_a_process_was_killed(agents: Agents) -> None:
    """Also where nobody waits for the machine of that one: no other process there has its connection."""
    left, right = agents.machines
    writer, reader = connect(left, right, 1, 1)
    first, second = left.start("first", never, writer), right.start("second", never, reader)
    right.receive(second)
    os.kill(left.receive(first), signal.SIGKILL)
    with pytest.raises(WorkerLost, match="the connection to a process of another machine was lost: "):
        right.receive(second)


def test_a_stage_that_is_too_large_is_out_of_memory_as_on_one_machine(agents: Agents, residual_model: Models) -> None:
    model = residual_model(2, 1024)
    too_small = ENOUGH._replace(budget_bytes=1 * MIB)
    with (
        pytest.raises(OutOfMemory, match=r"^layers \[2, 5\) do not fit"),
        Pipelines(model.graph, model.source, HALVES, 2, [[ENOUGH, too_small]], machines=[agents.machines]),
    ):
        pass


def test_stages_on_other_machines_get_the_inputs_that_a_user_gives(agents: Agents, residual_model: Models) -> None:
    model, given = residual_model(2, 64), batches(1)[0]
    with Pipelines(
        model.graph, model.source, HALVES, 2, [[ENOUGH] * 2], machines=[agents.machines], given=given
    ) as pipelines:
        check_outputs(model, pipelines)


def test_layers_are_measured_on_another_machine(agents: Agents, residual_model: Models) -> None:
    model = residual_model(1, 1024)
    with Meter(cores_of(0, 1), SessionOptions(1, OnnxRuntimeSession()), lambda: agents.machines[0]) as meter:
        layers = LayerRange(0, 1)
        given = {"x": np.ones((2, 1024), np.float32)}
        measurement = meter.measure(model.source.cut(model.graph, layers, 2), layers, given)
        assert measurement.times.core_ns > 0
        assert 4 * MIB <= measurement.parameter_bytes + MIB <= 6 * MIB


def test_a_file_on_another_machine_stays_one_file_however_often_it_is_written(agents: Agents) -> None:
    def n_open() -> int:
        machine._clock_offset_ns()  # the agent answers after it has performed what it was asked before
        return sum(
            len(os.listdir(f"/proc/{pid}/fd")) for pid in (agents.guards[0].pid, *descendants(agents.guards[0].pid))
        )

    machine = agents.machines[0]
    file = machine.file(b"first")
    before = n_open()
    for _ in range(5):
        file.write(b"again")
    assert n_open() == before


def echo(connection: Channel, receive: Any, send: Any) -> None:
    while (message := receive.peek()) is not None:
        send.reserve()[: len(message)] = message
        send.commit(len(message))
        receive.release()
    send.finish()
    connection.send(os.getpid())


def test_this_process_writes_to_one_machine_and_reads_from_another(agents: Agents) -> None:
    """Messages longer than the kernel's buffers, and more of them than have room: nobody waits for ever."""
    left, right = agents.machines
    n_bytes = 16 * MIB
    with LocalMachine() as here:
        there, received = connect(here, left, 2, n_bytes)
        between = connect(left, right, 2, n_bytes)
        sent, back = connect(right, here, 2, n_bytes)
        workers = [left.start("first", echo, received, between[0]), right.start("second", echo, between[1], sent)]
        for value in range(4):
            there.reserve()[:] = bytes([value]) * n_bytes
            there.commit(n_bytes)
        there.finish()
        for value in range(4):
            message = back.peek()
            assert message[0] == message[n_bytes - 1] == value
            back.release()
        assert back.peek() is None
        assert len({left.receive(workers[0]), right.receive(workers[1])}) == 2
