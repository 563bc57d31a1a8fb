"""Which activations are stashed for the backward pass, by a model and how it is compiled: `stash_of`.

A stage stashes what the backward passes of its layers read. One that computes its forward pass again stashes its
inputs, and what is alive at checkpoints:

    layers        0  1  2 | 3  4  5 | 6  7
    stashed       inputs  c1        c2         for every micro-batch in flight
    computed      all of one segment at a time, while its backward pass runs

A checkpoint costs what is alive there, for every micro-batch in flight. A segment costs the activations of one
micro-batch. In a pipeline of S stages about S micro-batches are in flight, each with the checkpoints of 1/S of the
model: as much as one device with the whole model has. So the checkpoints of a model are those that need the least
memory on one device, whatever its stages are. People choose them by hand: Graphcore's BERT behind every encoder layer,
its ResNet-50 behind residual blocks [graphcore-examples].
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from autoauto.records.costs.options import CompileOptions
from autoauto.records.layers import Derivative, LayerGraph, LayerRange, derivative
from autoauto.records.units import Precision


@dataclass(frozen=True, slots=True)
class ActivationStash:
    """The activations of a model that are stashed for the backward pass.

    Attributes:
        passes: the backward pass; without training no layer has one.
        checkpoints: boundaries, ascending, at which a stage that recomputes stashes what is alive; the one at layer i
            lies before it.
    """

    passes: Derivative
    checkpoints: tuple[int, ...] = ()

    def of_layer(self, index: int) -> frozenset[int]:
        """The tensors that the backward pass of a layer reads: a stage that does not recompute stashes them."""
        return self.passes.stashed(index)

    def boundary(self, tensor: int) -> int | None:
        """The first checkpoint at which a stage that recomputes stashes a tensor; None where it does at none."""
        entry = self.passes.graph.tensors[tensor]
        after = bisect_right(self.checkpoints, entry.producer)
        if after < len(self.checkpoints) and self.checkpoints[after] <= entry.last_use:
            return self.checkpoints[after]
        return None

    def within(self, layers: LayerRange) -> ActivationStash:
        """The stash of a range of layers that is a stage: of the checkpoints those inside it."""
        inside = [boundary for boundary in self.checkpoints if layers.start <= boundary < layers.stop]
        return replace(self, checkpoints=tuple(inside))


def stash_of(graph: LayerGraph, options: CompileOptions) -> ActivationStash:
    """The stashed activations of a model that is compiled with these options."""
    if options.training:
        return _in_training(graph)
    return ActivationStash(Derivative(graph, frozenset()))


@lru_cache(maxsize=256)  # a model has one, and each of its kinds of layers alone
def _in_training(graph: LayerGraph) -> ActivationStash:
    return ActivationStash(derivative(graph), checkpoints(graph))


def checkpoints(graph: LayerGraph) -> tuple[int, ...]:
    """The boundaries, ascending: one at layer i lies before it.

    They minimise the bytes that are alive at all of them plus the most activations between two, of one sample, among
    the boundaries at which fewer bytes are alive than at a neighbour or as many.
    """
    n_layers = len(graph)
    alive, backward = _alive_bytes(graph), derivative(graph)
    seen: set[int] = set()
    stashed = [0]  # running sum of what every layer is the first to stash for the backward pass, of one sample
    for index in range(n_layers):
        new = backward.stashed(index) - seen
        seen |= new
        stashed.append(stashed[-1] + sum(graph.tensors[tensor].n_bytes(1, Precision.FP16) for tensor in new))
    narrow = [i for i in range(1, n_layers) if alive[i] <= min(alive[i - 1 : i + 2])]
    ends = [0, *narrow, n_layers]
    weights = [0, *[alive[i] for i in narrow], 0]
    sums = [stashed[i] for i in ends]
    best, limit = _Choice(0, stashed[-1], ()), stashed[-1] - 1
    # Smaller and smaller segments need more and more checkpoints, until these alone need as much as the best.
    while (choice := _fewest_bytes(weights, sums, limit)) is not None and choice.stored_bytes < best.n_bytes:
        best = min(best, choice, key=lambda each: each.n_bytes)
        limit = choice.largest_bytes - 1
    return tuple(ends[position] for position in best.positions)


class _Choice(NamedTuple):
    """Checkpoints by their positions among the candidates, the bytes of all, and of the largest segment between."""

    stored_bytes: int
    largest_bytes: int
    positions: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        return self.stored_bytes + self.largest_bytes


def _fewest_bytes(weights: Sequence[int], sums: Sequence[int], limit: int) -> _Choice | None:
    """The checkpoints of least bytes between which no segment exceeds the limit, None where one always does.

    The best choice up to a candidate extends the best one up to a candidate before it, within the limit: those are a
    window that moves, whose minimum is at the front of a queue with ascending bytes.
    """
    fewest, before, window = [0] * len(sums), [-1] * len(sums), deque([0])
    for position in range(1, len(sums)):
        # A segment that is too long for this position is too long for all later ones.
        while window and sums[position] - sums[window[0]] > limit:
            window.popleft()
        if not window:
            return None
        before[position] = window[0]
        fewest[position] = fewest[window[0]] + weights[position]
        # Earlier candidates with no fewer bytes leave the window before this one: they are never the best again.
        while window and fewest[window[-1]] >= fewest[position]:
            window.pop()
        window.append(position)
    chosen = [len(sums) - 1]
    while chosen[-1]:
        chosen.append(before[chosen[-1]])
    segments = zip(chosen[1:], chosen, strict=False)
    return _Choice(fewest[-1], max(sums[b] - sums[a] for a, b in segments), tuple(chosen[-2:0:-1]))


def _alive_bytes(graph: LayerGraph) -> list[int]:
    activations: set[int] = set()
    for layer in graph.layers:
        activations.update(layer.inputs, layer.outputs)
    change = [0] * (len(graph) + 2)
    for index in activations:
        tensor = graph.tensors[index]
        if tensor.last_use > tensor.producer:
            n_bytes = tensor.n_bytes(1, Precision.FP16)
            change[tensor.producer + 1] += n_bytes
            change[tensor.last_use + 1] -= n_bytes
    return list(accumulate(change[:-1]))
