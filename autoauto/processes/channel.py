"""Python objects between a process and one that it started, whatever else is written to its descriptors: `Channel`.

    message:  key, 16 bytes | length, 8 bytes | CRC-32 of the content, 4 bytes | content, pickled

The key is random and known to both ends only. So the first byte that does not belong to a message is noticed, and
nobody waits for the rest of a message that was never sent. Tensors do not go this way, but through a ring or a
connection (`autoauto/targets/host/transport/messages.py`).
"""

from __future__ import annotations

import os
import pickle
import select
import socket
import struct
from multiprocessing.reduction import DupFd
from time import monotonic
from typing import Any
from zlib import crc32

MAX_MESSAGE_BYTES = 1 << 30
MESSAGE_S = 60.0
"""Maximum time from the first byte of a message to its last."""

_KEY_BYTES = 16
_HEAD = struct.Struct(f"<{_KEY_BYTES}sQI")
_READ_BYTES = 1 << 20


class BadMessage(Exception):
    """Something else than a message of the other end arrived."""


class Channel:
    """One end of a channel; it can be pickled as an argument of a new process."""

    def __init__(self, end: socket.socket, key: bytes) -> None:
        self.key = key
        self._socket = end
        self._received = bytearray()
        self._has_ended = False
        self._started_s = 0.0

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        """Make both ends of a channel."""
        key = os.urandom(_KEY_BYTES)
        first, second = socket.socketpair()
        return cls(first, key), cls(second, key)

    def __getstate__(self) -> dict[str, Any]:
        return {"handle": DupFd(self.fileno()), "key": self.key}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(socket.socket(fileno=state["handle"].detach()), state["key"])  # type: ignore[misc]

    def fileno(self) -> int:
        """A descriptor that is readable when something has arrived, or the other end is closed."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def send(self, message: object) -> None:
        """Send a message; waits while the other end has not read so much that it may arrive.

        Raises:
            OSError: the other end is closed.
        """
        content = pickle.dumps(message)
        assert len(content) <= MAX_MESSAGE_BYTES
        self._socket.sendall(_HEAD.pack(self.key, len(content), crc32(content)) + content)

    def poll(self) -> bool:
        """True if `recv` returns or raises at once: a message has arrived, or the other end is closed.

        Raises:
            BadMessage: something else arrived, or a message did not arrive whole within `MESSAGE_S`.
        """
        while not self._has_message() and not self._has_ended:
            try:
                arrived = self._socket.recv(_READ_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except ConnectionResetError:
                arrived = b""
            if not self._received:
                self._started_s = monotonic()
            self._received += arrived
            self._has_ended = not arrived
        return self._has_message() or self._has_ended

    def recv(self) -> Any:
        """Wait for the next message.

        Raises:
            EOFError: the other end is closed.
            BadMessage: as `poll`.
        """
        readable = select.poll()
        readable.register(self._socket, select.POLLIN)
        while not self.poll():
            readable.poll(1000.0 * MESSAGE_S)
        if not self._has_message():
            raise EOFError
        _, n_bytes, check = _HEAD.unpack_from(self._received)
        content = bytes(self._received[_HEAD.size : _HEAD.size + n_bytes])
        if crc32(content) != check:
            raise BadMessage("something else arrived in the middle of a message")
        del self._received[: _HEAD.size + n_bytes]
        self._started_s = monotonic()
        return pickle.loads(content)

    def _has_message(self) -> bool:
        """True if a whole message has arrived; raises for what is wrong as far as it has arrived."""
        start = bytes(self._received[:_KEY_BYTES])
        n_bytes = 0
        if not self.key.startswith(start):
            raise BadMessage(f"something else than a message arrived: {start!r}")
        if len(self._received) >= _HEAD.size:
            n_bytes = int(_HEAD.unpack_from(self._received)[1])
            if n_bytes > MAX_MESSAGE_BYTES:
                raise BadMessage(f"a message has at most {MAX_MESSAGE_BYTES} bytes, one of {n_bytes} arrives")
        if len(self._received) >= _HEAD.size + n_bytes:
            return True
        if start and not self._has_ended and monotonic() - self._started_s > MESSAGE_S:
            raise BadMessage(f"a message did not arrive within {MESSAGE_S:g} s")
        return False
