"""Operators that move data: concatenations, shuffles, interpolation, and whatever has no rule of its own.

Look-ups and updates by indices: Gather and its kin read rows of a table, Scatter and its kin write them.

Both are planned as poplibs plans a multiSlice [poplibs]. A table has groups that are looked up apart: samples of a
GatherND, all axes but one of a GatherElements. `LookUps` is what the plan divides, `_Split` how:

    groups    a tile takes whole groups, one vertex after the other
    columns   of every row
    entries   a tile holds some rows, compares all indices with them, and candidates of an index meet afterwards
    lookups   tiles divide the indices, and each has a copy of the rows that it may need; not for updates

Indices are known only when the program runs, but exchanges when it is compiled: a tile looks at every index that may
be its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import inf, prod
from typing import NamedTuple

import numpy as np

from autoauto.records.units import FloatArray
from autoauto.targets.ipu import kernels
from autoauto.targets.ipu.kernels import WORKERS
from autoauto.targets.ipu.operator_cost import CostRule, Family, OperatorContext, OperatorCost, by_operator
from autoauto.targets.ipu.tiling.planner import never_falling

_MOVE_SOURCES = 8  # tiles that a tile receives from in a relayout: regular patterns read few neighbours


def move(context: OperatorContext) -> OperatorCost:
    """Concat, Slice, Split, Pad, Expand, Tile and the like: the outputs are written once."""
    return move_bytes(context, context.out_bytes, per_element=False)


def shuffle(context: OperatorContext) -> OperatorCost:
    """Transpose and space-depth shuffles: element by element unless the last axis stays last."""
    order = context.integers("perm", ())
    return move_bytes(context, context.out_bytes, per_element=not order or order[-1] != len(order) - 1)


def interpolate(context: OperatorContext) -> OperatorCost:
    """Resize, Upsample, GridSample: read up to four neighbours an output, weigh and add them."""
    moved = move_bytes(context, context.out_bytes, per_element=False)
    if context.text("mode") in ("", "nearest"):
        return moved
    share = -(-context.n_out // context.n_tiles)
    weighing = round(kernels.elementwise(share, ("add", "add") * 4, 2, context.precision))
    return moved._replace(compute_cycles=moved.compute_cycles + weighing)


def move_everything(context: OperatorContext) -> OperatorCost:
    """All that an operator reads and writes moves once."""
    n_bytes = context.out_bytes + sum(context.n_bytes(index) for index in context.present)
    return move_bytes(context, n_bytes, per_element=False)


def move_bytes(context: OperatorContext, n_bytes: int, per_element: bool) -> OperatorCost:
    """Move `n_bytes`, evenly spread, from one layout to another."""
    share = -(-n_bytes // context.n_tiles)
    exchange = round(float(kernels.exchange(share, _MOVE_SOURCES)))
    codelets: tuple[str, ...] = ("copy",)
    compute = float(kernels.copy(share))
    if per_element:
        codelets = ("transpose", "copy")
        compute = float(kernels.reorder(share / context.precision.n_bytes))
    return OperatorCost(Family.MOVE, exchange, round(compute), codelets, context.n_tiles, _MOVE_SOURCES)


_COLUMN_PARTS = (1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 384, 512, 768)
_LOOKUP_PARTS = (1, 4, 12, 32, 100, 300, 1000)
_SOURCES = 8  # tiles that a tile receives rows from
_INDEX_BYTES = 4
_AS_FAST = 1.25  # more cycles than that are worth fewer bytes: an assumption; a look-up is a small part of a model
_FEW_SLICES = 3  # up to so many slices are taken one by one [poplibs]
_GRAIN = 2  # elements of a row that stay together: halves are written in pairs [poplibs]


class LookUps(NamedTuple):
    """Rows of `row` elements: in every group `lookups` of the `entries`."""

    groups: int
    entries: int
    row: int
    lookups: int


class _Split(NamedTuple):
    """Into how many parts plans divide each number of a `LookUps`: columns of numbers, one row a plan."""

    groups: FloatArray
    entries: FloatArray
    columns: FloatArray
    lookups: FloatArray

    def share(self, work: LookUps) -> _Split:
        return _Split(*(np.ceil(n / parts) for n, parts in zip(work, self, strict=True)))


class _Bytes(NamedTuple):
    """Temporary bytes on a tile: first indices, a copy of entries and found rows, then found rows and candidates."""

    indices: FloatArray
    rows: FloatArray
    table: FloatArray
    candidates: FloatArray

    @property
    def peak(self) -> FloatArray:
        return np.maximum(self.indices + self.rows + self.table, self.rows + self.candidates)

    @property
    def received(self) -> FloatArray:
        """Bytes of the rows that a tile receives, or of their candidates."""
        return np.where(self.candidates > 0, self.candidates, self.rows)

    @property
    def exchanged(self) -> FloatArray:
        return self.indices + self.table + self.received


class _Plan(NamedTuple):
    exchange_cycles: float
    compute_cycles: float
    tile_bytes: float

    @property
    def cycles(self) -> float:
        return self.exchange_cycles + self.compute_cycles


class _Plans(NamedTuple):
    exchange_cycles: FloatArray
    compute_cycles: FloatArray
    n_bytes: _Bytes

    def row(self, row: int) -> _Plan:
        return _Plan(*(float(column[row]) for column in (self.exchange_cycles, self.compute_cycles, self.n_bytes.peak)))


def look_up(context: OperatorContext) -> OperatorCost:
    """Gather, GatherND, GatherElements: rows of a table; few whose indices are constants are slices of it."""
    indices = context.tensor(1)
    if indices is None or (prod(indices.shape) <= _FEW_SLICES and not context.is_activation(context.layer.operands[1])):
        return move(context)
    return _cost(context, gathered, updates=False)


def update(context: OperatorContext) -> OperatorCost:
    """ScatterND, ScatterElements, TensorScatter: rows are written into a copy of the table."""
    return _cost(context, scattered, updates=True)


def gathered(context: OperatorContext) -> LookUps:
    """The rows that a Gather, GatherND or GatherElements looks up."""
    table = context.shape(0)
    if context.layer.op == "GatherElements":
        return _elementwise_groups(context, table)
    if context.layer.op.endswith("GatherND"):
        return _tuples(table, context.shape(1), context.integer("batch_dims", 0))
    entries = table[context.axis(0, len(table))] if table else 1
    return LookUps(1, entries, prod(table) // max(entries, 1), prod(context.shape(1)))


def scattered(context: OperatorContext) -> LookUps:
    """The rows that a ScatterND, ScatterElements or TensorScatter writes."""
    table = context.shape(0)
    if context.layer.op == "ScatterND":
        return _tuples(table, context.shape(1), 0)
    if context.layer.op == "TensorScatter":  # positions that follow each other in every sample
        axis = context.axis(-2, len(table))
        return LookUps(table[0], table[axis], prod(table[1:]) // max(table[axis], 1), context.shape(1)[axis])
    return _elementwise_groups(context, table)


def _elementwise_groups(context: OperatorContext, table: tuple[int, ...]) -> LookUps:
    """Every element has an index of its own: all axes but one are groups."""
    indices, axis = context.shape(1), context.axis(0, len(table))
    return LookUps(prod(indices) // max(indices[axis], 1), table[axis], 1, indices[axis])


def _tuples(table: tuple[int, ...], indices: tuple[int, ...], n_batch: int) -> LookUps:
    """The last axis of the indices holds tuples that select a row."""
    inside = n_batch + indices[-1]
    groups = prod(table[:n_batch])
    return LookUps(groups, prod(table[n_batch:inside]), prod(table[inside:]), prod(indices[:-1]) // max(groups, 1))


def _cost(context: OperatorContext, work_of: Callable[[OperatorContext], LookUps], updates: bool) -> OperatorCost:
    plan = _planned(context, work_of(context), updates)

    def bytes_at(n_samples: int) -> float:
        of_samples = context.at(n_samples)
        return _planned(of_samples, work_of(of_samples), updates).tile_bytes

    return OperatorCost(
        Family.GATHER,
        round(plan.exchange_cycles),
        round(plan.compute_cycles),
        ("multiSlice", "copy"),
        context.n_tiles,
        4 * _SOURCES,
        working_bytes=round(never_falling(bytes_at, context.options.batch_size) * context.n_tiles),
        binding_below_bytes=inf,  # plans of all powers of two up to the batch size feel the bound
    )


def _planned(context: OperatorContext, work: LookUps, updates: bool) -> _Plan:
    """The fastest plan; a table that another layer wrote is laid out for it, or looked up where it lies."""
    work = LookUps(*(max(n, 1) for n in work))
    plan = _fastest(work, updates, context.n_tiles, context.precision.n_bytes, context.bound_bytes)
    table = context.layer.operands[0]
    table_share = context.n_bytes(table) / context.n_tiles
    if updates:  # what no index names stays as it is
        return plan._replace(compute_cycles=plan.compute_cycles + float(kernels.copy(table_share)))
    if not context.is_activation(table):
        return plan
    laid_out = float(kernels.exchange(table_share, _SOURCES))
    plan = plan._replace(exchange_cycles=plan.exchange_cycles + laid_out)
    return min(plan, _unmoved(work, context.n_tiles, context.precision.n_bytes), key=lambda way: way.cycles)


@lru_cache(maxsize=1024)
def _unmoved(work: LookUps, n_tiles: int, width: int) -> _Plan:
    """The plan for a table that is spread over the tiles from its first element to its last."""
    groups = min(work.groups, n_tiles)
    entries = max(1, min(n_tiles // groups, work.entries))
    columns = max(1, min(n_tiles // (groups * entries), work.row // _GRAIN))
    split = _Split(*np.array([[groups], [entries], [columns], [1]], dtype=np.float64))
    return _plans(work, split, width, updates=False).row(0)


@lru_cache(maxsize=1024)
def _fastest(work: LookUps, updates: bool, n_tiles: int, width: int, bound_bytes: float) -> _Plan:
    """The fastest plan within the bound on temporary bytes; where none is, without the bound [poplar-docs].

    Of plans that are nearly as fast, the one of fewest bytes.
    """
    plans = _plans(work, _splits(work, updates, n_tiles), width, updates)
    cycles = plans.exchange_cycles + plans.compute_cycles
    peak = plans.n_bytes.peak
    rows = np.flatnonzero(peak <= bound_bytes)
    if not len(rows):
        rows = np.arange(len(peak))
    rows = rows[cycles[rows] <= _AS_FAST * cycles[rows].min()]
    order = np.lexsort((plans.n_bytes.exchanged[rows], cycles[rows], peak[rows]))
    return plans.row(int(rows[order[0]]))


def _splits(work: LookUps, updates: bool, n_tiles: int) -> _Split:
    """Groups first, then columns and indices; the tiles that are left divide the entries, or do not."""
    groups = min(work.groups, n_tiles)
    lookup_parts = (1,) if updates else _LOOKUP_PARTS
    columns, lookups = map(np.ravel, np.meshgrid(_COLUMN_PARTS, lookup_parts, indexing="ij"))
    left = n_tiles // (groups * columns * lookups)
    is_possible = ((columns == 1) | (work.row >= columns * _GRAIN)) & (left > 0) & (lookups <= work.lookups)
    # Every way twice: with the entries in one part, and divided over the tiles that are left.
    entries = np.repeat(np.minimum(left, work.entries)[is_possible], 2).astype(np.float64)
    entries[::2] = 1
    columns = np.repeat(columns[is_possible], 2).astype(np.float64)
    lookups = np.repeat(lookups[is_possible], 2).astype(np.float64)
    return _Split(np.full_like(entries, groups), entries, columns, lookups)


def _plans(work: LookUps, split: _Split, width: int, updates: bool) -> _Plans:
    """The cycles and temporary bytes of look-ups that are divided by `split`.

    For rows that are read, every tile finds those among its entries; where entries are divided, it then picks its own
    rows from the candidates of the tiles that looked for the same ones. For rows that are written, all six workers of a
    tile look at all indices, each for its own entries.
    """
    part = split.share(work)
    vectors = np.ceil(part.columns * width / 8)
    share = 1 / split.entries
    row_bytes = part.groups * part.columns * width
    index_bytes = part.groups * part.lookups * _INDEX_BYTES
    if updates:
        nothing = np.zeros_like(split.entries)
        n_bytes = _Bytes(index_bytes, part.lookups * row_bytes, nothing, nothing)
        vertex = kernels.gather(WORKERS * part.lookups, vectors, share / WORKERS)
    else:
        n_own = np.ceil(part.lookups / split.entries)
        n_bytes = _Bytes(
            indices=index_bytes,
            rows=part.lookups * row_bytes,
            table=np.where(split.lookups > 1, part.entries * row_bytes, 0),
            candidates=np.where(split.entries > 1, split.entries * n_own * row_bytes, 0),
        )
        vertex = kernels.gather(part.lookups, vectors, share)
    moved = ((n_bytes.indices, 1), (n_bytes.table, 1), (n_bytes.received, _SOURCES))
    exchange = sum(np.where(amount > 0, kernels.exchange(amount, n_sources), 0) for amount, n_sources in moved)
    picked = kernels.gather(np.ceil(part.lookups / split.entries), vectors, share)
    compute = part.groups * (vertex + np.where(n_bytes.candidates > 0, picked, 0))
    return _Plans(np.asarray(exchange), np.asarray(compute), n_bytes)


COST_RULES: dict[str, CostRule] = by_operator(
    {
        interpolate: "Resize Upsample GridSample",
        move: (
            "Concat Slice Split Pad Expand Tile Reshape Flatten Squeeze Unsqueeze ConstantOfShape Range "
            "AffineGrid CenterCropPad Col2Im OneHot Trilu EyeLike ReverseSequence MaxUnpool"
        ),
        shuffle: "Transpose DepthToSpace SpaceToDepth",
        look_up: "Gather GatherND GatherElements",
        update: "ScatterND ScatterElements Scatter TensorScatter",
    }
)
