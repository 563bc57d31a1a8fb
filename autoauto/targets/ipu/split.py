"""Matrix products and convolutions over tiles: the split that takes fewest cycles within a bound on temporary bytes.

As poplin's planner does (IPU.md section 1.3): outputs are cut over batch, rows and columns, channels over tiles in
parallel and over steps in series. A serial step works on a slice of the output or input channels, so it needs less
memory at a time, and pays for slicing, for exchanging again and for shorter runs of the matrix units.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from autoauto.records.units import Precision
from autoauto.targets.ipu import kernels
from autoauto.targets.ipu.kernels import Amount, ceil_div

Array = npt.NDArray[np.float64]

_MOST_PARTS = 24  # values tried for one parallel axis
_SERIAL = tuple((out, inn) for out in (1, 2, 4, 8, 16) for inn in (1, 2, 4, 8))


class Engine(StrEnum):
    """The codelets that can do the multiplications."""

    GEMM = "conv1x1"
    CONVOLUTION = "convNx1"
    SLIDING_WINDOW = "slic"
    VECTOR = "vectorMac"


class Product(NamedTuple):
    """What is planned: out[g, b, y, x, n] = sum over k and kernel of in[g, b, y', x', k] * w[g, k, n, kernel].

    Attributes:
        engine: which codelet; `GEMM` has its rows in `width`, the others a field of height x width a sample.
        groups: independent products of these sizes; blocks of four output channels for narrow groups.
        batch, height, width: of the output.
        inputs, outputs: channels of one group.
        taps, stride: kernel height and width, and the step between outputs.
        precision: of operands and partial sums.
    """

    engine: Engine
    groups: int
    batch: int
    height: int
    width: int
    inputs: int
    outputs: int
    taps: tuple[int, int]
    stride: tuple[int, int]
    precision: Precision

    @property
    def grain(self) -> tuple[int, int]:
        """Input and output channels that one panel of weights holds."""
        if self.engine in (Engine.SLIDING_WINDOW, Engine.VECTOR):
            return 4, 4
        return 16, 16 if self.precision is Precision.FP16 else 8


class Split(NamedTuple):
    """A plan.

    Attributes:
        exchange_cycles, compute_cycles: of all serial steps.
        tile_bytes: temporary bytes of the fullest tile.
        n_tiles: tiles that work.
        n_sources: tiles that the fullest tile receives from.
        serial: steps in series.
        reduces: whether partial sums of several tiles are added.
        within_bound: False when no candidate met the bound, so that the fastest was taken without it.
    """

    exchange_cycles: int
    compute_cycles: int
    tile_bytes: int
    n_tiles: int
    n_sources: int
    serial: int
    reduces: bool
    within_bound: bool

    @property
    def cycles(self) -> int:
        """Exchange and compute together."""
        return self.exchange_cycles + self.compute_cycles


class Candidates(NamedTuple):
    """Columns of numbers, one row a candidate: parts of each axis over tiles, and serial parts of the channels."""

    groups: Array
    batch: Array
    height: Array
    width: Array
    inputs: Array
    outputs: Array
    serial_inputs: Array
    serial_outputs: Array

    @property
    def tiles(self) -> Array:
        """Tiles that a candidate uses."""
        return self.groups * self.batch * self.height * self.width * self.inputs * self.outputs


class Costs(NamedTuple):
    """What each candidate costs: columns as in `Split`."""

    exchange_cycles: Array
    compute_cycles: Array
    tile_bytes: Array
    n_sources: Array


@dataclass(frozen=True, slots=True)
class _Block:
    """The share of the fullest tile in one serial step; every field is a column."""

    groups: Amount
    cells: Amount
    lines: Amount
    width: Amount
    in_groups: Amount
    out_groups: Amount
    in_bytes: Amount
    weight_bytes: Amount
    out_elements: Amount


def _parts(length: int, most: int) -> list[int]:
    """Numbers of parts worth trying: those that make the largest part smaller, thinned out evenly.

    >>> _parts(6, 100)
    [1, 2, 3, 6]
    """
    sizes = sorted({-(-length // n) for n in range(1, min(length, most) + 1)}, reverse=True)
    parts = [-(-length // size) for size in sizes]
    if len(parts) <= _MOST_PARTS:
        return parts
    return [parts[round(i)] for i in np.linspace(0, len(parts) - 1, _MOST_PARTS)]


def _fill(length: int, tiles: Array) -> Array:
    """Parts of an axis that use up to `tiles` tiles without leaving one idle."""
    size = np.ceil(length / np.minimum(tiles, length))
    return np.ceil(length / size)


def _channel_groups(product: Product) -> tuple[int, int]:
    grain_in, grain_out = product.grain
    return -(-product.inputs // grain_in), -(-product.outputs // grain_out)


def candidates(product: Product, n_tiles: int) -> Candidates:
    """Every split that is tried: all combinations of parts of groups, batch and channels; rows take the tiles left."""
    in_groups, out_groups = _channel_groups(product)
    serial = np.array(_SERIAL, dtype=np.float64)
    axes = [_parts(n, n_tiles) for n in (product.groups, product.batch, in_groups, out_groups)]
    mesh = np.meshgrid(*axes, np.arange(len(serial)), indexing="ij")
    groups, batch, inputs, outputs = (column.ravel().astype(np.float64) for column in mesh[:4])
    serial_outputs, serial_inputs = serial[mesh[4].ravel()].T
    free = np.floor(n_tiles / (groups * batch * inputs * outputs))
    keep = (free >= 1) & (inputs * serial_inputs <= in_groups) & (outputs * serial_outputs <= out_groups)
    height = _fill(product.height, free[keep])
    width = _fill(product.width, np.floor(free[keep] / height))
    columns = (column[keep] for column in (inputs, outputs, serial_inputs, serial_outputs))
    return Candidates(groups[keep], batch[keep], height, width, *columns)


def _block(product: Product, split: Candidates) -> _Block:
    in_groups, out_groups = _channel_groups(product)
    grain_in, grain_out = product.grain
    batch = ceil_div(product.batch, split.batch)
    height, width = ceil_div(product.height, split.height), ceil_div(product.width, split.width)
    k = ceil_div(in_groups, split.inputs * split.serial_inputs)
    n = ceil_div(out_groups, split.outputs * split.serial_outputs)
    groups = ceil_div(product.groups, split.groups)
    window = _reach(height, 0, product) * _reach(width, 1, product)
    n_bytes = product.precision.n_bytes
    return _Block(
        groups=groups,
        cells=batch * height * width,
        lines=batch * height,
        width=width,
        in_groups=k,
        out_groups=n,
        in_bytes=groups * batch * window * np.minimum(k * grain_in, product.inputs) * n_bytes,
        weight_bytes=groups * k * n * grain_in * grain_out * product.taps[0] * product.taps[1] * n_bytes,
        out_elements=groups * batch * height * width * np.minimum(n * grain_out, product.outputs),
    )


def _reach(length: Amount, axis: int, product: Product) -> Amount:
    """Inputs along an axis that `length` outputs see: the halo belongs to it."""
    return (length - 1) * min(product.stride[axis], product.taps[axis]) + product.taps[axis]


def _multiply(product: Product, block: _Block) -> Amount:
    """Cycles of the codelet for all groups of a block."""
    if product.engine is Engine.GEMM:
        return block.groups * kernels.gemm(block.cells, block.in_groups, block.out_groups, product.precision)
    if product.engine is Engine.CONVOLUTION:
        panels = (block.in_groups, block.out_groups)
        return block.groups * kernels.convolution(block.lines, block.width, panels, product.taps, product.precision)
    codelet = kernels.sliding_window if product.engine is Engine.SLIDING_WINDOW else kernels.vector_mac
    return codelet(block.lines, block.width, block.groups, product.taps)


def _receive(product: Product, split: Candidates, block: _Block, n_tiles: int) -> tuple[Amount, Amount]:
    """Bytes that the fullest tile receives as its bus carries them, and how many tiles send them.

    Weights lie on the tiles that use them, spread over those that share them; activations lie evenly on all tiles.
    Two neighbours share a bus, so what both want arrives at twice the speed.
    """
    sharers = split.batch * split.height * split.width
    weights = block.weight_bytes * (1 - 1 / sharers)
    shared = np.maximum(np.where(split.outputs > 1, block.in_bytes, 0), np.where(sharers > 1, weights, 0))
    field = _reach(product.height, 0, product) * _reach(product.width, 1, product)
    tensor_bytes = product.groups * product.batch * product.inputs * field * product.precision.n_bytes
    sources = ceil_div(block.in_bytes, np.maximum(tensor_bytes / n_tiles, 1)) + sharers - 1
    return block.in_bytes + weights - shared / 2, sources


def _combine(product: Product, split: Candidates, block: _Block) -> tuple[Amount, Amount, Amount]:
    """Exchange cycles, compute cycles and bytes to add the partial sums of the tiles that share an output."""
    n = split.inputs
    received = block.out_elements * (n - 1) / n * product.precision.n_bytes
    stages = 1.0 + (n >= 16) + (n >= 125)  # poplibs' ConvReducePlan
    partials = np.ceil(n ** (1 / stages))
    one = kernels.reduce(ceil_div(block.out_elements, n), partials, product.precision)
    exchanged = kernels.exchange(received, n - 1) + (stages - 1) * kernels.exchange(received / n, partials)
    return np.where(n > 1, exchanged, 0), np.where(n > 1, stages * one, 0), np.where(n > 1, received, 0)


def costs(product: Product, split: Candidates, n_tiles: int) -> Costs:
    """Cycles and temporary bytes of every candidate (ConvModel.cpp's sum, IPU.md section 1.2 and 1.3)."""
    block = _block(product, split)
    received, sources = _receive(product, split, block, n_tiles)
    combine_exchange, combine, partial_bytes = _combine(product, split, block)
    steps = split.serial_inputs * split.serial_outputs
    out_bytes = block.out_elements * product.precision.n_bytes
    sharers = split.batch * split.height * split.width
    sliced = block.weight_bytes / sharers + out_bytes + np.where(split.serial_inputs > 1, block.in_bytes, 0)
    slicing = np.where(steps > 1, kernels.copy(sliced), 0)
    adding = np.where(split.serial_inputs > 1, kernels.reduce(block.out_elements, 2, product.precision), 0)
    compute = steps * (_multiply(product, block) + combine + slicing + adding)
    tile_bytes = block.in_bytes + np.where(sharers > 1, block.weight_bytes, 0) + out_bytes
    tile_bytes = np.maximum(tile_bytes, partial_bytes + out_bytes) + np.where(split.serial_inputs > 1, out_bytes, 0)
    exchanged = steps * (kernels.exchange(received, sources) + combine_exchange)
    return Costs(*(np.asarray(column, dtype=np.float64) for column in (exchanged, compute, tile_bytes, sources)))


@lru_cache(maxsize=4096)
def frontier(product: Product, n_tiles: int) -> tuple[Split, ...]:
    """The candidates that no other beats in both cycles and temporary bytes, fastest first."""
    split = candidates(product, n_tiles)
    cost = costs(product, split, n_tiles)
    cycles = np.ceil(cost.exchange_cycles) + np.ceil(cost.compute_cycles)
    order = np.lexsort((cost.tile_bytes, cycles))
    least = np.minimum.accumulate(cost.tile_bytes[order])
    better = np.concatenate(([True], cost.tile_bytes[order][1:] < least[:-1]))
    return tuple(_split(split, cost, int(i)) for i in order[better])


def _split(split: Candidates, cost: Costs, i: int) -> Split:
    return Split(
        exchange_cycles=int(np.ceil(cost.exchange_cycles[i])),
        compute_cycles=int(np.ceil(cost.compute_cycles[i])),
        tile_bytes=int(np.ceil(cost.tile_bytes[i])),
        n_tiles=int(split.tiles[i]),
        n_sources=int(cost.n_sources[i]),
        serial=int(split.serial_inputs[i] * split.serial_outputs[i]),
        reduces=bool(split.inputs[i] > 1),
        within_bound=True,
    )


def plan(product: Product, n_tiles: int, bound_bytes: float) -> Split:
    """The fastest split whose temporary bytes a tile stay within `bound_bytes`, the fastest of all when none does.

    >>> square = Product(Engine.GEMM, 1, 1, 1, 1024, 1024, 1024, (1, 1), (1, 1), Precision.FP16)
    >>> plan(square, 1472, 600_000).cycles <= plan(square, 1472, 40_000).cycles
    True
    """
    front = frontier(product, n_tiles)
    fitting = (split for split in front if split.tile_bytes <= bound_bytes)
    return next(fitting, front[0]._replace(within_bound=False))
