"""Operators that move data: relayouts, look-ups, sorts and scans."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, log2

from autoauto.targets.ipu.kernels import codelets as kernels
from autoauto.targets.ipu.operator_cost import Family, Site, Work, size

_COLUMN_PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_MOVE_SOURCES = 8  # tiles that a tile receives from in a relayout: regular patterns read few neighbours
_COMPARE_CYCLES = 10  # compare and exchange two keyed elements: an assumption


def relayout(site: Site, n_bytes: int, per_element: bool) -> Work:
    """Move `n_bytes`, evenly spread, from one layout to another."""
    share = -(-n_bytes // site.n_tiles)
    inside = kernels.reorder(share / site.precision.n_bytes) if per_element else kernels.copy(share)
    exchange = round(float(kernels.exchange(share, _MOVE_SOURCES)))
    codelets = ("transpose", "copy") if per_element else ("copy",)
    return Work(Family.MOVE, exchange, round(float(inside)), codelets, site.n_tiles, _MOVE_SOURCES)


def move(site: Site) -> Work:
    """Concat, Slice, Split, Pad, Expand, Tile and the like: the outputs are written once."""
    return relayout(site, site.out_bytes, per_element=False)


def shuffle(site: Site) -> Work:
    """Transpose and space-depth shuffles: element by element unless the last axis stays last."""
    order = site.integers("perm", ())
    return relayout(site, site.out_bytes, per_element=not order or order[-1] != len(order) - 1)


def interpolate(site: Site) -> Work:
    """Resize, Upsample, GridSample: read up to four neighbours an output, weigh and add them."""
    moved = relayout(site, site.out_bytes, per_element=False)
    if site.text("mode") in ("", "nearest"):
        return moved
    share = -(-site.n_out // site.n_tiles)
    weighing = round(kernels.elementwise(share, ("add", "add") * 4, 2, site.precision))
    return replace(moved, compute_cycles=moved.compute_cycles + weighing)


def anything(site: Site) -> Work:
    """An operator that is not known: all it reads and writes moves once."""
    n_bytes = site.out_bytes + sum(site.n_bytes(index) for index in site.present)
    return relayout(site, n_bytes, per_element=False)


def look_up(site: Site) -> Work:
    """Gather and scatter: the table lies in blocks of rows and columns, each looks for every index (multiSlice)."""
    table, n_indices = size(site.shape(0)), max(_n_indices(site), 1)
    moved = size(site.shape(2)) if "Scatter" in site.layer.op else site.n_out
    row = max(1, -(-moved // n_indices))
    vector = 8 // site.precision.n_bytes
    ways = []
    for columns in (parts for parts in _COLUMN_PARTS if parts == 1 or row >= parts * vector):
        blocks = max(1, min(site.n_tiles // columns, table // row))
        ways.append(kernels.gather(n_indices, ceil(row / columns / vector), 1 / blocks))
    rows = float(kernels.exchange(site.out_bytes / site.n_tiles, _MOVE_SOURCES))
    asked = float(kernels.exchange(4 * n_indices))
    names = ("multiSlice", "copy")
    return Work(Family.GATHER, round(rows + asked), round(min(ways)), names, site.n_tiles, 4 * _MOVE_SOURCES)


def _n_indices(site: Site) -> int:
    """How many rows are asked for: every index, or every tuple of a GatherND or ScatterND."""
    if site.tensor(1) is None:
        return len(site.integers("indices", (0,)))
    indices = site.shape(1)
    return size(indices[:-1]) if site.layer.op.endswith("ND") else size(indices)


def sort(site: Site) -> Work:
    """TopK, Unique, NonMaxSuppression: a bitonic network over the longest axis of the first operand."""
    shape = site.shape(0) or (1,)
    phases = ceil(log2(max(shape) + 1)) * (ceil(log2(max(shape) + 1)) + 1) // 2
    share = -(-size(shape) // site.n_tiles)
    swapped = float(kernels.exchange(8 * share)) * phases
    compute = phases * (kernels.UNARY_LAUNCH_CYCLES + _COMPARE_CYCLES * share)
    return Work(Family.SORT, round(swapped), compute, ("sort", "copy"), site.n_tiles, phases, 8 * size(shape))


def scan(site: Site) -> Work:
    """CumSum and CumProd: one addition for every power of two along the longest axis."""
    shape = site.shape(0) or (1,)
    phases = ceil(log2(max(shape) + 1))
    share = -(-size(shape) // site.n_tiles)
    swapped = float(kernels.exchange(share * site.precision.n_bytes)) * phases
    compute = phases * kernels.elementwise(share, ("add",), 2, site.precision)
    return Work(Family.SORT, round(swapped), round(compute), ("add", "copy"), site.n_tiles, phases)
