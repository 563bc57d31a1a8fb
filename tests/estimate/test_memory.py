from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from autoauto.estimate.memory import (
    activation_prefix_bytes,
    exclusive_prefix_bytes,
    memory_limit_bytes,
    peak_bytes,
    shared_memory,
)
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster
from autoauto.records.profile import LayerProfile, ModelProfile

MakeProfile = Callable[..., ModelProfile]


def test_shared_keys_are_numbered_and_their_largest_size_counts(
    make_profile: MakeProfile, nothing: LayerProfile
) -> None:
    sizes = [{"code_a": 5, "code_b": 7}, {"code_b": 9}, {}, {"state_a_1": 2, "code_a": 4}]
    shared = shared_memory(make_profile(*(replace(nothing, shared=size) for size in sizes)))
    assert shared.keys == ((0, 1), (1,), (), (2, 0))
    assert shared.n_bytes == (5, 9, 2)
    assert shared.categories == ("code", "code", "state")


def test_exclusive_bytes_add_up_by_category(make_profile: MakeProfile, nothing: LayerProfile) -> None:
    sizes = [{"parameter": 5}, {"parameter": 7, "controlCode": 1}, {"controlCode": 2}]
    sums = exclusive_prefix_bytes(make_profile(*(replace(nothing, exclusive=size) for size in sizes)))
    assert {name: column.tolist() for name, column in sums.items()} == {
        "parameter": [0, 5, 12, 12],
        "controlCode": [0, 0, 1, 3],
    }


def test_the_peak_is_temporary_and_carried(make_profile: MakeProfile, nothing: LayerProfile) -> None:
    layers = [replace(nothing, temporary_bytes=t, carried_bytes=c) for t, c in ((5, 1), (0, 8))]
    assert peak_bytes(make_profile(*layers)).tolist() == [6, 8]
    with pytest.raises(BadInput, match="temporary and carried bytes"):
        peak_bytes(make_profile(replace(nothing, temporary_bytes=10**17)))


def test_activations_add_up(make_profile: MakeProfile, nothing: LayerProfile) -> None:
    profile = make_profile(replace(nothing, activation_bytes=3), replace(nothing, activation_bytes=4))
    assert activation_prefix_bytes(profile).tolist() == [0, 3, 7]


def test_the_limit_is_the_seeds(make_cluster: Callable[..., Cluster]) -> None:
    for proportion in (0.85, 0.3, 1.0, 1 / 3):
        limits = memory_limit_bytes(make_cluster(2, 894 * 1024**2), proportion)
        assert limits.tolist() == [int(894 * proportion * 1024**2)] * 2


@pytest.mark.parametrize("proportion", [0.0, -0.1, 1.01, float("nan")])
def test_a_proportion_outside_its_range_is_refused(make_cluster: Callable[..., Cluster], proportion: float) -> None:
    with pytest.raises(BadInput, match=r"planning_proportion must be in \(0, 1\], got"):
        memory_limit_bytes(make_cluster(1), proportion)


def test_a_device_of_boundless_memory_holds_anything(make_cluster: Callable[..., Cluster]) -> None:
    assert memory_limit_bytes(make_cluster(1, 10**30), 1.0).tolist() == [2**62]
