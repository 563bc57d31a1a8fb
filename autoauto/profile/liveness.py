"""Bytes of activations around every layer: alive, `carried`, and stashed, `stashed`, `checkpointed`."""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

import numpy as np

from autoauto.records.costs.cost import TensorUse
from autoauto.records.costs.stash import ActivationStash
from autoauto.records.layers import Derivative, Layer, LayerGraph, LayerRange
from autoauto.records.units import IntArray, Precision, fixed_and_per_sample


class Liveness(NamedTuple):
    """Bytes of activations around each of n layers; every array is (n,)."""

    carried_bytes: IntArray  # written before layer i and read after it, so alive while it runs
    input_bytes: IntArray  # alive at the boundary before layer i, carried ones included
    output_bytes: IntArray  # alive at the boundary after layer i, carried ones included


def carried(graph: LayerGraph, batch_size: int, precision: Precision) -> Liveness:
    """Bytes alive before, during and after every layer; weights do not count.

    Boundary b lies before layer b. A tensor is alive at the boundaries `producer < b <= last_use`: its bytes are added
    at `producer + 1` and subtracted at `last_use + 1`, and a running sum gives the bytes at all boundaries, as in the
    lazy update of [auto-pipeline, README]. A tensor of layer 0 that layer 2 reads:

        boundary    0   1   2   3
        change      .   +   .   -
        alive       .   x   x   .

    A layer carries the tensors that are alive at both of its boundaries.
    """
    n_layers = len(graph)
    tensors = [graph.tensors[index] for index in _activations(graph)]
    producer = np.array([tensor.producer for tensor in tensors], dtype=np.int64)
    last_use = np.array([tensor.last_use for tensor in tensors], dtype=np.int64)
    n_bytes = np.array([tensor.n_bytes(batch_size, precision) for tensor in tensors], dtype=np.int64)

    changes = np.zeros(n_layers + 2, dtype=np.int64)
    np.add.at(changes, producer + 1, n_bytes)
    np.subtract.at(changes, last_use + 1, n_bytes)
    alive = np.cumsum(changes)[: n_layers + 1]

    # Of what is alive before a layer it carries all but what it is the last to read.
    read_last = np.zeros(n_layers + 1, dtype=np.int64)
    np.add.at(read_last, last_use, np.where(last_use > producer, n_bytes, 0))
    return Liveness(alive[:-1] - read_last[:-1], alive[:-1], alive[1:])


def largest_crossing(
    graph: LayerGraph, layers: LayerRange, batch_size: int, precision: Precision
) -> list[tuple[str, int]]:
    """The names and bytes of the three largest tensors that are alive where a range begins or ends, once each."""
    crossing = []
    for index in _activations(graph):
        tensor = graph.tensors[index]
        if any(tensor.producer < boundary <= tensor.last_use for boundary in layers):
            crossing.append((tensor.name, tensor.n_bytes(batch_size, precision)))
    return sorted(crossing, key=lambda entry: -entry[1])[:3]


def _activations(graph: LayerGraph) -> list[int]:
    """The tensors that layers read or write, without weights, ascending."""
    used = set[int]()
    for layer in graph.layers:
        used.update(layer.inputs, layer.outputs)
    return sorted(used)


def first_read_bytes(graph: LayerGraph, precision: Precision) -> list[int]:
    """Bytes of the weights that no earlier layer reads, by layer, so that each weight counts once."""
    read = set[int]()
    n_bytes = []
    for layer in graph.layers:
        new = set(layer.weights) - read
        read |= new
        n_bytes.append(sum(graph.tensors[index].n_bytes(1, precision) for index in new))
    return n_bytes


def tensor_uses(graph: LayerGraph, batch_size: int, precision: Precision, *, training: bool) -> list[TensorUse]:
    """The tensors that layers exchange if any device reaches any other; in training a gradient comes back for each."""
    readers: dict[int, list[int]] = {}
    for index, layer in enumerate(graph.layers):
        for tensor in dict.fromkeys(layer.inputs):
            readers.setdefault(tensor, []).append(index)
    uses = []
    for tensor, consumers in readers.items():
        producer = graph.tensors[tensor].producer
        if producer >= 0:  # inputs of the model come from the host
            n_bytes = graph.tensors[tensor].n_bytes(batch_size, precision) * (1 + training)
            uses.append(TensorUse(producer, tuple(consumers), n_bytes))
    return uses


class StashedBytes(NamedTuple):
    """Bytes of activations stashed for the backward pass, by layer; both lists have n entries."""

    first_bytes: list[int]  # what layer i is the first to stash
    input_bytes: list[int]  # what both layers before i and layers from i on stash


def stashed(stash: ActivationStash, batch_size: int, precision: Precision) -> StashedBytes:
    """Add up the stashes of all layers, by the first and the last layer that stashes each tensor.

    A range `[start, stop)` stashes at most the sum of its `first_bytes` plus `input_bytes[start]`, and exactly that
    when layers of the range stash all of the latter. The bound never shrinks when the range grows: when
    `start` moves from i + 1 to i, the sum grows by `first_bytes[i]`, and `input_bytes` falls by no more than that.
    """
    tensors = stash.passes.graph.tensors
    n_layers = len(stash.passes.graph)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for index in range(n_layers):
        for tensor in stash.of_layer(index):
            first.setdefault(tensor, index)
            last[tensor] = index
    first_bytes = [0] * n_layers
    changes = [0] * (n_layers + 1)  # of `input_bytes` from a layer to the next: their running sum is all of them
    for tensor, index in first.items():
        n_bytes = tensors[tensor].n_bytes(batch_size, precision)
        first_bytes[index] += n_bytes
        changes[index + 1] += n_bytes
        changes[last[tensor] + 1] -= n_bytes
    return StashedBytes(first_bytes, list(accumulate(changes[:-1])))


def checkpointed(stash: ActivationStash, batch_size: int, precision: Precision) -> list[int]:
    """Bytes that a stage that recomputes is the first to stash before each layer; 0 before most layers."""
    graph = stash.passes.graph
    n_bytes = [0] * len(graph)
    for index in _activations(graph):
        boundary = stash.boundary(index)
        if boundary is not None:
            n_bytes[boundary] += graph.tensors[index].n_bytes(batch_size, precision)
    return n_bytes


AROUND = (
    "carried_bytes",
    "input_bytes",
    "output_bytes",
    "activation_bytes",
    "stashed_input_bytes",
    "checkpoint_bytes",
)
"""The fields of a `LayerProfile` that depend on the tensors around it, the columns of `Surroundings`."""


class Surroundings(NamedTuple):
    """Bytes of the tensors around every layer at any batch size, each (n, 6): `fixed_bytes` + n x `sample_bytes`.

    A column for each of the fields `AROUND`.
    """

    fixed_bytes: IntArray
    sample_bytes: IntArray


def surroundings(stash: ActivationStash, precision: Precision) -> Surroundings:
    """`carried`, `stashed` and `checkpointed` at any batch size.

    The bytes of a tensor grow evenly with the batch size, or do not depend on it. All results are sums of such, so
    their values at two batch sizes give those at all others.
    """

    def columns(batch_size: int) -> IntArray:
        alive = carried(stash.passes.graph, batch_size, precision)
        stashes = stashed(stash, batch_size, precision)
        checkpoints = checkpointed(stash, batch_size, precision)
        return np.array([*alive, *stashes, checkpoints], dtype=np.int64).T

    return Surroundings(*fixed_and_per_sample(columns))


def gradient_pattern(derivative: Derivative, layer: Layer) -> str:
    """A digit for every operand of a layer, 1 for an activation with a gradient; its backward pass depends on it.

    Parameters need no digit: layers of one kind have the same ones.
    """
    return "".join(str(int(operand >= 0 and derivative.needs_gradient(operand))) for operand in layer.operands)
