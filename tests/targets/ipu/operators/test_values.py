"""What operators cost, in cycles and bytes, worked out by hand from the formulas that their docstrings cite.

Nothing here asks the code that is judged: a sync takes 126 cycles, an exchange 160 or more, 4 bytes a cycle and 11
cycles a source; a launch 504, of one operand 330; a copy 288 and 8 bytes a cycle; six workers share a tile [poplibs].
Shapes are such that each of the 1472 tiles has a whole share, so that the numbers follow without a search.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil
from typing import Any, NamedTuple

import pytest

from autoauto.records.layers import Body
from autoauto.targets.ipu.operator_cost import Family, OperatorContext, OperatorCost, Relayout, together
from autoauto.targets.ipu.operators import products
from autoauto.targets.ipu.operators.registry import control_flow, default_notes, forward_cost
from autoauto.targets.ipu.tiling.planner import Bounded, plan

MakeContext = Callable[..., OperatorContext]
TILES = 1472
ADD, CAST, SIGMOID, EXPONENT, SQUARE, LOGARITHM, MAXIMUM, COMPARE, DIVIDE = (
    *((3, 4), (3, 4), (4, 4), (4, 4), (2, 4), (6, 4), (4, 4), (9, 4), (21, 4)),
)
"""Cycles of an inner loop in halves, and the elements that it finishes."""


def exchanged(n_bytes: float, n_sources: int = 1) -> int:
    return round(126 + max(160, n_bytes / 4 + 11 * n_sources))


def copied(n_bytes: float) -> int:
    return round(288 + n_bytes / 8)


def passed(n_elements: int, *loops: tuple[int, int], launch: int = 504) -> int:
    return launch + 6 * sum(cycles * ceil(n_elements / (6 * width)) for cycles, width in loops)


def reduced(n_outputs: int, n_partials: int, width: int = 2) -> int:
    return 282 + ceil(n_outputs / (96 // width)) * 6 * (11 + 2 * (n_partials - 1))


def looked_up(n_indices: int, vectors: int, share: float) -> float:
    return 6 * (30 + ceil(n_indices / 6) * (share * (19 + 2 * vectors) + (1 - share) * 8))


class Row(NamedTuple):
    """A layer and what it costs: its exchange and compute, sources of its fullest tile, and bytes on all tiles."""

    op: str
    operands: list[Any]
    shape: tuple[int, ...]
    exchange: int
    compute: int
    sources: int = 0
    working: int = 0
    batch_size: int = 1
    attributes: dict[str, Any] = {}  # noqa: RUF012 (no row changes it)


NORMED = exchanged(2 * 144 * 2)  # scale and shift of 144 channels
ROW_OF_144 = 129 + 1329 + (24 + 12 * 3 + 30 * 6) + (66 + 72 * 6)  # a launch; a row: its start, statistics, scaling
WIDE = "x:1x64x46x32"  # 64 elements a tile

ROWS = [
    Row("LayerNormalization", ["x:1x1472x144", (144,), (144,)], (1, 1472, 144), NORMED, ROW_OF_144, 24),
    Row("LayerNormalization", ["x:1x1472x12x12"], (1, 1472, 12, 12), NORMED, ROW_OF_144, 24, attributes={"axis": 2}),
    Row("RMSNormalization", ["x:1x1472x144"], (1, 1472, 144), NORMED, 2 * ROW_OF_144 - 129, 24, batch_size=2),
    Row("InstanceNormalization", ["x:1x1472x12x12"], (1, 1472, 12, 12), NORMED, ROW_OF_144, 24),
    Row("InstanceNormalization", ["x:1x736x12x12"], (1, 736, 12, 12), NORMED, ROW_OF_144, 24, batch_size=2),
    Row(
        *("GroupNormalization", ["x:1x2944x8x9"], (1, 2944, 8, 9), NORMED, ROW_OF_144, 24),
        attributes={"num_groups": 1472},
    ),
    Row("LpNormalization", ["x:1x144x1472"], (1, 144, 1472), NORMED, ROW_OF_144, 24, attributes={"axis": 1}),
    Row("MeanVarianceNormalization", ["x:1x1472x12x12"], (1, 1472, 12, 12), NORMED, ROW_OF_144, 24),
    Row(
        *("LRN", [WIDE], (1, 64, 46, 32), exchanged(128)),
        *(passed(64, SQUARE, *[ADD] * 3, LOGARITHM, ADD, EXPONENT, ADD), 2),
        attributes={"size": 3},
    ),
    Row("Softmax", ["x:1x11776x64"], (1, 11776, 64), 0, 216 + 2 * 6 * (40 + 41 * 4), 8),
    Row("Softmax", ["x:1x64x11776"], (1, 64, 11776), 0, 216 + 2 * 6 * (40 + 41 * 4), 8, attributes={"axis": 1}),
    # One output a tile: the 48 lanes of its workers add 10 each, then what they have is added in single precision.
    Row("ReduceSum", ["x:1x1472x480"], (1, 1472), 0, reduced(48, 10) + reduced(1, 48, 4) - 282, 1, 4 * TILES),
    Row("ReduceMax", ["x:1x70656x10"], (1, 70656), 0, reduced(48, 10), 1, 4 * 70656),
    Row("ReduceMean", ["x:1x35328x10"], (1, 35328), 0, reduced(48, 10), 1, 4 * 70656, batch_size=2),
    # Four tiles an output, whose sums meet.
    Row(
        *("GlobalAveragePool", ["x:1x368x24x80"], (1, 368, 1, 1), exchanged(4 * 4, 4)),
        *(reduced(48, 10) + reduced(1, 48, 4) - 282 + reduced(1, 4, 4), 4, 4 * TILES),
    ),
    # All tiles one output: sums meet in two stages of 39.
    Row(
        *("ReduceSum", [f"x:1x{TILES * 480}"], (1, 1), 2 * exchanged(39 * 4, 39)),
        *(reduced(48, 10) + reduced(1, 48, 4) - 282 + 2 * reduced(1, 39, 4), 32, 4 * TILES),
    ),
    Row("Concat", [WIDE], (1, 64, 46, 32), exchanged(128, 8), copied(128), 8),
    Row("Concat", [WIDE], (1, 64, 46, 32), exchanged(640, 8), copied(640), 8, batch_size=5),
    Row("Transpose", [WIDE], (1, 64, 32, 46), exchanged(128, 8), 288 + 3 * 64, 8, attributes={"perm": (0, 1, 3, 2)}),
    Row("Transpose", [WIDE], (1, 46, 64, 32), exchanged(128, 8), copied(128), 8, attributes={"perm": (0, 2, 1, 3)}),
    Row("DepthToSpace", [WIDE], (1, 16, 92, 64), exchanged(128, 8), 288 + 3 * 64, 8),
    Row(
        *("Resize", [WIDE], (1, 64, 46, 32), exchanged(128, 8), copied(128) + passed(64, *[ADD] * 8), 8),
        attributes={"mode": "linear"},
    ),
    Row("Resize", [WIDE], (1, 64, 46, 32), exchanged(128, 8), copied(128), 8, attributes={"mode": "nearest"}),
    Row("Add", [WIDE, (32,)], (1, 64, 46, 32), exchanged(64), passed(64, ADD), 1, 64),
    Row("Add", [WIDE, (46, 32)], (1, 64, 46, 32), exchanged(128), passed(64, ADD), 1, 2 * 46 * 32),
    Row("Sum", [WIDE, "x:64x46x32", "x:46x64x32"], (1, 64, 46, 32), 0, passed(64, ADD, ADD)),
    Row("Sqrt", [WIDE], (1, 64, 46, 32), 0, passed(64, (23, 4), launch=330)),
    Row("Dropout", [WIDE], (1, 64, 46, 32), exchanged(8), passed(64, (2, 4), launch=330) + 3 * 330, 1),
    Row(
        *("MaxPool", ["x:1x64x92x64"], (1, 64, 46, 32), exchanged(512, 4), 330 + 6 * ceil(64 / 24) * (10 + 2 * 4), 4),
        512 * TILES,
        attributes={"kernel_shape": (2, 2), "strides": (2, 2)},
    ),
    Row(
        *("AveragePool", [WIDE], (1, 64, 46, 32), exchanged(192, 4), 330 + 6 * ceil(64 / 24) * (10 + 2 * 9), 4),
        192 * TILES,  # half as much again comes from other tiles
        attributes={"kernel_shape": (3, 3), "strides": (1, 1)},
    ),
    Row(
        *("MaxPool", ["x:1x23552x2x2"], (1, 23552, 1, 1), exchanged(128, 4), 330 + 6 * (10 + 2 * 4), 4, 128 * TILES),
        attributes={"kernel_shape": (5, 2), "strides": (2, 2)},  # beyond the field nothing is read
    ),
    Row("Det", ["x:1x1472x8x8"], (1, 1472), 8 * exchanged(8 * 2), 8 * passed(32, ADD, ADD), 1),
    Row("Inverse", ["x:1x1472x8x8"], (1, 1472, 8, 8), 8 * exchanged(8 * 2), 8 * passed(64, ADD, ADD), 1),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.op} {row.operands[0]} {row.batch_size}")
def test_a_layer_costs_what_its_formula_says(context_of: MakeContext, node: Any, row: Row) -> None:
    cost = forward_cost(context_of(node(row.op, row.operands, row.shape, **row.attributes), row.batch_size))
    costs = cost.exchange_cycles, cost.compute_cycles, cost.n_sources, cost.working_bytes
    assert costs == (row.exchange, row.compute, row.sources, row.working)
    assert cost.n_tiles == TILES


def test_batches_are_normalised_channel_by_channel_in_training(context_of: MakeContext, node: Any) -> None:
    """Two samples of 144 elements are a row of 288."""
    context = context_of(node("BatchNormalization", ["x:1x1472x12x12", *[(1472,)] * 4], (1, 1472, 12, 12)), 2)
    cost = forward_cost(context._replace(options=replace(context.options, training=True)))
    row = 129 + 1329 + (24 + 12 * 6 + 30 * 12) + (66 + 72 * 12)
    assert (cost.exchange_cycles, cost.compute_cycles, cost.family) == (exchanged(2 * 288 * 2), row, Family.NORM)


def on_axis(context: OperatorContext, axis: int) -> OperatorContext:
    """The layer whose activations have their samples along another axis."""
    tensors = context.graph.tensors
    moved = tuple(each if each.batch_axis is None else each._replace(batch_axis=axis) for each in tensors)
    return context._replace(graph=replace(context.graph, tensors=moved))


@pytest.mark.parametrize(
    ("op", "directions", "gates", "batch_size"),
    [("LSTM", 1, 512, 1), ("LSTM", 2, 512, 4), ("GRU", 1, 384, 44), ("RNN", 2, 128, 3)],
)
def test_a_recurrent_layer_is_a_product_of_all_steps_and_one_a_step(
    context_of: MakeContext, node: Any, op: str, directions: int, gates: int, batch_size: int
) -> None:
    """Ten steps of 64 channels, a state of 128: priced as MatMul prices those products."""
    weights = (directions, gates, 64), (directions, gates, 128)
    layer = node(op, ["x:10x1x64", *weights], (10, directions, 1, 128))
    cost = forward_cost(on_axis(context_of(layer, batch_size), 1))

    def matmul(n_rows: int, channels: int) -> OperatorCost:
        factors = [f"x:{directions}x{n_rows}x{channels}", (directions, channels, gates)]
        return forward_cost(on_axis(context_of(node("MatMul", factors, (directions, n_rows, gates)), batch_size), 1))

    feed, step = matmul(10, 64), matmul(1, 128)
    nonlinear = passed(ceil(batch_size * directions * gates / TILES), SIGMOID, ADD, ADD)
    assert cost.exchange_cycles == feed.exchange_cycles + 10 * step.exchange_cycles
    assert cost.compute_cycles == feed.compute_cycles + 10 * (step.compute_cycles + nonlinear)
    assert cost.working_bytes == max(feed.working_bytes, step.working_bytes)
    share_bytes = 10 * batch_size * 64 * 2 / TILES  # of what enters; the state stays where it is
    assert cost.relayouts == (Relayout(0, exchanged(share_bytes) + copied(share_bytes)),)
    assert (cost.n_tiles, cost.n_sources) == (max(feed.n_tiles, step.n_tiles), feed.n_sources + step.n_sources)


def costing(exchange: int, compute: int, **others: Any) -> OperatorCost:
    return OperatorCost(Family.ELEMENTWISE, exchange, compute, ("c",), 8, **others)


@pytest.fixture
def body(graph_of: Callable[..., Any], node: Any) -> Callable[..., Body]:
    """Three layers on eight halves: b reads a, c reads b and a. Most alive: a, b and c, 48 bytes a sample."""
    layers = [
        node("Relu", ["x:1x8"], (1, 8), "a"),
        node("Exp", ["a"], (1, 8), "b"),
        node("Add", ["b", "a"], (1, 8), "c"),
    ]
    return lambda n_runs, runs_per_sample=False: Body(graph_of(layers), n_runs, runs_per_sample)


PRICES = {
    "a": costing(100, 7, working_bytes=11, binding_below_bytes=4.0),
    "b": costing(20, 5, relayouts=(Relayout(0, 3),), n_sources=2, binding_below_bytes=9.0),
    "c": costing(1, 50, working_bytes=30, relayouts=(Relayout(1, 200), Relayout(2, 1000)), within_bound=False),
}


def of_control_flow(context_of: MakeContext, node: Any, batch_size: int, *bodies: Body) -> OperatorCost:
    context = context_of(node("Loop", ["x:1x8"], (1, 8)), batch_size)
    layer = replace(context.layer, bodies=bodies)
    return control_flow(context._replace(layer=layer), lambda inner: PRICES[inner.layer.name])


@pytest.mark.parametrize(("runs_per_sample", "n_runs"), [(False, 5), (True, 15)])
def test_a_loop_costs_its_layers_and_relayouts_every_run_and_what_is_alive_once(
    context_of: MakeContext, node: Any, body: Callable[..., Body], runs_per_sample: bool, n_runs: int
) -> None:
    cost = of_control_flow(context_of, node, 3, body(5, runs_per_sample))
    assert cost.exchange_cycles == n_runs * (100 + 20 + 1 + 3 + 200 + 1000)
    assert cost.compute_cycles == n_runs * (7 + 5 + 50)
    assert cost.working_bytes == 30 + 3 * 3 * 8 * 2  # the most that one layer works on, beside three tensors in halves
    assert (cost.relayouts, cost.follows, cost.n_sources, cost.within_bound) == ((), -1, 2, False)


def test_what_is_alive_in_a_body_ends_with_its_last_reader(
    context_of: MakeContext, node: Any, graph_of: Callable[..., Any]
) -> None:
    """Of a (16 bytes), b (32), c (8), d (4), in a row, a and b are the most at a time."""
    lengths = {"a": 8, "b": 16, "c": 4, "d": 2}
    names = ["x:1x8", *lengths]
    layers = [
        node("Relu", [before], (1, n), name) for before, (name, n) in zip(names[:-1], lengths.items(), strict=True)
    ]
    context = context_of(node("Loop", ["x:1x8"], (1, 8)))
    layer = replace(context.layer, bodies=(Body(graph_of(layers), 1, False),))
    cost = control_flow(context._replace(layer=layer), lambda _: costing(1, 1))
    assert cost.working_bytes == 16 + 32


def test_an_if_takes_its_slower_branch_and_any_bound_may_choose_another(
    context_of: MakeContext, node: Any, body: Callable[..., Body], graph_of: Callable[..., Any]
) -> None:
    quick = Body(graph_of([node("Relu", ["x:1x8"], (1, 8), "a")]), 1, False)
    for bodies in ((quick, body(1)), (body(1), quick)):
        cost = of_control_flow(context_of, node, 1, *bodies)
        assert (cost.exchange_cycles, cost.compute_cycles) == (1324, 62)
        assert cost.binding_below_bytes == 9.0
    wide = Body(graph_of([node("Relu", ["x:1x8"], (1, 8), "a")]), 20, False)
    cost = of_control_flow(context_of, node, 1, body(1), wide)
    assert (cost.exchange_cycles, cost.compute_cycles, cost.working_bytes) == (2000, 140, 11 + 16)
    assert cost.binding_below_bytes == 9.0


def test_control_flow_without_bodies_copies_what_it_writes(context_of: MakeContext, node: Any) -> None:
    cost = forward_cost(context_of(node("If", [WIDE], (1, 64, 46, 32))))
    assert (cost.exchange_cycles, cost.compute_cycles) == (0, passed(64, ADD))


def test_costs_one_after_the_other(context_of: MakeContext, node: Any) -> None:
    """Cycles and sources add up, tiles and temporaries are the most; the family is that of the first."""
    first = OperatorCost(Family.NORM, 1, 2, ("a", "b"), 5, 1, 100, 3, (Relayout(0, 1),), True, 5.0)
    second = OperatorCost(Family.MOVE, 10, 20, ("b", "c"), 9, 2, 60, 4, (Relayout(1, 2),), False, 2.0)
    relayouts = (Relayout(0, 1), Relayout(1, 2))
    assert together(first, second) == OperatorCost(
        Family.NORM, 11, 22, ("a", "b", "c"), 9, 3, 100, 3, relayouts, False, 5.0
    )


# Fused operators: the standard operators that are in them, each as it is priced alone.

TOKENS, WORDS = "x:1x128x768", (1, 128, 768)
LAYER_NORM = ("LayerNormalization", [TOKENS, (768,)], WORDS)
FUSED: dict[str, tuple[tuple[list[Any], tuple[int, ...], dict[str, Any]], list[Any], int]] = {
    "SkipLayerNormalization": (
        ([TOKENS, TOKENS, (768,), (768,), (768,)], WORDS, {}),
        [LAYER_NORM],
        passed(ceil(128 * 768 / TILES), ADD, ADD),
    ),
    "SkipSimplifiedLayerNormalization": (
        ([TOKENS, TOKENS, (768,)], WORDS, {}),
        [LAYER_NORM],
        passed(ceil(128 * 768 / TILES), ADD),
    ),
    "EmbedLayerNormalization": (
        (["x:1x128", "x:1x128", (1000, 768), (128, 768), (2, 768), (768,), (768,)], WORDS, {}),
        [
            ("LayerNormalization", [TOKENS, (768,)], WORDS),
            ("Gather", [(1000, 768), "x:1x128"], WORDS),
            ("Gather", [(2, 768), "x:1x128"], WORDS),
            ("Concat", ["x:128x768"], (128, 768)),
        ],
        passed(ceil(128 * 768 / TILES), ADD, ADD),
    ),
    "FusedMatMulActivation": (
        ([TOKENS, (768, 384)], (1, 128, 384), {"activation": "Sigmoid"}),
        [("MatMul", [TOKENS, (768, 384)], (1, 128, 384))],
        passed(ceil(128 * 384 / TILES), SIGMOID, launch=330),
    ),
    "MatMulNBits": (
        ([TOKENS, (384, 24, 16), (384,)], (1, 128, 384), {"K": 768, "N": 384}),
        [("MatMul", [TOKENS, (768, 384)], (1, 128, 384))],
        passed(ceil(768 * 384 / TILES), CAST, ADD, ADD),
    ),
    "GemmFastGelu": (
        ([TOKENS, (768, 384)], (1, 128, 384), {}),
        [("MatMul", [TOKENS, (768, 384)], (1, 128, 384))],
        passed(ceil(128 * 384 / TILES), ADD, (77, 16)),
    ),
    "QLinearSoftmax": (
        (["x:1x12x128x128", (1,), (1,), (1,), (1,)], (1, 12, 128, 128), {"axis": -1}),
        [("Softmax", ["x:1x12x128x128"], (1, 12, 128, 128))],
        passed(ceil(12 * 128 * 128 / TILES), CAST, ADD, ADD)
        + passed(ceil(12 * 128 * 128 / TILES), ADD, (4, 4), MAXIMUM, MAXIMUM),
    ),
    "SoftmaxCrossEntropyLoss": (
        (["x:1x1000x64", "x:1x64"], (1, 64), {}),  # a loss of every row
        [("Softmax", ["x:1x64x1000"], (1, 64, 1000))],
        exchanged(4) + 330 + 6 * 19,  # every tile picks one element
    ),
}


@pytest.mark.parametrize("op", FUSED)
def test_a_fused_operator_costs_what_its_parts_do(context_of: MakeContext, node: Any, op: str) -> None:
    (operands, shape, attributes), parts, more = FUSED[op]
    fused = forward_cost(context_of(node(op, operands, shape, **attributes)))
    alone = [forward_cost(context_of(node(*part))) for part in parts]
    assert fused.cycles == sum(cost.cycles for cost in alone) + more
    assert fused.working_bytes == max(cost.working_bytes for cost in alone)
    assert fused.family is alone[0].family


@pytest.mark.parametrize(("activation", "loop"), [({}, (2, 4)), ({"activation_type": "gelu"}, (77, 16))])
def test_experts_are_products_of_the_tokens_that_each_has(
    context_of: MakeContext, node: Any, activation: dict[str, str], loop: tuple[int, int]
) -> None:
    """Eight experts share 2 x 128 tokens: 32 each, from 768 channels to 1024 and back; without a name it is a Relu."""
    operands = [TOKENS, "x:128x8", (8, 1024, 768), "", (8, 768, 1024)]
    cost = forward_cost(context_of(node("MoE", operands, WORDS, k=2, **activation)))
    there = forward_cost(on_axis(context_of(node("MatMul", ["x:8x32x768", (8, 768, 1024)], (8, 32, 1024))), 1))
    back = forward_cost(on_axis(context_of(node("MatMul", ["x:8x32x1024", (8, 1024, 768)], (8, 32, 768))), 1))
    chosen = forward_cost(context_of(node("Softmax", ["x:128x8"], (128, 8))))
    inside = passed(ceil(2 * 128 * 1024 / TILES), loop)
    assert cost.cycles == there.cycles + inside + back.cycles + chosen.cycles
    assert cost.working_bytes == max(there.working_bytes, back.working_bytes)


def test_all_layers_of_experts_count_a_gating_one_halves_that_lie_together_and_packed_ones(
    context_of: MakeContext, node: Any
) -> None:
    """Two halves that the first layer writes together are as wide as it and a gate; 4 bits are two in a byte."""
    wide, first, second = (8, 2048, 768), (8, 1024, 768), (8, 768, 1024)

    def cycles(op: str, *weights: Any) -> int:
        return forward_cost(context_of(node(op, [TOKENS, "x:128x8", *weights], WORDS, k=2))).cycles

    there = forward_cost(on_axis(context_of(node("MatMul", ["x:8x32x768", (8, 768, 1024)], (8, 32, 1024))), 1)).cycles
    plain = cycles("MoE", first, "", second)
    assert cycles("MoE", first, "", second, "", first) == plain + there
    halves = forward_cost(on_axis(context_of(node("MatMul", ["x:8x32x768", (8, 768, 2048)], (8, 32, 2048))), 1)).cycles
    activated = passed(ceil(2 * 128 * 2048 / TILES), (2, 4)) - passed(ceil(2 * 128 * 1024 / TILES), (2, 4))
    assert cycles("MoE", wide, "", second) == plain + halves - there + activated
    assert cycles("QMoE", (8, 1024, 384), "", "", (8, 768, 512)) == plain


@pytest.mark.parametrize(("batch_size", "n_rows", "channels"), [(3, 197, 768), (5, 64, 256), (5, 197, 768)])
def test_a_product_of_an_odd_batch_stays_within_what_powers_of_two_take(
    context_of: MakeContext, node: Any, batch_size: int, n_rows: int, channels: int
) -> None:
    """A faster plan would take more memory than the larger of these batches."""
    layer = node("MatMul", [f"x:1x{n_rows}x{channels}", (channels, channels)], (1, n_rows, channels))
    context = context_of(layer, batch_size)
    product = products.matmul_product(context)
    fastest = [plan(Bounded(products.matmul_product(context.at(n))), TILES).tile_bytes for n in (1, 2, 4, 8)]
    unbounded = plan(Bounded(product, context.bound_bytes), TILES)
    assert fastest == sorted(fastest)
    assert unbounded.tile_bytes > fastest[batch_size.bit_length() - 1]
    cost = forward_cost(context)
    assert cost.cycles > unbounded.cycles
    assert cost.working_bytes < ceil(products.allocated_share(regroups=False) * unbounded.tile_bytes) * TILES
    assert cost.within_bound


def test_a_note_names_operators_without_a_price_of_their_own(graph_of: Callable[..., Any], node: Any) -> None:
    layers = [node(op, [WIDE], (1, 64, 46, 32), op) for op in ("Relu", "Mystery", "Loop", "Another")]
    assert default_notes(graph_of(layers)) == ("priced as elementwise: Another, Mystery",)
    assert default_notes(graph_of([layers[0], layers[2]])) == ()


def test_an_operator_without_a_price_moves_all_and_computes_the_larger_once(context_of: MakeContext, node: Any) -> None:
    cost = forward_cost(context_of(node("Mystery", [WIDE, "x:1x64x92x32"], (1, 64, 46, 32))))
    n_bytes = 128 + 256 + 128
    assert cost.exchange_cycles == exchanged(n_bytes, 8)
    assert cost.compute_cycles == copied(n_bytes) + passed(128, ADD)
