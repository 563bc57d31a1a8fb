"""Clusters, links and streaming memory."""

from dataclasses import replace

from autoauto.records.hardware import Cluster, Device, Link, StreamingMemory

DEVICES = tuple(Device(f"d{i}", 1e9, 100, 1, 100) for i in range(3))
HOST_IN, HOST_OUT, A, B = (Link(float(i), i) for i in (1, 2, 3, 4))
CLUSTER = Cluster("three", "ipu", DEVICES, (HOST_IN, A, B), (A, B, HOST_OUT))


def test_a_shorter_pipeline_still_ends_at_the_host() -> None:
    assert CLUSTER.first(3) == CLUSTER
    two = CLUSTER.first(2)
    assert (two.devices, two.receive_links, two.send_links) == (DEVICES[:2], (HOST_IN, A), (A, HOST_OUT))
    single = CLUSTER.first(1)
    assert (single.receive_links, single.send_links) == ((HOST_IN,), (HOST_OUT,))


def test_synthetic_data_costs_nothing_at_either_end() -> None:
    free = CLUSTER.with_synthetic_data()
    assert free.receive_links[0].cycles(10**12, 1e9) == free.send_links[-1].cycles(10**12, 1e9) == 0
    assert (free.receive_links[1:], free.send_links[:-1]) == (CLUSTER.receive_links[1:], CLUSTER.send_links[:-1])


def test_overlapped_host_links_take_cycles_of_the_first_device() -> None:
    assert CLUSTER.host_cycles(10, 10) == 0
    both = replace(CLUSTER, overlapped_host_links=(Link(1e9, 5), Link(2e9, 7)))
    assert both.host_cycles(100, 100) == 100 + 5 + 50 + 7
    assert both.first(1).host_cycles(100, 100) == 162


def test_a_link_takes_its_idle_cycles_and_its_transfer() -> None:
    assert Link(2e9, 7).cycles(100, 1e9) == 57


def test_streaming_memory_stays_with_every_device_and_takes_time_like_a_link() -> None:
    memory = StreamingMemory(1e9, 10, 10**6)
    assert replace(CLUSTER, streaming_memory=memory).first(2).streaming_memory == memory
    assert memory.link.cycles(500, 1e9) == 510
    assert CLUSTER.streaming_memory is None
