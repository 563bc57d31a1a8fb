"""The cost table against [auto-pipeline], and its columns together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

from autoauto.estimate.table import cost_table
from autoauto.records.costs.profile import LayerProfile, ModelProfile
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, Link

MakeProfile = Callable[..., ModelProfile]
MakeCluster = Callable[..., Cluster]


def layer_of(record: Mapping[str, Any]) -> LayerProfile:
    return LayerProfile(
        forward_cycles=record["forward"],
        backward_cycles=record["backward"],
        shared=record["shared"],
        exclusive=record["exclusive"],
        temporary_bytes=record["maxTemporary"],
        carried_bytes=record.get("curCarryOver", 0),
        input_bytes=record["inputs"],
        output_bytes=record["outputs"],
        activation_bytes=record["curActivation"],
    )


def test_a_range_aggregates_as_in_the_test_of_auto_pipeline(
    vectors: Callable[[str], Any], make_profile: MakeProfile, make_cluster: MakeCluster
) -> None:
    case = vectors("auto_pipeline_transfer_aggregate")["aggregate"]
    expected = case["expected"]
    profile = make_profile(layer_of(case["old_range"]), layer_of(case["new_layer"]))
    table = cost_table(profile, make_cluster(1), 1.0)
    memory = table.memory_bytes(0, 2)
    assert table.compute_cycles(0, 2) == expected["forward"] + expected["backward"]
    assert table.backward_prefix_cycles[2] == expected["backward"]
    assert memory == {"var_1": 20000, "var_2": 10000, "code": 2000, "temporary": expected["maxTemporary"]}
    assert sum(memory.values()) == expected["totalMemory"]
    assert sum(table.memory_bytes(0, 1).values()) == case["old_range"]["totalMemory"]


def aggregated_memory_bytes(layers: tuple[LayerProfile, ...]) -> int:
    """The memory of a range by the aggregation of [auto-pipeline], one layer after the other."""
    shared: dict[str, int] = {}
    exclusive = temporary = stashed = 0
    for layer in layers:
        temporary = max(temporary, layer.temporary_bytes + layer.carried_bytes + stashed)
        stashed += layer.activation_bytes
        shared |= layer.shared
        exclusive += sum(layer.exclusive.values())
    return sum(shared.values()) + exclusive + temporary


@pytest.mark.parametrize("seed", range(20))
def test_every_range_needs_what_aggregation_layer_by_layer_gives(
    make_profile: MakeProfile, make_cluster: MakeCluster, seed: int
) -> None:
    random = Random(seed)
    code = {f"vertexCode_{k}": random.randrange(10**11) for k in range(4)}
    layers = tuple(
        LayerProfile(
            forward_cycles=random.randrange(10**12),
            backward_cycles=random.randrange(10**12),
            shared={key: code[key] for key in code if random.random() < 0.5},
            exclusive={name: random.randrange(10**11) for name in ("parameter", "state") if random.random() < 0.5},
            temporary_bytes=random.randrange(10**11),
            carried_bytes=random.randrange(10**11),
            input_bytes=0,
            output_bytes=0,
            activation_bytes=random.randrange(10**11),
        )
        for _ in range(7)
    )
    table = cost_table(make_profile(*layers), make_cluster(2), 0.85)
    for start in range(7):
        for stop in range(start + 1, 8):
            inside = layers[start:stop]
            assert sum(table.memory_bytes(start, stop).values()) == aggregated_memory_bytes(inside)
            cycles = sum(layer.forward_cycles + layer.backward_cycles for layer in inside)
            assert table.compute_cycles(start, stop) == cycles


def test_ties_limits_and_sizes_reach_the_table(
    make_profile: MakeProfile, make_cluster: MakeCluster, nothing: LayerProfile
) -> None:
    table = cost_table(make_profile(*[nothing] * 3, tied=(None, "w", "w")), make_cluster(2, 1000), 0.85)
    assert (table.n_layers, table.n_devices) == (3, 2)
    assert table.cut_allowed.tolist() == [True, True, False, True]
    assert table.memory_limit_bytes.tolist() == [850, 850]


def test_numbers_too_large_to_add_are_refused(
    make_profile: MakeProfile, make_cluster: MakeCluster, nothing: LayerProfile
) -> None:
    with pytest.raises(BadInput, match="cycles"):
        cost_table(make_profile(replace(nothing, forward_cycles=2**60)), make_cluster(1), 0.85)


def test_a_device_of_twice_the_clock_computes_in_half_the_cycles_and_transfers_as_long(
    make_profile: MakeProfile, make_cluster: MakeCluster, nothing: LayerProfile
) -> None:
    profile = make_profile(*(replace(nothing, forward_cycles=7, backward_cycles=4, output_bytes=10**6) for _ in "abc"))
    cluster = make_cluster(2)
    slow, fast = cluster.devices[0], replace(cluster.devices[1], clock_hz=2 * cluster.devices[0].clock_hz)
    table = cost_table(profile, replace(cluster, devices=(slow, fast)), 1.0)
    assert table.speeds == (Fraction(1), Fraction(2))
    assert [table.compute_cycles(0, 3, device) for device in (0, 1)] == [33, 17]
    assert [table.backward_cycles(0, 3, device) for device in (0, 1)] == [12, 6]
    assert (table.send_cycles == cost_table(profile, cluster, 1.0).send_cycles).all()


def test_a_part_from_the_first_device_is_the_table_of_the_first_devices(
    make_profile: MakeProfile, make_cluster: MakeCluster, nothing: LayerProfile
) -> None:
    profile = make_profile(*(replace(nothing, input_bytes=10**i, output_bytes=10 ** (9 - i)) for i in range(9)))
    cluster = make_cluster(4)
    clocks = (1.85e9, 1.5e9, 1.33e9, 1.85e9)
    devices = tuple(replace(device, clock_hz=clock) for device, clock in zip(cluster.devices, clocks, strict=True))
    links = tuple(Link(speed * 1e9, 100) for speed in (7, 70, 10, 35))
    cluster = replace(cluster, devices=devices, receive_links=links, send_links=links[::-1])
    whole = cost_table(profile, cluster, 0.5)
    assert whole.speeds[1] == Fraction(150, 185)
    for n_ipu in range(1, 5):
        part, expected = whole.part(0, n_ipu), cost_table(profile, cluster.first(n_ipu), 0.5)
        for name in (field.name for field in fields(part) if field.name != "memory"):
            np.testing.assert_equal(getattr(part, name), getattr(expected, name))
        assert part.memory is whole.memory


def test_training_reaches_the_table(
    make_profile: MakeProfile, make_cluster: MakeCluster, nothing: LayerProfile
) -> None:
    layer = replace(
        nothing, forward_cycles=5, backward_cycles=9, weight_cycles=4, activation_bytes=8, input_bytes=3, output_bytes=3
    )
    profile = make_profile(layer, replace(layer, stashed_input_bytes=2), layer)
    inference, training, again = (
        cost_table(profile, make_cluster(2), 0.85, in_flight=in_flight, recompute=recompute)
        for in_flight, recompute in ((None, False), ((4, 1), False), ((4, 1), True))
    )
    assert (inference.stash_entries, training.stash_entries) == ((0, 0), (3, 0))
    assert training.memory_bytes(1, 3)["stash"] == 3 * (2 + 8 + 8)
    assert again.memory_bytes(1, 3)["stash"] == 3 * 3
    assert [table.weight_cycles(0, 2) for table in (training, again)] == [8, 8]
    assert [table.backward_cycles(0, 2) for table in (training, again)] == [18, 28]
    assert [table.compute_cycles(0, 2) for table in (training, again)] == [28, 38]
    between = inference.receive_cycles[1, 1] - inference.receive_cycles[0, 0]
    assert training.receive_cycles[1, 1] - inference.receive_cycles[1, 1] == between > 0
