"""The cost of a message between two processes, measured once a machine and cached: `LinkTimes`, `device_links`."""

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
from autoauto.targets.host.machine.machine import CLOCK_HZ, MachineCache, cores_of
from autoauto.targets.host.processes import Workers
from autoauto.targets.host.transport.ring import Ring

VERSION = 2

MESSAGE_BYTES = 4 * MIB
"""Larger than the caches of one core, as the activations of large models are."""

N_EMPTY, N_LARGE, N_ROUNDS = 100, 15, 5
"""Empty messages and long messages of a round, and the number of rounds."""


@dataclass(frozen=True, slots=True)
class LinkTimes:
    """Times of a message from one process to another through a ring.

    Attributes:
        send_s: time that the writer spends on an empty message.
        latency_s: time from then until a sleeping reader has the message.
        write_bytes_per_s: rate at which the writer copies a message into the ring.
        read_bytes_per_s: rate at which the reader reads the message for the first time, from another core's caches.
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


def device_links(n_devices: int) -> LinkTimes:
    """The times between the first two devices, or from the only one to itself."""
    return measured_links(cores_of(0, 1), cores_of(min(1, n_devices - 1), 1))


def measured_links(first: tuple[int, ...], second: tuple[int, ...]) -> LinkTimes:
    """The times between two sets of cores, from the cache folder where this machine has measured them before."""
    cache = MachineCache("links", VERSION, first, second)
    times = cache.read(_link_times)
    if times is None:
        times = measure(first, second)
        cache.write(asdict(times))
    return times


def _link_times(numbers: Mapping[str, Any]) -> LinkTimes:
    return LinkTimes(**{name: float(numbers[name]) for name in LinkTimes.__dataclass_fields__})


def measure(first: tuple[int, ...], second: tuple[int, ...]) -> LinkTimes:
    """Send messages from a process on the cores `first` to a process on the cores `second`; takes about a second."""
    messages, replies = Ring.create(2, MESSAGE_BYTES), Ring.create(2, 1)
    with closing(messages), closing(replies), Workers() as workers:
        workers.start("the writer of a link", _write, first, messages, replies)
        workers.start("the reader of a link", _read_all, second, messages, replies)
        trip_s, send_s, write_s = workers.receive(0)
        (read_s,) = workers.receive(1)
    return LinkTimes(send_s, max(0.0, trip_s / 2 - send_s), MESSAGE_BYTES / write_s, MESSAGE_BYTES / read_s)


def _write(connection: Connection, cores: tuple[int, ...], messages: Ring, replies: Ring) -> None:
    """In the first process: report seconds of a round trip, of sending an empty message and of writing a long one."""
    os.sched_setaffinity(0, cores)
    message = np.ones(MESSAGE_BYTES, np.uint8)

    def empty() -> tuple[float, float]:
        start = perf_counter()
        messages.reserve()
        messages.commit(0)
        sent = perf_counter()
        replies.peek()
        replies.release()
        return perf_counter() - start, sent - start

    def long() -> tuple[float]:
        slot = np.frombuffer(messages.reserve(), np.uint8)
        start = perf_counter()
        np.copyto(slot, message)
        stop = perf_counter()
        messages.commit(MESSAGE_BYTES)
        replies.peek()
        replies.release()
        return (stop - start,)

    rounds = [(*_medians(empty, N_EMPTY), *_medians(long, N_LARGE)) for _ in range(N_ROUNDS)]
    messages.finish()
    connection.send(_minima(rounds))


def _read_all(connection: Connection, cores: tuple[int, ...], messages: Ring, replies: Ring) -> None:
    """In the second process: reply to every message, and report the seconds of reading a long one."""
    os.sched_setaffinity(0, cores)
    times = []
    while (view := messages.peek()) is not None:
        if len(view):
            message = np.frombuffer(view, np.float32)
            start = perf_counter()
            message.max()
            times.append(perf_counter() - start)
        messages.release()
        replies.reserve()
        replies.commit(0)
    connection.send(_minima([(median(times[n::N_ROUNDS]),) for n in range(N_ROUNDS)]))


def _medians(call: Callable[[], tuple[float, ...]], n_times: int) -> tuple[float, ...]:
    return tuple(median(times) for times in zip(*(call() for _ in range(n_times)), strict=True))


def _minima(rounds: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    """The minimum of every column: other processes only make times longer."""
    return tuple(min(times) for times in zip(*rounds, strict=True))
