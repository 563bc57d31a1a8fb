from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from autoauto.estimate.allowed import cut_allowed


def test_a_model_without_ties_can_be_cut_anywhere() -> None:
    assert cut_allowed([None, None]).tolist() == [True, True, True]


def test_overlapping_ties_hold_together_what_lies_between() -> None:
    assert cut_allowed(["v", "w", "v", None, "w", None]).tolist() == [True, False, False, False, False, True, True]


@given(st.lists(st.sampled_from([None, "a", "b", "c", "d"]), min_size=1, max_size=12))
@settings(deadline=None)
def test_a_cut_is_forbidden_exactly_when_a_key_lies_on_both_sides(tied: list[str | None]) -> None:
    expected = [not ({*tied[:cut]} & {*tied[cut:]} - {None}) for cut in range(len(tied) + 1)]
    assert cut_allowed(tied).tolist() == expected
