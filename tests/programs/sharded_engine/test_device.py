"""One device in its process: its messages, its times, and its failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Any

import numpy as np
import pytest

from autoauto.processes.channel import Channel
from autoauto.programs.sharded_engine.channel import Receiver, Sender
from autoauto.programs.sharded_engine.engine import DeviceRun, DeviceTask, Reader, ShardedEngine, Writer, serve
from autoauto.programs.sharded_engine.run import _tasks
from autoauto.records.errors import EndOfStream
from autoauto.records.units import Array
from tests.programs.sharded_engine.engines import Asking, Collectives, Failing, Line

Together = Callable[[Sequence[int], Callable[[int], Any]], list[Any]]
Served = tuple[list[list[int]], list[Any]]


@pytest.fixture
def served(together: Together) -> Callable[..., Served]:
    """Serve devices in threads; returns what each wrote, and its `DeviceRun` or its exception."""

    def run(engine_class: type[ShardedEngine], n_devices: int, inputs: list[Any]) -> Served:
        with ExitStack() as stack:
            tasks = _tasks(engine_class, (), n_devices, {}, stack)
            results = together(range(n_devices), lambda device: run_device(tasks[device], inputs))
            ended = [isinstance(result, DeviceRun) for result in results]
            return [outputs(task) if end else [] for task, end in zip(tasks, ended, strict=True)], results

    return run


def run_device(task: DeviceTask, inputs: list[Any]) -> DeviceRun:
    sender = Sender(task.inputs)
    for x in inputs:
        sender.send(x)
    task.inputs.finish()
    parent_end, device_end = Channel.pair()
    with closing(parent_end), closing(device_end):
        parent_end.send(None)
        serve(device_end, task)
        assert parent_end.recv() is None
        run = parent_end.recv()
    assert isinstance(run, DeviceRun)
    return run


def outputs(task: DeviceTask) -> list[int]:
    receiver, written = Receiver(task.outputs), []
    while True:
        try:
            written.append(int(receiver.receive().array.sum()))
        except EndOfStream:
            return written


def test_a_device_run_has_its_messages_forwards_and_transfers(served: Callable[..., Served]) -> None:
    written, (device_0, device_1) = served(Line, 2, [0, 5])
    assert written == [[], [11, 16]]
    assert (device_0.sent, device_0.received) == ((0, 2), (0, 0))
    assert (device_1.sent, device_1.received) == ((0, 0), (2, 0))
    assert device_0.forwards.shape == device_1.forwards.shape == (2, 2)
    assert len(device_0.transfers) == len(device_1.transfers) == 4  # reads and sends; receives and writes
    assert (device_0.transfers[:, 0] <= device_0.transfers[:, 1]).all()
    assert (device_0.transfers[::2, 1] <= device_0.forwards[:, 0]).all()
    assert (device_0.transfers[1::2, 0] >= device_0.forwards[:, 1]).all()


def test_transfers_within_a_forward_are_part_of_it(served: Callable[..., Served]) -> None:
    _, (device_0, device_1) = served(Collectives, 2, [np.arange(4)])
    assert len(device_0.transfers) == len(device_1.transfers) == 2  # a read and a write
    assert device_0.forwards.shape == (1, 2)


def test_a_failure_names_its_device(served: Callable[..., Served]) -> None:
    _, (failure,) = served(Failing0, 1, [1])
    assert isinstance(failure, KeyError)
    assert failure.__notes__ == ["on device 0"]


class Failing0(Failing):
    def forward(self, x: Array) -> Array:
        return self.fail()


def test_a_device_that_still_reads_inputs_fails_when_another_one_it_waits_for_ends(
    served: Callable[..., Served],
) -> None:
    _, (failure, run) = served(Asking, 2, [1, 2])
    assert isinstance(failure, EndOfStream)
    assert isinstance(run, DeviceRun)


def test_a_second_iteration_over_the_inputs_is_empty(served: Callable[..., Served]) -> None:
    written, _ = served(Twice, 1, [1, 2])
    assert written == [[1, 2, 2]]


class Twice(Line):
    """Reads its inputs, reads them again, and writes how many there were."""

    def inference_loop(self, input_stream: Reader[Array], output_stream: Writer[Array]) -> None:
        first = [*input_stream]
        for x in first:
            output_stream.write(x)
        output_stream.write(np.array(len(first) + len([*input_stream])))
