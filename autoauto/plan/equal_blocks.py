"""The cuts of a chain of equal blocks with the shortest period, for many questions at once: `equal_blocks`.

A stage with n blocks takes base + n x step, and holds `most` blocks at most. Within a period P it takes as many as fit,
and P is long enough where the stages together take all blocks:

    P  - - - - - - - - - - - - - - -       base of the first stage: the embedding; of the last: the head
       |###|   |###|   |###|   | # |       # a block
       |###|   |###|   |###|   |hhh|
       |eee|   |###|   |###|   |hhh|       the shortest P is found by bisection, and then is that of a full stage

The planner of `plan/pipeline/` finds the same for layers of any costs, one question at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autoauto.records.units import FloatArray, IntArray

_N_HALVINGS = 40
_ROUNDING = 1e-12


class BlockStages(NamedTuple):
    """Stages of a chain of blocks; axis 0 is that of the stages, the others broadcast.

    Attributes:
        base: what a stage costs without blocks.
        step: what a block costs on it, above 0.
        most: how many blocks it holds; below 1 it cannot be a stage.
    """

    base: FloatArray
    step: FloatArray
    most: IntArray


class BlockCuts(NamedTuple):
    """The cuts of the shortest period.

    Attributes:
        period: that of the slowest stage; infinite where the blocks do not fit.
        n_blocks: of every stage, the most within the period: together all blocks or more.
    """

    period: FloatArray
    n_blocks: IntArray


def equal_blocks(stages: BlockStages, counts: IntArray, n_blocks: int) -> BlockCuts:
    """The shortest period of `counts` stages of every row of `stages` together, each with one block or more.

    >>> one = BlockStages(np.array([[3.0], [0.0], [5.0]]), np.ones((3, 1)), np.full((3, 1), 99))
    >>> equal_blocks(one, np.array([[1], [2], [1]]), 20).period.tolist()  # 4, 7, 7 and 2 blocks
    [7.0]
    """
    base, step, most = stages
    is_present = counts > 0
    fits = (~is_present | (most >= 1)).all(axis=0) & (counts.sum(axis=0) <= n_blocks)
    fits = fits & ((counts * most).sum(axis=0) >= n_blocks)
    # No period is shorter than a stage with one block, nor than if blocks could be divided among stages at will.
    minimum = np.where(is_present, base + step, -np.inf).max(axis=0)
    fluid = (n_blocks + (counts * base / step).sum(axis=0)) / (counts / step).sum(axis=0)
    low = np.maximum(minimum, fluid)
    high = np.where(is_present, base + most * step, -np.inf).max(axis=0)
    for _ in range(_N_HALVINGS):
        middle = (low + high) / 2
        enough = (counts * _within(middle, stages)).sum(axis=0) >= n_blocks
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    # The bisection ends near the period: that of the slowest stage is exact.
    blocks = _within(high, stages)
    period = np.where(is_present, base + blocks * step, -np.inf).max(axis=0)
    return BlockCuts(np.where(fits, period, np.inf), blocks)


def _within(period: FloatArray, stages: BlockStages) -> IntArray:
    """The number of blocks of every stage that fit a period, one or more; rounding errors must not lose any."""
    n = np.floor((period - stages.base) / stages.step * (1 + _ROUNDING))
    return np.maximum(np.minimum(n, stages.most), 1).astype(np.int64)


def without_surplus(stages: BlockStages, blocks: IntArray, n_blocks: int) -> IntArray:
    """The blocks of stages, one a row, that together have `n_blocks`: the longest stages give away what is too much."""
    blocks, columns = blocks.copy(), np.arange(blocks.shape[1])
    while (surplus := blocks.sum(axis=0) > n_blocks).any():
        longest = np.where(blocks > 1, stages.base + blocks * stages.step, -np.inf).argmax(axis=0)
        blocks[longest[surplus], columns[surplus]] -= 1
    return blocks
