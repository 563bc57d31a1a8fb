from __future__ import annotations

import pytest

from autoauto.estimate.prefix import EXACT, prefix_sums
from autoauto.records.errors import BadInput


def test_the_difference_of_two_entries_is_the_sum_between_them() -> None:
    values = [10**12, 7, 0, 10**15 + 1]
    sums = prefix_sums(values, "cycles")
    assert len(sums) == 5
    assert all(sums[b] - sums[a] == sum(values[a:b]) for a in range(5) for b in range(a, 5))


def test_what_cannot_be_added_exactly_is_refused() -> None:
    assert prefix_sums([EXACT - 1, 1], "cycles")[-1] == EXACT
    with pytest.raises(BadInput, match=r"cycles of all layers must add up to at most 2\*\*53"):
        prefix_sums([EXACT, 1], "cycles")
    with pytest.raises(BadInput):
        prefix_sums([10**400], "cycles")
