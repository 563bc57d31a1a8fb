"""What a message between two processes costs, measured once on a machine and kept: `measured_links`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from autoauto.records.hardware import Link
from autoauto.records.units import MIB
from autoauto.targets.host.machine.machine import CLOCK_HZ, Kept, cores_of
from autoauto.targets.host.processes import Workers
from autoauto.targets.host.transport.ring import Ring

VERSION = 2
MESSAGE_BYTES = 4 * MIB
"""More than a core's own caches hold, as the activations of large models are."""

N_EMPTY, N_LARGE, N_ROUNDS = 100, 15, 5


@dataclass(frozen=True, slots=True)
class LinkTimes:
    """A message from one process to another through a ring.

    Attributes:
        send_s: the writer is busy with an empty message so long.
        latency_s: from then on until a reader that slept has it.
        write_bytes_per_s: the writer copies a message into the ring.
        read_bytes_per_s: the reader reads it where it lies for the first time, from another core's caches.
    """

    send_s: float
    latency_s: float
    write_bytes_per_s: float
    read_bytes_per_s: float

    def __post_init__(self) -> None:
        if not min(self.send_s, self.latency_s) >= 0 or not min(self.write_bytes_per_s, self.read_bytes_per_s) > 0:
            raise ValueError(f"times of a link must be 0 or more and its speeds above 0, got {self}")

    @property
    def send_link(self) -> Link:
        """The link as the process that sends sees it."""
        return Link(self.write_bytes_per_s, round(self.send_s * CLOCK_HZ))

    @property
    def receive_link(self) -> Link:
        """The link as the process that receives sees it."""
        return Link(self.read_bytes_per_s, round(self.latency_s * CLOCK_HZ))


def measured_links(first: tuple[int, ...], second: tuple[int, ...]) -> LinkTimes:
    """The times between two sets of cores, from the cache folder when this machine has measured them."""
    kept = Kept("links", VERSION, first, second)
    known = kept.read(_times)
    if known is None:
        known = measure(first, second)
        kept.write(asdict(known))
    return known


def measure(first: tuple[int, ...], second: tuple[int, ...]) -> LinkTimes:
    """Send messages from one process on the cores `first` to one on the cores `second`; takes about a second."""
    there, back = Ring.create(2, MESSAGE_BYTES), Ring.create(2, 1)
    with closing(there), closing(back), Workers() as workers:
        workers.start("the writer of a link", _write, first, there, back)
        workers.start("the reader of a link", _read_all, second, there, back)
        trip_s, send_s, write_s = workers.receive(0)
        (read_s,) = workers.receive(1)
    return LinkTimes(send_s, max(0.0, trip_s / 2 - send_s), MESSAGE_BYTES / write_s, MESSAGE_BYTES / read_s)


def _write(connection: Connection, cores: tuple[int, ...], there: Ring, back: Ring) -> None:
    """In the first process: seconds of a round trip, of sending an empty message and of writing a long one."""
    os.sched_setaffinity(0, cores)
    message = np.ones(MESSAGE_BYTES, np.uint8)

    def empty() -> tuple[float, float]:
        begin = perf_counter()
        there.reserve()
        there.commit(0)
        sent = perf_counter()
        back.peek()
        back.release()
        return perf_counter() - begin, sent - begin

    def long() -> tuple[float]:
        slot = np.frombuffer(there.reserve(), np.uint8)
        begin = perf_counter()
        np.copyto(slot, message)
        end = perf_counter()
        there.commit(MESSAGE_BYTES)
        back.peek()
        back.release()
        return (end - begin,)

    rounds = [(*_medians(empty, N_EMPTY), *_medians(long, N_LARGE)) for _ in range(N_ROUNDS)]
    there.finish()
    connection.send(_least(rounds))


def _read_all(connection: Connection, cores: tuple[int, ...], there: Ring, back: Ring) -> None:
    """In the second process: answer every message, and send the seconds of reading a long one."""
    os.sched_setaffinity(0, cores)
    times = []
    while (view := there.peek()) is not None:
        if len(view):
            message = np.frombuffer(view, np.float32)
            begin = perf_counter()
            message.max()
            times.append(perf_counter() - begin)
        there.release()
        back.reserve()
        back.commit(0)
    connection.send(_least([(median(times[n::N_ROUNDS]),) for n in range(N_ROUNDS)]))


def _medians(call: Callable[[], tuple[float, ...]], n_times: int) -> tuple[float, ...]:
    return tuple(median(times) for times in zip(*(call() for _ in range(n_times)), strict=True))


def _least(rounds: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    """The least of every number: what else the machine did made the others longer."""
    return tuple(min(times) for times in zip(*rounds, strict=True))


def _times(numbers: Mapping[str, Any]) -> LinkTimes:
    return LinkTimes(**{name: float(numbers[name]) for name in LinkTimes.__dataclass_fields__})


def device_links(cores_per_device: int, n_devices: int) -> LinkTimes:
    """The times between the first two devices, or from the only one to itself."""
    return measured_links(cores_of(0, cores_per_device), cores_of(min(1, n_devices - 1), cores_per_device))
