"""The cuts of all pipelines of one length, of equal blocks or of unlike ones: `cuts_of`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from autoauto.plan.equal_blocks import BlockCuts, BlockStages, equal_blocks, without_surplus
from autoauto.plan.unlike_blocks import ChainCuts, ChainStage, unlike_blocks
from autoauto.records.units import FloatArray, IntArray


class Cuts(Protocol):
    """Cuts of the shortest period of every row of stages."""

    @property
    def period(self) -> FloatArray:
        """The period of the slowest stage, shape (rows, batch sizes); infinite where the blocks do not fit."""
        ...

    def n_blocks(self, row: int) -> IntArray:
        """The blocks of the stages of a row, shape (stages, batch sizes)."""
        ...


def cuts_of(rows: IntArray, positions: Sequence[ChainStage], order: Sequence[int]) -> Cuts:
    """The cuts with the shortest period of rows of stages.

    Args:
        rows: the position of every stage, shape (rows, stages).
        positions: what their stages cost; blocks by kind, shape (kinds, batch sizes).
        order: by block, the number of its kind.
    """
    if max(order) == 0:
        return _Equal.of(rows, positions, len(order))
    return _Unlike.of(rows, positions, order)


@dataclass(frozen=True)
class _Equal:
    rows: IntArray
    stages: BlockStages
    cuts: BlockCuts
    n_all: int

    @staticmethod
    def of(rows: IntArray, positions: Sequence[ChainStage], n_all: int) -> _Equal:
        usable, filled = np.array([each.usable for each in positions]), np.array([each.filled[0] for each in positions])
        stages = BlockStages(
            base=np.array([each.base for each in positions]),
            step=np.array([each.blocks[0] for each in positions]),
            most=np.floor(np.minimum(usable / filled, n_all)).astype(np.int64),
        )
        # Equal blocks do not care for the order of stages: a row is how many of its stages have each position.
        counts = np.array([np.bincount(row, minlength=len(positions)) for row in rows]).T[:, :, None]
        of_rows = BlockStages(stages.base[:, None], stages.step[:, None], stages.most[:, None])
        return _Equal(rows, stages, equal_blocks(of_rows, counts, n_all), n_all)

    @property
    def period(self) -> FloatArray:
        return self.cuts.period

    def n_blocks(self, row: int) -> IntArray:
        each, (base, step, most) = self.rows[row], self.stages
        return without_surplus(
            BlockStages(base[each], step[each], most[each]), self.cuts.n_blocks[each, row], self.n_all
        )


@dataclass(frozen=True)
class _Unlike:
    cuts: Sequence[ChainCuts]

    @staticmethod
    def of(rows: IntArray, positions: Sequence[ChainStage], order: Sequence[int]) -> _Unlike:
        every = list(order)
        chains = [each._replace(blocks=each.blocks[every], filled=each.filled[every]) for each in positions]
        return _Unlike([unlike_blocks([chains[position] for position in row]) for row in rows])

    @property
    def period(self) -> FloatArray:
        return np.array([each.period for each in self.cuts])

    def n_blocks(self, row: int) -> IntArray:
        return self.cuts[row].n_blocks
