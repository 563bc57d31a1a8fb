"""What no device can do faster than, operator by operator: `bound_of`; and what its class may take: `CLASSES`.

The bound of an operator is the larger of two: its bytes, read and written once at the rate of a tile's memory, and its
arithmetic at the rate of the units that do it. A class of operators may take `CLASSES[...].ratio` times the bound, and
as many steps more (a sync, the shortest exchange, a launch) as its operators have one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log2, prod
from typing import NamedTuple

from autoauto.records.units import Precision
from autoauto.targets.ipu import kernels
from autoauto.targets.ipu.kernels import loop
from autoauto.targets.ipu.operator_cost import Family, OperatorContext, OperatorCost
from autoauto.targets.ipu.operators import convolutions, data_movement, elementwise, products, sequences
from autoauto.targets.ipu.operators.registry import COST_RULES
from autoauto.targets.ipu.tiling.split import Product, ProductCodelet
from studies import contrib_bounds

MEMORY_BYTES_PER_CYCLE = 24  # of a tile: two loads and a store of 8 bytes
VECTOR_BYTES_PER_CYCLE = 16  # 8 operations on halves, 4 on floats
MATRIX_OPERATIONS_PER_CYCLE = {Precision.FP8: 256, Precision.FP16: 128, Precision.FP32: 32}
WINDOW_OPERATIONS_PER_CYCLE = {ProductCodelet.SLIDING_WINDOW: 64, ProductCodelet.VECTOR: 8}
TAPS_A_STEP = 4  # of a narrow group, whose taps follow each other on a tile
PANEL = 16  # channels that the matrix units take at once
_RECURRENT = ("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM")
STEP_CYCLES = kernels.SYNC_CYCLES + kernels.SHORTEST_EXCHANGE_CYCLES + kernels.BINARY_LAUNCH_CYCLES
FEWEST_ELEMENTS = 12  # of a tile: two a worker, because eight stay together
FUNCTIONS = frozenset({"erf", "power", "sine"})  # inner loops of one element at a time


class OperatorClass(NamedTuple):
    """What operators of a kind may cost.

    Attributes:
        ratio: how many times the bound.
        n_steps: steps, whatever the size.
        reason: why a ratio above 30, with a source.
    """

    ratio: float
    n_steps: int
    reason: str = ""


CLASSES: dict[str, OperatorClass] = {
    "product": OperatorClass(
        30, 20, "steps of LSTM, GRU and RNN follow each other, so do taps of narrow groups on a tile [poplibs]"
    ),
    "elementwise": OperatorClass(
        60, 2, "a vector of halves takes 21 cycles to divide, 9 to compare, 19 for a root [poplibs]"
    ),
    "function": OperatorClass(
        10,
        2,
        "erf, sine and power go one by one: 13, 25 and 325 cycles in halves, 2300 a sine in fp32 [poplibs]",
    ),
    "norm": OperatorClass(45, 6, "three passes, and a launch of 1,200 cycles a row where rows are few [ipu21-kernels]"),
    "softmax": OperatorClass(30, 10),
    "reduce": OperatorClass(30, 6),
    "pool": OperatorClass(45, 4, "a load and an operation a tap, without vectors of taps; halos are exchanged"),
    "gather": OperatorClass(40, 6, "every tile that holds a part of a table looks at every index into it [poplibs]"),
    "move": OperatorClass(45, 3, "exchange takes 4 bytes a cycle [poplar-docs], to transpose three cycles an element"),
    "sort": OperatorClass(30, 24),
    "no rule": OperatorClass(45, 4, "priced as elementwise: all that is read and written is exchanged"),
}


class Bound(NamedTuple):
    """Cycles that bytes and that arithmetic take at least."""

    bytes_cycles: float
    arithmetic_cycles: float

    @property
    def cycles(self) -> float:
        """The larger; at least one."""
        return max(self.bytes_cycles, self.arithmetic_cycles, 1.0)


def class_of(context: OperatorContext, cost: OperatorCost) -> str:
    """The name of the class in `CLASSES`: the family of the cost, elementwise operators by their slowest loop."""
    if context.layer.op not in COST_RULES:
        return "no rule"
    if cost.family is not Family.ELEMENTWISE:
        return cost.family.value
    return "function" if FUNCTIONS.intersection(elementwise.loops_of(context)) else "elementwise"


def step_cycles(context: OperatorContext, limit: OperatorClass) -> int:
    """Cycles of the steps of a layer of a class, whatever it computes."""
    return _n_steps(context, limit) * STEP_CYCLES


def _n_steps(context: OperatorContext, limit: OperatorClass) -> int:
    """Those of the class, for each position of a sequence, and for each round of a sort."""
    op = context.layer.op
    if op in _RECURRENT:
        return limit.n_steps * (1 + context.shape(0)[0])
    if op.endswith("LinearAttention"):
        return limit.n_steps * context.shape(0)[1]
    return limit.n_steps + _MORE_STEPS.get(op, _no_steps)(context)


def _no_steps(context: OperatorContext) -> int:
    return 0


def _rounds_of_a_sort(context: OperatorContext) -> int:
    return _levels(context.out_shape[context.axis(-1, len(context.out_shape))]) ** 2


def _taps_of_narrow_groups(context: OperatorContext) -> int:
    return prod(context.shape(1)[2:]) // TAPS_A_STEP if context.integer("group", 1) > 1 else 0


_MORE_STEPS: dict[str, Callable[[OperatorContext], int]] = {
    "Conv": _taps_of_narrow_groups,
    "Det": lambda context: 2 * context.shape(0)[-1],
    "Inverse": lambda context: 2 * context.shape(0)[-1],
    "NonMaxSuppression": lambda context: 2 * context.out_shape[0] + _levels(context.shape(1)[-1]) ** 2,
    "TopK": _rounds_of_a_sort,
    "Unique": lambda context: _levels(prod(context.shape(0))) ** 2,
}


def _levels(length: int) -> int:
    return ceil(log2(max(length, 1)))


def bound_of(context: OperatorContext, cost: OperatorCost) -> Bound:
    """The bound of a layer on all tiles of the device."""
    table = context.layer.operands[0] if context.layer.operands else -1
    picks = cost.family is Family.GATHER and (
        not context.is_activation(table) or context.layer.op == "NegativeLogLikelihoodLoss"
    )
    looked_up = table if picks else -1
    read_bytes = sum(context.n_bytes(index) for index in context.present if index != looked_up)
    if cost.family is Family.MOVE and context.layer.op in COST_RULES:  # what a slice leaves out is not read
        read_bytes = min(read_bytes, context.out_bytes)
    n_bytes = context.out_bytes + read_bytes
    arithmetic = (contrib_bounds.OPERATIONS.get(context.layer.op) or _ARITHMETIC.get(cost.family, _nothing))(context)
    return Bound(n_bytes / context.n_tiles / MEMORY_BYTES_PER_CYCLE, arithmetic / context.n_tiles)


def _nothing(context: OperatorContext) -> float:
    """Interpolation weighs four neighbours in two passes; what only moves computes nothing."""
    op = context.layer.op
    interpolates = op == "GridSample" or (op in ("Resize", "Upsample") and context.text("mode") not in ("", "nearest"))
    return _vectors(context, 8 * context.n_out) if interpolates else 0.0


def _vectors(context: OperatorContext, n_operations: float) -> float:
    """Tile cycles of vector arithmetic."""
    return n_operations * context.out_precision.n_bytes / VECTOR_BYTES_PER_CYCLE


def _products(context: OperatorContext) -> float:
    """Products in whole panels of the matrix units; the gates of a recurrent cell count with its products."""
    op = context.layer.op
    if op in _RECURRENT:
        steps, batch, inputs = context.shape(0)
        directions, gates, hidden = products.cell(context)
        per_step = products.matrix_product(context, directions, batch, inputs + hidden, gates)
        return steps * _product(per_step)
    if op == "Attention":
        return _product(products.attention_scores(context)) + _product(products.attention_output(context))
    if op == "DeformConv":
        sampled = prod(context.out_shape) / context.out_shape[1] * prod(context.shape(1)[1:])
        return _product(convolutions.convolution_product(context)) + _vectors(context, 8 * sampled)
    if op in contrib_bounds.PRODUCTS:
        return sum(map(_product, contrib_bounds.PRODUCTS[op](context)))
    return _product(_PRODUCTS[op](context))


_PRODUCTS: dict[str, Callable[[OperatorContext], Product]] = {
    "Conv": convolutions.convolution_product,
    "ConvInteger": convolutions.convolution_product,
    "ConvTranspose": convolutions.transposed_convolution_product,
    "CumSum": sequences.triangle_product,
    "Einsum": products.einsum_product,
    "Gemm": products.gemm_product,
    "MatMul": products.matmul_product,
    "MatMulInteger": products.matmul_product,
    "QLinearConv": lambda context: convolutions.convolution_product(context, 3),
    "QLinearMatMul": lambda context: products.matmul_product(context, 0, 3),
}


def _product(product: Product) -> float:
    n_rows = product.groups * product.batch * product.height * product.width * prod(product.taps)
    if product.engine in WINDOW_OPERATIONS_PER_CYCLE:
        return 2 * n_rows * product.outputs / WINDOW_OPERATIONS_PER_CYCLE[product.engine]
    inputs, outputs = (PANEL * ceil(n / PANEL) for n in (product.inputs, product.outputs))
    weight_bytes = product.groups * prod(product.taps) * inputs * outputs * product.precision.n_bytes
    computed = 2 * n_rows * inputs * outputs / MATRIX_OPERATIONS_PER_CYCLE[product.precision]
    return max(computed, weight_bytes / kernels.COPY_BYTES_PER_CYCLE)


def _loops(context: OperatorContext) -> float:
    """One operation a loop and element; loops of one element at a time by their published cycles."""
    loops = elementwise.loops_of(context)
    functions = [loop(name, context.precision) for name in loops if name in FUNCTIONS]
    n_elements = max(context.n_out, context.n_tiles * FEWEST_ELEMENTS)
    published = sum(inner.cycles / inner.elements for inner in functions) * n_elements
    return _vectors(context, (len(loops) - len(functions)) * context.n_out) + published


def _normalised(context: OperatorContext) -> float:
    window = context.integer("size", 0)  # of an LRN
    return _vectors(context, (8 + window) * context.n_out)


def _pooled(context: OperatorContext) -> float:
    window = prod(tuple(map(min, context.integers("kernel_shape", (4, 4)), (*context.shape(0)[2:], 4, 4))))
    return _vectors(context, context.n_out * window)


def _looked_up(context: OperatorContext) -> float:
    """Rows that are found, and indices that every tile looks at which holds one part of a large table."""
    updates = COST_RULES[context.layer.op] is data_movement.update
    work = data_movement.scattered(context) if updates else data_movement.gathered(context)
    table_bytes = work.entries * work.row * context.precision.n_bytes
    n_tiles_a_group = max(1, context.n_tiles // work.groups)
    n_copies = max(1, min(n_tiles_a_group, int(n_tiles_a_group * context.bound_bytes / max(table_bytes, 1))))
    n_found, rounds = work.groups * work.lookups, ceil(work.groups / context.n_tiles)
    vectors = ceil(work.row * context.precision.n_bytes / 8)
    looked_at = work.lookups * (kernels.WORKERS if updates else 1 / n_copies) * rounds * context.n_tiles
    one_vertex = float(kernels.gather(0, 0, 1)) * rounds * context.n_tiles
    divided = table_bytes > context.bound_bytes and 4 * work.lookups / n_copies < context.bound_bytes
    compared = looked_at if updates or divided else 0.0
    return n_found * (19 + 2 * vectors) + 8 * compared + one_vertex


def _ordered(context: OperatorContext) -> float:
    """Three instructions an element of a scan; a comparison of a sort for every level of the blocks that stay."""
    n = prod(context.shape(0))
    if context.layer.op == "NonMaxSuppression":
        return float(n)
    if context.layer.op == "Unique":
        return n * _levels(n) ** 2 / 4
    if context.layer.op != "TopK":
        return 3.0 * n
    n_largest = context.out_shape[context.axis(-1, len(context.out_shape))]
    return n * (1 + _levels(n_largest))


_ARITHMETIC: dict[Family, Callable[[OperatorContext], float]] = {
    Family.PRODUCT: _products,
    Family.ELEMENTWISE: _loops,
    Family.NORM: _normalised,
    Family.SOFTMAX: lambda context: _vectors(context, 5 * prod(context.shape(0))),
    Family.REDUCE: lambda context: _vectors(context, prod(context.shape(0))),
    Family.POOL: _pooled,
    Family.GATHER: _looked_up,
    Family.SORT: _ordered,
}
