"""What a device of this machine has of the others: `Peers`.

Between any two devices there is a ring each way. A device that has ended raises its flag, so that nobody waits for it:
neither for messages that never come, nor for room in a ring that is no longer read.
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

from autoauto.records.errors import BadInput, EndOfStream
from autoauto.runtimes.sharded_engine.channel import Message, Receiver, Sender
from autoauto.targets.host.transport.array_file import Array
from autoauto.targets.host.transport.ring import Ring

N_SLOTS = 4
SLOT_BYTES = 128 * 1024
"""Of a ring between two devices: what a device can send before the other receives is the product."""

_MESSAGE = "message"


class Flag:
    """Something that happens once, for all processes to see.

    Attributes:
        fd: readable once it has happened.
    """

    def __init__(self, fd: int | None = None) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC) if fd is None else fd

    def __getstate__(self) -> dict[str, Any]:
        return {"handle": DupFd(self.fd)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.fd = state["handle"].detach()

    def set(self) -> None:
        """It has happened."""
        os.eventfd_write(self.fd, 1)

    def close(self) -> None:
        """Let go of the descriptor."""
        os.close(self.fd)


class Peers:
    """The other devices, as one device sees them.

    Args:
        device_id: which device this is.
        to, come_from: the ring to and from every other device, by its number.
        ended: of every device whether it has ended.

    Attributes:
        sent, received: how many messages went to and came from every device, those of collectives not counted.
        transfers: start and stop, in ns by perf_counter, of whatever went or came, waiting for the first slot aside.
    """

    def __init__(
        self, device_id: int, to: Mapping[int, Ring], come_from: Mapping[int, Ring], ended: Sequence[Flag]
    ) -> None:
        self.device_id, self.n_devices = device_id, len(to) + 1
        self.sent, self.received = [0] * self.n_devices, [0] * self.n_devices
        self.transfers: list[tuple[int, int]] = []
        self._senders = {other: Sender(ring) for other, ring in to.items()}
        self._receivers = {other: Receiver(ring) for other, ring in come_from.items()}
        self._aside: dict[int, deque[Message]] = {other: deque() for other in come_from}
        self._ended = ended

    def send(self, dest_id: int, array: npt.ArrayLike) -> None:
        """Send an array; returns when it lies in the ring.

        Raises:
            BadInput: there is no such device, it is this one, or it has ended.
        """
        self._check_other("send to", dest_id)
        self._send(dest_id, array, _MESSAGE)
        self.sent[dest_id] += 1

    def receive(self, src_id: int) -> Array:
        """Wait for the next array of a device.

        Raises:
            EndOfStream: it has ended, and all it sent has been received.
            BadInput: there is no such device, it is this one, or it waits for this one in a collective.
        """
        self._check_other("receive from", src_id)
        aside = self._aside[src_id]
        message = aside.popleft() if aside else self._next(src_id)
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
        """Give `parts[j]` to every device j and return what each gave this one, its own part among them.

        Devices meet in pairs, in each round r those whose numbers sum up to r modulo their count, and the lower number
        sends first. The pair of the earliest round that is not done always finds both its devices there, one sending
        and one receiving, so parts of any size pass through rings of any size.

            4 devices    round 0: 1-3    round 1: 0-1 2-3    round 2: 0-2    round 3: 0-3 1-2

        Raises:
            BadInput: another device has ended, or is in a collective of another kind.
        """
        got = list(parts)
        for step in range(self.n_devices):
            other = (step - self.device_id) % self.n_devices
            if self.device_id < other:
                self._send(other, parts[other], kind)
            if self.device_id != other:
                got[other] = self._part(other, kind)
            if self.device_id > other:
                self._send(other, parts[other], kind)
        return got

    def end(self) -> None:
        """Tell the others that this device sends and receives no more."""
        self._ended[self.device_id].set()

    def _send(self, other: int, array: npt.ArrayLike, kind: str) -> None:
        sender, ended_fd = self._senders[other], self._ended[other].fd
        sender.load(array, kind)
        whole = False
        while not whole:
            if ended_fd in _readable(sender.ring.free_fd, ended_fd):
                raise self._too_late(other, kind)
            whole = sender.step()
        self.transfers.append((sender.began_ns, perf_counter_ns()))

    def _next(self, other: int) -> Message | None:
        """Wait for whatever the other device sends next; None if it has ended."""
        receiver, ended_fd = self._receivers[other], self._ended[other].fd
        filled_fd = receiver.ring.filled_fd
        message = None
        while message is None:
            # what was sent before the end may have come between the looks at the two descriptors: look again
            if filled_fd not in _readable(filled_fd, ended_fd) and not _readable(filled_fd, timeout_ms=0):
                return None
            message = receiver.step()
        self.transfers.append((message.began_ns, perf_counter_ns()))
        return message

    def _part(self, other: int, kind: str) -> Array:
        """The other device's part in a collective; what it sent before is kept for `receive`."""
        while message := self._next(other):
            if message.kind == kind:
                return message.array
            if message.kind != _MESSAGE:
                raise BadInput(
                    f"all devices must call the same collectives in the same order, but device {self.device_id} is in "
                    f"{kind} and device {other} in {message.kind}"
                )
            self._aside[other].append(message)
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
