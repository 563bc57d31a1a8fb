"""Connections between devices: messages, collectives, and the end of a device."""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing import get_context, resource_tracker
from typing import Any

import numpy as np
import pytest

from autoauto.programs.sharded_engine.peers import Peers, SharedEvent
from autoauto.records.errors import BadInput, EndOfStream
from autoauto.records.units import Array
from tests.running import n_descriptors

Connect = Callable[..., list[Peers]]
Together = Callable[[list[Peers], Callable[[Peers], Any]], list[Any]]
LARGE = np.arange(1000)
"""Many times as large as a ring of two slots of 256 bytes."""


def test_messages_arrive_in_order_and_are_counted(connect: Connect) -> None:
    device_0, device_1 = connect(2, n_slots=4)
    for number in range(3):
        device_0.send(1, number)
    device_1.send(0, [7])
    assert [device_1.receive(0).item() for _ in range(3)] == [0, 1, 2]
    assert device_0.receive(1).tolist() == [7]
    assert (device_0.sent, device_0.received, device_1.sent, device_1.received) == ([0, 3], [0, 1], [1, 0], [3, 0])
    assert len(device_0.transfers) == len(device_1.transfers) == 4
    assert all(start <= stop for start, stop in (*device_0.transfers, *device_1.transfers))


def test_messages_sent_before_the_end_are_received(connect: Connect) -> None:
    device_0, device_1 = connect(2)
    device_0.send(1, 5)
    device_0.end()
    assert device_1.receive(0) == 5
    for _ in range(2):
        with pytest.raises(EndOfStream, match="device 0 has ended, so device 1 receives no more from it"):
            device_1.receive(0)


def test_receiving_from_a_device_that_ends_ends_the_stream(connect: Connect, together: Together) -> None:
    def act(peers: Peers) -> Array | None:
        if peers.device_id == 0:
            return peers.receive(1)
        peers.end()
        return None

    failure, _ = together(connect(2), act)
    assert isinstance(failure, EndOfStream)


def test_sending_to_a_device_that_has_ended_is_refused_even_when_the_ring_is_full(
    connect: Connect, together: Together
) -> None:
    def act(peers: Peers) -> None:
        if peers.device_id == 0:
            peers.send(1, LARGE)
        else:
            peers.end()

    failure, _ = together(connect(2), act)
    assert str(failure) == (
        "a device must receive all that is sent to it, but device 1 has ended and device 0 has a message for it"
    )


@pytest.mark.parametrize("n_devices", range(1, 9))
def test_all_send_large_parts_to_all_at_once(connect: Connect, together: Together, n_devices: int) -> None:
    def parts(source: int) -> list[Array]:
        return [LARGE * source + destination for destination in range(n_devices)]

    received = together(connect(n_devices), lambda peers: peers.exchange("large", parts(peers.device_id)))
    for device in range(n_devices):
        np.testing.assert_array_equal(received[device], [parts(other)[device] for other in range(n_devices)])


def test_messages_do_not_mix_with_collectives(connect: Connect, together: Together) -> None:
    def act(peers: Peers) -> list[Any]:
        if peers.device_id == 0:
            peers.send(1, LARGE)
            peers.send(1, 2)
        numbers = peers.exchange("numbers", [peers.device_id] * 2)
        received = [peers.receive(0).sum() for _ in range(2)] if peers.device_id == 1 else []
        return [*map(int, numbers), *received]

    assert together(connect(2), act) == [[0, 1], [0, 1, LARGE.sum(), 2]]


def test_different_collectives_at_the_same_time_are_refused(connect: Connect, together: Together) -> None:
    def act(peers: Peers) -> None:
        try:
            peers.exchange("barrier" if peers.device_id else "all_gather", [0, 0])
        finally:
            peers.end()

    _, failure = together(connect(2), act)
    assert str(failure) == (
        "all devices must call the same collectives in the same order, but device 1 is in barrier and device 0 in "
        "all_gather"
    )


def test_a_collective_with_a_device_that_has_ended_is_refused(connect: Connect, together: Together) -> None:
    def act(peers: Peers) -> None:
        if peers.device_id == 0:
            peers.exchange("barrier", [0, 0])
        peers.end()

    failure, _ = together(connect(2), act)
    assert isinstance(failure, BadInput)
    assert str(failure) == "all devices must call barrier, but device 1 has ended and device 0 waits"


def test_waiting_for_a_message_of_a_device_in_a_collective_is_refused(connect: Connect, together: Together) -> None:
    def act(peers: Peers) -> None:
        if peers.device_id == 0:
            peers.exchange("barrier", [0, 0])
        else:
            try:
                peers.receive(0)
            finally:
                peers.end()

    _, failure = together(connect(2), act)
    assert str(failure) == (
        "device 1 waits for a message of device 0, which waits in barrier; send before, or receive after it"
    )


@pytest.mark.parametrize("other", [-1, 1, 3])
def test_sending_to_and_receiving_from_no_other_device_is_refused(connect: Connect, other: int) -> None:
    device_1 = connect(3)[1]
    with pytest.raises(BadInput, match=rf"device 1 can send to other devices \(0, 2\), got {other}"):
        device_1.send(other, 0)
    with pytest.raises(BadInput, match=rf"device 1 can receive from other devices \(0, 2\), got {other}"):
        device_1.receive(other)


def test_a_single_device_can_call_collectives_and_cannot_send(connect: Connect) -> None:
    single = connect(1)[0]
    with pytest.raises(BadInput, match=r"device 0 can send to other devices \(none: it is alone\), got 1"):
        single.send(1, 0)
    assert single.exchange("barrier", [3]) == [3]


def set_event(event: SharedEvent) -> None:
    event.set()


def test_an_event_is_seen_in_other_processes_and_leaves_no_descriptor() -> None:
    resource_tracker.ensure_running()  # multiprocessing's own, which stays
    before = n_descriptors()
    event = SharedEvent()
    process = get_context("spawn").Process(target=set_event, args=(event,), daemon=True)
    process.start()
    assert os.eventfd_read(event.fd) == 1
    process.join()
    process.close()
    event.close()
    assert n_descriptors() == before
