"""Cycles of one tile: codelets on six workers, copies, and the exchange that feeds them.

Every function takes numbers or NumPy arrays of numbers. A supervisor starts six workers that issue in turn, so a tile
takes supervisor cycles + 6 x the cycles of its slowest worker (IPU.md section 1.2, vectors/cost_model_formulas.json).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from autoauto.records.units import Precision
from autoauto.targets.ipu.tables import loop

Amount = float | npt.NDArray[np.float64]

WORKERS = 6
EXCHANGE_BYTES_PER_CYCLE = 4  # Target::getExchangeBytesPerCycle
COPY_BYTES_PER_CYCLE = 8  # Target::getMemcpyBytesPerCycle
SYNC_CYCLES = 126  # Target::getMaxIPUSyncDelay
SHORTEST_EXCHANGE_CYCLES = 160  # eventCyclesPerExchangeFragment of the same target
SOURCE_CYCLES = 12  # to turn from one sending tile to the next; fitted to ResNet-50 at batch 1
COPY_CALL_CYCLES = 288  # localCopyCallCycles
WEIGHT_LOAD_CYCLES = 32  # 16 units x 16 weights in 128-bit loads
BINARY_LAUNCH_CYCLES = 504  # measured: vectors/ipu_kernel_cycles_measured.json, "add"
UNARY_LAUNCH_CYCLES = 330  # measured: "gelu"
REORDER_CYCLES_PER_ELEMENT = 3  # the lower end of 3 to 10 for a change of panel order


def ceil_div(amount: Amount, parts: Amount) -> Amount:
    """The larger share when `amount` is cut in `parts`.

    >>> ceil_div(7, 2)
    4.0
    """
    result: Amount = np.ceil(np.asarray(amount) / parts)
    return result if np.ndim(result) else float(result)


def exchange(n_bytes: Amount, n_sources: Amount = 1) -> Amount:
    """A sync, then `n_bytes` into the fullest tile from `n_sources` other tiles.

    >>> exchange(4000), exchange(4)
    (1138.0, 286.0)
    """
    transfer = n_bytes / EXCHANGE_BYTES_PER_CYCLE + SOURCE_CYCLES * n_sources
    result: Amount = SYNC_CYCLES + np.maximum(SHORTEST_EXCHANGE_CYCLES, transfer)
    return result if np.ndim(result) else float(result)


def copy(n_bytes: Amount) -> Amount:
    """A copy within the tile."""
    return COPY_CALL_CYCLES + n_bytes / COPY_BYTES_PER_CYCLE


def reorder(n_elements: Amount) -> Amount:
    """A copy within the tile that also transposes, element by element."""
    return COPY_CALL_CYCLES + REORDER_CYCLES_PER_ELEMENT * n_elements


def _panel_worker(rows: Amount, precision: Precision) -> Amount:
    """Cycles of a worker that takes `rows` rows through one panel of weights."""
    long, two, one = (18 + 4 * rows, 34, 25) if precision is Precision.FP16 else (17 + 8 * rows, 37, 26)
    short = np.where(np.equal(rows, 2), two, one)
    return np.where(np.greater_equal(rows, 3), long, short).astype(np.float64)


def gemm(rows: Amount, in_groups: Amount, out_groups: Amount, precision: Precision) -> Amount:
    """`rows` x `in_groups` groups of inputs through the matrix units to `out_groups` groups of outputs.

    Formula: poplibs ConvPartial1x1 with 128-bit weight loads. Panels are 16 x 16 in fp16, 16 x 8 in fp32.

    >>> int(gemm(16, 1, 1, Precision.FP16))
    353
    """
    first = WORKERS * _panel_worker(ceil_div(rows, WORKERS), precision)
    later = (in_groups - 1) * (15 + out_groups * (25 + WEIGHT_LOAD_CYCLES + first + WORKERS))
    return 98 + 18 * in_groups + later + out_groups * (25 + WEIGHT_LOAD_CYCLES + first)


def _lines_a_worker(lines: Amount) -> Amount:
    """Pieces of lines that the slowest worker handles when all cells are dealt evenly."""
    whole = ceil_div(lines, WORKERS)
    return whole + ceil_div(whole - lines / WORKERS, 1)


def convolution(
    lines: Amount, width: Amount, panels: tuple[Amount, Amount], taps: tuple[int, int], precision: Precision
) -> Amount:
    """`lines` x `width` outputs through the matrix units, once a kernel position and panel of (inputs, outputs).

    Formula: poplibs ConvPartialnx1, filter height 1.
    """
    row_cycles = 4 if precision is Precision.FP16 else 8
    worker = 18 + 16 * _lines_a_worker(lines) + row_cycles * ceil_div(lines * width, WORKERS)
    position = 12 + WEIGHT_LOAD_CYCLES + 18 + WORKERS * worker
    return 179 + panels[0] * (14 + panels[1] * (14 + taps[0] * (14 + taps[1] * position)))


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
    """`n_partials` values added to each of `n_outputs` on one tile; exact on seven measured cases.

    >>> reduce(1472, 4, Precision.FP16)
    3444.0
    """
    vector = WORKERS * 16 // precision.n_bytes
    return 282 + ceil_div(n_outputs, vector) * WORKERS * (11 + 2 * (n_partials - 1))


def elementwise(n_elements: float, loops: tuple[str, ...], n_operands: int, precision: Precision) -> float:
    """One launch of the inner loops `loops` over `n_elements` of a tile; exact on the measured additions.

    >>> elementwise(1728, ("add",), 2, Precision.FP16)
    1800.0
    """
    worker = 0.0
    for inner in (loop(name, precision) for name in loops):
        worker += inner.cycles * float(ceil_div(n_elements, WORKERS * inner.elements))
    return (BINARY_LAUNCH_CYCLES if n_operands > 1 else UNARY_LAUNCH_CYCLES) + WORKERS * worker


def gelu(n_elements: int) -> int:
    """Gelu in fp16: blocks of 16 dealt to the workers, the rest one by one; exact on eleven measured cases.

    >>> gelu(96), gelu(98), gelu(6)
    (792, 942, 702)
    """
    blocks, rest = divmod(n_elements, 16)
    whole = UNARY_LAUNCH_CYCLES + -(-blocks // WORKERS) * 462
    if not rest:
        return whole
    before = blocks // WORKERS
    return max(whole + 18, 342 + 60 * rest + before * 462 + 18 * (before > 0))


def softmax(rows: float, keys: float, precision: Precision) -> float:
    """Softmax of whole rows on one tile; a row of up to 64 keys costs as much as 64.

    Fitted to the measured 8 x 64 (2664 cycles) and 8 x 768 (20226); fp32 has half the vector width.

    >>> round(softmax(8, 64, Precision.FP16))
    2664
    """
    width = precision.n_bytes / 2
    return 1068 + float(ceil_div(rows, WORKERS)) * 12.47 * max(keys, 64) * width


def layernorm(rows: float, width: float, precision: Precision) -> float:
    """Normalise whole rows on one tile; the line through four measured cases, exact on all of them.

    >>> layernorm(3, 1152, Precision.FP16), layernorm(1, 144, Precision.FP16)
    (19938.0, 2196.0)
    """
    return 129 + rows * (1419 + 4.5 * width * precision.n_bytes / 2)


def moments(rows: float, width: float, precision: Precision) -> float:
    """Mean and variance of rows on one tile; exact on four measured cases.

    >>> moments(3, 1152, Precision.FP16)
    8676.0
    """
    return 126 + rows * (1122 + 1.5 * width * precision.n_bytes / 2)


def whiten(rows: float, width: float, precision: Precision) -> float:
    """Subtract means, scale and shift rows on one tile; exact on four measured cases.

    >>> whiten(3, 1152, Precision.FP16)
    12468.0
    """
    return 732 + rows * (456 + 3 * width * precision.n_bytes / 2)


def gather(n_indices: float, row_vectors: float, share: float) -> float:
    """Look up `n_indices` rows, `row_vectors` vectors each, of which this tile holds the given share (multiSlice)."""
    worker = 30 + float(ceil_div(n_indices, WORKERS)) * (share * (19 + 2 * row_vectors) + (1 - share) * 8)
    return WORKERS * worker
