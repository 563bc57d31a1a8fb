from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from autoauto.plan.least import least


@given(
    realised=st.lists(st.integers(0, 60), min_size=1, max_size=6),
    low=st.integers(0, 70),
    width=st.integers(-1, 70),
    first=st.integers(-5, 140),
)
@settings(deadline=None)
def test_finds_the_smallest_bound_from_wherever_it_starts(
    realised: list[int], low: int, width: int, first: int
) -> None:
    """Things of some sizes lie about; an attempt at a bound finds one that is no larger, not always the smallest."""
    tried = []

    def attempt(bound: int) -> int | None:
        tried.append(bound)
        return max((size for size in realised if size <= bound), default=None)

    smallest = min(realised)
    found = least(attempt, lambda size: size, low, low + width, low + first)
    if width < 0 or smallest > low + width:
        assert found is None
    elif smallest >= low:
        assert found == smallest
    else:
        assert found is not None
        assert found <= low
    assert all(low <= bound <= low + width for bound in tried)


def test_the_distance_doubles_until_the_first_success() -> None:
    tried = []

    def attempt(bound: int) -> int | None:
        tried.append(bound)
        return bound if bound >= 1000 else None

    assert least(attempt, lambda bound: bound, 0, 10**9, 10) == 1000
    assert tried[:4] == [10, 31, 72, 153]
    assert len(tried) < 25


@given(smallest=st.integers(0, 1000), tolerance=st.integers(0, 50), first=st.integers(0, 1000))
@settings(deadline=None)
def test_with_a_tolerance_it_is_not_far_above_the_smallest(smallest: int, tolerance: int, first: int) -> None:
    found = least(lambda b: b if b >= smallest else None, lambda b: b, 0, 1000, first, tolerance=tolerance)
    assert found is not None
    assert smallest <= found <= smallest + tolerance


def test_snapping_skips_bounds_that_nothing_realises() -> None:
    tried = []

    def attempt(bound: int) -> int | None:
        tried.append(bound)
        return 700 if bound >= 700 else None

    assert least(attempt, lambda size: size, 0, 1000, 1000, snap=lambda bound: -(-bound // 100) * 100) == 700
    assert len(tried) <= 6
