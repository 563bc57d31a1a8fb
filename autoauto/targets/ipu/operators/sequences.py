"""Operators along one axis whose elements depend on each other: sorts (TopK) and scans (CumSum, CumProd)."""

from __future__ import annotations

from math import ceil, log2
from typing import NamedTuple

from autoauto.targets.ipu import kernels
from autoauto.targets.ipu.kernels import WORKERS
from autoauto.targets.ipu.operator_cost import CostRule, Family, OperatorContext, OperatorCost, by_operator, size
from autoauto.targets.ipu.operators import products
from autoauto.targets.ipu.tiling.split import Product

_COMPARE_CYCLES = 10  # compare and exchange two keyed elements: an assumption
_KEYED_BYTES, _SUM_BYTES = 8, 4
_SCAN_CYCLES = 3  # of an element, to load, add and store it: an assumption
_SHORTEST_PIECE = 16  # elements below which a row is not cut further
_LONGEST_PRODUCT = 2048  # a row as long makes a triangle of 8 MiB in halves


class _Network(NamedTuple):
    """What sorting takes: pairs that a tile compares, its launches, and its exchanges of so many keyed elements."""

    n_pairs: float
    n_launches: int
    n_exchanges: int
    n_exchanged: float

    @property
    def exchange_cycles(self) -> float:
        return self.n_exchanges * float(kernels.exchange(_KEYED_BYTES * self.n_exchanged))

    @property
    def compute_cycles(self) -> float:
        return self.n_launches * kernels.UNARY_LAUNCH_CYCLES + _COMPARE_CYCLES * self.n_pairs

    @property
    def cycles(self) -> float:
        return self.exchange_cycles + self.compute_cycles


def sort(context: OperatorContext) -> OperatorCost:
    """TopK: the largest elements along an axis, by the cheaper of two bitonic networks [poplibs]."""
    shape = context.shape(0) or (1,)
    axis = context.axis(-1, len(shape))
    length, n_largest = max(shape[axis], 1), max(context.out_shape[axis] if context.out_shape else 1, 1)
    n_rows = max(size(shape) // length, 1)
    ways = (_sort_all(n_rows, length, context.n_tiles), _find_largest(n_rows, length, n_largest, context.n_tiles))
    network = min(ways, key=lambda way: way.cycles)
    return OperatorCost(
        Family.SORT,
        round(network.exchange_cycles),
        round(network.compute_cycles),
        ("sort", "copy"),
        context.n_tiles,
        network.n_exchanges,
        _KEYED_BYTES * size(shape),
    )


def _sort_all(n_rows: int, length: int, n_tiles: int) -> _Network:
    """Sort whole rows: level n of the network has n steps; those over longer distances than a piece are exchanged."""
    pieces = max(1, min(n_tiles // n_rows, length // _SHORTEST_PIECE))
    share = -(-n_rows * pieces // n_tiles) * -(-length // pieces)
    n_steps, n_between_tiles = (levels * (levels + 1) // 2 for levels in (_levels(length), _levels(pieces)))
    return _Network(share / 2 * n_steps, n_steps, n_between_tiles, share)


def _find_largest(n_rows: int, length: int, n_largest: int, n_tiles: int) -> _Network:
    """Sort blocks of `n_largest`, then merge two blocks into one and drop the other, first on tiles, then between them.

    A merge compares the two blocks and sorts the one that stays, so that half as many pairs follow each time.
    """
    pieces = max(1, min(n_tiles // n_rows, length // max(2 * n_largest, _SHORTEST_PIECE)))
    here, piece = -(-n_rows * pieces // n_tiles), -(-length // pieces)
    levels, n_merges, n_meetings = _levels(n_largest), _levels(-(-piece // n_largest)), _levels(pieces)
    n_steps = levels * (levels + 1) // 2
    of_blocks = piece / 2 * n_steps
    of_merges = piece * (1 + levels / 2) if n_merges else 0.0
    of_meetings = n_meetings * n_largest * (1 + levels / 2)
    n_launches = n_steps + (n_merges + n_meetings) * (1 + levels)
    return _Network(here * (of_blocks + of_merges + of_meetings), n_launches, n_meetings, here * n_largest)


def _levels(length: int) -> int:
    return ceil(log2(max(length, 1)))


def scan(context: OperatorContext) -> OperatorCost:
    """CumSum and CumProd. PopART multiplies short rows by a triangle of ones [popart]; for others nothing is public."""
    n_rows, length = _rows_and_length(context)
    if context.layer.op == "CumProd" or length > _LONGEST_PRODUCT:
        return _scan_pieces(context, n_rows, length)
    return products.multiply(context, triangle_product)


def triangle_product(context: OperatorContext) -> Product:
    """The rows of a CumSum by a triangle of ones."""
    n_rows, length = _rows_and_length(context)
    return products.matrix_product(context, 1, n_rows, length, length)


def _rows_and_length(context: OperatorContext) -> tuple[int, int]:
    shape = context.shape(0) or (1,)
    (axis, *_) = context.integers("axis", (len(shape) - 1,))
    length = max(shape[axis % len(shape)], 1)
    return max(size(shape) // length, 1), length


def _scan_pieces(context: OperatorContext, n_rows: int, length: int) -> OperatorCost:
    """Every tile scans its pieces of rows, workers parts of them; sums of earlier pieces are exchanged and added."""
    most = max(1, min(context.n_tiles // n_rows, length // _SHORTEST_PIECE))
    ways = (_scan_in(context, n_rows, length, pieces) for pieces in {1, -(-most // 16), -(-most // 4), most})
    return min(ways, key=lambda cost: cost.cycles)


def _scan_in(context: OperatorContext, n_rows: int, length: int, pieces: int) -> OperatorCost:
    share = -(-n_rows * pieces // context.n_tiles) * -(-length // pieces)
    compute = kernels.UNARY_LAUNCH_CYCLES + float(_SCAN_CYCLES * max(share, WORKERS))
    exchange = 0.0
    if pieces > 1:  # then a tile has one piece
        exchange = float(kernels.exchange(_SUM_BYTES * pieces, pieces))
        compute += kernels.UNARY_LAUNCH_CYCLES + _SCAN_CYCLES * pieces
        compute += kernels.elementwise(share, ("add",), 2, context.precision)
    return OperatorCost(
        Family.SORT, round(exchange), round(compute), ("scan", "add", "copy"), context.n_tiles, min(pieces, 32)
    )


COST_RULES: dict[str, CostRule] = {
    **by_operator(scan, "CumSum CumProd"),
    **by_operator(sort, "TopK Unique NonMaxSuppression"),
}
