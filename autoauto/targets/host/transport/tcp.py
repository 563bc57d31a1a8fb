"""Messages over TCP between processes of two machines: `TcpWriter`, `TcpReader`, and who may connect: `Gate`.

    reserve waits for a credit, a byte that the reader sends for every free slot; release sends the next credit

    message:  length, 8 bytes, as in a slot of `Ring` | content

They work without threads: a stage that sends or receives does nothing else meanwhile, which is what `Period.SERIAL`
says; the kernel's buffers hold what the other end does not read yet. No more messages than there are credits are on
their way.

Both ends show that they know the secret of the run before a message is read, and never send it:

    gate ── nonce ──▶ who dials ── number, own nonce, HMAC of all three ──▶ gate ── HMAC of the same, as a gate ──▶
"""

from __future__ import annotations

import hmac
import mmap
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.reduction import DupFd
from time import monotonic, sleep
from typing import Any, NamedTuple, NoReturn

from typing_extensions import override

from autoauto.records.errors import WorkerLost
from autoauto.targets.host.transport.messages import (
    END,
    FAILED,
    FailedMessage,
    MessageReader,
    MessageWriter,
    readable,
)

TOKEN_BYTES = 16
"""Length of the secret that both ends of every connection of a run know."""

START_S = 60.0
"""Maximum time until the other end of a connection is there."""

HELLO_S = 5.0
"""Maximum time in which one who connects shows that he knows the secret."""

CONTROL = 0
"""The number of the connection with requests to a machine."""

SILENCE_S, STALL_S = 20, 120
"""After so many seconds without an answer a connection is lost: that with requests; and others, whose messages a stage
that computes for long does not take at once."""

_GRACE_S = 3.0
_HEAD_BYTES = 8
_REASON_BYTES = 4000
_NUMBER_BYTES = 4
_NONCE_BYTES = 32
_PROOF_BYTES = 32
_GREETING_BYTES = _NUMBER_BYTES + _NONCE_BYTES + _PROOF_BYTES


class _TcpEnd:
    """An end of a connection, with a slot in memory that no device is charged for; it can be pickled like a `Ring`."""

    def __init__(self, connection: socket.socket, slot_bytes: int) -> None:
        self.slot_bytes = slot_bytes
        self._connection = connection
        self.memory = memoryview(mmap.mmap(-1, max(slot_bytes, _REASON_BYTES)))

    def __getstate__(self) -> dict[str, Any]:
        return {"handle": DupFd(self._connection.fileno()), "slot_bytes": self.slot_bytes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(socket.socket(fileno=state["handle"].detach()), state["slot_bytes"])  # type: ignore[misc]

    def end(self) -> None:
        """End the connection, also under a thread that waits for it."""
        with suppress(OSError):  # the other end was first
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._connection.close()

    def _read(self, n_bytes: int) -> memoryview:
        view = self.memory[:n_bytes]
        n_read = 0
        while n_read < n_bytes:
            n_more = self._or_lost(partial(self._connection.recv_into, view[n_read:], 0, socket.MSG_WAITALL))
            if n_more == 0:
                self._lost("it was closed")
            n_read += n_more
        return view

    def _or_lost(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except OSError as error:
            self._lost(error.strerror or str(error))

    def _lost(self, reason: str) -> NoReturn:
        """Raise WorkerLost after a while, in which the reason why the other process ended may arrive and be raised."""
        sleep(_GRACE_S)
        raise WorkerLost(f"the connection to a process of another machine was lost: {reason}")


class TcpWriter(_TcpEnd, MessageWriter):
    """The writing end."""

    def __init__(self, connection: socket.socket, slot_bytes: int) -> None:
        super().__init__(connection, slot_bytes)
        self.free_fd = connection.fileno()  # readable also when the connection has ended

    @override
    def reserve(self) -> memoryview:
        self._read(1)
        return self.memory[: self.slot_bytes]

    @override
    def commit(self, n_bytes: int) -> None:
        """Waits while the kernel has no room for the message."""
        assert n_bytes <= self.slot_bytes
        self._send(n_bytes, self.memory[:n_bytes])

    @override
    def fail(self, reason: str) -> None:
        text = reason.encode()[:_REASON_BYTES]
        self._send(FAILED - len(text), memoryview(text))

    @override
    def finish(self) -> None:
        self._read(1)
        self._send(END, memoryview(b""))

    def _send(self, head: int, content: memoryview) -> None:
        more = socket.MSG_MORE if len(content) else 0
        self._or_lost(partial(self._connection.sendall, head.to_bytes(_HEAD_BYTES, "little", signed=True), more))
        self._or_lost(partial(self._connection.sendall, content))


class TcpReader(_TcpEnd, MessageReader):
    """The reading end."""

    def __init__(self, connection: socket.socket, slot_bytes: int) -> None:
        super().__init__(connection, slot_bytes)
        self.filled_fd = connection.fileno()  # readable also when the connection has ended
        self._head: int | None = None

    def grant(self, n_slots: int) -> None:
        """Send the first credits, once in a connection."""
        self._or_lost(partial(self._connection.sendall, bytes(n_slots)))

    @override
    def wait(self) -> bool:
        if self._head is None:
            self._head = int.from_bytes(self._read(_HEAD_BYTES), "little", signed=True)
            if not FAILED - _REASON_BYTES <= self._head <= self.slot_bytes:
                raise WorkerLost(f"a message has at most {self.slot_bytes} bytes, one of {self._head} arrives")
        return self._head != END

    @override
    def peek(self) -> memoryview | None:
        if not self.wait():
            return None
        head = self._head
        assert head is not None
        if head <= FAILED:
            raise FailedMessage(bytes(self._read(FAILED - head)).decode(errors="ignore"))
        return self._read(head)

    @override
    def release(self) -> None:
        self._head = None
        self._or_lost(partial(self._connection.sendall, b"\0"))

    @override
    def restart(self) -> None:
        assert not self.wait()
        self.release()


class _Stranger(NamedTuple):
    """Somebody who connects and has yet to prove until `until_s` that he knows the secret."""

    connection: socket.socket
    until_s: float
    nonce: bytes
    arrived: bytearray


class Gate:
    """Takes the connections of a run on one machine, only from those who prove that they know the secret.

    The proof includes the number of the connection. Whoever sends something else, or nothing, is refused.
    """

    def __init__(self, host: str, token: bytes) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=128)
        self._listener.setblocking(False)
        self._token = token
        self._waiting: dict[int, _Stranger] = {}
        self._admitted: dict[int, socket.socket] = {}
        self.address: tuple[str, int] = self._listener.getsockname()[:2]

    def admit(self, number: int) -> socket.socket:
        """The connection with a number.

        Raises:
            WorkerLost: it does not come within `START_S`.
        """
        until_s = monotonic() + START_S
        while number not in self._admitted:
            if monotonic() > until_s:
                raise WorkerLost(f"a process of another machine must connect within {START_S:g} s, it did not")
            self._wait(until_s)
        return _prepared(self._admitted.pop(number), number)

    def _wait(self, until_s: float) -> None:
        until_s = min([until_s, *(stranger.until_s for stranger in self._waiting.values())])
        events = readable([self._listener.fileno(), *self._waiting], max(0.0, until_s - monotonic()))
        for descriptor, stranger in list(self._waiting.items()):
            if descriptor in events or monotonic() > stranger.until_s:
                self._greet(descriptor, stranger)
        if self._listener.fileno() in events:
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            stranger = _Stranger(connection, monotonic() + HELLO_S, os.urandom(_NONCE_BYTES), bytearray())
            with suppress(OSError):  # he has gone, which is noticed when he is read
                connection.send(stranger.nonce)
            self._waiting[connection.fileno()] = stranger

    def _greet(self, descriptor: int, stranger: _Stranger) -> None:
        """Read more of a greeting, which may come in pieces; admit the connection once its proof is right."""
        connection, until_s, nonce, arrived = stranger
        words = b""
        with suppress(OSError):
            words = connection.recv(_GREETING_BYTES - len(arrived))
        arrived += words
        if words and len(arrived) < _GREETING_BYTES and monotonic() <= until_s:
            return
        del self._waiting[descriptor]
        said, shown = bytes(arrived[:-_PROOF_BYTES]), bytes(arrived[-_PROOF_BYTES:])
        if len(arrived) < _GREETING_BYTES or not hmac.compare_digest(shown, _proof(self._token, b"dial", nonce, said)):
            connection.close()
            return
        connection.setblocking(True)
        with suppress(OSError):
            connection.sendall(_proof(self._token, b"gate", nonce, said))
        self._admitted[int.from_bytes(said[:_NUMBER_BYTES], "little")] = connection

    def close(self) -> None:
        """Take no more connections."""
        for connection in (*self._admitted.values(), *(stranger.connection for stranger in self._waiting.values())):
            connection.close()
        self._listener.close()


def new_token() -> bytes:
    """A secret for the connections of a run."""
    return os.urandom(TOKEN_BYTES)


def dial(address: tuple[str, int], token: bytes, number: int) -> socket.socket:
    """Connect to the gate of another machine.

    Raises:
        WorkerLost: nothing answers there within `START_S`, or what does not know the secret.
    """
    host, port = address
    try:
        connection = socket.create_connection(address, START_S)
        nonce = _received(connection, _NONCE_BYTES)
        said = number.to_bytes(_NUMBER_BYTES, "little") + os.urandom(_NONCE_BYTES)
        connection.sendall(said + _proof(token, b"dial", nonce, said))
        shown = _received(connection, _PROOF_BYTES)
    except OSError as error:
        raise WorkerLost(f"another machine must take connections at {host}:{port}, got {error}") from error
    if not hmac.compare_digest(shown, _proof(token, b"gate", nonce, said)):
        connection.close()
        raise WorkerLost(f"another machine must know the secret of the run, what answers at {host}:{port} does not")
    return _prepared(connection, number)


def channel_key(token: bytes) -> bytes:
    """The key that starts every message between two processes of a run; it is sent, and does not tell the secret."""
    return _proof(token, b"channel")[:TOKEN_BYTES]


def _proof(token: bytes, *words: bytes) -> bytes:
    """A digest of some words that only who knows the secret can make."""
    return hmac.digest(token, b"".join(words), "sha256")


def _received(connection: socket.socket, n_bytes: int) -> bytes:
    arrived = bytearray()
    while len(arrived) < n_bytes:
        if not (words := connection.recv(n_bytes - len(arrived))):
            raise ConnectionResetError("the connection was closed")
        arrived += words
    return bytes(arrived)


def _prepared(connection: socket.socket, number: int) -> socket.socket:
    """A connection that sends at once, and ends when the other machine is gone without a word."""
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENCE_S // 4)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, SILENCE_S // 4)
    lost_s = SILENCE_S if number == CONTROL else STALL_S  # of probes of an idle connection, and of what it sends
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * lost_s)
    return connection
