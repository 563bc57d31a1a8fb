"""Running sums, and the cuts that ties forbid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoauto.estimate.distinct import distinct_layers, labelled_layers, prefix_cycles
from autoauto.estimate.sums import cut_allowed, last_segment_prefix_cycles, prefix_sums
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
    cycles = prefix_cycles(distinct_layers(profile), recompute=False)
    assert cycles.compute.tolist() == [0, 6, 13, 45]
    assert cycles.backward.tolist() == [0, 1, 1, 31]


def test_the_last_segment_begins_at_the_last_checkpoint(
    make_profile: Callable[..., ModelProfile], nothing: LayerProfile
) -> None:
    layers = [replace(nothing, forward_cycles=f, checkpoint_bytes=n) for f, n in ((5, 0), (7, 9), (2, 8), (4, 0))]
    assert last_segment_prefix_cycles(make_profile(*layers)).tolist() == [0, 0, 0, 2, 6]
    without = [replace(layer, checkpoint_bytes=0) for layer in layers]
    assert last_segment_prefix_cycles(make_profile(*without)).tolist() == [0, 5, 12, 14, 18]


def test_recomputation_adds_a_forward_pass_to_the_backward_pass(
    make_profile: Callable[..., ModelProfile], nothing: LayerProfile
) -> None:
    layers = [
        replace(nothing, forward_cycles=f, backward_cycles=b, weight_cycles=w) for f, b, w in ((5, 9, 4), (7, 0, 0))
    ]
    profile = make_profile(*layers)
    cycles = prefix_cycles(distinct_layers(profile), recompute=True)
    assert cycles.compute.tolist() == [0, 19, 33]
    assert cycles.backward.tolist() == [0, 14, 21]
    assert cycles.weight.tolist() == [0, 4, 4]


def test_layers_that_are_one_object_are_looked_at_once(
    make_profile: Callable[..., ModelProfile], nothing: LayerProfile
) -> None:
    first, second = (replace(nothing, forward_cycles=n) for n in (5, 7))
    profile, seen = make_profile(first, second, first, second), list[int]()

    def cycles(layer: LayerProfile) -> int:
        seen.append(layer.forward_cycles)
        return layer.forward_cycles

    layers = distinct_layers(profile)
    assert layers.column(cycles, "cycles").tolist() == [5, 7, 5, 7]
    assert layers.prefix_sums(cycles, "cycles").tolist() == [0, 5, 12, 17, 24]
    assert seen == [5, 7] * 2
    assert labelled_layers(profile.layers, ["a", "a", "b", "a"]).of_layers.tolist() == [0, 1, 2, 1]
    with pytest.raises(BadInput, match="cycles of a layer"):
        layers.column(lambda layer: cycles(layer) + MAX_EXACT, "cycles")
    with pytest.raises(BadInput, match=r"add up to at most 2\*\*53, got"):
        layers.prefix_sums(lambda layer: cycles(layer) * MAX_EXACT, "cycles")


def test_a_model_without_ties_can_be_cut_anywhere() -> None:
    assert cut_allowed([None, None]).tolist() == [True, True, True]


def test_overlapping_ties_hold_together_what_lies_between() -> None:
    assert cut_allowed(["v", "w", "v", None, "w", None]).tolist() == [True, False, False, False, False, True, True]


@given(st.lists(st.sampled_from([None, "a", "b", "c", "d"]), min_size=1, max_size=12))
@settings(deadline=None)
def test_a_cut_is_forbidden_exactly_when_a_key_lies_on_both_sides(tied: list[str | None]) -> None:
    expected = [not ({*tied[:cut]} & {*tied[cut:]} - {None}) for cut in range(len(tied) + 1)]
    assert cut_allowed(tied).tolist() == expected
