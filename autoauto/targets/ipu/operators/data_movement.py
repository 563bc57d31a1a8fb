"""Operators that move data: concatenations and shuffles, look-ups, sorts and scans."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, log2

from autoauto.targets.ipu.kernels import codelets as kernels
from autoauto.targets.ipu.operator_cost import CostRule, Family, OperatorContext, OperatorCost, by_operator, size

_COLUMN_PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_MOVE_SOURCES = 8  # tiles that a tile receives from in a relayout: regular patterns read few neighbours
_COMPARE_CYCLES = 10  # compare and exchange two keyed elements: an assumption


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
    return replace(moved, compute_cycles=moved.compute_cycles + weighing)


def move_everything(context: OperatorContext) -> OperatorCost:
    """An operator that is not known: all it reads and writes moves once."""
    n_bytes = context.out_bytes + sum(context.n_bytes(index) for index in context.present)
    return move_bytes(context, n_bytes, per_element=False)


def move_bytes(context: OperatorContext, n_bytes: int, per_element: bool) -> OperatorCost:
    """Move `n_bytes`, evenly spread, from one layout to another."""
    share = -(-n_bytes // context.n_tiles)
    inside = kernels.reorder(share / context.precision.n_bytes) if per_element else kernels.copy(share)
    exchange = round(float(kernels.exchange(share, _MOVE_SOURCES)))
    codelets = ("transpose", "copy") if per_element else ("copy",)
    return OperatorCost(Family.MOVE, exchange, round(float(inside)), codelets, context.n_tiles, _MOVE_SOURCES)


def look_up(context: OperatorContext) -> OperatorCost:
    """Gather and scatter: the table lies in blocks of rows and columns, each compared with every index.

    That is poplibs' multiSlice [poplibs]; the number of column blocks is the one that is fastest.
    """
    table, n_indices = size(context.shape(0)), max(_n_indices(context), 1)
    moved = size(context.shape(2)) if "Scatter" in context.layer.op else context.n_out
    row = max(1, -(-moved // n_indices))
    vector = 8 // context.precision.n_bytes
    block_cycles = []
    for columns in (parts for parts in _COLUMN_PARTS if parts == 1 or row >= parts * vector):
        blocks = max(1, min(context.n_tiles // columns, table // row))
        block_cycles.append(kernels.gather(n_indices, ceil(row / columns / vector), 1 / blocks))
    rows = float(kernels.exchange(context.out_bytes / context.n_tiles, _MOVE_SOURCES))
    indices = float(kernels.exchange(4 * n_indices))
    names = ("multiSlice", "copy")
    return OperatorCost(
        Family.GATHER, round(rows + indices), round(min(block_cycles)), names, context.n_tiles, 4 * _MOVE_SOURCES
    )


def _n_indices(context: OperatorContext) -> int:
    """How many rows are asked for: every index, or every tuple of a GatherND or ScatterND."""
    if context.tensor(1) is None:
        return len(context.integers("indices", (0,)))
    indices = context.shape(1)
    return size(indices[:-1]) if context.layer.op.endswith("ND") else size(indices)


def sort(context: OperatorContext) -> OperatorCost:
    """TopK, Unique, NonMaxSuppression: a bitonic network over the longest axis of the first operand."""
    shape = context.shape(0) or (1,)
    phases = ceil(log2(max(shape) + 1)) * (ceil(log2(max(shape) + 1)) + 1) // 2
    share = -(-size(shape) // context.n_tiles)
    swapped = float(kernels.exchange(8 * share)) * phases
    compute = phases * (kernels.UNARY_LAUNCH_CYCLES + _COMPARE_CYCLES * share)
    return OperatorCost(
        Family.SORT, round(swapped), compute, ("sort", "copy"), context.n_tiles, phases, 8 * size(shape)
    )


def scan(context: OperatorContext) -> OperatorCost:
    """CumSum and CumProd: one addition for every power of two along the longest axis."""
    shape = context.shape(0) or (1,)
    phases = ceil(log2(max(shape) + 1))
    share = -(-size(shape) // context.n_tiles)
    swapped = float(kernels.exchange(share * context.precision.n_bytes)) * phases
    compute = phases * kernels.elementwise(share, ("add",), 2, context.precision)
    return OperatorCost(Family.SORT, round(swapped), round(compute), ("add", "copy"), context.n_tiles, phases)


COST_RULES: dict[str, CostRule] = {
    **by_operator(interpolate, "Resize Upsample GridSample"),
    **by_operator(look_up, "Gather GatherND GatherElements ScatterND ScatterElements Scatter Embedding"),
    **by_operator(move, "Concat Slice Split Pad Expand Tile Reshape Flatten Squeeze Unsqueeze ConstantOfShape Range"),
    **by_operator(move, "OneHot Trilu EyeLike Compress ReverseSequence MaxUnpool"),
    **by_operator(scan, "CumSum CumProd"),
    **by_operator(shuffle, "Transpose DepthToSpace SpaceToDepth"),
    **by_operator(sort, "TopK Unique NonMaxSuppression"),
}
