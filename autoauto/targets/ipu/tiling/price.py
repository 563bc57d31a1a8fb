"""The cost of every way to cut a product: `costs`, cycles of exchange and compute, and bytes of the fullest tile."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from autoauto.records.units import FloatArray, Precision
from autoauto.targets.ipu import kernels
from autoauto.targets.ipu.kernels import WORKERS, Amount, ceil_div, loop
from autoauto.targets.ipu.tiling.split import Product, ProductCodelet, SplitCandidates


class SplitCosts(NamedTuple):
    """The costs of candidates: columns of numbers.

    Attributes:
        exchange_cycles, compute_cycles: cycles of all serial steps.
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
    combine_exchange, combine = _combine(product, split, block, n_tiles)
    steps = split.serial_inputs * split.serial_outputs
    sliced = block.weight_bytes / block.sharers + block.out_bytes
    sliced = sliced + np.where(split.serial_inputs > 1, block.in_bytes, 0)
    slicing = np.where(steps > 1, kernels.copy(sliced), 0)
    adding = np.where(split.serial_inputs > 1, kernels.reduce(block.out_elements, 2, product.sums), 0)
    regrouping = kernels.copy(block.in_bytes) if product.regroups else 0.0
    one_step = _multiply(product, block) + combine + slicing + adding + regrouping + _halve(product, split, block)
    return SplitCosts(
        exchange_cycles=_column(steps * (kernels.exchange(received, sources) + combine_exchange)),
        compute_cycles=_column(steps * one_step),
        tile_bytes=_column(_tile_bytes(split, block)),
        n_sources=_column(sources),
    )


def tile_bytes(product: Product, split: SplitCandidates) -> FloatArray:
    """Temporary bytes of the fullest tile of every candidate: `SplitCosts.tile_bytes` alone takes less time."""
    return _column(_tile_bytes(split, _block(product, split)))


def _column(amount: Amount) -> FloatArray:
    return np.asarray(amount, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class _Block:
    """The share of the fullest tile in one serial step; every field is a column.

    Attributes:
        groups, cells, lines, width: sizes of the output; a line is a row of a sample.
        in_panels, out_panels: groups of channels.
        partial_bytes: bytes of partial sums received from tiles that share the output; 0 if none does.
        sharers: tiles that share the weights.
    """

    groups: Amount
    cells: Amount
    lines: Amount
    width: Amount
    in_panels: Amount
    out_panels: Amount
    in_bytes: Amount
    weight_bytes: Amount
    out_elements: Amount
    out_bytes: Amount
    partial_bytes: Amount
    sharers: Amount


def _block(product: Product, split: SplitCandidates) -> _Block:
    grain_in, grain_out = product.grain
    batch = ceil_div(product.batch, split.batch)
    height, width = ceil_div(product.height, split.height), ceil_div(product.width, split.width)
    k = ceil_div(ceil_div(product.inputs, grain_in), split.inputs * split.serial_inputs)
    n = ceil_div(ceil_div(product.outputs, grain_out), split.outputs * split.serial_outputs)
    groups = ceil_div(product.groups, split.groups)
    window = product.reach(height, 0) * product.reach(width, 1)
    n_bytes = product.precision.n_bytes
    lines = batch * height
    out_elements = groups * batch * height * width * np.minimum(n * grain_out, product.outputs)
    out_bytes = out_elements * product.sums.n_bytes
    return _Block(
        groups=groups,
        cells=lines * width,
        lines=lines,
        width=width,
        in_panels=k,
        out_panels=n,
        in_bytes=groups * batch * window * np.minimum(k * grain_in, product.inputs) * n_bytes,
        weight_bytes=groups * k * n * grain_in * grain_out * product.taps[0] * product.taps[1] * n_bytes,
        out_elements=out_elements,
        out_bytes=out_bytes,
        partial_bytes=out_elements * (split.inputs - 1) / split.inputs * product.sums.n_bytes,
        sharers=split.batch * split.height * split.width,
    )


def _tile_bytes(split: SplitCandidates, block: _Block) -> Amount:
    """Operands and results of a step, or what it adds up; and where input channels are cut, the sums so far."""
    operands = block.in_bytes + np.where(block.sharers > 1, block.weight_bytes, 0)
    added = np.maximum(operands + block.out_bytes, block.partial_bytes + block.out_bytes)
    return added + np.where(split.serial_inputs > 1, block.out_bytes, 0)


def _multiply(product: Product, block: _Block) -> Amount:
    load_cycles = kernels.WEIGHT_LOAD_CYCLES * product.grain[1] / 16
    if product.precision is Precision.FP8:
        load_cycles += kernels.QUARTER_RESTART_CYCLES
    if product.grain[1] == 8:
        load_cycles -= kernels.SECOND_PASS_CYCLES
    panels, precision = (block.in_panels, block.out_panels), product.precision
    if product.engine is ProductCodelet.GEMM:
        return block.groups * kernels.gemm(block.cells, *panels, precision, load_cycles)
    if product.engine is ProductCodelet.CONVOLUTION:
        group = kernels.convolution(block.lines, block.width, panels, product.taps, precision, load_cycles)
        return block.groups * group
    codelet = kernels.sliding_window if product.engine is ProductCodelet.SLIDING_WINDOW else kernels.vector_mac
    return codelet(block.lines, block.width, block.groups, product.taps)


def _receive(product: Product, split: SplitCandidates, block: _Block, n_tiles: int) -> tuple[Amount, Amount]:
    """Bytes that the fullest tile receives as its bus carries them, and how many tiles send them.

    Weights lie on the tiles that use them, spread over those that share them; activations lie evenly on all tiles.
    Two neighbours share a bus, so what both want arrives at twice the speed.
    """
    weights = block.weight_bytes * (1 - 1 / block.sharers)
    inputs = block.in_bytes * (1 - 1 / split.outputs)
    shared = np.maximum(inputs, weights)
    field = product.reach(product.height, 0) * product.reach(product.width, 1)
    tensor_bytes = product.groups * product.batch * product.inputs * field * product.precision.n_bytes
    sources = ceil_div(block.in_bytes, np.maximum(tensor_bytes / n_tiles, 1)) + block.sharers - 1
    return inputs + weights - shared / 2, sources


@lru_cache(maxsize=16)
def _reductions(n_tiles: int) -> tuple[FloatArray, FloatArray]:
    """The stages of a reduction, and the partial sums in each, for every number of tiles that share an output."""
    n = np.arange(n_tiles + 1, dtype=np.float64)
    stages = (1.0 + (n >= 16) + (n >= 125)).astype(np.float64)  # ConvReducePlan [poplibs]
    partials: FloatArray = np.ceil(n ** (1 / stages))
    return stages, partials


def _combine(product: Product, split: SplitCandidates, block: _Block, n_tiles: int) -> tuple[Amount, Amount]:
    n = split.inputs
    received = block.partial_bytes
    # A table of all numbers of tiles, because powers of whole columns take long.
    stages, partials = (column[n.astype(np.int64)] for column in _reductions(n_tiles))
    stage = kernels.reduce(ceil_div(block.out_elements, n), partials, product.sums)
    exchanged = kernels.exchange(received, n - 1) + (stages - 1) * kernels.exchange(received / n, partials)
    return np.where(n > 1, exchanged, 0), np.where(n > 1, stages * stage, 0)


def _halve(product: Product, split: SplitCandidates, block: _Block) -> Amount:
    """Cycles to cast fp32 sums to the halves that a product of narrower operands writes; a reduction does it alone."""
    if product.sums is product.precision or product.sums is Precision.FP16:
        return 0.0
    cast = loop("convert", Precision.FP16)
    waves = ceil_div(block.out_elements, WORKERS * cast.elements)
    return np.where(split.inputs > 1, 0, kernels.UNARY_LAUNCH_CYCLES + WORKERS * cast.cycles * waves)
