"""The fastest way to cut a product over tiles within a bound on temporary bytes: `plan`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np

from autoauto.records.units import FloatArray, IntArray
from autoauto.targets.ipu.tiling.price import SplitCosts, costs, tile_bytes
from autoauto.targets.ipu.tiling.split import Product, SplitCandidates, candidates, in_series

_SIZES = ("groups", "batch", "height", "width", "inputs", "outputs")


class Split(NamedTuple):
    """One way to cut a product, priced."""

    exchange_cycles: int  # of all serial steps
    compute_cycles: int
    tile_bytes: int  # temporary bytes of the fullest tile
    n_tiles: int  # that compute
    n_sources: int  # tiles that the fullest tile receives from
    serial: int  # steps in series
    reduces: bool  # partial sums of several tiles are added
    within_bound: bool  # False if no candidate met the bound, so that this is the fastest without it

    @property
    def cycles(self) -> int:
        """Exchange and compute together."""
        return self.exchange_cycles + self.compute_cycles


class Bounded(NamedTuple):
    """A product, and the temporary bytes that it may take on a tile."""

    product: Product
    bound_bytes: float = inf


def plan(wanted: Bounded, n_tiles: int) -> Split:
    """The fastest split whose temporary bytes a tile stay within the bound, the fastest of all when none does.

    >>> from autoauto.records.units import Precision
    >>> from autoauto.targets.ipu.tiling.split import ProductCodelet
    >>> square = Product(ProductCodelet.GEMM, 1, 1, 1, 1024, 1024, 1024, (1, 1), (1, 1), Precision.FP16)
    >>> plan(Bounded(square, 600_000), 1472).cycles <= plan(Bounded(square, 40_000), 1472).cycles
    True
    """
    return plan_each((wanted,), n_tiles)[0]


def plan_each(wanted: Sequence[Bounded], n_tiles: int) -> list[Split]:
    """`plan` for several products: those that differ in their sizes only are priced together, in less time."""
    if len(_PLANS) > _MAX_PLANS:
        _PLANS.clear()  # before looking: plans of `wanted` that were made before must stay until the end
    alike: dict[tuple[object, ...], list[Bounded]] = {}
    for each in dict.fromkeys(wanted):
        if _known(each, n_tiles) is None:
            product = each.product
            formats = (product.engine, product.taps, product.stride, product.precision, product.partials)
            alike.setdefault(formats, []).append(each)
    for every in alike.values():
        for first in range(0, len(every), _MAX_TOGETHER):
            _plan_together(every[first : first + _MAX_TOGETHER], n_tiles)
    splits = []
    for each in wanted:
        split = _known(each, n_tiles)
        assert split is not None
        splits.append(split)
    return splits


_PLANS: dict[tuple[Bounded, int], Split] = {}
_MAX_PLANS = 32768
_MAX_TOGETHER = 32  # products that are priced together: with more, columns of numbers leave the processor's caches
_CLOSE = 1.1  # of the cycles of the fastest


def _known(wanted: Bounded, n_tiles: int) -> Split | None:
    """A plan that was made before: the fastest, if it is within the bound, or else the one for this bound."""
    fastest = _PLANS.get((Bounded(wanted.product), n_tiles))
    if fastest is None or fastest.tile_bytes <= wanted.bound_bytes:
        return fastest
    return _PLANS.get((wanted, n_tiles))


class Reserve(NamedTuple):
    """Memory and code that are reserved for a product: they never fall when the batch grows."""

    tile_bytes: float  # temporary, of plans without a bound
    single: Split  # the plan for one sample, whose code stands for that of all batch sizes


class Batched(NamedTuple):
    """A product at a batch size, the product of one sample, and which of its sizes grow with the samples."""

    product: Product
    n_samples: int
    single: Product
    growing: tuple[str, ...]

    @classmethod
    def of(cls, product: Product, doubled: Product, n_samples: int) -> Batched:
        """A product of `n_samples` samples; sizes that are twice as large in `doubled` grow with the samples."""
        growing = []
        for name in ("groups", "batch", "width", "inputs"):
            if getattr(doubled, name) == 2 * getattr(product, name):
                growing.append(name)
        single = product._replace(**{name: getattr(product, name) // n_samples for name in growing})
        return cls(product, n_samples, single, tuple(growing))

    def at(self, n_samples: int) -> Product:
        """The product at another batch size."""
        return self.single._replace(**{name: n_samples * getattr(self.single, name) for name in self.growing})


def reserve_each(wanted: Sequence[Batched], n_tiles: int) -> list[Reserve]:
    """Memory and code of the fastest plans of products, so that a larger batch never takes less (`never_falling`)."""
    if len(_FASTEST) > _MAX_FASTEST:
        _FASTEST.clear()
    # All batch sizes up to the same power of two share their plans.
    keys = [(each.single, each.growing, n_tiles, (each.n_samples - 1).bit_length()) for each in wanted]
    new = {key: each for key, each in zip(keys, wanted, strict=True) if key not in _FASTEST}
    together = []
    for each in new.values():
        together += [Bounded(each.at(n)) for n in _sizes_to(each.n_samples)]
    plan_each(together, n_tiles)
    for key, each in new.items():
        _FASTEST[key] = {n: plan(Bounded(each.at(n)), n_tiles) for n in _sizes_to(each.n_samples)}
    reserves = []
    for key, each in zip(keys, wanted, strict=True):
        tile_bytes = {n: split.tile_bytes for n, split in _FASTEST[key].items()}
        reserves.append(Reserve(never_falling(tile_bytes.__getitem__, each.n_samples), _FASTEST[key][1]))
    return reserves


_FASTEST: dict[tuple[object, ...], dict[int, Split]] = {}
_MAX_FASTEST = 4096


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


def _plan_together(wanted: Sequence[Bounded], n_tiles: int) -> None:
    parts = [candidates(product, n_tiles) for product, _ in wanted]
    owner = np.repeat(np.arange(len(parts)), [len(part.groups) for part in parts])
    split = SplitCandidates(*map(np.concatenate, zip(*parts, strict=True)))
    one_step = _price(wanted, owner, split, n_tiles)
    fastest = one_step.fastest()
    too_large = []
    for number, best in fastest.items():
        _PLANS[Bounded(wanted[number].product), n_tiles] = best
        if best.tile_bytes > wanted[number].bound_bytes:
            too_large.append(number)
    if too_large:
        fitting = _cut_in_series(wanted, one_step, n_tiles).fastest()
        for number in too_large:
            _PLANS[wanted[number], n_tiles] = fitting.get(number, fastest[number]._replace(within_bound=False))


class _Priced(NamedTuple):
    """Candidates of several products with their costs; `owner` is the number of the product of every row, ascending."""

    owner: IntArray
    split: SplitCandidates
    cost: SplitCosts

    @property
    def cycles(self) -> FloatArray:
        cycles: FloatArray = np.ceil(self.cost.exchange_cycles) + np.ceil(self.cost.compute_cycles)
        return cycles

    def fastest(self) -> dict[int, Split]:
        """The fastest split of every product; of several, the one with the fewest bytes, then the first."""
        cycles = self.cycles
        first = np.flatnonzero(np.diff(self.owner, prepend=-1))  # the first row of every product
        fewest = np.repeat(np.minimum.reduceat(cycles, first), np.diff(first, append=len(cycles)))
        rows = np.flatnonzero(cycles == fewest)
        # Sorted by product, then by bytes, the first row of every product is its fastest split.
        rows = rows[np.lexsort((self.cost.tile_bytes[rows], self.owner[rows]))]
        rows = rows[np.diff(self.owner[rows], prepend=-1) > 0]
        split, cost = self.split.rows(rows), self.cost
        columns = (
            np.ceil(cost.exchange_cycles[rows]).astype(np.int64),
            np.ceil(cost.compute_cycles[rows]).astype(np.int64),
            np.ceil(cost.tile_bytes[rows]).astype(np.int64),
            split.tiles.astype(np.int64),
            np.ceil(cost.n_sources[rows]).astype(np.int64),
            (split.serial_inputs * split.serial_outputs).astype(np.int64),
            split.inputs > 1,
        )
        fastest: dict[int, Split] = {}
        for owner, *numbers in zip(self.owner[rows].tolist(), *(column.tolist() for column in columns), strict=True):
            fastest[owner] = Split._make((*numbers, True))
        return fastest


def _price(wanted: Sequence[Bounded], owner: IntArray, split: SplitCandidates, n_tiles: int) -> _Priced:
    return _Priced(owner, split, costs(_by_row(wanted, owner), split, n_tiles))


def _by_row(wanted: Sequence[Bounded], owner: IntArray) -> Product:
    """Products that differ in their sizes only as one, whose sizes are columns."""
    sizes: dict[str, Any] = {}
    for name in _SIZES:
        sizes[name] = np.array([getattr(product, name) for product, _ in wanted], dtype=np.float64)[owner]
    return wanted[0].product._replace(**sizes)


def _cut_in_series(wanted: Sequence[Bounded], one_step: _Priced, n_tiles: int) -> _Priced:
    """The candidates that fit and may be the fastest of all that fit: in one step, and cut in series.

    A split takes more cycles in series. So what takes more in one step than the fastest that fits is left out:

        bytes
          |  s  s   .  .          f: the fastest that fits in one step
          |    s     .            s: cut in series, as is f
        --+------------- bound    .: left out
          |        f   .
          |           .
          +------------- cycles

    Where none fits in one step, those close to the fastest are cut first, and the fastest of these that fits counts.
    """
    bounds = np.array([bound_bytes for _, bound_bytes in wanted])
    owner, cycles = one_step.owner, one_step.cycles

    def in_steps(rows: IntArray) -> _Priced:
        steps_of, split = in_series(_by_row(wanted, owner[rows]), one_step.split.rows(rows))
        owners = owner[rows][steps_of]
        fitting = np.flatnonzero(np.ceil(tile_bytes(_by_row(wanted, owners), split)) <= bounds[owners])
        return _price(wanted, owners[fitting], split.rows(fitting), n_tiles)

    # By product: the cycles of the fastest split that fits, and of the fastest of all.
    fits = np.ceil(one_step.cost.tile_bytes) <= bounds[owner]
    limit, quickest = np.full(len(wanted), inf), np.full(len(wanted), inf)
    np.minimum.at(limit, owner[fits], cycles[fits])
    np.minimum.at(quickest, owner, cycles)
    if np.isinf(limit).any():  # of some products no split fits in one step
        close = in_steps(np.flatnonzero(np.isinf(limit)[owner] & (cycles <= _CLOSE * quickest[owner])))
        np.minimum.at(limit, close.owner, close.cycles)
    return in_steps(np.flatnonzero(cycles <= limit[owner]))
