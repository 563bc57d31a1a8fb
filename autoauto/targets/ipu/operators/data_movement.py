"""Operators that move data: concatenations, shuffles, interpolation, and whatever has no rule of its own."""

from __future__ import annotations

from dataclasses import replace

from autoauto.targets.ipu.kernels import codelets as kernels
from autoauto.targets.ipu.operator_cost import CostRule, Family, OperatorContext, OperatorCost, by_operator

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
    return replace(moved, compute_cycles=moved.compute_cycles + weighing)


def move_everything(context: OperatorContext) -> OperatorCost:
    """All that an operator reads and writes moves once."""
    n_bytes = context.out_bytes + sum(context.n_bytes(index) for index in context.present)
    return move_bytes(context, n_bytes, per_element=False)


def move_bytes(context: OperatorContext, n_bytes: int, per_element: bool) -> OperatorCost:
    """Move `n_bytes`, evenly spread, from one layout to another."""
    share = -(-n_bytes // context.n_tiles)
    inside = kernels.reorder(share / context.precision.n_bytes) if per_element else kernels.copy(share)
    exchange = round(float(kernels.exchange(share, _MOVE_SOURCES)))
    codelets = ("transpose", "copy") if per_element else ("copy",)
    return OperatorCost(Family.MOVE, exchange, round(float(inside)), codelets, context.n_tiles, _MOVE_SOURCES)


COST_RULES: dict[str, CostRule] = {
    **by_operator(interpolate, "Resize Upsample GridSample"),
    **by_operator(move, "Concat Slice Split Pad Expand Tile Reshape Flatten Squeeze Unsqueeze ConstantOfShape Range"),
    **by_operator(move, "AffineGrid CenterCropPad Col2Im OneHot Trilu EyeLike Compress ReverseSequence MaxUnpool"),
    **by_operator(shuffle, "Transpose DepthToSpace SpaceToDepth"),
}
