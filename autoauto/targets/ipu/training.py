"""The backward pass of a range of layers: `backward_pass`, its cycles, its stashed activations and its gradients.

The memory of a range that computes its forward pass again, from checkpoint to checkpoint: `recomputation`.

The forward pass stashes what is alive at the checkpoints of the model that lie in the range
(`records/costs/stash.py`). The backward pass then takes one segment between two checkpoints after the other, from
the last one: it computes the segment's activations, which stay until it has used them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

from autoauto.records.costs.profile import GRADIENT
from autoauto.records.costs.stash import ActivationStash, stash_of
from autoauto.records.layers import LayerRange
from autoauto.targets.ipu.memory import live_bytes, live_gradient_bytes, tensors_of, working_bytes
from autoauto.targets.ipu.operator_cost import (
    DEFAULT_SETTINGS,
    CompilerSettings,
    OperatorContext,
    OperatorCost,
    PricedRange,
)
from autoauto.targets.ipu.operators.backward import Gradients, backward, cycles, join


class Recomputation(NamedTuple):
    """The memory of a range that computes its forward pass again.

    Attributes:
        checkpoint_bytes: bytes that a micro-batch stashes at checkpoints, without the inputs of the range.
        temporary_bytes: the peak over both passes, with the checkpoints of this micro-batch.
        last_segment: the first layer after the last checkpoint in the range, or of the range.
    """

    checkpoint_bytes: int = 0
    temporary_bytes: int = 0
    last_segment: int = 0


def recomputation(priced: PricedRange, stash: ActivationStash, backward_bytes: Sequence[int]) -> Recomputation:
    """The memory of a range; `backward_bytes` are in use while each layer runs backward, besides what is stashed."""
    graph, layers, own = priced.graph, priced.layers, stash.within(priced.layers)
    stored = {index for index in tensors_of(graph, layers) if own.boundary(index) is not None}
    stashed_until: dict[int, int] = {}
    peak_bytes = 0
    # The parts of the range between checkpoints, of which one may be its start.
    for segment in map(LayerRange._make, pairwise(sorted({layers.start, *own.checkpoints, layers.stop}))):
        for index in range(*segment):
            stashed_until.update(dict.fromkeys(own.of_layer(index), segment.stop))
        # The backward pass of a segment holds the checkpoints before it, and what the segment has computed again.
        before = (index for index in stored if graph.tensors[index].last_use < segment.start)
        checkpoint_bytes = sum(map(priced.n_bytes, before))
        computed = accumulate(stash_bytes(priced, own, segment))
        for index, computed_bytes in zip(range(*segment), computed, strict=True):
            layer_bytes = computed_bytes + backward_bytes[index - layers.start]
            peak_bytes = max(peak_bytes, checkpoint_bytes + layer_bytes)
    stashed_until.update(dict.fromkeys(stored, layers.stop))
    for n_bytes, cost in zip(live_bytes(priced, stashed_until), priced.costs, strict=True):
        peak_bytes = max(peak_bytes, n_bytes + working_bytes(cost, priced.device.n_tiles))
    made = (index for index in stored if graph.tensors[index].producer >= layers.start)
    last_segment = max((layers.start, *own.checkpoints))
    return Recomputation(sum(map(priced.n_bytes, made)), peak_bytes, last_segment)


def stash_bytes(priced: PricedRange, stash: ActivationStash, layers: LayerRange) -> list[int]:
    """Bytes of the activations that each of some layers stashes and no earlier one of them has stashed."""
    seen: set[int] = set()
    n_bytes = []
    for index in range(*layers):
        new = stash.of_layer(index) - seen
        seen |= new
        n_bytes.append(sum(map(priced.n_bytes, new)))
    return n_bytes


@dataclass(frozen=True, slots=True)
class BackwardPass:
    """The backward pass of a range of layers.

    Attributes:
        costs, kinds: the passes over data, and the kind of each.
        weight_cycles: of the passes that make the gradients of parameters.
        stashed: indices of the activations that it reads.
        temporary_bytes: the peak of stashed activations, gradients of activations, and working memory.
        again: the memory where the range computes its forward pass again.
        exclusive: bytes of the gradients of parameters, to which every micro-batch adds.
    """

    costs: tuple[OperatorCost, ...] = ()
    kinds: tuple[str, ...] = ()
    cycles: int = 0
    weight_cycles: int = 0
    stashed: frozenset[int] = frozenset()
    activation_bytes: int = 0
    temporary_bytes: int = 0
    again: Recomputation = field(default_factory=Recomputation)
    exclusive: Mapping[str, int] = field(default_factory=dict)


def backward_pass(priced: PricedRange, settings: CompilerSettings = DEFAULT_SETTINGS) -> BackwardPass:
    """The backward pass of a range."""
    graph, layers, _, device, options = priced
    stash = stash_of(graph, options)
    passes = stash.passes
    made, kinds = [], []
    working = live_gradient_bytes(priced, passes)  # by layer; scratch of its passes is added
    stashed: set[int] = set()
    parameters: set[int] = set()
    for step, index in enumerate(range(*layers)):
        layer = graph.layers[index]
        gradients = Gradients()
        if index in passes.trained:
            gradients = backward(OperatorContext(graph, layer, device, options, settings), passes)
        made.append(gradients)
        # Layers of one kind make their gradients alike, so each pass is named by the kind of its layer.
        kinds += [f"{layer.kind}_gradient{number}" for number in range(len(gradients.costs))]
        working[step] += max((working_bytes(cost, device.n_tiles) for cost in gradients.costs), default=0)
        stashed |= stash.of_layer(index)
        parameters.update(passes.parameters(layer))
    all_made = join(*made)
    new_bytes = stash_bytes(priced, stash, layers)
    return BackwardPass(
        costs=tuple(chain.from_iterable(gradients.costs for gradients in made)),
        kinds=tuple(kinds),
        cycles=cycles(all_made.costs),
        weight_cycles=cycles(all_made.weights),
        stashed=frozenset(stashed),
        activation_bytes=sum(new_bytes),
        temporary_bytes=max(map(sum, zip(accumulate(new_bytes), working, strict=True))),
        again=recomputation(priced, stash, working),
        exclusive={GRADIENT: sum(graph.tensors[index].n_bytes(1, options.precision) for index in parameters)},
    )
