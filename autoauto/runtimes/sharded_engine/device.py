"""One device of `run_sharded` in its process: `DeviceTask`, `serve`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from autoauto.processes.channel import Channel
from autoauto.records.errors import EndOfStream
from autoauto.records.units import Array, IntArray
from autoauto.runtimes.sharded_engine.channel import Receiver, Sender, SharedArrays
from autoauto.runtimes.sharded_engine.engine import ShardedEngine
from autoauto.runtimes.sharded_engine.peers import Peers, SharedEvent
from autoauto.targets.host.transport.shared_memory import Ring

SpanList = list[tuple[int, int]]


class DeviceTask(NamedTuple):
    """The arguments of a device's process.

    Attributes:
        device_id: number of the device.
        engine_class, args: the engine that it runs.
        checkpoint: the parameters of all devices.
        destinations, sources: the ring to and from every other device.
        ended: for every device, the event of its end.
        inputs, outputs: the rings from and to the parent process.
    """

    device_id: int
    engine_class: type[ShardedEngine]
    args: tuple[object, ...]
    checkpoint: SharedArrays
    destinations: Mapping[int, Ring]
    sources: Mapping[int, Ring]
    ended: tuple[SharedEvent, ...]
    inputs: Ring
    outputs: Ring


class DeviceRun(NamedTuple):
    """Messages and times of a device; times in ns by perf_counter, which is one clock for all processes.

    Attributes:
        sent, received: number of messages to and from every device, without those of collectives.
        forwards: (n, 2) start and stop of every forward.
        transfers: (n, 2) start and stop of every send, receive, read and write outside of forwards. A transfer starts
            when the first slot of the ring is there.
    """

    sent: tuple[int, ...]
    received: tuple[int, ...]
    forwards: IntArray
    transfers: IntArray


class _RingReader:
    """The device's `Reader`.

    Attributes:
        is_open: whether reading has started and not reached the end.
    """

    def __init__(self, ring: Ring, transfers: SpanList) -> None:
        self._receiver, self._transfers = Receiver(ring), transfers
        self.is_open = False

    def __iter__(self) -> Iterator[Array]:
        self.is_open = True
        while True:
            try:
                message = self._receiver.receive()
            except EndOfStream:
                self.is_open = False
                return
            self._transfers.append((message.start_ns, perf_counter_ns()))
            yield message.array


class _RingWriter:
    """The device's `Writer`."""

    def __init__(self, ring: Ring, transfers: SpanList) -> None:
        self._sender, self._transfers = Sender(ring), transfers

    def write(self, x: npt.ArrayLike, /) -> None:
        self._sender.send(x)
        self._transfers.append((self._sender.start_ns, perf_counter_ns()))


def serve(connection: Channel, task: DeviceTask) -> None:
    """Load the checkpoint, wait until all devices have, and run the engine's loop to its end.

    The loop ends when it returns, or when it receives from a device that has ended. A device that reads inputs must
    read them all. Sends None when ready, and a `DeviceRun` at the end.
    """
    peers = Peers(task.device_id, task.destinations, task.sources, task.ended)
    try:
        forwards = _run(connection, task, peers)
    except Exception as error:
        error.add_note(f"on device {task.device_id}")
        raise
    task.outputs.finish()
    peers.end()
    columns = (np.array(spans, dtype=np.int64).reshape(-1, 2) for spans in (forwards, peers.transfers))
    connection.send(DeviceRun(tuple(peers.sent), tuple(peers.received), *columns))


def _run(connection: Channel, task: DeviceTask, peers: Peers) -> SpanList:
    engine = task.engine_class.on_device(peers, *task.args)
    engine.load_checkpoint(task.checkpoint.arrays())
    forwards: SpanList = []
    vars(engine)["forward"] = _timed(engine.forward, forwards, peers.transfers)
    connection.send(None)
    connection.recv()
    inputs = _RingReader(task.inputs, peers.transfers)
    try:
        engine.inference_loop(inputs, _RingWriter(task.outputs, peers.transfers))
    except EndOfStream:
        if inputs.is_open:
            raise
    return forwards


def _timed(forward: Callable[[Array], Array], forwards: SpanList, transfers: SpanList) -> Callable[..., Any]:
    """`forward` with its spans recorded; transfers within it count as part of it."""

    def timed(x: Array) -> Array:
        start_ns, n_before = perf_counter_ns(), len(transfers)
        y = forward(x)
        forwards.append((start_ns, perf_counter_ns()))
        del transfers[n_before:]
        return y

    return timed
