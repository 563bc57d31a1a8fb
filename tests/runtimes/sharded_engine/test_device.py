from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing import Pipe
from typing import Any

import numpy as np
import pytest

from autoauto.records.errors import EndOfStream
from autoauto.runtimes.sharded_engine.channel import Receiver, Sender
from autoauto.runtimes.sharded_engine.device import DeviceRun, Task, serve
from autoauto.runtimes.sharded_engine.engine import Reader, ShardedEngine, Writer
from autoauto.runtimes.sharded_engine.run import _tasks
from autoauto.targets.host.transport.array_file import Array
from tests.targets.host.engines import Asking, Collectives, Failing, Line

Together = Callable[[Sequence[int], Callable[[int], Any]], list[Any]]
Served = tuple[list[list[int]], list[Any]]


@pytest.fixture
def served(together: Together) -> Callable[..., Served]:
    """Serve devices in threads; what each wrote, and what it said at the end or why it failed."""

    def run(engine_class: type[ShardedEngine], n_devices: int, inputs: list[Any]) -> Served:
        with ExitStack() as stack:
            tasks = _tasks(engine_class, (), n_devices, {}, stack)
            results = together(range(n_devices), lambda device: run_device(tasks[device], inputs))
            ended = [isinstance(result, DeviceRun) for result in results]
            return [outputs(task) if end else [] for task, end in zip(tasks, ended, strict=True)], results

    return run


def run_device(task: Task, inputs: list[Any]) -> DeviceRun:
    sender = Sender(task.inputs)
    for x in inputs:
        sender.send(x)
    task.inputs.finish()
    ours, theirs = Pipe()
    with ours, theirs:
        ours.send(None)
        serve(theirs, task)
        assert ours.recv() is None
        said = ours.recv()
    assert isinstance(said, DeviceRun)
    return said


def outputs(task: Task) -> list[int]:
    receiver, written = Receiver(task.outputs), []
    while True:
        try:
            written.append(int(receiver.receive().array.sum()))
        except EndOfStream:
            return written


def test_devices_tell_what_they_did(served: Callable[..., Served]) -> None:
    written, (zero, one) = served(Line, 2, [0, 5])
    assert written == [[], [11, 16]]
    assert (zero.sent, zero.received) == ((0, 2), (0, 0))
    assert (one.sent, one.received) == ((0, 0), (2, 0))
    assert zero.forwards.shape == one.forwards.shape == (2, 2)
    assert len(zero.transfers) == len(one.transfers) == 4  # reads and sends; receives and writes
    assert (zero.transfers[:, 0] <= zero.transfers[:, 1]).all()
    assert (zero.transfers[::2, 1] <= zero.forwards[:, 0]).all()
    assert (zero.transfers[1::2, 0] >= zero.forwards[:, 1]).all()


def test_what_a_forward_transfers_is_part_of_it(served: Callable[..., Served]) -> None:
    _, (zero, one) = served(Collectives, 2, [np.arange(4)])
    assert len(zero.transfers) == len(one.transfers) == 2  # it reads and writes
    assert zero.forwards.shape == (1, 2)


def test_a_failure_says_on_which_device(served: Callable[..., Served]) -> None:
    _, (failure,) = served(Failing0, 1, [1])
    assert isinstance(failure, KeyError)
    assert failure.__notes__ == ["on device 0"]


class Failing0(Failing):
    def forward(self, x: Array) -> Array:
        return self.fail()


def test_a_device_that_reads_must_not_end_for_want_of_an_answer(served: Callable[..., Served]) -> None:
    _, (failure, run) = served(Asking, 2, [1, 2])
    assert isinstance(failure, EndOfStream)
    assert isinstance(run, DeviceRun)


def test_inputs_end_once_and_for_all(served: Callable[..., Served]) -> None:
    written, _ = served(Twice, 1, [1, 2])
    assert written == [[1, 2, 2]]


class Twice(Line):
    """Reads its inputs, reads them again, and writes how many there were."""

    def inference_loop(self, input_stream: Reader[Array], output_stream: Writer[Array]) -> None:
        first = [*input_stream]
        for x in first:
            output_stream.write(x)
        output_stream.write(np.array(len(first) + len([*input_stream])))
