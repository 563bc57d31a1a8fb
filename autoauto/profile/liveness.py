"""What is alive around every layer, by two flags a tensor and one running sum."""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from autoauto.records.layers import Derivative, Layer, LayerGraph
from autoauto.records.units import Precision

IntArray = npt.NDArray[np.int64]


class Liveness(NamedTuple):
    """Bytes of activations around each of n layers; every array is (n,).

    Attributes:
        carried_bytes: made before layer i and read after it, so alive while it runs.
        input_bytes: alive at the boundary before layer i, carried ones included.
        output_bytes: alive at the boundary after layer i, carried ones included.
    """

    carried_bytes: IntArray
    input_bytes: IntArray
    output_bytes: IntArray


def carried(graph: LayerGraph, batch_size: int, precision: Precision) -> Liveness:
    """Bytes alive before, during and after every layer; weights do not count.

    Boundary b lies before layer b. A tensor is alive at the boundaries `producer < b <= last_use`: it switches on at
    `producer + 1` and off at `last_use + 1`, and a running sum over these flags gives the bytes at all boundaries
    (seed 001, "lazy update scheme"). What is alive on both sides of a layer is what the layer carries.
    """
    n_layers = len(graph)
    used = sorted({index for layer in graph.layers for index in (*layer.inputs, *layer.outputs)})
    tensors = [graph.tensors[index] for index in used]
    producer = np.array([tensor.producer for tensor in tensors], dtype=np.int64)
    last_use = np.array([tensor.last_use for tensor in tensors], dtype=np.int64)
    n_bytes = np.array([tensor.n_bytes(batch_size, precision) for tensor in tensors], dtype=np.int64)

    flags = np.zeros(n_layers + 2, dtype=np.int64)
    np.add.at(flags, producer + 1, n_bytes)
    np.subtract.at(flags, last_use + 1, n_bytes)
    alive = np.cumsum(flags)[: n_layers + 1]

    read_last = np.zeros(n_layers + 1, dtype=np.int64)
    np.add.at(read_last, last_use, np.where(last_use > producer, n_bytes, 0))
    return Liveness(alive[:-1] - read_last[:-1], alive[:-1], alive[1:])


class Kept(NamedTuple):
    """Bytes of activations kept for the backward pass, by layer; both lists have n entries.

    Attributes:
        first_bytes: what layer i is the first to keep.
        input_bytes: what layers before i keep and layers from i on keep too.
    """

    first_bytes: list[int]
    input_bytes: list[int]


def kept(derivative: Derivative, batch_size: int, precision: Precision) -> Kept:
    """Add up what all layers keep, by the first and the last that keeps each tensor.

    So `[start, stop)` keeps at most the sum of its `first_bytes` and `input_bytes[start]`, and just that when no later
    layer keeps what earlier ones do. The bound never shrinks when the range grows: what an earlier start adds to the
    sum is at least what it takes from the rest.
    """
    n_layers = len(derivative.graph)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for index in range(n_layers):
        for tensor in derivative.kept(index):
            first.setdefault(tensor, index)
            last[tensor] = index
    first_bytes, change = [0] * n_layers, [0] * (n_layers + 1)
    for tensor, index in first.items():
        n_bytes = derivative.graph.tensors[tensor].n_bytes(batch_size, precision)
        first_bytes[index] += n_bytes
        change[index + 1] += n_bytes
        change[last[tensor] + 1] -= n_bytes
    return Kept(first_bytes, list(accumulate(change[:-1])))


def gradient_pattern(derivative: Derivative, layer: Layer) -> str:
    """Which operands of a layer have a gradient as activations, a digit each: part of what its backward pass is.

    What is a parameter, layers of one kind agree about.
    """
    return "".join(str(int(operand >= 0 and derivative.needs_gradient(operand))) for operand in layer.operands)
