"""Arrays of any type and size through a ring."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest

from autoauto.programs.sharded_engine.channel import Receiver, Sender
from autoauto.records.errors import BadInput, EndOfStream
from autoauto.records.units import Array
from autoauto.targets.host.transport.messages import MessageReader, MessageWriter
from autoauto.targets.host.transport.shared_memory import Ring
from autoauto.targets.host.transport.tcp import TcpReader, TcpWriter

RNG = np.random.default_rng(5)
ARRAYS: dict[str, Array] = {
    "float32": RNG.normal(size=(3, 4)).astype(np.float32),
    "float16": RNG.normal(size=7).astype(np.float16),
    "complex": RNG.normal(size=(2, 2)) + 1j,
    "bool": np.array([[True, False]]),
    "int8": np.arange(-3, 3, dtype=np.int8),
    "big endian": np.arange(5, dtype=">i4"),
    "text": np.array(["a", "bcd", ""]),
    "bytes": np.array([b"a", b"bcd"]),
    "times": np.array(["2024-01-01", "NaT"], dtype="datetime64[ns]"),
    "records": np.array([(1, 2.5), (3, 4.5)], dtype=[("a", "i2"), ("b", "f8")]),
    "0-d": np.array(2.5),
    "empty": np.empty((0, 3), np.int16),
    "empty last": np.empty((4, 0)),
    "every other": np.arange(20).reshape(4, 5)[::2, ::-2],
    "transposed": np.arange(20).reshape(4, 5).T,
    "Fortran": np.asfortranarray(np.arange(20.0).reshape(4, 5)),
    "broadcast": np.broadcast_to(np.arange(3), (4, 3)),
    "six axes": RNG.integers(0, 9, size=(1, 2, 1, 3, 1, 2)),
    "larger than the ring": RNG.normal(size=(33, 57)),
}


@pytest.fixture
def ring() -> Iterator[Ring]:
    ring = Ring.create(n_slots=2, slot_bytes=256)
    yield ring
    ring.close()


def send(ring: MessageWriter, *names: str) -> None:
    sender = Sender(ring)
    for name in names:
        sender.send(ARRAYS[name])
    ring.finish()


def check(ring: MessageReader, arrays: list[Array]) -> None:
    receiver = Receiver(ring)
    for array in arrays:
        received = receiver.receive().array
        assert (received.dtype, received.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(received, array)
        assert received.flags.owndata
        assert received.flags.writeable
    with pytest.raises(EndOfStream):
        receiver.receive()


@pytest.mark.parametrize("name", ARRAYS)
def test_any_array_arrives_unchanged(ring: Ring, name: str) -> None:
    writer = threading.Thread(target=send, args=(ring, name), daemon=True)
    writer.start()
    check(ring, [ARRAYS[name]])
    writer.join()


def test_all_arrays_arrive_in_order_from_another_process(ring: Ring) -> None:
    writer = get_context("spawn").Process(target=send, args=(ring, *ARRAYS), daemon=True)
    writer.start()
    check(ring, list(ARRAYS.values()))
    writer.join()


def test_all_arrays_arrive_over_a_connection_too() -> None:
    first, second = socket.socketpair()
    with closing(TcpWriter(first, 256)) as to, closing(TcpReader(second, 256)) as back:
        back.grant(2)
        writer = threading.Thread(target=send, args=(to, *ARRAYS), daemon=True)
        writer.start()
        check(back, list(ARRAYS.values()))
        writer.join()


def test_the_sender_may_change_its_array_after_send(ring: Ring) -> None:
    array = np.array([1, 2])
    Sender(ring).send(array)
    array[:] = 0
    assert Receiver(ring).receive().array.tolist() == [1, 2]


def test_a_message_has_a_kind_and_lists_are_arrays(ring: Ring) -> None:
    Sender(ring).send([[1, 2]], "greeting")
    message = Receiver(ring).receive()
    assert (message.kind, message.array.tolist()) == ("greeting", [[1, 2]])


def test_a_step_sends_or_receives_one_slot(ring: Ring) -> None:
    sender, receiver = Sender(ring), Receiver(ring)
    sender.load(np.zeros(100))  # 800 bytes and a header: four slots of 256
    assert [sender.step(), sender.step()] == [False, False]
    assert [receiver.step(), receiver.step()] == [None, None]
    assert [sender.step(), sender.step()] == [False, True]
    assert receiver.step() is None
    message = receiver.step()
    assert message is not None
    assert message.array.shape == (100,)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([{}]), "only arrays of plain data can be sent, got type object"),
        (np.zeros(2, [("n" * 300, "i4")]), "an array's type must fit into 256 bytes, got"),
    ],
)
def test_an_array_that_cannot_be_sent_is_refused_and_the_next_one_is_sent(ring: Ring, array: Any, message: str) -> None:
    sender = Sender(ring)
    with pytest.raises(BadInput, match=message):
        sender.send(array)
    sender.send(1)
    assert Receiver(ring).receive().array == 1
