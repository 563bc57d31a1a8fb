"""Matrix products and convolutions (`Product`), and the ways to cut them over tiles (`candidates`).

As poplin's planner does [poplibs]: outputs are cut over batch, rows and columns, channels over tiles in
parallel and over steps in series. A serial step computes a slice of the output or input channels, so it needs less
memory at a time, and pays for slicing, for exchanging again and for shorter runs of the matrix units.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from autoauto.records.units import FloatArray, IntArray, Precision
from autoauto.targets.ipu.kernels import Amount

_MAX_PARTS = 24  # values tried for one parallel axis
_SERIAL_PARTS = tuple((outputs, inputs) for outputs in (1, 2, 4, 8, 16, 32, 64) for inputs in (1, 2, 4, 8))


class ProductCodelet(StrEnum):
    """The codelets that can do the multiplications."""

    GEMM = "conv1x1"
    CONVOLUTION = "convNx1"
    SLIDING_WINDOW = "slic"
    VECTOR = "vectorMac"


class Product(NamedTuple):
    """A matrix product or convolution: out[g, b, y, x, n] = sum of in[g, b, y', x', k] * w[g, k, n, tap].

    Attributes:
        engine: which codelet; `GEMM` has its rows in `width`, the others a field of height x width a sample.
        groups: independent products of these sizes; blocks of four output channels for narrow groups.
        batch, height, width: of the output.
        inputs, outputs: channels of one group.
        taps, stride: kernel height and width, and the step between outputs.
        partials: of partial sums and outputs; fp32 operands always have fp32 sums.
    """

    engine: ProductCodelet
    groups: int
    batch: int
    height: int
    width: int
    inputs: int
    outputs: int
    taps: tuple[int, int]
    stride: tuple[int, int]
    precision: Precision
    partials: Precision = Precision.FP16

    @property
    def sums(self) -> Precision:
        """Format of partial sums."""
        return Precision.FP32 if Precision.FP32 in (self.precision, self.partials) else Precision.FP16

    @property
    def regroups(self) -> bool:
        """True if inputs change their groups of channels on the tile: others write 16 together, fp32 reads 8."""
        return self.precision is Precision.FP32 and self.engine in (ProductCodelet.GEMM, ProductCodelet.CONVOLUTION)

    @property
    def grain(self) -> tuple[int, int]:
        """Input and output channels that one panel of weights holds: 32 bytes a unit.

        16 units; 8 when narrower operands are added up in fp32: conv_partial_1x1_half_float_8, _half_h16 [poplibs].
        """
        if self.engine in (ProductCodelet.SLIDING_WINDOW, ProductCodelet.VECTOR):
            return 4, 4
        mixed = self.sums is not Precision.FP16 and self.precision is not Precision.FP32
        return 32 // self.precision.n_bytes, 8 if mixed else 16

    @property
    def panels(self) -> tuple[int, int]:
        """Groups of input and of output channels, as many as a panel of weights holds."""
        grain_in, grain_out = self.grain
        return -(-self.inputs // grain_in), -(-self.outputs // grain_out)

    def reach(self, length: Amount, axis: int) -> Amount:
        """Inputs along an axis that `length` outputs see: the halo belongs to it."""
        return (length - 1) * min(self.stride[axis], self.taps[axis]) + self.taps[axis]


class SplitCandidates(NamedTuple):
    """Columns of numbers, one row a candidate: parts of each axis over tiles, and serial parts of the channels."""

    groups: FloatArray
    batch: FloatArray
    height: FloatArray
    width: FloatArray
    inputs: FloatArray
    outputs: FloatArray
    serial_inputs: FloatArray
    serial_outputs: FloatArray

    @property
    def tiles(self) -> FloatArray:
        """Tiles that a candidate uses."""
        return self.groups * self.batch * self.height * self.width * self.inputs * self.outputs

    def rows(self, rows: IntArray) -> SplitCandidates:
        """Some of the candidates, by their numbers."""
        return SplitCandidates(*(column[rows] for column in self))


@lru_cache(maxsize=64)
def candidates(product: Product, n_tiles: int) -> SplitCandidates:
    """Every split in one step: all combinations of parts of groups, batch and channels; rows take the tiles left.

    The last ones are kept: a product whose fastest split needs too much memory is asked for again.
    """
    inputs, outputs = _channel_parts(*product.panels, n_tiles)
    group_parts, batch_parts = _parts(product.groups, n_tiles), _parts(product.batch, n_tiles)
    groups = np.repeat(np.array(group_parts, dtype=np.float64), len(batch_parts))
    batch = np.tile(np.array(batch_parts, dtype=np.float64), len(group_parts))
    used = np.multiply.outer(groups * batch, inputs * outputs)
    row, column = np.nonzero(used <= n_tiles)
    free = np.floor(n_tiles / used[row, column])
    height = _fill(product.height, free)
    width = _fill(product.width, np.floor(free / height))
    whole = np.ones(len(row))
    return SplitCandidates(groups[row], batch[row], height, width, inputs[column], outputs[column], whole, whole)


def in_series(product: Product, split: SplitCandidates) -> tuple[IntArray, SplitCandidates]:
    """All splits with their channels computed in 1, 2, ... serial steps, as far as the channels can be cut.

    They have the parts over tiles of a row of `split`, whose number comes first.
    """
    outputs, inputs = np.array(_SERIAL_PARTS, dtype=np.float64).T
    in_panels, out_panels = (np.reshape(n, (-1, 1)) for n in product.panels)
    is_possible = np.multiply.outer(split.inputs, inputs) <= in_panels
    is_possible &= np.multiply.outer(split.outputs, outputs) <= out_panels
    row, step = np.nonzero(is_possible)
    return row, split.rows(row)._replace(serial_inputs=inputs[step], serial_outputs=outputs[step])


@lru_cache(maxsize=1024)
def _channel_parts(in_panels: int, out_panels: int, n_tiles: int) -> tuple[FloatArray, FloatArray]:
    """All combinations of parts of the input and output channels over tiles; at every batch size they are these."""
    input_parts, output_parts = _parts(in_panels, n_tiles), _parts(out_panels, n_tiles)
    inputs = np.repeat(np.array(input_parts, dtype=np.float64), len(output_parts))
    outputs = np.tile(np.array(output_parts, dtype=np.float64), len(input_parts))
    is_possible = inputs * outputs <= n_tiles
    return inputs[is_possible], outputs[is_possible]


@lru_cache(maxsize=4096)
def _parts(length: int, max_parts: int) -> tuple[int, ...]:
    """Numbers of parts worth trying: those that make the largest part smaller, thinned out evenly.

    >>> _parts(6, 100)
    (1, 2, 3, 6)
    """
    sizes = sorted({-(-length // n) for n in range(1, min(length, max_parts) + 1)}, reverse=True)
    parts = tuple(-(-length // size) for size in sizes)
    if len(parts) <= _MAX_PARTS:
        return parts
    return tuple(parts[round(i)] for i in np.linspace(0, len(parts) - 1, _MAX_PARTS))


def _fill(length: int, tiles: FloatArray) -> FloatArray:
    """Parts of an axis that use up to `tiles` tiles without leaving one idle."""
    size = np.ceil(length / np.minimum(tiles, length))
    return np.ceil(length / size)
