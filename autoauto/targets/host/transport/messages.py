"""One-way channels of messages between two processes: `MessageWriter`, `MessageReader`.

    writer  reserve -> fill -> commit           reserve waits while all slots are filled
    reader  wait -> peek -> read -> release     wait and peek wait while no slot is filled

Within a machine a channel is a `Ring` in shared memory, which is both ends. Between two machines it is a connection, a
`TcpWriter` at one end and a `TcpReader` at the other. Whoever sends or receives does not know which of them it has.
"""

from __future__ import annotations

import select
from collections.abc import Iterable
from typing import Protocol

END = -1
"""The length that marks the end of the stream."""
FAILED = -2
"""The length of an empty reason; longer ones count down from it."""


class FailedMessage(Exception):
    """There is a reason where a message would be; `release` gives its slot back as that of a message."""


def readable(descriptors: Iterable[int], timeout_s: float | None = None) -> set[int]:
    """Wait until some descriptors are readable, or closed at the other end, and return them; none after a timeout."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(None if timeout_s is None else 1000 * timeout_s)}


class MessageWriter(Protocol):
    """The writing end.

    Attributes:
        memory: where its messages lie.
        free_fd: readable while `reserve` does not wait.
        slot_bytes: maximum length of a message.
    """

    memory: memoryview
    free_fd: int
    slot_bytes: int

    def reserve(self) -> memoryview:
        """Wait for a free slot and return its `slot_bytes` writable bytes.

        Raises:
            WorkerLost: the connection to another machine has ended.
        """

    def commit(self, n_bytes: int) -> None:
        """Send the first `n_bytes` bytes of the reserved slot; errors as in `reserve`."""

    def fail(self, reason: str) -> None:
        """Send a reason instead of a message in the reserved slot, as much of it as fits."""

    def finish(self) -> None:
        """Mark the end of the stream: `peek` returns None after the last message."""


class MessageReader(Protocol):
    """The reading end.

    Attributes:
        memory: where its messages lie.
        filled_fd: readable when a message arrives.
    """

    memory: memoryview
    filled_fd: int

    def wait(self) -> bool:
        """Wait for a message; False at the end of the stream. `peek` does not wait for its first bytes after it.

        Raises:
            WorkerLost: the connection to another machine has ended, or something longer than a slot arrives.
        """

    def peek(self) -> memoryview | None:
        """Wait for a message and return a view of it; None at the end of the stream, and in every later call.

        Raises:
            FailedMessage: the writer could not make it.
            WorkerLost: as `wait`.
        """

    def release(self) -> None:
        """Give the peeked slot back to the writer; its view must not be read any more."""

    def restart(self) -> None:
        """Take the end of the stream, which waits or comes next, so that another stream may follow."""
