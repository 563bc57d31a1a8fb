"""The fastest way to cut a product over tiles within a bound on temporary bytes: `plan`."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from autoauto.targets.ipu.tiling.price import SplitCosts, costs
from autoauto.targets.ipu.tiling.split import Product, SplitCandidates, candidates


class Split(NamedTuple):
    """One way to cut a product, priced.

    Attributes:
        exchange_cycles, compute_cycles: of all serial steps.
        tile_bytes: temporary bytes of the fullest tile.
        n_tiles: tiles that compute.
        n_sources: tiles that the fullest tile receives from.
        serial: steps in series.
        reduces: whether partial sums of several tiles are added.
        within_bound: False when no candidate met the bound, so that the fastest was taken without it.
    """

    exchange_cycles: int
    compute_cycles: int
    tile_bytes: int
    n_tiles: int
    n_sources: int
    serial: int
    reduces: bool
    within_bound: bool

    @property
    def cycles(self) -> int:
        """Exchange and compute together."""
        return self.exchange_cycles + self.compute_cycles


def plan(product: Product, n_tiles: int, bound_bytes: float) -> Split:
    """The fastest split whose temporary bytes a tile stay within `bound_bytes`, the fastest of all when none does.

    >>> from autoauto.records.units import Precision
    >>> from autoauto.targets.ipu.tiling.split import Engine
    >>> square = Product(Engine.GEMM, 1, 1, 1, 1024, 1024, 1024, (1, 1), (1, 1), Precision.FP16)
    >>> plan(square, 1472, 600_000).cycles <= plan(square, 1472, 40_000).cycles
    True
    """
    front = pareto_front(product, n_tiles)
    fitting = (split for split in front if split.tile_bytes <= bound_bytes)
    return next(fitting, front[0]._replace(within_bound=False))


@lru_cache(maxsize=4096)
def pareto_front(product: Product, n_tiles: int) -> tuple[Split, ...]:
    """The Pareto front of the candidates, fastest first: none is beaten in both cycles and temporary bytes."""
    split = candidates(product, n_tiles)
    cost = costs(product, split, n_tiles)
    cycles = np.ceil(cost.exchange_cycles) + np.ceil(cost.compute_cycles)
    order = np.lexsort((cost.tile_bytes, cycles))
    lowest_bytes = np.minimum.accumulate(cost.tile_bytes[order])
    better = np.concatenate(([True], cost.tile_bytes[order][1:] < lowest_bytes[:-1]))
    tiles = split.tiles
    return tuple(_split(split, cost, int(tiles[i]), int(i)) for i in order[better])


def _split(split: SplitCandidates, cost: SplitCosts, n_tiles: int, i: int) -> Split:
    return Split(
        exchange_cycles=int(np.ceil(cost.exchange_cycles[i])),
        compute_cycles=int(np.ceil(cost.compute_cycles[i])),
        tile_bytes=int(np.ceil(cost.tile_bytes[i])),
        n_tiles=n_tiles,
        n_sources=int(cost.n_sources[i]),
        serial=int(split.serial_inputs[i] * split.serial_outputs[i]),
        reduces=bool(split.inputs[i] > 1),
        within_bound=True,
    )
