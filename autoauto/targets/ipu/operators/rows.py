"""Operators that look along rows: normalisation, softmax and reduction; a row may be cut over several tiles."""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt

from autoauto.records.units import Precision
from autoauto.targets.ipu.kernels import codelets as kernels
from autoauto.targets.ipu.kernels.codelets import WORKERS
from autoauto.targets.ipu.operator_cost import Family, Site, Work, size

_CUTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_SHORTEST_CUT = 16  # elements of a row below which it is not cut further
_STAGE_PARTIALS = 125  # poplibs adds a stage from so many partial sums on

Kernel = Callable[[float, float, Precision], float]


def _spread(
    rows: int, width: int, n_tiles: int, whole: Callable[[int, int], float], cut: Callable[[int, int, int], float]
) -> tuple[float, float]:
    """(compute, exchange) cycles of the best way to deal rows, or pieces of rows, to the tiles.

    `whole(rows, width)` computes whole rows, `cut(rows, width, pieces)` pieces; the pieces meet in one exchange.
    """
    ways = []
    for pieces in _CUTS:
        if pieces > 1 and width < pieces * _SHORTEST_CUT:
            break
        share = -(-rows * pieces // n_tiles)
        compute = whole(share, width) if pieces == 1 else cut(share, -(-width // pieces), pieces)
        ways.append((compute, 0.0 if pieces == 1 else float(kernels.exchange(8 * share, pieces))))
    return min(ways, key=sum)


def _normalise(site: Site, rows: int, width: int) -> Work:
    """Mean and variance of every row, then subtract, scale and shift."""
    precision = site.precision

    def cut(share: int, piece: int, pieces: int) -> float:
        joined = float(kernels.reduce(share, pieces, Precision.FP32))
        return kernels.moments(share, piece, precision) + joined + kernels.whiten(share, piece, precision)

    compute, meet = _spread(rows, width, site.n_tiles, lambda n, w: kernels.layernorm(n, w, precision), cut)
    scale = float(kernels.exchange(2 * min(width, -(-rows * width // site.n_tiles)) * precision.n_bytes))
    names = ("reduceAdd", "reduceSquareAdd", "broadcastSubtract", "broadcastMultiply", "rsqrt", "cast", "copy")
    exchange, codelets = round(meet + scale), _typed(names, site)
    return Work(Family.NORM, exchange, round(compute), codelets, site.n_tiles, 24, follows=site.present[0])


def _typed(names: tuple[str, ...], site: Site) -> tuple[str, ...]:
    return tuple(name if name == "copy" else f"{name}_{site.precision.value}" for name in names)


def layer_norm(site: Site) -> Work:
    """LayerNormalization and RMSNormalization: rows end with the last axis."""
    shape = site.shape(0)
    axis = site.axis(-1, len(shape))
    return _normalise(site, size(shape[:axis]), size(shape[axis:]))


def group_norm(site: Site) -> Work:
    """GroupNormalization and InstanceNormalization: a row is a group of channels of one sample."""
    shape = site.shape(0)
    groups = site.integer("num_groups", shape[1] if len(shape) > 1 else 1)
    n_rows = max(shape[0] * groups, 1)
    return _normalise(site, n_rows, size(shape) // n_rows)


def field_norm(site: Site) -> Work:
    """LpNormalization and MeanVarianceNormalization: a row is the axis, or all that a channel holds."""
    shape = site.shape(0)
    width = shape[site.axis(-1, len(shape))] if site.layer.attribute("axis") is not None else size(shape) // shape[1]
    return _normalise(site, size(shape) // max(width, 1), width)


def softmax_rows(site: Site, rows: int, keys: int) -> Work:
    """Softmax of `rows` rows of `keys`."""

    def whole(share: int, width: int) -> float:
        return kernels.softmax(share, width, site.precision)

    def cut(share: int, width: int, pieces: int) -> float:
        return whole(share, width) + 2 * float(kernels.reduce(share, pieces, Precision.FP32))

    compute, meet = _spread(rows, keys, site.n_tiles, whole, cut)
    names = ("reduceMax", "reduceAdd", "broadcastSubtract", "broadcastMultiply", "exponent", "copy")
    codelets = _typed(names, site)
    return Work(Family.SOFTMAX, round(2 * meet), round(compute), codelets, site.n_tiles, 8, follows=site.present[0])


def softmax(site: Site) -> Work:
    """Softmax, LogSoftmax and Hardmax along one axis."""
    shape = site.shape(0)
    keys = shape[site.axis(-1, len(shape))] if shape else 1
    return softmax_rows(site, size(shape) // max(keys, 1), keys)


def reduction(site: Site) -> Work:
    """Every output from an equal number of inputs."""
    n_out = max(site.n_out // len(site.layer.outputs), 1)
    return reduce_to(site, size(site.shape(0)), n_out, "reduceMax" if "Max" in site.layer.op else "reduceAdd")


def reduce_to(site: Site, n_in: int, n_out: int, codelet: str = "reduceAdd") -> Work:
    """`n_out` elements from `n_in`: each on one tile, or on several and then together (ReduceMulti)."""
    n_each = -(-n_in // n_out)
    pieces = max(1, min(site.n_tiles // n_out, n_each // _SHORTEST_CUT))
    share = -(-n_out * pieces // site.n_tiles)
    compute, exchange = _reduce_here(share, -(-n_each // pieces), site.precision), 0.0
    for _ in range((pieces > 1) + (pieces >= _STAGE_PARTIALS)):
        partials = isqrt(pieces) + 1 if pieces >= _STAGE_PARTIALS else pieces
        exchange += float(kernels.exchange(share * partials * 4, partials))
        compute += float(kernels.reduce(share, partials, Precision.FP32))
    names = _typed((codelet, "copy"), site)
    n_sources = min(pieces, 32)
    return Work(Family.REDUCE, round(exchange), round(compute), names, site.n_tiles, n_sources, n_out * pieces * 4)


def _reduce_here(n_outputs: int, n_partials: int, precision: Precision) -> float:
    """Reduce on one tile: with few outputs every vector lane takes a part of the inputs first."""
    lanes = max(1, WORKERS * 8 // n_outputs)
    first = float(kernels.reduce(n_outputs * lanes, -(-n_partials // lanes), precision))
    return first if lanes == 1 else first + float(kernels.reduce(n_outputs, lanes, Precision.FP32)) - 282
