"""What every way to cut a product costs: `costs`, cycles of exchange and compute, bytes of the fullest tile."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from autoauto.records.units import FloatArray, Precision
from autoauto.targets.ipu import kernels
from autoauto.targets.ipu.kernels import WORKERS, Amount, ceil_div, loop
from autoauto.targets.ipu.tiling.split import Engine, Product, SplitCandidates


class SplitCosts(NamedTuple):
    """What each candidate costs: columns of numbers.

    Attributes:
        exchange_cycles, compute_cycles: of all serial steps.
        tile_bytes: temporary bytes of the fullest tile.
        n_sources: tiles that the fullest tile receives from.
    """

    exchange_cycles: FloatArray
    compute_cycles: FloatArray
    tile_bytes: FloatArray
    n_sources: FloatArray


def costs(product: Product, split: SplitCandidates, n_tiles: int) -> SplitCosts:
    """Cycles and temporary bytes of every candidate: the sum in poplin's ConvModel.cpp [poplibs].

    One serial step slices its weights, receives what it reads, multiplies, adds the partial sums of other tiles and,
    when the input channels are cut in series, adds its result to that of the steps before.
    """
    block = _block(product, split)
    received, sources = _receive(product, split, block, n_tiles)
    combine_exchange, combine, partial_bytes = _combine(product, split, block, n_tiles)
    steps = split.serial_inputs * split.serial_outputs
    out_bytes = block.out_elements * product.sums.n_bytes
    sharers = split.batch * split.height * split.width
    sliced = block.weight_bytes / sharers + out_bytes + np.where(split.serial_inputs > 1, block.in_bytes, 0)
    slicing = np.where(steps > 1, kernels.copy(sliced), 0)
    adding = np.where(split.serial_inputs > 1, kernels.reduce(block.out_elements, 2, product.sums), 0)
    regrouping = kernels.copy(block.in_bytes) if product.regroups else 0.0
    compute = _multiply(product, block) + combine + slicing + adding + regrouping + _halve(product, split, block)
    compute = steps * compute
    tile_bytes = block.in_bytes + np.where(sharers > 1, block.weight_bytes, 0) + out_bytes
    tile_bytes = np.maximum(tile_bytes, partial_bytes + out_bytes) + np.where(split.serial_inputs > 1, out_bytes, 0)
    exchanged = steps * (kernels.exchange(received, sources) + combine_exchange)
    return SplitCosts(*(np.asarray(column, dtype=np.float64) for column in (exchanged, compute, tile_bytes, sources)))


@dataclass(frozen=True, slots=True)
class _Block:
    """The share of the fullest tile in one serial step; every field is a column."""

    groups: Amount
    cells: Amount
    lines: Amount
    width: Amount
    in_panels: Amount
    out_panels: Amount
    in_bytes: Amount
    weight_bytes: Amount
    out_elements: Amount


def _block(product: Product, split: SplitCandidates) -> _Block:
    in_panels, out_panels = product.panels
    grain_in, grain_out = product.grain
    batch = ceil_div(product.batch, split.batch)
    height, width = ceil_div(product.height, split.height), ceil_div(product.width, split.width)
    k = ceil_div(in_panels, split.inputs * split.serial_inputs)
    n = ceil_div(out_panels, split.outputs * split.serial_outputs)
    groups = ceil_div(product.groups, split.groups)
    window = product.reach(height, 0) * product.reach(width, 1)
    n_bytes = product.precision.n_bytes
    return _Block(
        groups=groups,
        cells=batch * height * width,
        lines=batch * height,
        width=width,
        in_panels=k,
        out_panels=n,
        in_bytes=groups * batch * window * np.minimum(k * grain_in, product.inputs) * n_bytes,
        weight_bytes=groups * k * n * grain_in * grain_out * product.taps[0] * product.taps[1] * n_bytes,
        out_elements=groups * batch * height * width * np.minimum(n * grain_out, product.outputs),
    )


def _multiply(product: Product, block: _Block) -> Amount:
    """Cycles of the codelet for all groups of a block."""
    load_cycles = kernels.WEIGHT_LOAD_CYCLES * product.grain[1] / 16
    if product.precision is Precision.FP8:
        load_cycles += kernels.QUARTER_RESTART_CYCLES
    if product.grain[1] == 8:
        load_cycles -= kernels.SECOND_PASS_CYCLES
    panels, precision = (block.in_panels, block.out_panels), product.precision
    if product.engine is Engine.GEMM:
        return block.groups * kernels.gemm(block.cells, *panels, precision, load_cycles)
    if product.engine is Engine.CONVOLUTION:
        group = kernels.convolution(block.lines, block.width, panels, product.taps, precision, load_cycles)
        return block.groups * group
    codelet = kernels.sliding_window if product.engine is Engine.SLIDING_WINDOW else kernels.vector_mac
    return codelet(block.lines, block.width, block.groups, product.taps)


def _receive(product: Product, split: SplitCandidates, block: _Block, n_tiles: int) -> tuple[Amount, Amount]:
    """Bytes that the fullest tile receives as its bus carries them, and how many tiles send them.

    Weights lie on the tiles that use them, spread over those that share them; activations lie evenly on all tiles.
    Two neighbours share a bus, so what both want arrives at twice the speed.
    """
    sharers = split.batch * split.height * split.width
    weights = block.weight_bytes * (1 - 1 / sharers)
    inputs = block.in_bytes * (1 - 1 / split.outputs)
    shared = np.maximum(inputs, weights)
    field = product.reach(product.height, 0) * product.reach(product.width, 1)
    tensor_bytes = product.groups * product.batch * product.inputs * field * product.precision.n_bytes
    sources = ceil_div(block.in_bytes, np.maximum(tensor_bytes / n_tiles, 1)) + sharers - 1
    return inputs + weights - shared / 2, sources


@lru_cache(maxsize=16)
def _reductions(n_tiles: int) -> tuple[FloatArray, FloatArray]:
    """By the number of tiles that share an output, up to all: stages of their reduction, and partial sums in each."""
    n = np.arange(n_tiles + 1, dtype=np.float64)
    stages = (1.0 + (n >= 16) + (n >= 125)).astype(np.float64)  # ConvReducePlan [poplibs]
    partials: FloatArray = np.ceil(n ** (1 / stages))
    return stages, partials


def _combine(product: Product, split: SplitCandidates, block: _Block, n_tiles: int) -> tuple[Amount, Amount, Amount]:
    """Exchange cycles, compute cycles and bytes to add the partial sums of the tiles that share an output."""
    n = split.inputs
    received = block.out_elements * (n - 1) / n * product.sums.n_bytes
    stages, partials = (column[n.astype(np.int64)] for column in _reductions(n_tiles))
    stage = kernels.reduce(ceil_div(block.out_elements, n), partials, product.sums)
    exchanged = kernels.exchange(received, n - 1) + (stages - 1) * kernels.exchange(received / n, partials)
    return np.where(n > 1, exchanged, 0), np.where(n > 1, stages * stage, 0), np.where(n > 1, received, 0)


def _halve(product: Product, split: SplitCandidates, block: _Block) -> Amount:
    """Cycles to cast fp32 sums to the halves that a product of narrower operands writes; a reduction does it alone."""
    if product.sums is product.precision or product.sums is Precision.FP16:
        return 0.0
    cast = loop("convert", Precision.FP16)
    waves = ceil_div(block.out_elements, WORKERS * cast.elements)
    return np.where(split.inputs > 1, 0, kernels.UNARY_LAUNCH_CYCLES + WORKERS * cast.cycles * waves)
