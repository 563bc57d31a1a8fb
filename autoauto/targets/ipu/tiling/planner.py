"""The fastest way to cut a product over tiles within a bound on temporary bytes: `plan`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from autoauto.records.units import FloatArray, IntArray
from autoauto.targets.ipu.tiling.price import SplitCosts, costs
from autoauto.targets.ipu.tiling.split import Product, SplitCandidates, candidates

_SIZES = ("groups", "batch", "height", "width", "inputs", "outputs")


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
    fastest = unbounded(product, n_tiles)
    if fastest.tile_bytes <= bound_bytes:
        return fastest
    fitting = (split for split in pareto_front(product, n_tiles) if split.tile_bytes <= bound_bytes)
    return next(fitting, fastest._replace(within_bound=False))


class Reserve(NamedTuple):
    """Memory and code that are reserved for a product: they never fall when the batch grows.

    Attributes:
        tile_bytes: temporary bytes a tile of plans without a bound.
        single: the plan for one sample, whose code stands for that of all batch sizes.
    """

    tile_bytes: float
    single: Split


def reserve(product: Product, doubled: Product, n_samples: int, n_tiles: int) -> Reserve:
    """The memory and code of a product's fastest plans, so that a larger batch never takes less (`never_falling`).

    Args:
        product: for `n_samples`.
        doubled: the product for twice as many; sizes that are equal in both do not depend on the batch.
        n_samples: the batch size.
        n_tiles: of the device.
    """
    sizes = _sizes_to(n_samples)
    *fastest, _ = unbounded_each(products_to(product, doubled, n_samples), n_tiles)  # the last one will be planned
    bytes_of = {n: split.tile_bytes for n, split in zip(sizes, fastest, strict=True)}
    return Reserve(never_falling(bytes_of.__getitem__, n_samples), fastest[0])


def products_to(product: Product, doubled: Product, n_samples: int) -> list[Product]:
    """The products whose fastest plans `reserve` asks for: at powers of two of samples, and the product itself."""
    per_sample = {
        name: getattr(product, name) // n_samples
        for name in ("groups", "batch", "width", "inputs")
        if getattr(doubled, name) == 2 * getattr(product, name)
    }
    powers = (
        product._replace(**{name: n * length for name, length in per_sample.items()}) for n in _sizes_to(n_samples)
    )
    return [*powers, product]


def _sizes_to(n_samples: int) -> list[int]:
    """Powers of two of samples from 1 to `n_samples` or the next one.

    >>> _sizes_to(1), _sizes_to(5)
    ([1], [1, 2, 4, 8])
    """
    return [1 << k for k in range((n_samples - 1).bit_length() + 1)]


def never_falling(bytes_at: Callable[[int], float], n_samples: int) -> float:
    """Temporary bytes a tile for a batch size, such that a larger one never takes fewer.

    The plans that are fastest at two neighbouring batch sizes may need very different memory, but what is compiled for
    a batch also serves a smaller one. So plans are made at powers of two, each takes at least what the one before
    takes, and between them lies a straight line:

        bytes              x 8: what 4 takes, if its own plan takes less
                    x----x
               x  /        at 5 and 6: on the line from 4 to 8; a plan that needs more is not taken there
         x  /
        -1---2------4------------8--- samples

    >>> [never_falling({1: 2, 2: 8, 4: 6, 8: 10}.__getitem__, n) for n in (1, 2, 3, 4, 6, 8)]
    [2.0, 8.0, 8.0, 8.0, 9.0, 10.0]
    """
    lower = 1 << n_samples.bit_length() - 1
    below = float(max(bytes_at(1 << k) for k in range(lower.bit_length())))
    if lower == n_samples:
        return below
    return below + (max(below, bytes_at(2 * lower)) - below) * (n_samples - lower) / lower


_UNBOUNDED: dict[tuple[Product, int], Split] = {}
_MAX_UNBOUNDED = 16384
_MAX_TOGETHER = 32  # products that are priced together: with more, columns of numbers leave the processor's caches


def unbounded(product: Product, n_tiles: int) -> Split:
    """The fastest split, however many bytes it needs: more than one step only makes a product slower."""
    return unbounded_each((product,), n_tiles)[0]


def unbounded_each(products: Sequence[Product], n_tiles: int) -> list[Split]:
    """`unbounded` for several products: those that differ in their sizes only are priced together, in less time."""
    if len(_UNBOUNDED) > _MAX_UNBOUNDED:
        _UNBOUNDED.clear()  # before looking: what is known of `products` must stay
    new = [product for product in dict.fromkeys(products) if (product, n_tiles) not in _UNBOUNDED]
    alike: dict[tuple[object, ...], list[Product]] = {}
    for product in new:
        formats = (product.engine, product.taps, product.stride, product.precision, product.partials)
        alike.setdefault(formats, []).append(product)
    for every in alike.values():
        for first in range(0, len(every), _MAX_TOGETHER):
            part = every[first : first + _MAX_TOGETHER]
            _UNBOUNDED.update(zip([(product, n_tiles) for product in part], _fastest_each(part, n_tiles), strict=True))
    return [_UNBOUNDED[product, n_tiles] for product in products]


def _fastest_each(products: Sequence[Product], n_tiles: int) -> list[Split]:
    parts = [candidates(product, n_tiles, in_series=False) for product in products]
    counts = [len(part.groups) for part in parts]
    split = SplitCandidates(*map(np.concatenate, zip(*parts, strict=True)))
    sizes: dict[str, Any] = {
        name: np.repeat([getattr(product, name) for product in products], counts) for name in _SIZES
    }
    cost = costs(products[0]._replace(**sizes), split, n_tiles)
    cycles, rows = _cycles(cost), []
    for stop, n in zip(accumulate(counts), counts, strict=True):
        own = slice(stop - n, stop)
        fastest = stop - n + np.flatnonzero(cycles[own] == cycles[own].min())
        rows.append(fastest[cost.tile_bytes[fastest].argmin()])
    return _splits(split, cost, np.array(rows))


@lru_cache(maxsize=8192)
def pareto_front(product: Product, n_tiles: int) -> tuple[Split, ...]:
    """The Pareto front of the candidates, fastest first: none is beaten in both cycles and temporary bytes."""
    split = candidates(product, n_tiles)
    cost = costs(product, split, n_tiles)
    return tuple(_splits(split, cost, _undominated(_cycles(cost), cost.tile_bytes)))


def _cycles(cost: SplitCosts) -> FloatArray:
    """Cycles of exchange and compute, as `Split.cycles`."""
    cycles: FloatArray = np.ceil(cost.exchange_cycles) + np.ceil(cost.compute_cycles)
    return cycles


def _undominated(cycles: FloatArray, n_bytes: FloatArray) -> IntArray:
    """The rows that no other beats in both, by ascending cycles; of equal rows the first.

    Sorting takes longest, so all rows go first that the knee beats, the row of the fewest cycles x bytes:

        bytes
          |  .   |. . .  .
          |    . |  .  .      those left of the knee or below it are sorted
          |      x---------
          |         .    .
          +----------------- cycles
    """
    knee = int((cycles * n_bytes).argmin())
    is_left = (cycles < cycles[knee]) | (n_bytes < n_bytes[knee])
    is_left[knee] = True
    left = np.flatnonzero(is_left)
    order = left[np.lexsort((n_bytes[left], cycles[left]))]
    lowest_bytes = np.minimum.accumulate(n_bytes[order])
    return order[np.concatenate(([True], n_bytes[order][1:] < lowest_bytes[:-1]))]


def _splits(split: SplitCandidates, cost: SplitCosts, rows: IntArray) -> list[Split]:
    """Some of the candidates."""
    of_rows = SplitCandidates(*(column[rows] for column in split))
    exchange_cycles, compute_cycles, tile_bytes, n_sources = (np.ceil(column[rows]).astype(np.int64) for column in cost)
    serial = (of_rows.serial_inputs * of_rows.serial_outputs).astype(np.int64)
    tiles = of_rows.tiles.astype(np.int64)
    columns = (exchange_cycles, compute_cycles, tile_bytes, tiles, n_sources, serial, of_rows.inputs > 1)
    return [Split._make((*row, True)) for row in zip(*(column.tolist() for column in columns), strict=True)]
