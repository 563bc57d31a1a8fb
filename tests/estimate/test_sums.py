"""Running sums, and the cuts that ties forbid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoauto.estimate.sums import (
    backward_prefix_cycles,
    compute_prefix_cycles,
    cut_allowed,
    prefix_sums,
    weight_prefix_cycles,
)
from autoauto.records.costs.profile import LayerProfile, ModelProfile
from autoauto.records.errors import BadInput
from autoauto.records.units import MAX_EXACT


def test_the_difference_of_two_entries_is_the_sum_between_them() -> None:
    values = [10**12, 7, 0, 10**15 + 1]
    sums = prefix_sums(values, "cycles")
    assert len(sums) == 5
    assert all(sums[b] - sums[a] == sum(values[a:b]) for a in range(5) for b in range(a, 5))


def test_sums_beyond_exact_floats_are_refused() -> None:
    assert prefix_sums([MAX_EXACT - 1, 1], "cycles")[-1] == MAX_EXACT
    with pytest.raises(BadInput, match=r"cycles of all layers must add up to at most 2\*\*53"):
        prefix_sums([MAX_EXACT, 1], "cycles")
    with pytest.raises(BadInput):
        prefix_sums([10**400], "cycles")


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


def test_a_model_without_ties_can_be_cut_anywhere() -> None:
    assert cut_allowed([None, None]).tolist() == [True, True, True]


def test_overlapping_ties_hold_together_what_lies_between() -> None:
    assert cut_allowed(["v", "w", "v", None, "w", None]).tolist() == [True, False, False, False, False, True, True]


@given(st.lists(st.sampled_from([None, "a", "b", "c", "d"]), min_size=1, max_size=12))
@settings(deadline=None)
def test_a_cut_is_forbidden_exactly_when_a_key_lies_on_both_sides(tied: list[str | None]) -> None:
    expected = [not ({*tied[:cut]} & {*tied[cut:]} - {None}) for cut in range(len(tied) + 1)]
    assert cut_allowed(tied).tolist() == expected
