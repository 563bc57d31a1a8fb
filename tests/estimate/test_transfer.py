"""Transfers of every range, against a formula term by term."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from autoauto.estimate.table import receive_cycles, send_cycles
from autoauto.records.costs.profile import LayerProfile, ModelProfile
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, Link

MakeProfile = Callable[..., ModelProfile]
MakeCluster = Callable[..., Cluster]


def expected_transfer_cycles(profile: ModelProfile, cluster: Cluster, device: int, start: int, stop: int) -> int:
    """`transfer_cycle` of [auto-pipeline], term by term, for the layers [start, stop)."""

    def over(link: Link, n_bytes: int) -> int:
        return int(link.idle_cycles + n_bytes / (link.bytes_per_s / cluster.devices[0].clock_hz))

    last = len(cluster) - 1
    cycles = over(cluster.receive_links[0], profile.layers[0].input_bytes)
    cycles += over(cluster.send_links[last], profile.layers[-1].output_bytes)
    if device != 0:
        cycles += over(cluster.receive_links[device], profile.layers[start].input_bytes)
    if device != last:
        cycles += over(cluster.send_links[device], profile.layers[stop - 1].output_bytes)
    return cycles


def test_the_cases_of_the_test_of_auto_pipeline(
    vectors: Callable[[str], Any], make_profile: MakeProfile, make_cluster: MakeCluster, nothing: LayerProfile
) -> None:
    case = vectors("auto_pipeline_transfer_aggregate")["transfer_cycle"]
    layers = [replace(nothing, input_bytes=1000 * i, output_bytes=1000 * i) for i in range(1, case["layers"] + 1)]
    profile = make_profile(*layers)
    for expected in case["cases"]:
        cluster = make_cluster(expected["n_ipu"])
        receive, send = receive_cycles(profile, cluster), send_cycles(profile, cluster)
        device, start, stop = expected["ipu"], expected["start"], expected["end"] + 1
        assert receive[device, start] + send[device, stop] == expected["cycles"]
        assert expected_transfer_cycles(profile, cluster, device, start, stop) == expected["cycles"]


@pytest.mark.parametrize("n_devices", [1, 2, 5])
def test_every_range_on_unequal_links_and_clocks(
    make_profile: MakeProfile, make_cluster: MakeCluster, nothing: LayerProfile, n_devices: int
) -> None:
    random = Random(n_devices)
    layers = [
        replace(nothing, input_bytes=random.randrange(10**11), output_bytes=random.randrange(10**6)) for _ in "abcdef"
    ]
    profile = make_profile(*layers)
    even = make_cluster(n_devices)
    cluster = replace(
        even,
        devices=tuple(replace(device, clock_hz=random.uniform(1e9, 2e9)) for device in even.devices),
        receive_links=tuple(Link(random.uniform(1e8, 1e11), random.randrange(9999)) for _ in even.devices),
        send_links=tuple(Link(random.uniform(1e8, 1e11), random.randrange(9999)) for _ in even.devices),
    )
    receive, send = receive_cycles(profile, cluster), send_cycles(profile, cluster)
    assert (receive.shape, send.shape) == ((n_devices, 6), (n_devices, 7))
    for device in range(n_devices):
        for start in range(6):
            for stop in range(start + 1, 7):
                expected = expected_transfer_cycles(profile, cluster, device, start, stop)
                assert receive[device, start] + send[device, stop] == expected


def test_links_without_limit_cost_their_idle_cycles(
    make_profile: MakeProfile, make_cluster: MakeCluster, nothing: LayerProfile
) -> None:
    profile = make_profile(replace(nothing, input_bytes=10**9, output_bytes=10**9))
    cluster = make_cluster(1).with_synthetic_data()
    assert receive_cycles(profile, cluster).tolist() == [[0]]
    assert send_cycles(profile, cluster).tolist() == [[0, 0]]


@pytest.mark.parametrize("bytes_per_s", [1e-9, 1e-320])
def test_a_transfer_of_more_cycles_than_are_exact_is_refused(
    make_profile: MakeProfile, make_cluster: MakeCluster, nothing: LayerProfile, bytes_per_s: float
) -> None:
    cluster = replace(make_cluster(1), receive_links=(Link(bytes_per_s, 0),))
    with pytest.raises(BadInput, match=r"a transfer must take at most 2\*\*53 cycles"):
        receive_cycles(make_profile(replace(nothing, input_bytes=10**9)), cluster)


def test_gradients_go_back_between_devices_but_not_to_the_host(
    make_profile: MakeProfile, make_cluster: MakeCluster, nothing: LayerProfile
) -> None:
    profile = make_profile(*(replace(nothing, input_bytes=1000 * i, output_bytes=1000 * i + 1000) for i in range(1, 6)))
    cluster = make_cluster(3)
    for cycles, host in ((receive_cycles, (0, 0)), (send_cycles, (-1, -1))):
        once, twice = cycles(profile, cluster), cycles(profile, cluster, training=True)
        assert (twice - once[host] == 2 * (once - once[host])).all()
        assert twice[host] == once[host] > 0
