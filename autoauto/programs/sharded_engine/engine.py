"""The distributed engine of [sharding-book]: `ShardedEngine`, `Reader`, `Writer`.

Every device runs one engine of the same class; `run_sharded` starts them. An engine made without it is device 0 of 1.

One device of `run_sharded` in its process: `DeviceTask`, `serve`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from time import perf_counter_ns
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from autoauto.processes.channel import Channel
from autoauto.programs.sharded_engine.channel import Receiver, Sender, SharedArrays
from autoauto.programs.sharded_engine.peers import Peers, SharedEvent
from autoauto.records.errors import BadInput, EndOfStream
from autoauto.records.units import Array, IntArray
from autoauto.targets.host.transport.shared_memory import Ring

Input_co = TypeVar("Input_co", covariant=True)
Output_contra = TypeVar("Output_contra", contravariant=True)

OPERATIONS: dict[str, Callable[[Array, Array], Any]] = {
    "sum": np.add,
    "mean": np.add,
    "max": np.maximum,
    "min": np.minimum,
}
"""How `all_reduce` combines two arrays."""


class Reader(Protocol[Input_co]):
    """A finite stream of inputs."""

    def __iter__(self) -> Iterator[Input_co]:
        """Iterate over the inputs, each as soon as it arrives."""


class Writer(Protocol[Output_contra]):
    """A stream of outputs."""

    def write(self, x: Output_contra, /) -> object:
        """Write one output."""


class ShardedEngine(ABC):
    """A model on several devices. A subclass defines what one device does; its `__init__` can use `device_id`.

    All devices must call the same collectives in the same order; arrays may have any size. `send` returns when the
    whole message is in the ring to the other device (512 KiB); for a larger one it waits until the other receives.
    """

    _peers = Peers(0, {}, {}, ())

    @classmethod
    def on_device(cls, peers: Peers, *args: object) -> Self:
        """Make an engine whose peers are set before its `__init__` runs."""
        engine = cls.__new__(cls)
        engine._peers = peers
        cls.__init__(engine, *args)
        return engine

    @property
    def device_id(self) -> int:
        """Number of this device, from 0."""
        return self._peers.device_id

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        return self._peers.n_devices

    def barrier(self) -> None:
        """Wait until all devices have called it."""
        self._peers.exchange("barrier", [np.empty(0)] * self.num_devices)

    def send(self, dest_id: int, arr: npt.ArrayLike) -> None:
        """Send a copy of an array to another device.

        Raises BadInput if `dest_id` is no other device, or that device has ended.
        """
        self._peers.send(dest_id, arr)

    def receive(self, src_id: int) -> Array:
        """Wait for the next array of another device.

        Raises:
            EndOfStream: that device has ended and sends no more; in `run_sharded` this ends the loop of this device.
            BadInput: `src_id` is no other device, or that device waits for this one in a collective.
        """
        return self._peers.receive(src_id)

    def all_gather(self, arr: npt.ArrayLike, axis: int = 0) -> Array:
        """Concatenate the arrays of all devices along an axis.

        Raises BadInput if the arrays have no such axis, or their shapes differ along another one.
        """
        arrays = self._peers.exchange("all_gather", [_with_axis("all_gather", arr, axis)] * self.num_devices)
        return _concatenate("all_gather", arrays, axis)

    def all_reduce(self, arr: npt.ArrayLike, op: str = "sum") -> Array:
        """Reduce the arrays of all devices, element by element, by their sum, mean, max or min.

        The type is that of the arrays, except for the mean of integers. Every device reduces in the order of device
        numbers, so that all get the same bits. Raises BadInput if the operation is unknown, or shapes differ.
        """
        if op not in OPERATIONS:
            raise BadInput(f"all_reduce can {', '.join(OPERATIONS)}, got {op!r}")
        arrays = self._peers.exchange("all_reduce", [np.array(arr)] * self.num_devices)
        shapes = [array.shape for array in arrays]
        if len(set(shapes)) > 1:
            raise BadInput(f"all_reduce needs the same shape on all devices, got {_listed(shapes)}")
        reduced = reduce(OPERATIONS[op], arrays)
        if op == "mean":
            reduced = reduced / self.num_devices
        return np.asarray(reduced)

    def all_to_all(self, arr: npt.ArrayLike, axis: int = 0) -> Array:
        """Split the array into one chunk a device, give chunk j to device j, and concatenate the received chunks.

        Raises BadInput if the array has no such axis, the number of devices does not divide it, or chunks do not match.
        """
        array = _with_axis("all_to_all", arr, axis)
        if array.shape[axis] % self.num_devices:
            raise BadInput(
                f"all_to_all needs a length along axis {axis} that {self.num_devices} devices divide, "
                f"got shape {array.shape}"
            )
        chunks = np.split(array, self.num_devices, axis)
        return _concatenate("all_to_all", self._peers.exchange("all_to_all", chunks), axis)

    @abstractmethod
    def load_checkpoint(self, params: dict[str, Array]) -> None:
        """Copy this device's part of the parameters, which are given by name as read-only arrays."""

    @abstractmethod
    def forward(self, x: Array) -> Array:
        """This device's part of the model."""

    def backward(self, grads: Array) -> dict[str, Array]:
        """The gradients of this device's parameters by name.

        The method is not abstract, because the pipeline for inference of [sharding-book] has no backward. Raises
        BadInput if the engine cannot be trained.
        """
        raise BadInput(f"{type(self).__name__} has no backward; try an engine that defines it")

    def inference_loop(self, input_stream: Reader[Array], output_stream: Writer[Array]) -> None:
        """Read all inputs, and write the output of each."""
        for x in input_stream:
            output_stream.write(self.forward(x))


def _with_axis(what: str, arr: npt.ArrayLike, axis: int) -> Array:
    array = np.asarray(arr)
    if not -array.ndim <= axis < array.ndim:
        raise BadInput(f"{what} needs an axis of the array, got axis {axis} and shape {array.shape}")
    return array


def _concatenate(what: str, arrays: list[Array], axis: int) -> Array:
    try:
        return np.concatenate(arrays, axis)
    except ValueError:
        shapes = _listed([array.shape for array in arrays])
        raise BadInput(f"{what} needs shapes that differ along axis {axis} only, got {shapes}") from None


def _listed(shapes: list[tuple[int, ...]]) -> str:
    return ", ".join(f"{shape} on device {device}" for device, shape in enumerate(shapes))


SpanList = list[tuple[int, int]]


class DeviceTask(NamedTuple):
    """The arguments of a device's process.

    Attributes:
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
    """The device's `Reader`; `is_open` says whether reading has started and not reached the end."""

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
    connection.send(
        DeviceRun(
            sent=tuple(peers.sent),
            received=tuple(peers.received),
            forwards=np.array(forwards, dtype=np.int64).reshape(-1, 2),
            transfers=np.array(peers.transfers, dtype=np.int64).reshape(-1, 2),
        )
    )


def _run(connection: Channel, task: DeviceTask, peers: Peers) -> SpanList:
    """Run the engine of a device to the end of its loop; returns the spans of its forwards."""
    engine = task.engine_class.on_device(peers, *task.args)
    engine.load_checkpoint(task.checkpoint.arrays())
    forwards: SpanList = []
    # On the instance, so that calls of `self.forward` in any loop of a subclass are timed, too.
    vars(engine)["forward"] = _timed(engine.forward, forwards, peers.transfers)
    connection.send(None)
    connection.recv()  # all devices are ready
    inputs = _RingReader(task.inputs, peers.transfers)
    try:
        engine.inference_loop(inputs, _RingWriter(task.outputs, peers.transfers))
    except EndOfStream:
        # The device before has ended, and so does this one. But inputs that are left would never be read.
        if inputs.is_open:
            raise
    return forwards


def _timed(forward: Callable[[Array], Array], forwards: SpanList, transfers: SpanList) -> Callable[..., Any]:
    def timed(x: Array) -> Array:
        start_ns, n_before = perf_counter_ns(), len(transfers)
        y = forward(x)
        forwards.append((start_ns, perf_counter_ns()))
        del transfers[n_before:]
        return y

    return timed
