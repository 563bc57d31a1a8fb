"""The connections of one device to all others: `Peers`.

Between any two devices there is a ring each way. A device sets an event when it ends, so that no other device waits for
it: neither for messages that never come, nor for room in a ring that is no longer read.
"""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Mapping, Sequence
from multiprocessing.reduction import DupFd
from time import perf_counter_ns
from typing import Any

import numpy.typing as npt

from autoauto.programs.sharded_engine.channel import Message, Receiver, Sender
from autoauto.records.errors import BadInput, EndOfStream
from autoauto.records.units import Array
from autoauto.targets.host.transport.shared_memory import Ring

N_SLOTS, SLOT_BYTES = 4, 128 * 1024
"""Size of a ring between two devices: a device can send their product before the other receives."""

_MESSAGE = "message"


class SharedEvent:
    """An event that all processes see once it is set; `fd` is then readable."""

    def __init__(self, fd: int | None = None) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC) if fd is None else fd

    def __getstate__(self) -> dict[str, Any]:
        return {"handle": DupFd(self.fd)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.fd = state["handle"].detach()

    def set(self) -> None:
        """Set the event."""
        os.eventfd_write(self.fd, 1)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.fd)


class Peers:
    """One device's connections to all other devices.

    Args:
        destinations, sources: the ring to and from every other device, by its number.
        ended: for every device, the event of its end.

    Attributes:
        sent, received: number of messages to and from every device, without those of collectives.
        transfers: start and stop of every transfer, in ns by perf_counter, without the wait for the first slot.
    """

    def __init__(
        self,
        device_id: int,
        destinations: Mapping[int, Ring],
        sources: Mapping[int, Ring],
        ended: Sequence[SharedEvent],
    ) -> None:
        self.device_id, self.n_devices = device_id, len(destinations) + 1
        self.sent, self.received = [0] * self.n_devices, [0] * self.n_devices
        self.transfers: list[tuple[int, int]] = []
        self._senders = {other: Sender(ring) for other, ring in destinations.items()}
        self._receivers = {other: Receiver(ring) for other, ring in sources.items()}
        self._early: dict[int, deque[Message]] = {other: deque() for other in sources}
        self._ended = ended

    def send(self, dest_id: int, array: npt.ArrayLike) -> None:
        """Send an array; returns when all of it has been written to the ring.

        Raises BadInput if `dest_id` is no other device, or that device has ended.
        """
        self._check_other("send to", dest_id)
        self._send(dest_id, array, _MESSAGE)
        self.sent[dest_id] += 1

    def receive(self, src_id: int) -> Array:
        """Wait for the next array of a device.

        Raises:
            EndOfStream: that device has ended, and all that it sent has been received.
            BadInput: `src_id` is no other device, or that device waits for this one in a collective.
        """
        self._check_other("receive from", src_id)
        early = self._early[src_id]
        message = early.popleft() if early else self._next(src_id)
        if message is None:
            raise EndOfStream(f"device {src_id} has ended, so device {self.device_id} receives no more from it")
        if message.kind != _MESSAGE:
            raise BadInput(
                f"device {self.device_id} waits for a message of device {src_id}, which waits in {message.kind}; "
                "send before, or receive after it"
            )
        self.received[src_id] += 1
        return message.array

    def exchange(self, kind: str, parts: Sequence[npt.ArrayLike]) -> list[Any]:
        """Give `parts[j]` to every device j; returns the parts that all devices gave this one, by device.

        Devices exchange in pairs. Round r has the pairs whose numbers sum up to r modulo the number of devices; in a
        pair the device with the lower number sends first. There is no deadlock with parts and rings of any size: take
        the earliest round with an unfinished pair. Both its devices have finished all earlier rounds, so both are in
        this pair, one sending while the other receives.

            4 devices    round 0: 1-3    round 1: 0-1 2-3    round 2: 0-2    round 3: 0-3 1-2

        Raises BadInput if another device has ended, or is in a collective of another kind.
        """
        exchanged = list(parts)
        for step in range(self.n_devices):
            other = (step - self.device_id) % self.n_devices
            if self.device_id < other:
                self._send(other, parts[other], kind)
            if self.device_id != other:
                exchanged[other] = self._receive_part(other, kind)
            if self.device_id > other:
                self._send(other, parts[other], kind)
        return exchanged

    def end(self) -> None:
        """Signal to the others that this device sends and receives no more."""
        self._ended[self.device_id].set()

    def _send(self, other: int, array: npt.ArrayLike, kind: str) -> None:
        sender, ended_fd = self._senders[other], self._ended[other].fd
        sender.load(array, kind)
        is_sent = False
        while not is_sent:
            if ended_fd in _readable(sender.ring.free_fd, ended_fd):
                raise self._too_late(other, kind)
            is_sent = sender.step()
        self.transfers.append((sender.start_ns, perf_counter_ns()))

    def _next(self, other: int) -> Message | None:
        """Wait for the next message of the other device, of any kind; None if the device has ended."""
        receiver, ended_fd = self._receivers[other], self._ended[other].fd
        filled_fd = receiver.ring.filled_fd
        message = None
        while message is None:
            # A last message may arrive after `filled_fd` was checked and before `ended_fd` was: check again.
            if filled_fd not in _readable(filled_fd, ended_fd) and not _readable(filled_fd, timeout_ms=0):
                return None
            message = receiver.step()
        self.transfers.append((message.start_ns, perf_counter_ns()))
        return message

    def _receive_part(self, other: int, kind: str) -> Array:
        """Receive the other device's part in a collective; its earlier messages are stored for `receive`."""
        while message := self._next(other):
            if message.kind == kind:
                return message.array
            if message.kind != _MESSAGE:
                raise BadInput(
                    f"all devices must call the same collectives in the same order, but device {self.device_id} is in "
                    f"{kind} and device {other} in {message.kind}"
                )
            self._early[other].append(message)
        raise self._too_late(other, kind)

    def _too_late(self, other: int, kind: str) -> BadInput:
        if kind == _MESSAGE:
            return BadInput(
                f"a device must receive all that is sent to it, but device {other} has ended and device "
                f"{self.device_id} has a message for it"
            )
        return BadInput(f"all devices must call {kind}, but device {other} has ended and device {self.device_id} waits")

    def _check_other(self, what: str, other: int) -> None:
        if other not in self._senders:
            others = ", ".join(map(str, self._senders)) or "none: it is alone"
            raise BadInput(f"device {self.device_id} can {what} other devices ({others}), got {other}")


def _readable(*fds: int, timeout_ms: int | None = None) -> list[int]:
    """Wait until some of the descriptors are readable, and return those."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(timeout_ms)]
