"""Normalisation, softmax and reduction: operators that read whole rows; a row may be cut over several tiles."""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt, prod

from autoauto.records.units import Precision
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
from autoauto.targets.ipu.operators.elementwise import elementwise, grain_share

_CUTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 92, 184, 368, 736, 1472)
_LONG_ROW = 64  # pieces above which rows are so long that passes of all workers beat the measured kernels
_SHORTEST_CUT = 16  # elements of a row below which it is not cut further
_LABEL_BYTES = 4
_PICK_CYCLES = 19  # of a worker, to load an index and one element, as in a look-up of rows [poplibs]
_STAGE_PARTIALS = 125  # from so many partial sums on there is one stage more [poplibs]


def layer_norm(context: OperatorContext) -> OperatorCost:
    """LayerNormalization and RMSNormalization: rows end with the last axis."""
    shape = context.shape(0)
    axis = context.axis(-1, len(shape))
    return normalise(context, prod(shape[:axis]), prod(shape[axis:]))


def group_norm(context: OperatorContext) -> OperatorCost:
    """GroupNormalization and InstanceNormalization: a row is a group of channels of one sample."""
    shape = context.shape(0)
    groups = context.integer("num_groups", shape[1] if len(shape) > 1 else 1)
    n_rows = max(shape[0] * groups, 1)
    return normalise(context, n_rows, prod(shape) // n_rows)


def batch_norm(context: OperatorContext) -> OperatorCost:
    """BatchNormalization: in training a row is what a channel holds in all samples of the micro-batch.

    In inference its statistics are constants, so that it is one pass.
    """
    if not context.options.training:
        return elementwise(context)
    shape = context.shape(0)
    n_channels = max(shape[1] if len(shape) > 1 else 1, 1)
    return normalise(context, n_channels, prod(shape) // n_channels)


def field_norm(context: OperatorContext) -> OperatorCost:
    """LpNormalization and MeanVarianceNormalization: a row is the axis, or all that a channel holds."""
    shape = context.shape(0)
    if context.layer.attribute("axis") is not None:
        width = shape[context.axis(-1, len(shape))]
    else:
        width = prod(shape) // shape[1]
    return normalise(context, prod(shape) // max(width, 1), width)


def local_response_norm(context: OperatorContext) -> OperatorCost:
    """LRN: square, add over a window of channels, raise, multiply."""
    share = grain_share(context, context.n_out)
    loops = ("square", *("add",) * context.integer("size", 5), "logarithm", "add", "exponent", "add")
    compute = kernels.elementwise(share, loops, 2, context.precision)
    exchange = kernels.exchange(share * context.precision.n_bytes)
    return OperatorCost(Family.NORM, round(float(exchange)), round(compute), ("lrn",), context.n_tiles, n_sources=2)


def normalise(context: OperatorContext, rows: int, width: int) -> OperatorCost:
    """Rows of any operator: mean and variance of every row, then subtract, scale and shift."""
    precision = context.precision

    def whole(share: int, width: int) -> float:
        passes = 2 * float(kernels.reduce(share, width, precision)) + apply(share, width, ("add",) * 4)
        passes += apply(share, 1, ("square", "add", "rsqrt"))
        return min(kernels.layernorm(share, width, precision), passes)

    def cut(share: int, piece: int, pieces: int) -> float:
        if pieces > _LONG_ROW:
            return 2 * _reduce_here(share, piece, precision) + apply(share, piece, ("add",) * 4)
        return kernels.moments(share, piece, precision) + kernels.whiten(share, piece, precision)

    def apply(share: int, width: int, loops: tuple[str, ...]) -> float:
        return kernels.elementwise(share * width, loops, 2, precision)

    compute, meet = _spread(rows, width, context.n_tiles, whole, cut, n_joins=1)
    # A tile receives the two factors of those columns that it has.
    scale = float(kernels.exchange(2 * min(width, -(-rows * width // context.n_tiles)) * precision.n_bytes))
    names = ("reduceAdd", "reduceSquareAdd", "broadcastSubtract", "broadcastMultiply", "rsqrt", "cast", "copy")
    return OperatorCost(
        family=Family.NORM,
        exchange_cycles=round(meet + scale),
        compute_cycles=round(compute),
        codelets=_typed(names, context),
        n_tiles=context.n_tiles,
        n_sources=24,
        follows=context.present[0],
    )


def softmax(context: OperatorContext) -> OperatorCost:
    """Softmax, LogSoftmax and Hardmax along one axis."""
    shape = context.shape(0)
    keys = shape[context.axis(-1, len(shape))] if shape else 1
    return softmax_rows(context, prod(shape) // max(keys, 1), keys)


def softmax_rows(context: OperatorContext, rows: int, keys: int) -> OperatorCost:
    """Softmax of `rows` rows of `keys`."""
    precision = context.precision

    def passes(share: int, width: int) -> float:
        exponents = kernels.elementwise(share * width, ("add", "exponent"), 2, precision)
        return exponents + kernels.elementwise(share * width, ("add",), 2, precision)

    def whole(share: int, width: int) -> float:
        reductions = 2 * float(kernels.reduce(share, width, precision))
        return min(kernels.softmax(share, width, precision), reductions + passes(share, width))

    def cut(share: int, width: int, pieces: int) -> float:
        if pieces > _LONG_ROW:
            return 2 * _reduce_here(share, width, precision) + passes(share, width)
        return kernels.softmax(share, width, precision)

    compute, meet = _spread(rows, keys, context.n_tiles, whole, cut, n_joins=2)
    names = ("reduceMax", "reduceAdd", "broadcastSubtract", "broadcastMultiply", "exponent", "copy")
    return OperatorCost(
        family=Family.SOFTMAX,
        exchange_cycles=round(meet),
        compute_cycles=round(compute),
        codelets=_typed(names, context),
        n_tiles=context.n_tiles,
        n_sources=8,
        follows=context.present[0],
    )


def negative_log_likelihood(context: OperatorContext) -> OperatorCost:
    """NegativeLogLikelihoodLoss: workers pick the elements of their classes from rows where they lie; then the mean."""
    n_rows = max(prod(context.shape(1)), 1)
    share = -(-n_rows // context.n_tiles)
    exchange = round(float(kernels.exchange(_LABEL_BYTES * share)))
    compute = kernels.UNARY_LAUNCH_CYCLES + WORKERS * -(-share // WORKERS) * _PICK_CYCLES
    picked = OperatorCost(Family.GATHER, exchange, compute, ("multiSlice", "copy"), context.n_tiles, n_sources=1)
    n_out = max(prod(context.out_shape), 1)
    if n_out >= n_rows:
        return picked
    return together(picked, reduce_to(context, n_rows, n_out, n_samples=context.options.batch_size))


def cross_entropy(context: OperatorContext) -> OperatorCost:
    """SoftmaxCrossEntropyLoss: the logarithm of a softmax of every row, then `negative_log_likelihood`."""
    shape = context.shape(0)
    n_classes = max(shape[1] if len(shape) > 1 else 1, 1)
    return together(softmax_rows(context, prod(shape) // n_classes, n_classes), negative_log_likelihood(context))


def reduction(context: OperatorContext) -> OperatorCost:
    """Every output from an equal number of inputs."""
    n_out = max(context.n_out // len(context.layer.outputs), 1)
    codelet = "reduceMax" if "Max" in context.layer.op else "reduceAdd"
    return reduce_to(context, prod(context.shape(0)), n_out, codelet, n_samples=context.options.batch_size)


def reduce_to(
    context: OperatorContext, n_in: int, n_out: int, codelet: str = "reduceAdd", *, n_samples: int = 1
) -> OperatorCost:
    """`n_out` elements from `n_in`: each on one tile, or on several and then together (ReduceMulti).

    The outputs of more samples are cut into fewer pieces each, but what is compiled for them also serves fewer: as for
    products, the code is that of one of the `n_samples`, and partial sums lie on as many tiles as it would cut them to.
    """
    n_each = -(-n_in // n_out)
    pieces = _pieces(n_out, n_each, context.n_tiles)
    pieces_of_one = _pieces(-(-n_out // n_samples), n_each, context.n_tiles)
    share = -(-n_out * pieces // context.n_tiles)
    compute = _reduce_here(share, -(-n_each // pieces), context.precision)
    exchange = 0.0
    if pieces > 1:
        n_stages, partials = _stages(pieces)
        exchange = n_stages * float(kernels.exchange(share * partials * 4, partials))
        compute += n_stages * float(kernels.reduce(share, partials, Precision.FP32))
    return OperatorCost(
        family=Family.REDUCE,
        exchange_cycles=round(exchange),
        compute_cycles=round(compute),
        codelets=_typed((codelet, "copy"), context),
        n_tiles=context.n_tiles,
        n_sources=min(pieces_of_one, 32),
        working_bytes=4 * min(n_out * pieces_of_one, max(n_out, context.n_tiles)),
    )


def _pieces(n_out: int, n_each: int, n_tiles: int) -> int:
    """Tiles that share the inputs of one output, of which there are `n_each`."""
    return max(1, min(n_tiles // n_out, n_each // _SHORTEST_CUT))


def _reduce_here(n_outputs: int, n_partials: int, precision: Precision) -> float:
    """Reduce on one tile: with few outputs every vector lane adds a part of the inputs first, in the same launch."""
    lanes = max(1, WORKERS * 8 // n_outputs)
    first = float(kernels.reduce(n_outputs * lanes, -(-n_partials // lanes), precision))
    if lanes == 1:
        return first
    return first + float(kernels.reduce(n_outputs, lanes, Precision.FP32)) - kernels.REDUCE_LAUNCH_CYCLES


def _spread(
    rows: int,
    width: int,
    n_tiles: int,
    whole: Callable[[int, int], float],
    cut: Callable[[int, int, int], float],
    n_joins: int,
) -> tuple[float, float]:
    """(compute, exchange) cycles of the fastest way to deal rows, or pieces of rows, to the tiles.

    `whole(rows, width)` are the cycles of whole rows, `cut(rows, width, pieces)` those of pieces; the results of the
    pieces of a row are joined `n_joins` times.
    """
    ways = [(whole(-(-rows // n_tiles), width), 0.0)]  # (compute, exchange) for every number of pieces
    for pieces in _CUTS:
        if width < pieces * _SHORTEST_CUT:
            break
        share = -(-rows * pieces // n_tiles)
        n_stages, partials = _stages(pieces)
        joined = n_stages * float(kernels.reduce(share, partials, Precision.FP32))
        met = n_stages * float(kernels.exchange(8 * share, partials))
        ways.append((cut(share, -(-width // pieces), pieces) + n_joins * joined, n_joins * met))
    return min(ways, key=sum)


def _stages(pieces: int) -> tuple[int, int]:
    """The stages in which the results of `pieces` tiles are added up, and how many results each stage joins to one."""
    if pieces >= _STAGE_PARTIALS:
        return 2, isqrt(pieces) + 1
    return 1, pieces


def _typed(names: tuple[str, ...], context: OperatorContext) -> tuple[str, ...]:
    return tuple(name if name == "copy" else f"{name}_{context.precision.value}" for name in names)


COST_RULES: dict[str, CostRule] = by_operator(
    {
        batch_norm: "BatchNormalization",
        field_norm: "LpNormalization MeanVarianceNormalization",
        group_norm: "GroupNormalization InstanceNormalization",
        layer_norm: "LayerNormalization RMSNormalization",
        local_response_norm: "LRN",
        reduction: (
            "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp "
            "ReduceSumSquare ArgMax ArgMin GlobalAveragePool GlobalMaxPool GlobalLpPool"
        ),
        cross_entropy: "SoftmaxCrossEntropyLoss",
        negative_log_likelihood: "NegativeLogLikelihoodLoss",
        softmax: "Softmax LogSoftmax Hardmax",
    }
)
