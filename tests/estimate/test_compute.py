from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from autoauto.estimate.compute import backward_prefix_cycles, compute_prefix_cycles, weight_prefix_cycles
from autoauto.records.profile import LayerProfile, ModelProfile


def test_forward_and_backward_add_up(make_profile: Callable[..., ModelProfile], nothing: LayerProfile) -> None:
    layers = [replace(nothing, forward_cycles=f, backward_cycles=b) for f, b in ((5, 1), (7, 0), (2, 30))]
    profile = make_profile(*layers)
    assert compute_prefix_cycles(profile).tolist() == [0, 6, 13, 45]
    assert backward_prefix_cycles(profile).tolist() == [0, 1, 1, 31]


def test_recomputation_adds_a_forward_pass_to_the_backward_pass(
    make_profile: Callable[..., ModelProfile], nothing: LayerProfile
) -> None:
    layers = [
        replace(nothing, forward_cycles=f, backward_cycles=b, weight_cycles=w) for f, b, w in ((5, 9, 4), (7, 0, 0))
    ]
    profile = make_profile(*layers)
    assert compute_prefix_cycles(profile, recompute=True).tolist() == [0, 19, 33]
    assert backward_prefix_cycles(profile, recompute=True).tolist() == [0, 14, 21]
    assert weight_prefix_cycles(profile).tolist() == [0, 4, 4]
