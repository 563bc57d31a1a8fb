"""Messages between two ends of a channel, and what is no message."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from multiprocessing.connection import wait

import pytest

from autoauto.processes.channel import MAX_MESSAGE_BYTES, BadMessage, Channel

Ends = tuple[Channel, Channel]


@pytest.fixture
def ends() -> Iterator[Ends]:
    near, far = Channel.pair()
    yield near, far
    near.close()
    far.close()


def raw(channel: Channel) -> socket.socket:
    """The socket below a channel."""
    return socket.socket(fileno=os.dup(channel.fileno()))


def message(channel: Channel, content: bytes, check: int = 0, n_bytes: int | None = None) -> bytes:
    """A message as it is sent, with a wrong checksum unless one is given."""
    length = len(content) if n_bytes is None else n_bytes
    return channel.key + length.to_bytes(8, "little") + check.to_bytes(4, "little") + content


def test_messages_arrive_in_order_both_ways(ends: Ends) -> None:
    near, far = ends
    for item in (1, "two", b"3" * 100_000):
        near.send(item)
    far.send(None)
    assert near.recv() is None
    assert [far.recv() for _ in range(3)] == [1, "two", b"3" * 100_000]
    assert not far.poll()


def test_the_end_comes_after_the_last_message(ends: Ends) -> None:
    near, far = ends
    far.send("last")
    far.close()
    assert near.recv() == "last"
    assert near.poll()
    with pytest.raises(EOFError):
        near.recv()


def test_a_message_that_has_arrived_in_part_is_not_waited_for(ends: Ends) -> None:
    near, far = ends
    with raw(far) as wire:
        wire.sendall(message(far, b"abc", n_bytes=10))
        assert not near.poll()
    far.close()
    with pytest.raises(EOFError):  # its process has ended in the middle of it
        near.recv()


@pytest.mark.parametrize("n_bytes", [1, 7, 100_000])
def test_garbage_is_noticed_at_its_first_byte_again_and_again(ends: Ends, n_bytes: int) -> None:
    near, far = ends
    with raw(far) as wire:
        wire.sendall(bytes([near.key[0] ^ 1]) * n_bytes)  # a byte that no message of this key begins with
    wait([near.fileno()])
    for _ in range(2):
        with pytest.raises(BadMessage, match="something else than a message arrived"):
            near.poll()


def test_a_message_before_garbage_is_received(ends: Ends) -> None:
    near, far = ends
    far.send("result")
    with raw(far) as wire:
        wire.sendall(b"garbage")
    assert near.recv() == "result"
    with pytest.raises(BadMessage):
        near.recv()


def test_garbage_within_a_message_and_an_impossible_length_are_noticed(ends: Ends) -> None:
    near, far = ends
    with raw(far) as wire:
        wire.sendall(message(far, b"garbage"))
    with pytest.raises(BadMessage, match="in the middle of a message"):
        near.recv()
    with raw(near) as wire:
        wire.sendall(message(near, b"", n_bytes=MAX_MESSAGE_BYTES + 1))
    with pytest.raises(BadMessage, match=f"a message has at most {MAX_MESSAGE_BYTES} bytes"):
        far.recv()


def test_a_message_that_does_not_end_is_given_up(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoauto.processes.channel.MESSAGE_S", 0.05)
    near, far = ends
    with raw(far) as wire:
        wire.sendall(message(far, b"abc", n_bytes=10))
    with pytest.raises(BadMessage, match=r"^a message did not arrive within 0.05 s$"):
        near.recv()
