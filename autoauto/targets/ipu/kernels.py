"""Cycles of one tile: codelets on six workers, copies, and the `exchange` that feeds them.

Functions that take an `Amount` take numbers or NumPy arrays of numbers. A supervisor starts six workers that issue in
turn, so a tile takes supervisor cycles + 6 x the cycles of its slowest worker. Formulas are those of poplibs' cycle
estimators [poplibs]; "measured" means [ipu21-kernels].

Worker cycles of the inner loops of elementwise codelets: `LOOPS`, figures of popops' cycle estimators [poplibs].

In-place variants, assembly codelets. A row is (cycles, elements) of one inner loop for half and for float; "natural
vector" rows of the source are written as (cycles + 2, vector width), the others as (cycles, unroll).
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

import numpy as np

from autoauto.records.units import FloatArray, Precision


class InnerLoop(NamedTuple):
    """Cycles of one inner loop of a worker, and the elements that it finishes."""

    cycles: int
    elements: int


LOOPS: dict[str, tuple[InnerLoop, InnerLoop]] = {
    "absolute": (InnerLoop(3, 4), InnerLoop(3, 2)),
    "add": (InnerLoop(3, 4), InnerLoop(3, 2)),
    "cast": (InnerLoop(3, 4), InnerLoop(3, 2)),  # not in the table: as fast as an addition
    "compare": (InnerLoop(9, 4), InnerLoop(14, 4)),
    "dropout": (InnerLoop(2, 4), InnerLoop(2, 2)),  # Dropout.S: a random mask beside the load and the store [poplibs]
    # Between halves and floats. Not in the table: castFpDemoteLoop and castFpPromoteLoop of popops take two bundles for
    # four elements, and its cycle estimator says so, too [poplibs].
    "convert": (InnerLoop(2, 4), InnerLoop(2, 4)),
    "divide": (InnerLoop(21, 4), InnerLoop(10, 2)),
    "erf": (InnerLoop(13, 1), InnerLoop(41, 1)),
    "exponent": (InnerLoop(4, 4), InnerLoop(6, 2)),
    # half: 462 cycles for 96 elements [ipu21-kernels]; float: popnn's factor of two [poplibs]
    "gelu": (InnerLoop(77, 16), InnerLoop(154, 16)),
    "gelu_erf": (InnerLoop(16, 1), InnerLoop(22, 1)),
    "inverse": (InnerLoop(15, 4), InnerLoop(6, 2)),
    "logarithm": (InnerLoop(6, 4), InnerLoop(14, 2)),
    "maximum": (InnerLoop(4, 4), InnerLoop(4, 2)),
    "negate": (InnerLoop(3, 4), InnerLoop(3, 2)),
    "power": (InnerLoop(325, 1), InnerLoop(312, 1)),
    "relu": (InnerLoop(2, 4), InnerLoop(2, 2)),
    "round": (InnerLoop(4, 4), InnerLoop(4, 2)),
    "rsqrt": (InnerLoop(19, 4), InnerLoop(8, 2)),
    "select": (InnerLoop(9, 4), InnerLoop(14, 4)),  # not in the table: as slow as a comparison
    "sigmoid": (InnerLoop(4, 4), InnerLoop(10, 2)),
    "sine": (InnerLoop(25, 1), InnerLoop(2300, 1)),
    "sqrt": (InnerLoop(23, 4), InnerLoop(10, 2)),
    "square": (InnerLoop(2, 4), InnerLoop(2, 2)),
    "tanh": (InnerLoop(2, 4), InnerLoop(10, 2)),
}


def loop(name: str, precision: Precision) -> InnerLoop:
    """The inner loop called `name` at a precision.

    >>> loop("relu", Precision.FP16), loop("relu", Precision.FP32)
    (InnerLoop(cycles=2, elements=4), InnerLoop(cycles=2, elements=2))
    """
    half, single = LOOPS[name]
    return single if precision is Precision.FP32 else half


Amount = float | FloatArray

WORKERS = 6
EXCHANGE_BYTES_PER_CYCLE = 4  # Target::getExchangeBytesPerCycle [poplar-docs]
COPY_BYTES_PER_CYCLE = 8  # Target::getMemcpyBytesPerCycle
SYNC_CYCLES = 126  # Target::getMaxIPUSyncDelay
SHORTEST_EXCHANGE_CYCLES = 160  # eventCyclesPerExchangeFragment of the same target
SOURCE_CYCLES = 11  # to turn from one sending tile to the next; fitted to ResNet-50 at batch 1
COPY_CALL_CYCLES = 288  # localCopyCallCycles
WEIGHT_LOAD_CYCLES = 64  # 512 bytes of weights in 64-bit loads, Poplar's default (use128BitConvUnitLoad is off)
WIDE_WEIGHT_LOAD_CYCLES = 32  # the same in 128-bit loads from interleaved memory
# Workers start anew for every panel in fp8. poplibs' estimate for quarters has 191 cycles more a panel than that for
# halves [poplibs]; fitted to ResNet-50 in fp8, whose batch 1 would have none and whose batch 32 all of them.
QUARTER_RESTART_CYCLES = 150
SECOND_PASS_CYCLES = 9  # with 8 units, 16 outputs take two passes and one turn of the outer loop, 19 cycles [poplibs]
BINARY_LAUNCH_CYCLES = 504  # measured: "add" [ipu21-kernels]
UNARY_LAUNCH_CYCLES = 330  # measured: "gelu" [ipu21-kernels]
REDUCE_LAUNCH_CYCLES = 282
REORDER_CYCLES_PER_ELEMENT = 3  # the lower end of 3 to 10 for a change of panel order
WORD_BYTES = 4  # what exchange and stores move at once: Target::getAtomicStoreGranularity [poplar-docs]
# To move one element that fills a part of a word: one worker loads it and its word, merges and stores them, in five
# instructions; two workers must not store the same word. ViT's images of 197 tokens in training (training.json)
# would fit 37.
PART_OF_WORD_CYCLES = 5 * WORKERS


def ceil_div(amount: Amount, parts: Amount) -> Amount:
    """The larger share when `amount` is cut in `parts`.

    >>> ceil_div(7, 2)
    4.0
    """
    share = amount / parts
    return np.ceil(share, out=share) if isinstance(share, np.ndarray) else float(ceil(share))


def exchange(n_bytes: Amount, n_sources: Amount = 1) -> Amount:
    """A sync, then `n_bytes` into the fullest tile from `n_sources` other tiles.

    >>> exchange(4000), exchange(4)
    (1137.0, 286.0)
    """
    transfer = n_bytes / EXCHANGE_BYTES_PER_CYCLE + SOURCE_CYCLES * n_sources
    if isinstance(transfer, np.ndarray):
        return SYNC_CYCLES + np.maximum(SHORTEST_EXCHANGE_CYCLES, transfer)
    return float(SYNC_CYCLES + max(SHORTEST_EXCHANGE_CYCLES, transfer))


def copy(n_bytes: Amount) -> Amount:
    """A copy within the tile."""
    return COPY_CALL_CYCLES + n_bytes / COPY_BYTES_PER_CYCLE


def reorder(n_elements: Amount) -> Amount:
    """A copy within the tile that also transposes, element by element."""
    return COPY_CALL_CYCLES + REORDER_CYCLES_PER_ELEMENT * n_elements


def _panel_worker(rows: Amount, precision: Precision) -> Amount:
    """Cycles of a worker that takes `rows` rows through one panel of weights."""
    many_rows, two_rows, one_row = 18 + 4 * rows, 34, 25
    if precision is Precision.FP32:
        many_rows, two_rows, one_row = 22 + 8 * rows, 46, 47
    few_rows = np.where(np.equal(rows, 2), two_rows, one_row)
    return np.where(np.greater_equal(rows, 3), many_rows, few_rows).astype(np.float64)


def gemm(
    rows: Amount,
    in_groups: Amount,
    out_groups: Amount,
    precision: Precision,
    load_cycles: float = WEIGHT_LOAD_CYCLES,
) -> Amount:
    """`rows` x `in_groups` groups of inputs through the matrix units to `out_groups` groups of outputs.

    Formula: ConvPartial1x1 [poplibs]. A panel of weights holds 512 bytes: 16 outputs x 16 inputs in fp16, x 32 in fp8,
    x 8 in fp32. In fp32 the first panel of every output also writes zeros, eight cycles a row.
    """
    share = ceil_div(rows, WORKERS)
    panel = WORKERS * _panel_worker(share, precision)
    zeros = WORKERS * (2 + 8 * share) if precision is Precision.FP32 else 0
    later = (in_groups - 1) * (15 + out_groups * (25 + load_cycles + panel + WORKERS))
    return 98 + 18 * in_groups + later + out_groups * (25 + load_cycles + panel + zeros)


def _lines_a_worker(lines: Amount) -> Amount:
    """Pieces of lines that the slowest worker handles when all cells are dealt evenly."""
    whole = ceil_div(lines, WORKERS)
    return whole + ceil_div(whole - lines / WORKERS, 1)


def convolution(
    lines: Amount,
    width: Amount,
    panels: tuple[Amount, Amount],
    taps: tuple[int, int],
    precision: Precision,
    load_cycles: float = WEIGHT_LOAD_CYCLES,
) -> Amount:
    """`lines` x `width` outputs through the matrix units, once a kernel position and panel of (inputs, outputs).

    Formula: ConvPartialnx1 [poplibs], filter height 1, after zeros are written to all outputs in 64-bit stores.
    """
    share = ceil_div(lines * width, WORKERS)
    # Cycles to take one row through a panel: 16 halves, 32 quarters or 8 floats into 16 outputs. The unit's rate is 64
    # multiply-adds a cycle and tile in fp16, 128 in fp8, 16 in fp32.
    row_cycles = 8 if precision is Precision.FP32 else 4
    worker = 18 + 16 * _lines_a_worker(lines) + row_cycles * share
    position = 12 + load_cycles + 18 + WORKERS * worker
    store_cycles = 8 if precision is Precision.FP32 else 4
    zeros = 12 + WORKERS * panels[1] * (5 + store_cycles * share)
    return zeros + 179 + panels[0] * (14 + panels[1] * (14 + taps[0] * (14 + taps[1] * position)))


def sliding_window(lines: Amount, width: Amount, blocks: Amount, taps: tuple[int, int]) -> Amount:
    """Narrow groups of channels in fp16, four output channels a block, four kernel columns a pass (SLIC).

    Two cycles an output, a pass and a block: min(4, channels a group) x 8 multiply-adds a cycle.
    """
    windows = taps[0] * ceil_div(taps[1], 4)
    worker = 20 + 13 * _lines_a_worker(lines) + 2 * ceil_div(lines * width, WORKERS)
    return 109 + blocks * windows * (40 + WORKERS * worker)


def vector_mac(lines: Amount, width: Amount, blocks: Amount, taps: tuple[int, int]) -> Amount:
    """Narrow groups of channels without matrix units: three cycles an output, a block and a kernel position."""
    worker = 22 + 10 * _lines_a_worker(lines) + 3 * taps[0] * taps[1] * ceil_div(lines * width, WORKERS)
    return 109 + blocks * (40 + WORKERS * worker)


def reduce(n_outputs: Amount, n_partials: Amount, precision: Precision) -> Amount:
    """`n_partials` values added to each of `n_outputs` on one tile; exact on seven measured cases."""
    vector = WORKERS * 16 // precision.n_bytes
    return REDUCE_LAUNCH_CYCLES + ceil_div(n_outputs, vector) * WORKERS * (11 + 2 * (n_partials - 1))


def elementwise(n_elements: float, loops: tuple[str, ...], n_operands: int, precision: Precision) -> float:
    """One launch of the inner loops `loops` over `n_elements` of a tile; exact on the measured additions."""
    worker = 0.0
    for name in loops:
        inner = loop(name, precision)
        worker += inner.cycles * float(ceil_div(n_elements, WORKERS * inner.elements))
    launch = BINARY_LAUNCH_CYCLES if n_operands > 1 else UNARY_LAUNCH_CYCLES
    return launch + WORKERS * worker


def gelu(n_elements: int) -> int:
    """Gelu in fp16; exact on eleven measured cases."""
    return gelu_row(n_elements, UNARY_LAUNCH_CYCLES, block=462, pair=120, tail=12)


def gelu_row(n_elements: int, launch: int, block: int, pair: int, tail: int) -> int:
    """Blocks of 16 elements dealt to the workers in turn, then a tail of pairs one by one.

    A length that is no multiple of 16 costs 18 cycles more a block.
    """
    if n_elements % 16 == 0:
        return launch + -(-n_elements // (16 * WORKERS)) * block
    slowest = 0
    for worker in range(WORKERS):
        # The first block of a worker begins so many pairs before the end; its next begins 48 pairs later.
        n_pairs = -(-n_elements // 2) - 8 * worker
        if n_pairs <= 0:
            break
        blocks = -(-max(n_pairs - 7, 0) // (8 * WORKERS))
        cycles = launch + blocks * (block + 18)
        if rest := max(n_pairs - 8 * WORKERS * blocks, 0):
            cycles += tail + rest * pair
        slowest = max(slowest, cycles)
    return slowest


def softmax(rows: float, keys: float, precision: Precision) -> float:
    """Softmax of whole rows on one tile, a worker a row, or two rows at a time cut in three where that is faster.

    A panel of 16 keys takes 41 cycles of a worker; within 5 % of all measured rows. fp32 has half the vector width.

    >>> softmax(8, 64, Precision.FP16), softmax(8, 768, Precision.FP16)
    (2664.0, 19524.0)
    """
    panels = float(ceil_div(keys * _half_widths(precision), 16))
    waves = float(ceil_div(rows, WORKERS))
    whole = 216 + waves * WORKERS * (40 + 41 * panels)
    cut = 408 + float(ceil_div(rows, 2)) * WORKERS * (130 + 41 * float(ceil_div(panels, 3))) + waves * 126
    return min(whole, cut)


def _half_widths(precision: Precision) -> float:
    """Vectors that a format needs for the elements that one vector of halves holds."""
    return precision.n_bytes / 2


def layernorm(rows: float, width: float, precision: Precision) -> float:
    """Normalise whole rows on one tile: mean, centred variance and scaling are three launches a row.

    Exact on four measured cases. Widths that are no multiple of 8 go pair by pair.
    """
    width = width * _half_widths(precision)
    launches = 1329 if _in_vectors(width) else 1200
    apply = 60 * float(ceil_div(width, 12))
    if width % 4 == 0:
        apply = 66 + 72 * float(ceil_div(width, 24))
    return 129 + rows * (launches + _statistics(width) + apply)


def _in_vectors(width: float) -> bool:
    return width >= 96 and width % 8 == 0


def _statistics(width: float) -> float:
    """Cycles of a row's sum (two a vector of eight) and sum of squares (five a vector of four)."""
    if _in_vectors(width):
        return 24 + 12 * float(ceil_div(width, 48)) + 30 * float(ceil_div(width, 24))
    return 48 * float(ceil_div(width, 12))


def moments(rows: float, width: float, precision: Precision) -> float:
    """Mean and variance of rows on one tile; exact on four measured cases."""
    return 126 + rows * (1098 + _statistics(width * _half_widths(precision)))


def whiten(rows: float, width: float, precision: Precision) -> float:
    """Subtract means, scale and shift rows on one tile; exact on four measured cases."""
    width = width * _half_widths(precision)
    if width % 4:
        return 516 + rows * (378 + 60 * float(ceil_div(width, 12)))
    return 732 + rows * (456 + 72 * float(ceil_div(width, 24)))


def gather(n_indices: Amount, row_vectors: Amount, share: Amount) -> Amount:
    """Look up `n_indices` rows, `row_vectors` vectors each, of which this tile holds the given share (multiSlice)."""
    worker = 30 + ceil_div(n_indices, WORKERS) * (share * (19 + 2 * row_vectors) + (1 - share) * 8)
    return WORKERS * worker
