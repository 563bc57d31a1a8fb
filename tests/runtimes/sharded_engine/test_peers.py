from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest

from autoauto.records.errors import BadInput, EndOfStream
from autoauto.runtimes.sharded_engine.peers import Flag, Peers
from autoauto.targets.host.transport.array_file import Array
from tests.running import n_descriptors

Connect = Callable[..., list[Peers]]
Together = Callable[[list[Peers], Callable[[Peers], Any]], list[Any]]
LARGE = np.arange(1000)
"""Many times a ring of two slots of 256 bytes."""


def test_messages_arrive_in_order_and_are_counted(connect: Connect) -> None:
    zero, one = connect(2, n_slots=4)
    for number in range(3):
        zero.send(1, number)
    one.send(0, [7])
    assert [one.receive(0).item() for _ in range(3)] == [0, 1, 2]
    assert zero.receive(1).tolist() == [7]
    assert (zero.sent, zero.received, one.sent, one.received) == ([0, 3], [0, 1], [1, 0], [3, 0])
    assert len(zero.transfers) == len(one.transfers) == 4
    assert all(start <= stop for start, stop in (*zero.transfers, *one.transfers))


def test_what_was_sent_before_the_end_is_received(connect: Connect) -> None:
    zero, one = connect(2)
    zero.send(1, 5)
    zero.end()
    assert one.receive(0) == 5
    for _ in range(2):
        with pytest.raises(EndOfStream, match="device 0 has ended, so device 1 receives no more from it"):
            one.receive(0)


def test_nobody_waits_for_the_end_of_another_for_ever(connect: Connect, together: Together) -> None:
    def act(peers: Peers) -> Array | None:
        if peers.device_id == 0:
            return peers.receive(1)
        peers.end()
        return None

    waited, _ = together(connect(2), act)
    assert isinstance(waited, EndOfStream)


def test_what_nobody_will_receive_is_refused_though_the_ring_is_full(connect: Connect, together: Together) -> None:
    def act(peers: Peers) -> None:
        if peers.device_id == 0:
            peers.send(1, LARGE)
        else:
            peers.end()

    refused, _ = together(connect(2), act)
    assert str(refused) == (
        "a device must receive all that is sent to it, but device 1 has ended and device 0 has a message for it"
    )


@pytest.mark.parametrize("n_devices", range(1, 9))
def test_all_send_large_parts_to_all_at_once(connect: Connect, together: Together, n_devices: int) -> None:
    def parts(come_from: int) -> list[Array]:
        return [LARGE * come_from + to for to in range(n_devices)]

    got = together(connect(n_devices), lambda peers: peers.exchange("large", parts(peers.device_id)))
    for device in range(n_devices):
        np.testing.assert_array_equal(got[device], [parts(other)[device] for other in range(n_devices)])


def test_messages_do_not_mix_with_collectives(connect: Connect, together: Together) -> None:
    def act(peers: Peers) -> list[Any]:
        if peers.device_id == 0:
            peers.send(1, LARGE)
            peers.send(1, 2)
        got = peers.exchange("numbers", [peers.device_id] * 2)
        received = [peers.receive(0).sum() for _ in range(2)] if peers.device_id == 1 else []
        return [*map(int, got), *received]

    assert together(connect(2), act) == [[0, 1], [0, 1, LARGE.sum(), 2]]


def test_different_collectives_are_told(connect: Connect, together: Together) -> None:
    def act(peers: Peers) -> None:
        try:
            peers.exchange("barrier" if peers.device_id else "all_gather", [0, 0])
        finally:
            peers.end()

    _, one = together(connect(2), act)
    assert str(one) == (
        "all devices must call the same collectives in the same order, but device 1 is in barrier and device 0 in "
        "all_gather"
    )


def test_a_collective_does_not_wait_for_one_that_has_ended(connect: Connect, together: Together) -> None:
    def act(peers: Peers) -> None:
        if peers.device_id == 0:
            peers.exchange("barrier", [0, 0])
        peers.end()

    waited, _ = together(connect(2), act)
    assert isinstance(waited, BadInput)
    assert str(waited) == "all devices must call barrier, but device 1 has ended and device 0 waits"


def test_waiting_for_a_message_of_one_that_waits_in_a_collective_is_told(connect: Connect, together: Together) -> None:
    def act(peers: Peers) -> None:
        if peers.device_id == 0:
            peers.exchange("barrier", [0, 0])
        else:
            try:
                peers.receive(0)
            finally:
                peers.end()

    _, one = together(connect(2), act)
    assert str(one) == (
        "device 1 waits for a message of device 0, which waits in barrier; send before, or receive after it"
    )


@pytest.mark.parametrize("other", [-1, 1, 3])
def test_there_must_be_another_device(connect: Connect, other: int) -> None:
    one = connect(3)[1]
    with pytest.raises(BadInput, match=rf"device 1 can send to other devices \(0, 2\), got {other}"):
        one.send(other, 0)
    with pytest.raises(BadInput, match=rf"device 1 can receive from other devices \(0, 2\), got {other}"):
        one.receive(other)


def test_a_device_may_be_alone(connect: Connect) -> None:
    alone = connect(1)[0]
    with pytest.raises(BadInput, match=r"device 0 can send to other devices \(none: it is alone\), got 1"):
        alone.send(1, 0)
    assert alone.exchange("barrier", [3]) == [3]


def set_flag(flag: Flag) -> None:
    flag.set()


def test_a_flag_is_seen_in_other_processes_and_leaves_no_descriptor() -> None:
    flag, before = Flag(), n_descriptors()
    process = get_context("spawn").Process(target=set_flag, args=(flag,), daemon=True)
    process.start()
    assert os.eventfd_read(flag.fd) == 1
    process.join()
    process.close()
    flag.close()
    assert n_descriptors() <= before  # the tracker of multiprocessing may have come
