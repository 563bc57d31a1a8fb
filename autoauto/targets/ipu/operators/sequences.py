"""Operators of steps that depend on each other.

Sorts (TopK) and scans (CumSum, CumProd) along an axis, recurrences (LinearAttention), elimination in matrices (Det).
"""

from __future__ import annotations

from math import ceil, log2, prod
from typing import NamedTuple

from autoauto.targets.ipu import kernels
from autoauto.targets.ipu.kernels import WORKERS
from autoauto.targets.ipu.operator_cost import (
    CostRule,
    Family,
    OperatorContext,
    OperatorCost,
    by_operator,
    together,
)
from autoauto.targets.ipu.operators import data_movement, products
from autoauto.targets.ipu.operators.elementwise import one_pass
from autoauto.targets.ipu.operators.rows import reduce_to
from autoauto.targets.ipu.tiling.split import Product

_COMPARE_CYCLES = 10  # compare and exchange two keyed elements: an assumption
_KEYED_BYTES, _SUM_BYTES = 8, 4
_SCAN_CYCLES = 3  # of an element, to load, add and store it: an assumption
_SHORTEST_PIECE = 16  # elements below which a row is not cut further
_LONGEST_PRODUCT = 2048  # a row as long makes a triangle of 8 MiB in halves


class _Network(NamedTuple):
    """The work of a tile in sorting: compared pairs, launches, and exchanges of `n_exchanged` keyed elements."""

    n_pairs: float
    n_launches: int
    n_exchanges: int
    n_exchanged: float

    @property
    def exchange_cycles(self) -> float:
        return self.n_exchanges * float(kernels.exchange(_KEYED_BYTES * self.n_exchanged))

    @property
    def compute_cycles(self) -> float:
        """Cycles of all launches and comparisons; rows of one element are copied in one launch."""
        return max(self.n_launches, 1) * kernels.UNARY_LAUNCH_CYCLES + _COMPARE_CYCLES * self.n_pairs

    @property
    def cycles(self) -> float:
        return self.exchange_cycles + self.compute_cycles


def sort(context: OperatorContext) -> OperatorCost:
    """TopK: the largest elements along an axis, by the cheaper of two bitonic networks [poplibs]."""
    shape = context.shape(0) or (1,)
    axis = context.axis(-1, len(shape))
    length = max(shape[axis], 1)
    n_largest = max((*context.out_shape, *shape)[axis], 1)
    n_rows = max(prod(shape) // length, 1)
    ways = (_sort_all(n_rows, length, context.n_tiles), _find_largest(n_rows, length, n_largest, context.n_tiles))
    return _sorted(context, min(ways, key=lambda way: way.cycles), prod(shape))


def _sorted(context: OperatorContext, network: _Network, n_elements: int, n_sources: int = 0) -> OperatorCost:
    """The cost of a sorting network; every exchange has one source tile unless `n_sources` says their total."""
    return OperatorCost(
        Family.SORT,
        round(network.exchange_cycles),
        round(network.compute_cycles),
        ("sort", "copy"),
        context.n_tiles,
        n_sources or network.n_exchanges,
        _KEYED_BYTES * n_elements,
    )


def unique(context: OperatorContext) -> OperatorCost:
    """Unique: entries along an axis, or all elements, are sorted; then neighbours are compared, and equal ones go."""
    shape = context.shape(0) or (1,)
    length = prod(shape) if context.layer.attribute("axis") is None else shape[context.axis(0, len(shape))]
    network = _sort_all(1, max(length, 1), context.n_tiles)
    compacted = _compacted(context, length, context.n_bytes(context.present[0]))
    return together(_sorted(context, network, prod(shape)), compacted)


def suppress(context: OperatorContext) -> OperatorCost:
    """NonMaxSuppression: scores of a class are sorted; then every box that stays is compared with all others.

    Boxes that stay are looked at one after the other; in what they overlap there are no vectors of more than one box.
    """
    samples, classes, n_boxes = (*context.shape(1), 1, 1, 1)[:3]
    n_rows = max(samples * classes, 1)
    n_rounds = min(max(-(-context.out_shape[0] // n_rows), 1), max(n_boxes, 1))
    overlap = one_pass(context, n_rows * max(n_boxes, 1), ("maximum", "maximum", "add", "add", "divide", "compare"))
    chosen = overlap._replace(
        exchange_cycles=n_rounds * round(float(kernels.exchange(4 * _KEYED_BYTES))),
        compute_cycles=n_rounds * overlap.compute_cycles,
        n_sources=1,
    )
    network = _sort_all(n_rows, max(n_boxes, 1), context.n_tiles)
    return together(_sorted(context, network, n_rows * n_boxes, _levels(context.n_tiles)), chosen)


def compact(context: OperatorContext) -> OperatorCost:
    """NonZero and Compress: positions of what stays are counted, then it moves together."""
    n_elements = max(context.n_elements(context.layer.operands[-1]), 1)
    return _compacted(context, n_elements, context.out_bytes)


def _compacted(context: OperatorContext, n_elements: int, n_bytes: int) -> OperatorCost:
    moved = data_movement.move_bytes(context, n_bytes, per_element=False)
    return together(_scan_pieces(context, 1, max(n_elements, 1)), moved)


def _sort_all(n_rows: int, length: int, n_tiles: int) -> _Network:
    """Sort whole rows: level n of the network has n steps; those over longer distances than a piece are exchanged."""
    pieces = max(1, min(n_tiles // n_rows, length // _SHORTEST_PIECE))
    share = -(-n_rows * pieces // n_tiles) * -(-length // pieces)
    n_steps = _steps_of(_levels(length))
    return _Network(share / 2 * n_steps, n_steps, _steps_of(_levels(pieces)), share)


def _find_largest(n_rows: int, length: int, n_largest: int, n_tiles: int) -> _Network:
    """Sort blocks of `n_largest`, then merge two blocks into one and drop the other, first on tiles, then between them.

    A merge compares the two blocks and sorts the one that stays, so that half as many pairs follow each time.
    """
    pieces = max(1, min(n_tiles // n_rows, length // max(2 * n_largest, _SHORTEST_PIECE)))
    here = -(-n_rows * pieces // n_tiles)  # pieces of rows on the fullest tile
    piece = -(-length // pieces)
    levels = _levels(n_largest)
    n_merges = _levels(-(-piece // n_largest))
    n_meetings = _levels(pieces)
    n_steps = _steps_of(levels)
    of_blocks = piece / 2 * n_steps
    of_merges = piece * (1 + levels / 2) if n_merges else 0.0
    of_meetings = n_meetings * n_largest * (1 + levels / 2)
    n_launches = n_steps + (n_merges + n_meetings) * (1 + levels)
    return _Network(here * (of_blocks + of_merges + of_meetings), n_launches, n_meetings, here * n_largest)


def _levels(length: int) -> int:
    return ceil(log2(max(length, 1)))


def _steps_of(levels: int) -> int:
    """Steps of a bitonic network, of which level n has n."""
    return levels * (levels + 1) // 2


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
    return max(prod(shape) // length, 1), length


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


def linear_attention(context: OperatorContext) -> OperatorCost:
    """LinearAttention: every token changes the state of its head, a matrix, and multiplies it.

    Tokens follow each other: a pass that decays the state and adds a product of key and value, and one that multiplies
    and sums it. That no better program is found is an assumption.
    """
    queries, values = context.shape(0), context.shape(2)
    heads = context.integer("q_num_heads", queries[1] if len(queries) == 4 else 1)
    n_tokens = queries[-2]
    width, value = queries[-1], values[-1]
    if len(queries) != 4:  # (samples, tokens, channels of all heads)
        width //= max(heads, 1)
    if len(values) != 4:
        value //= max(heads, 1)
    n_state = queries[0] * heads * width * max(value, 1)
    changed = one_pass(context, n_state, ("add", "add", "add"))
    read = reduce_to(context, n_state, max(n_state // max(width, 1), 1))
    step = together(changed, read)
    return step._replace(
        family=Family.PRODUCT,
        exchange_cycles=n_tokens * step.exchange_cycles,
        compute_cycles=n_tokens * step.compute_cycles,
    )


def eliminate(context: OperatorContext) -> OperatorCost:
    """Det and Inverse: row by row, a pass over what is left of every matrix; an inverse has its rows beside them."""
    shape = context.shape(0)
    length = max(shape[-1], 1)
    n_elements = prod(shape)
    if context.layer.op == "Inverse":
        n_elements *= 2
    step = one_pass(context, max(n_elements // 2, 1), ("add", "add"))
    row = float(kernels.exchange(-(-prod(shape) // length // context.n_tiles) * context.precision.n_bytes))
    return step._replace(
        family=Family.SORT,
        exchange_cycles=length * round(row),
        compute_cycles=length * step.compute_cycles,
        n_sources=1,
    )


COST_RULES: dict[str, CostRule] = by_operator(
    {
        eliminate: "Det Inverse",
        linear_attention: "LinearAttention",
        scan: "CumSum CumProd",
        compact: "Compress NonZero",
        sort: "TopK",
        suppress: "NonMaxSuppression",
        unique: "Unique",
    }
)
