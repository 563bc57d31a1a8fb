"""The cuts of a chain of blocks with the shortest period, of equal blocks or of unlike ones: `cuts_of`.

The planner of `plan/pipeline/` finds the same for layers of any costs, one question at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from autoauto.records.units import FloatArray, IntArray

_ROUNDING = 1e-12
_N_HALVINGS = 40


class BlockStages(NamedTuple):
    """Stages of a chain of blocks; axis 0 is that of the stages, the others broadcast.

    Attributes:
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

    A stage with n blocks takes base + n x step, and holds `most` blocks at most. Within a period P it takes as many as
    fit, and P is long enough where the stages together take all blocks:

        P  - - - - - - - - - - - - - - -       base of the first stage: the embedding; of the last: the head
           |###|   |###|   |###|   | # |       # a block
           |###|   |###|   |###|   |hhh|
           |eee|   |###|   |###|   |hhh|       the shortest P is found by bisection, and then is that of a full stage
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
        enough = (counts * _equal_within(middle, stages)).sum(axis=0) >= n_blocks
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    # The bisection ends near the period: that of the slowest stage is exact.
    blocks = _equal_within(high, stages)
    period = np.where(is_present, base + blocks * step, -np.inf).max(axis=0)
    return BlockCuts(np.where(fits, period, np.inf), blocks)


def _equal_within(period: FloatArray, stages: BlockStages) -> IntArray:
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

    Within a period P every stage takes as many of the blocks that follow as fit its time and its memory, and P is long
    enough where the stages together take all blocks. Of a P that is too short, the next one is known at which any stage
    takes more, and of one that is long enough the period of its cuts, so that a bisection ends at the shortest:

        low ── ... ── P too short ── the next P ── ... ── period of the cuts ── P long enough ── ... ── high

    To take as many as fit is best unless a stage then has none that fits it, which an earlier cut would have given it.
    This cannot be where all stages inside are alike, as on GPUs of one kind, since what does not fit one of them fits
    none.
    """
    sums = [_Sums(each.base, _before(each.blocks), each.usable, _before(each.filled)) for each in stages]
    n_blocks, high, _ = _unlike_within(sums, np.full(len(stages[0].base), np.inf))
    fits = np.isfinite(high)
    high = np.where(fits, high, 0.0)
    low = np.where(fits, np.min([each.base for each in stages], axis=0), 0.0)
    while (is_open := low < high).any():
        middle = np.where(is_open, (low + high) / 2, high)
        tried, period, following = _unlike_within(sums, middle)
        enough = np.isfinite(period)
        better = is_open & enough
        n_blocks = np.where(better, tried, n_blocks)
        high = np.where(better, np.minimum(period, middle), high)
        low = np.where(is_open & ~enough, np.minimum(following, high), low)
        low = np.where(high - low <= _ROUNDING * np.abs(high), high, low)
    return ChainCuts(np.where(fits, high, np.inf), n_blocks)


def _before(blocks: FloatArray) -> FloatArray:
    return np.concatenate([np.zeros((1, blocks.shape[1])), blocks.cumsum(axis=0)])


def _unlike_within(stages: Sequence[_Sums], period: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
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


@dataclass(frozen=True)
class Cuts:
    """Cuts of the shortest period of every row of stages.

    Attributes:
        period: of the slowest stage, shape (rows, batch sizes); infinite where the blocks do not fit.
        n_blocks: by the number of a row, the blocks of its stages, shape (stages, batch sizes).
    """

    period: FloatArray
    n_blocks: Callable[[int], IntArray]


def cuts_of(rows: IntArray, positions: Sequence[ChainStage], order: Sequence[int]) -> Cuts:
    """The cuts with the shortest period of rows of stages.

    Args:
        rows: the position of every stage, shape (rows, stages).
        positions: what their stages cost; blocks by kind, shape (kinds, batch sizes).
        order: by block, the number of its kind.
    """
    every = list(order)
    if max(every) == 0:
        return _of_equal(rows, positions, len(every))
    chains = [each._replace(blocks=each.blocks[every], filled=each.filled[every]) for each in positions]
    cuts = [unlike_blocks([chains[position] for position in row]) for row in rows]
    return Cuts(np.array([each.period for each in cuts]), [each.n_blocks for each in cuts].__getitem__)


def _of_equal(rows: IntArray, positions: Sequence[ChainStage], n_all: int) -> Cuts:
    base, step = np.array([each.base for each in positions]), np.array([each.blocks[0] for each in positions])
    usable, filled = np.array([each.usable for each in positions]), np.array([each.filled[0] for each in positions])
    most = np.floor(np.minimum(usable / filled, n_all)).astype(np.int64)
    # Equal blocks do not care for the order of stages: a row is how many of its stages have each position.
    counts = np.array([np.bincount(row, minlength=len(positions)) for row in rows]).T[:, :, None]
    cuts = equal_blocks(BlockStages(base[:, None], step[:, None], most[:, None]), counts, n_all)
    # A function of the module can be pickled for the processes that measure.
    return Cuts(cuts.period, partial(_blocks_of, rows, BlockStages(base, step, most), cuts.n_blocks, n_all))


def _blocks_of(rows: IntArray, stages: BlockStages, n_blocks: IntArray, n_all: int, row: int) -> IntArray:
    each = rows[row]
    return without_surplus(BlockStages(*(numbers[each] for numbers in stages)), n_blocks[each, row], n_all)
