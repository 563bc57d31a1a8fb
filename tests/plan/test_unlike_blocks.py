"""Cuts of chains of unlike blocks on like stages, whose ends cost and hold more, against all cuts there are."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest

from autoauto.plan.block_cuts import ChainStage, unlike_blocks


def best(stages: list[ChainStage], column: int) -> float:
    """The shortest period of all cuts that fit."""
    n_blocks, periods = len(stages[0].blocks), [np.inf]
    for inner in combinations(range(1, n_blocks), len(stages) - 1):
        parts = list(pairwise((0, *inner, n_blocks)))
        ends = list(zip(stages, parts, strict=True))
        if all(stage.filled[start:stop, column].sum() <= stage.usable[column] for stage, (start, stop) in ends):
            costs = [stage.base[column] + stage.blocks[start:stop, column].sum() for stage, (start, stop) in ends]
            periods.append(max(costs))
    return min(periods)


@pytest.mark.parametrize("n_stages", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(6))
def test_no_cuts_have_a_shorter_period(n_stages: int, seed: int) -> None:
    random, n_sizes = np.random.default_rng(seed), 7

    blocks, filled = random.uniform(0.1, 4, (9, n_sizes)), random.integers(1, 6, (9, n_sizes)).astype(np.float64)
    usable = random.uniform(0.6, 2.5, n_sizes) * filled.sum(axis=0) / n_stages

    def stage(number: int) -> ChainStage:
        is_end = number in (0, n_stages - 1)
        held = random.uniform(0, 4, n_sizes) * is_end
        return ChainStage(random.uniform(0, 5, n_sizes) * is_end, blocks, usable - held, filled)

    stages = [stage(number) for number in range(n_stages)]
    cuts = unlike_blocks(stages)
    for column, period in enumerate(cuts.period):
        assert period == pytest.approx(best(stages, column), rel=1e-9)
    fits = np.isfinite(cuts.period)
    assert (cuts.n_blocks[:, fits].sum(axis=0) == 9).all()
    assert (cuts.n_blocks[:, fits] >= 1).all()


def test_more_stages_than_blocks_do_not_fit() -> None:
    stage = ChainStage(np.zeros(1), np.ones((2, 1)), np.full(1, 9.0), np.ones((2, 1)))
    assert unlike_blocks([stage] * 3).period.tolist() == [np.inf]
