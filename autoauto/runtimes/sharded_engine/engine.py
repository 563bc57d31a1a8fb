"""The seed's distributed engine (seed 003 and its sibling chapter): `ShardedEngine`, `Reader`, `Writer`.

Every device runs one engine of the same class; `sharded.run_sharded` starts them. An engine made without it is alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from autoauto.records.errors import BadInput
from autoauto.runtimes.sharded_engine.peers import Peers
from autoauto.targets.host.transport.array_file import Array

Read_co = TypeVar("Read_co", covariant=True)
Written_contra = TypeVar("Written_contra", contravariant=True)

OPERATIONS: dict[str, Callable[[Array, Array], Any]] = {
    "sum": np.add,
    "mean": np.add,
    "max": np.maximum,
    "min": np.minimum,
}
"""What `all_reduce` does with two arrays."""


class Reader(Protocol[Read_co]):
    """A stream of inputs; it ends when there are no more."""

    def __iter__(self) -> Iterator[Read_co]:
        """The next inputs, each as soon as it is there."""


class Writer(Protocol[Written_contra]):
    """A stream of outputs."""

    def write(self, x: Written_contra, /) -> object:
        """Give one output away."""


class ShardedEngine(ABC):
    """A model on several devices. A subclass says what one of them does; `device_id` is known when it is made.

    Collectives are called by all devices in the same order, with arrays of any size. `send` returns when the message
    lies in the ring to the other device (512 KiB); beyond that it waits until the other receives.
    """

    _peers = Peers(0, {}, {}, ())

    @classmethod
    def on_device(cls, peers: Peers, *args: object) -> Self:
        """Make an engine that has peers, which its `__init__` may use already."""
        engine = cls.__new__(cls)
        engine._peers = peers
        cls.__init__(engine, *args)
        return engine

    @property
    def device_id(self) -> int:
        """Which device this is, from 0."""
        return self._peers.device_id

    @property
    def num_devices(self) -> int:
        """How many devices there are."""
        return self._peers.n_devices

    def barrier(self) -> None:
        """Wait until all devices are here."""
        self._peers.exchange("barrier", [np.empty(0)] * self.num_devices)

    def send(self, dest_id: int, arr: npt.ArrayLike) -> None:
        """Send a copy of an array to another device.

        Raises:
            BadInput: there is no such device, it is this one, or it has ended.
        """
        self._peers.send(dest_id, arr)

    def receive(self, src_id: int) -> Array:
        """Wait for the next array of another device.

        Raises:
            EndOfStream: that device has ended and sends no more; `run_sharded` takes it for the end of this one.
            BadInput: there is no such device, it is this one, or it waits for this one.
        """
        return self._peers.receive(src_id)

    def all_gather(self, arr: npt.ArrayLike, axis: int = 0) -> Array:
        """The arrays of all devices, one after the other along an axis.

        Raises:
            BadInput: the arrays have no such axis, or differ along another.
        """
        arrays = self._peers.exchange("all_gather", [_with_axis("all_gather", arr, axis)] * self.num_devices)
        return _concatenate("all_gather", arrays, axis)

    def all_reduce(self, arr: npt.ArrayLike, op: str = "sum") -> Array:
        """All devices' arrays reduced to one of the same shape: their sum, mean, max or min, element by element.

        The type stays, but for the mean of integers. All devices reduce in the order of their numbers, so that they
        get the same bits.

        Raises:
            BadInput: another operation, or shapes differ.
        """
        if op not in OPERATIONS:
            raise BadInput(f"all_reduce can {', '.join(OPERATIONS)}, got {op!r}")
        arrays = self._peers.exchange("all_reduce", [np.array(arr)] * self.num_devices)
        shapes = [array.shape for array in arrays]
        if len(set(shapes)) > 1:
            raise BadInput(f"all_reduce needs the same shape on all devices, got {_listed(shapes)}")
        reduced = reduce(OPERATIONS[op], arrays)
        return np.asarray(reduced / self.num_devices if op == "mean" else reduced)

    def all_to_all(self, arr: npt.ArrayLike, axis: int = 0) -> Array:
        """Cut the array into as many equal chunks as there are devices, give chunk j to device j, join what comes.

        Raises:
            BadInput: the array has no such axis, its length is no multiple of the devices, or chunks do not match.
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
        """Take this device's part of the parameters by their names; the arrays cannot be written to."""

    @abstractmethod
    def forward(self, x: Array) -> Array:
        """This device's part of the model."""

    def backward(self, grads: Array) -> dict[str, Array]:
        """The gradients of this device's parameters by their names.

        Not abstract: the seed's own engine for inference has none.

        Raises:
            BadInput: the engine cannot be trained.
        """
        raise BadInput(f"{type(self).__name__} has no backward; try an engine that defines it")

    def inference_loop(self, input_stream: Reader[Array], output_stream: Writer[Array]) -> None:
        """Read_co all inputs, and write the output of each."""
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
