"""What is alive around every layer, by two flags a tensor and one running sum."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from autoauto.records.layers import LayerGraph
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
