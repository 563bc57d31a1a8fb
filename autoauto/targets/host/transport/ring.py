"""A bounded ring of slots in memory that two processes share: `Ring`.

The memory and both counters are file descriptors without a name (memfd, eventfd). The kernel drops them with the last
process that has them open, however it ends, so there is nothing to clean up. A shared mapping does not count under
RLIMIT_DATA: a ring lies outside the devices, as the buffers of a link do.

    writer  reserve -> fill -> commit          reserve waits while all slots are filled
    reader  peek -> read -> release            peek waits while no slot is filled

A writer that cannot make a message sends the reason in its slot, with `fail`; `peek` raises it as `FailedMessage`.
"""

from __future__ import annotations

import mmap
import os
import select
from multiprocessing.reduction import DupFd
from typing import Any

ALIGNMENT = 64
"""Alignment of tensors in a slot, in bytes: a cache line, and the widest vector registers."""

_PAGE_BYTES = mmap.PAGESIZE
_HEAD_BYTES = ALIGNMENT
END = -1
"""The length that marks the end of the stream."""
FAILED = -2
"""The length of an empty reason; longer ones count down from it."""


class FailedMessage(Exception):
    """There is a reason where a message would be; `release` gives its slot back as that of a message."""


class Ring:
    """A one-way channel from one writer to one reader; it can be pickled as an argument of a new process.

    Attributes:
        n_slots: maximum number of messages in the ring.
        slot_bytes: maximum length of a message.
        free_fd, filled_fd: readable while a slot is free, or filled, for use with `poll`.

    >>> ring = Ring.create(n_slots=2, slot_bytes=3)
    >>> ring.reserve()[:2] = b"ab"; ring.commit(2); ring.finish()
    >>> bytes(ring.peek()); ring.release(); ring.peek() is None
    b'ab'
    True
    """

    def __init__(self, memory_fd: int, free_fd: int, filled_fd: int, n_slots: int, slot_bytes: int) -> None:
        self.n_slots, self.slot_bytes = n_slots, slot_bytes
        self.free_fd, self.filled_fd = free_fd, filled_fd
        self._memory_fd = memory_fd
        self._stride = _stride(slot_bytes)
        self._view = memoryview(mmap.mmap(memory_fd, n_slots * self._stride))
        self._next_write = self._next_read = 0

    @classmethod
    def create(cls, n_slots: int, slot_bytes: int) -> Ring:
        """Make an empty ring.

        Raises:
            OSError: memory or file descriptors do not suffice.
        """
        descriptors = [os.memfd_create("autoauto-ring")]
        try:
            n_bytes = n_slots * _stride(slot_bytes)
            os.posix_fallocate(descriptors[0], 0, n_bytes)  # no memory is an error here, not a signal later
            descriptors.extend(os.eventfd(n, os.EFD_SEMAPHORE | os.EFD_CLOEXEC) for n in (n_slots, 0))
            return cls(descriptors[0], descriptors[1], descriptors[2], n_slots, slot_bytes)
        except BaseException:
            for descriptor in descriptors:
                os.close(descriptor)
            raise

    def __getstate__(self) -> dict[str, Any]:
        handles = [DupFd(fd) for fd in (self._memory_fd, self.free_fd, self.filled_fd)]
        return {"handles": handles, "n_slots": self.n_slots, "slot_bytes": self.slot_bytes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        fds = (handle.detach() for handle in state["handles"])
        self.__init__(*fds, state["n_slots"], state["slot_bytes"])  # type: ignore[misc]

    @property
    def memory(self) -> memoryview:
        """All slots, in this process."""
        return self._view

    def close(self) -> None:
        """Close the descriptors; the mapping ends with the last view of it."""
        self._view = memoryview(b"")
        for fd in (self._memory_fd, self.free_fd, self.filled_fd):
            os.close(fd)

    def reserve(self) -> memoryview:
        """Wait for a free slot and return its `slot_bytes` writable bytes."""
        os.eventfd_read(self.free_fd)
        start = self._next_write * self._stride + _HEAD_BYTES
        return self._view[start : start + self.slot_bytes]

    def commit(self, n_bytes: int) -> None:
        """Give the first `n_bytes` bytes of the reserved slot to the reader."""
        assert n_bytes <= self.slot_bytes
        self._send(n_bytes)

    def fail(self, reason: str) -> None:
        """Give the reader a reason instead of a message in the reserved slot, as much of it as fits."""
        start = self._next_write * self._stride + _HEAD_BYTES
        text = reason.encode()[: self._stride - _HEAD_BYTES]
        self._view[start : start + len(text)] = text
        self._send(FAILED - len(text))

    def finish(self) -> None:
        """Mark the end of the stream: `peek` returns None after the last message."""
        self.reserve()
        self._send(END)

    def wait(self) -> bool:
        """Wait for a message; False at the end of the stream. `peek` does not wait after it."""
        poll = select.poll()
        poll.register(self.filled_fd, select.POLLIN)
        poll.poll()
        return self._length() != END

    def peek(self) -> memoryview | None:
        """Wait for a message and return a view of it; None at the end of the stream, and in every later call.

        Raises:
            FailedMessage: the writer could not make it.
        """
        os.eventfd_read(self.filled_fd)
        start, n_bytes = self._next_read * self._stride, self._length()
        if n_bytes == END:
            os.eventfd_write(self.filled_fd, 1)
            return None
        start += _HEAD_BYTES
        if n_bytes <= FAILED:
            raise FailedMessage(bytes(self._view[start : start + FAILED - n_bytes]).decode(errors="ignore"))
        return self._view[start : start + n_bytes]

    def restart(self) -> None:
        """As the reader, take the end of the stream out of the ring, so that another stream may follow.

        It waits for the end; no message may come before it.
        """
        os.eventfd_read(self.filled_fd)
        assert self._length() == END
        self.release()

    def release(self) -> None:
        """Give the peeked slot back to the writer; its view must not be read any more."""
        self._next_read = (self._next_read + 1) % self.n_slots
        os.eventfd_write(self.free_fd, 1)

    def _length(self) -> int:
        start = self._next_read * self._stride
        return int.from_bytes(self._view[start : start + 8], "little", signed=True)

    def _send(self, n_bytes: int) -> None:
        start = self._next_write * self._stride
        self._view[start : start + 8] = n_bytes.to_bytes(8, "little", signed=True)
        self._next_write = (self._next_write + 1) % self.n_slots
        os.eventfd_write(self.filled_fd, 1)


def _stride(slot_bytes: int) -> int:
    """Bytes from slot to slot: whole pages for the length and the message."""
    return -(-(_HEAD_BYTES + slot_bytes) // _PAGE_BYTES) * _PAGE_BYTES
