"""The cuts of a chain of unlike blocks with the shortest period, at many batch sizes at once: `unlike_blocks`.

Within a period P every stage takes as many of the blocks that follow as fit its time and its memory, and P is long
enough where the stages together take all blocks. Of a P that is too short, the next one is known at which any stage
takes more, and of one that is long enough the period of its cuts, so that a bisection ends at the shortest:

    low ── ... ── P too short ── the next P ── ... ── period of the cuts ── P long enough ── ... ── high

To take as many as fit is best unless a stage then has none that fits it, which an earlier cut would have given it. This
cannot be where all stages inside are alike, as on GPUs of one kind, since what does not fit one of them fits none.
`plan/equal_blocks.py` finds the same for equal blocks, for many orders of stages together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from autoauto.records.units import FloatArray, IntArray

_ROUNDING = 1e-12


class ChainStage(NamedTuple):
    """A stage that may have any blocks of a chain, by batch size.

    Attributes:
        base: what it costs without blocks, shape (batch sizes,).
        blocks: what every block costs on it, above 0, shape (blocks, batch sizes).
        usable: what blocks may fill, shape (batch sizes,).
        filled: what every block fills, shape (blocks, batch sizes).
    """

    base: FloatArray
    blocks: FloatArray
    usable: FloatArray
    filled: FloatArray


class ChainCuts(NamedTuple):
    """The cuts of the shortest period.

    Attributes:
        period: that of the slowest stage, shape (batch sizes,); infinite where the blocks do not fit.
        n_blocks: of every stage, shape (stages, batch sizes).
    """

    period: FloatArray
    n_blocks: IntArray


class _Sums(NamedTuple):
    """Sums of the blocks before every block."""

    base: FloatArray
    cost: FloatArray
    usable: FloatArray
    filled: FloatArray


def unlike_blocks(stages: Sequence[ChainStage]) -> ChainCuts:
    """The shortest period of stages in this order, each with one block or more.

    >>> cost = np.array([[3.0], [1.0], [1.0], [1.0]])
    >>> stage = ChainStage(np.zeros(1), cost, np.full(1, 9.0), np.ones((4, 1)))
    >>> cuts = unlike_blocks([stage, stage])
    >>> cuts.period.tolist(), cuts.n_blocks.T.tolist()
    ([3.0], [[1, 3]])
    """
    sums = [_Sums(each.base, _before(each.blocks), each.usable, _before(each.filled)) for each in stages]
    n_blocks, high, _ = _within(sums, np.full(len(stages[0].base), np.inf))
    fits = np.isfinite(high)
    high = np.where(fits, high, 0.0)
    low = np.where(fits, np.min([each.base for each in stages], axis=0), 0.0)
    while (is_open := low < high).any():
        middle = np.where(is_open, (low + high) / 2, high)
        tried, period, following = _within(sums, middle)
        enough = np.isfinite(period)
        better = is_open & enough
        n_blocks = np.where(better, tried, n_blocks)
        high = np.where(better, np.minimum(period, middle), high)
        low = np.where(is_open & ~enough, np.minimum(following, high), low)
        low = np.where(high - low <= _ROUNDING * np.abs(high), high, low)
    return ChainCuts(np.where(fits, high, np.inf), n_blocks)


def _before(blocks: FloatArray) -> FloatArray:
    return np.concatenate([np.zeros((1, blocks.shape[1])), blocks.cumsum(axis=0)])


def _within(stages: Sequence[_Sums], period: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
    """The blocks of every stage within a period, the period of these cuts, and the next at which a stage takes more.

    The period is infinite where the stages do not take all blocks.
    """
    columns = np.arange(len(period))
    n_all, n_stages = len(stages[0].cost) - 1, len(stages)
    start = np.zeros(len(period), dtype=np.int64)
    fits, longest = np.ones(len(period), dtype=np.bool_), np.full(len(period), -np.inf)
    following = np.full(len(period), np.inf)
    counts = []
    for number, stage in enumerate(stages):
        spent, held = stage.cost[start, columns], stage.filled[start, columns]
        within = spent + period - stage.base
        # Sums ascend, so the number of sums within a bound is the last block that still fits.
        in_time = (stage.cost <= within + _ROUNDING * np.abs(within)).sum(axis=0) - 1
        most = (stage.filled <= held + stage.usable).sum(axis=0) - 1
        most = np.minimum(most, n_all - (n_stages - 1 - number))  # every later stage needs a block
        stop = np.minimum(in_time, most)
        fits &= stop > start
        stop = np.clip(stop, np.minimum(start + 1, n_all), n_all)  # even where it does not fit: the loop goes on
        # The period with one block more, or with the first where none fits; a stage whose memory is full takes no more.
        more = stage.base + stage.cost[np.minimum(stop + 1, n_all), columns] - spent
        with_first = stage.base + stage.cost[np.minimum(start + 1, n_all), columns] - spent
        more = np.where(in_time <= start, with_first, np.where(in_time < most, more, np.inf))
        following = np.minimum(following, more)
        longest = np.maximum(longest, stage.base + stage.cost[stop, columns] - spent)
        counts.append(stop - start)
        start = stop
    fits &= start == n_all
    return np.array(counts), np.where(fits, longest, np.inf), following
