"""Cuts of equal blocks against all cuts."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoauto.plan.block_cuts import BlockStages, equal_blocks, without_surplus
from tests.drawn import n_examples

COSTS = st.integers(1, 40)


def best(base: list[int], step: list[int], most: list[int], n_blocks: int) -> float:
    """The shortest period of all cuts, by trying them."""
    ways = product(*(range(1, n + 1) for n in most))
    periods = (max(b + n * s for b, n, s in zip(base, way, step, strict=True)) for way in ways if sum(way) == n_blocks)
    return min(periods, default=np.inf)


@settings(max_examples=n_examples(200), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), COSTS, st.integers(0, 6)), min_size=1, max_size=4), st.integers(1, 14))
def test_no_cuts_have_a_shorter_period(stages: list[tuple[int, int, int]], n_blocks: int) -> None:
    base, step, most = map(list, zip(*stages, strict=True))
    columns = (np.array(each, dtype=np.float64)[:, None] for each in (base, step))
    asked = BlockStages(next(columns), next(columns), np.array(most)[:, None])
    cuts = equal_blocks(asked, np.ones((len(base), 1), dtype=int), n_blocks)
    assert cuts.period[0] == pytest.approx(best(base, step, most, n_blocks))
    if np.isfinite(cuts.period[0]):
        blocks = without_surplus(asked, cuts.n_blocks, n_blocks)[:, 0]
        assert blocks.sum() == n_blocks
        assert blocks.min() >= 1
        assert (blocks <= most).all()
        assert (np.array(base) + blocks * step).max() == pytest.approx(cuts.period[0])


def test_like_stages_are_counted_and_columns_are_batch_sizes() -> None:
    base, step = np.array([[4.0, 0.0], [0.0, 0.0], [2.0, 9.0]]), np.ones((3, 2))
    cuts = equal_blocks(BlockStages(base, step, np.full((3, 2), 9)), np.array([[1], [3], [1]]), 24)
    alone = [best([4, 0, 0, 0, 2], [1] * 5, [9] * 5, 24), best([0, 0, 0, 0, 9], [1] * 5, [9] * 5, 24)]
    assert cuts.period.tolist() == alone
