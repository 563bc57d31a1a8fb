"""Matrix products and convolutions, and the ways to cut them over tiles.

As poplin's planner does (IPU.md section 1.3): outputs are cut over batch, rows and columns, channels over tiles in
parallel and over steps in series. A serial step works on a slice of the output or input channels, so it needs less
memory at a time, and pays for slicing, for exchanging again and for shorter runs of the matrix units.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from autoauto.records.units import Precision
from autoauto.targets.ipu.kernels.codelets import Amount

Array = npt.NDArray[np.float64]

_MOST_PARTS = 24  # values tried for one parallel axis
_SERIAL = tuple((out, inn) for out in (1, 2, 4, 8, 16, 32, 64) for inn in (1, 2, 4, 8))


class Engine(StrEnum):
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
        precision: of operands.
        partials: of partial sums and outputs; fp32 operands have fp32 sums whatever it says.
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
    partials: Precision = Precision.FP16

    @property
    def sums(self) -> Precision:
        """Format of partial sums."""
        return Precision.FP32 if Precision.FP32 in (self.precision, self.partials) else Precision.FP16

    @property
    def grain(self) -> tuple[int, int]:
        """Input and output channels that one panel of weights holds: 32 bytes a unit.

        16 units; 8 when narrower operands are added up in fp32 (poplibs: conv_partial_1x1_half_float_8 and _half_h16).
        """
        if self.engine in (Engine.SLIDING_WINDOW, Engine.VECTOR):
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


def candidates(product: Product, n_tiles: int) -> Candidates:
    """Every split that is tried: all combinations of parts of groups, batch and channels; rows take the tiles left."""
    in_groups, out_groups = product.panels
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
