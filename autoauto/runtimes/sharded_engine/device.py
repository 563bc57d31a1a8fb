"""What one device of `sharded.run_sharded` does in its process: `serve`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from autoauto.records.errors import EndOfStream
from autoauto.records.schedule import IntArray
from autoauto.runtimes.sharded_engine.channel import Receiver, Sender
from autoauto.runtimes.sharded_engine.engine import ShardedEngine
from autoauto.runtimes.sharded_engine.peers import Flag, Peers
from autoauto.runtimes.sharded_engine.shared_arrays import SharedArrays
from autoauto.targets.host.transport.array_file import Array
from autoauto.targets.host.transport.ring import Ring

Spans = list[tuple[int, int]]


class Task(NamedTuple):
    """All that a device needs; it travels to its process.

    Attributes:
        device_id: which device it is.
        engine_class, args: what it runs.
        checkpoint: the parameters of all devices.
        to, come_from: the ring to and from every other device.
        ended: of every device.
        inputs, outputs: the rings from and to the process that started it.
    """

    device_id: int
    engine_class: type[ShardedEngine]
    args: tuple[object, ...]
    checkpoint: SharedArrays
    to: Mapping[int, Ring]
    come_from: Mapping[int, Ring]
    ended: tuple[Flag, ...]
    inputs: Ring
    outputs: Ring


class DeviceRun(NamedTuple):
    """What a device did.

    Attributes:
        sent, received: messages to and from every device by its number, those of collectives not counted.
        forwards: (n, 2) start and stop of every forward, in ns by perf_counter, one clock for all processes.
        transfers: (n, 2) start and stop of whatever it sent, received, read or wrote outside of a forward, from the
            moment that the first slot of the ring was there.
    """

    sent: tuple[int, ...]
    received: tuple[int, ...]
    forwards: IntArray
    transfers: IntArray


class _Inputs:
    """The device's Reader.

    Attributes:
        under_way: whether reading has begun and not come to the end.
    """

    def __init__(self, ring: Ring, transfers: Spans) -> None:
        self._receiver, self._transfers = Receiver(ring), transfers
        self.under_way = False

    def __iter__(self) -> Iterator[Array]:
        self.under_way = True
        while True:
            try:
                message = self._receiver.receive()
            except EndOfStream:
                self.under_way = False
                return
            self._transfers.append((message.began_ns, perf_counter_ns()))
            yield message.array


class _Outputs:
    """The device's Writer."""

    def __init__(self, ring: Ring, transfers: Spans) -> None:
        self._sender, self._transfers = Sender(ring), transfers

    def write(self, x: npt.ArrayLike, /) -> None:
        self._sender.send(x)
        self._transfers.append((self._sender.began_ns, perf_counter_ns()))


def serve(connection: Connection, task: Task) -> None:
    """Load the checkpoint, wait until all devices have, and run the engine's loop to its end.

    The loop ends when it returns, or at the end of the stream that it receives; a device that reads inputs must read
    them all. Sends None when ready, and a `DeviceRun` at the end.
    """
    peers = Peers(task.device_id, task.to, task.come_from, task.ended)
    try:
        forwards = _run(connection, task, peers)
    except Exception as error:
        error.add_note(f"on device {task.device_id}")
        raise
    task.outputs.finish()
    peers.end()
    columns = (np.array(spans, dtype=np.int64).reshape(-1, 2) for spans in (forwards, peers.transfers))
    connection.send(DeviceRun(tuple(peers.sent), tuple(peers.received), *columns))


def _run(connection: Connection, task: Task, peers: Peers) -> Spans:
    engine = task.engine_class.on_device(peers, *task.args)
    engine.load_checkpoint(task.checkpoint.arrays())
    forwards: Spans = []
    vars(engine)["forward"] = _timed(engine.forward, forwards, peers.transfers)
    connection.send(None)
    connection.recv()
    inputs = _Inputs(task.inputs, peers.transfers)
    try:
        engine.inference_loop(inputs, _Outputs(task.outputs, peers.transfers))
    except EndOfStream:
        if inputs.under_way:
            raise
    return forwards


def _timed(forward: Callable[[Array], Array], forwards: Spans, transfers: Spans) -> Callable[..., Any]:
    """`forward` with its spans noted; what it transfers is part of it."""

    def timed(x: Array) -> Array:
        start_ns, n_before = perf_counter_ns(), len(transfers)
        y = forward(x)
        forwards.append((start_ns, perf_counter_ns()))
        del transfers[n_before:]
        return y

    return timed
