"""Rings: messages between processes, waiting, alignment, and descriptors."""

import os
import threading
from multiprocessing import get_context

import numpy as np
import pytest

from autoauto.targets.host.transport.messages import FailedMessage
from autoauto.targets.host.transport.shared_memory import ALIGNMENT, Ring
from tests.running import n_descriptors


def add_one(requests: Ring, replies: Ring) -> None:
    """In another process: add one to every number."""
    while (message := requests.peek()) is not None:
        numbers = np.frombuffer(message, np.int32)
        np.frombuffer(replies.reserve(), np.int32, len(numbers))[:] = numbers + 1
        replies.commit(len(message))
        requests.release()
    replies.finish()


def test_after_its_end_another_stream_may_follow() -> None:
    ring = Ring.create(n_slots=2, slot_bytes=1)
    for stream in (b"abc", b"", b"de"):
        received = b""
        for byte in stream:
            ring.reserve()[:1] = bytes([byte])
            ring.commit(1)
            received += bytes(ring.peek() or b"")
            ring.release()
        ring.finish()
        assert ring.peek() is None
        ring.restart()
        assert received == stream
    ring.close()


def test_messages_of_any_length_arrive_in_order_in_another_process_and_then_the_end() -> None:
    requests, replies = (Ring.create(n_slots=2, slot_bytes=40) for _ in range(2))
    process = get_context("spawn").Process(target=add_one, args=(requests, replies), daemon=True)
    process.start()
    sent = [np.arange(n, dtype=np.int32) for n in (10, 0, 3, 7, 1)]
    received = []
    for numbers in sent:
        np.frombuffer(requests.reserve(), np.int32, len(numbers))[:] = numbers
        requests.commit(numbers.nbytes)
        message = replies.peek()
        assert message is not None
        received.append(np.frombuffer(message, np.int32).copy())
        replies.release()
    requests.finish()
    assert replies.peek() is None
    assert replies.peek() is None  # in every later call, too
    process.join()
    assert [numbers.tolist() for numbers in received] == [(numbers + 1).tolist() for numbers in sent]


def test_a_writer_waits_while_all_slots_are_filled() -> None:
    ring = Ring.create(n_slots=2, slot_bytes=1)
    written = []

    def write() -> None:
        for i in range(5):
            ring.reserve()[0] = i
            ring.commit(1)
            written.append(i)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    read: list[int] = []
    for _ in range(5):
        message = ring.peek()
        assert message is not None
        assert len(written) - len(read) <= ring.n_slots
        read.append(message[0])
        ring.release()
    writer.join()
    assert read == list(range(5))


def test_slots_are_aligned_for_vector_registers() -> None:
    ring = Ring.create(n_slots=3, slot_bytes=5000)
    for _ in range(3):
        assert np.frombuffer(ring.reserve(), np.uint8).ctypes.data % ALIGNMENT == 0
        ring.commit(0)


def test_a_closed_ring_leaves_no_descriptor() -> None:
    before = n_descriptors()
    rings = [Ring.create(n_slots=1, slot_bytes=1) for _ in range(10)]
    for ring in rings:
        ring.close()
    assert n_descriptors() == before
    assert not [name for name in os.listdir("/dev/shm") if name.startswith("autoauto")]


def test_a_ring_for_which_memory_does_not_suffice_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no room")

    before = n_descriptors()
    for name in ("posix_fallocate", "eventfd"):
        with monkeypatch.context() as patched:
            patched.setattr(os, name, refuse)
            with pytest.raises(OSError, match="no room"):
                Ring.create(n_slots=1, slot_bytes=1)
    assert n_descriptors() == before


def test_a_reason_takes_the_slot_of_a_message_that_cannot_be_made() -> None:
    ring = Ring.create(n_slots=1, slot_bytes=4)
    for reason in ("", "too large", "x" * 10_000):
        ring.reserve()
        ring.fail(reason)
        with pytest.raises(FailedMessage) as failure:
            ring.peek()
        ring.release()
        assert reason.startswith(str(failure.value))
        assert len(str(failure.value)) == min(len(reason), 4096 - ALIGNMENT)
    ring.reserve()[:] = b"next"
    ring.commit(4)
    message = ring.peek()
    assert message is not None
    assert bytes(message) == b"next"
