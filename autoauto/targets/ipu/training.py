"""The backward pass of a range of layers: `backward_pass`, its cycles, its stashed activations and its gradients.

The memory of a range that computes its forward pass again, from checkpoint to checkpoint: `recomputation`.

The forward pass stashes what is alive at the checkpoints of the model that lie in the range
(`records/costs/stash.py`). The backward pass then takes one segment between two checkpoints after the other, from
the last one: it computes the segment's activations, which stay until it has used them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple

from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import GRADIENT
from autoauto.records.costs.stash import ActivationStash, stash_of
from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.targets.ipu.memory import live_bytes, live_gradient_bytes, working_bytes
from autoauto.targets.ipu.operator_cost import DEFAULT_SETTINGS, CompilerSettings, OperatorContext, OperatorCost
from autoauto.targets.ipu.operators.backward import Gradients, backward, cycles


class Recomputation(NamedTuple):
    """What a range needs that computes its forward pass again.

    Attributes:
        checkpoint_bytes: what a micro-batch stashes at checkpoints, besides the inputs of the range.
        temporary_bytes: the peak over both passes, the checkpoints of this micro-batch included.
        last_segment: the first layer after the last checkpoint in the range, or of the range.
    """

    checkpoint_bytes: int = 0
    temporary_bytes: int = 0
    last_segment: int = 0


NOTHING_AGAIN = Recomputation()


def recomputation(
    stash: ActivationStash,
    layers: LayerRange,
    costs: Sequence[OperatorCost],
    backward_bytes: Sequence[int],
    device: Device,
    options: CompileOptions,
) -> Recomputation:
    """The memory of a range whose forward pass has these `costs`.

    `backward_bytes` are in use while each layer runs backward, besides stashed activations.
    """
    graph, own = stash.passes.graph, stash.within(layers)
    inside = {index for layer in graph.layers[slice(*layers)] for index in (*layer.inputs, *layer.outputs)}
    stored = {index for index in inside if own.boundary(index) is not None}
    stashed_until, backward_peak_bytes = dict[int, int](), 0
    for segment in _segments(layers, own.checkpoints):
        for index in range(*segment):
            stashed_until.update(dict.fromkeys(own.of_layer(index), segment.stop))
        held_bytes = _n_bytes(graph, (i for i in stored if graph.tensors[i].last_use < segment.start), options)
        part = slice(segment.start - layers.start, segment.stop - layers.start)
        held = accumulate(stash_bytes(own, segment, options))
        backward_peak_bytes = max(
            backward_peak_bytes, held_bytes + max(map(sum, zip(held, backward_bytes[part], strict=True)))
        )
    stashed_until.update(dict.fromkeys(stored, layers.stop))
    alive = live_bytes(graph, layers, costs, options, stashed_until)
    forward = (n_bytes + working_bytes(cost, device.n_tiles) for n_bytes, cost in zip(alive, costs, strict=True))
    made = (index for index in stored if graph.tensors[index].producer >= layers.start)
    last_segment = own.checkpoints[-1] if own.checkpoints else layers.start
    return Recomputation(_n_bytes(graph, made, options), max(backward_peak_bytes, *forward), last_segment)


def stash_bytes(stash: ActivationStash, layers: LayerRange, options: CompileOptions) -> list[int]:
    """Bytes of the activations that each layer stashes and no earlier layer of the range has stashed."""
    seen: set[int] = set()
    n_bytes = []
    for index in range(*layers):
        new = stash.of_layer(index) - seen
        seen |= new
        n_bytes.append(_n_bytes(stash.passes.graph, new, options))
    return n_bytes


def _segments(layers: LayerRange, chosen: Sequence[int]) -> list[LayerRange]:
    """The parts of a range between checkpoints, of which the first may be its start."""
    return [LayerRange(*ends) for ends in pairwise(sorted({layers.start, *chosen, layers.stop}))]


def _n_bytes(graph: LayerGraph, tensors: Iterable[int], options: CompileOptions) -> int:
    return sum(graph.tensors[index].n_bytes(options.batch_size, options.precision) for index in tensors)


@dataclass(frozen=True, slots=True)
class BackwardPass:
    """The backward pass of a range of layers.

    Attributes:
        costs, kinds: the passes over data, and the kind of each.
        cycles: of all of it.
        weight_cycles: the part that makes the gradients of parameters.
        stashed: the activations that it reads.
        activation_bytes: their bytes.
        temporary_bytes: the peak of stashed activations, gradients of activations, and working memory.
        again: the memory where the range computes its forward pass again.
        exclusive: the gradients of parameters, which every micro-batch adds to.
    """

    costs: tuple[OperatorCost, ...] = ()
    kinds: tuple[str, ...] = ()
    cycles: int = 0
    weight_cycles: int = 0
    stashed: frozenset[int] = frozenset()
    activation_bytes: int = 0
    temporary_bytes: int = 0
    again: Recomputation = NOTHING_AGAIN
    exclusive: Mapping[str, int] = field(default_factory=dict)


NO_BACKWARD = BackwardPass()


def backward_pass(
    graph: LayerGraph,
    layers: LayerRange,
    costs: Sequence[OperatorCost],
    device: Device,
    options: CompileOptions,
    settings: CompilerSettings = DEFAULT_SETTINGS,
) -> BackwardPass:
    """The backward pass of a range whose forward pass has these `costs`."""
    stash = stash_of(graph, options)
    passes = stash.passes
    contexts = (OperatorContext(graph, graph.layers[index], device, options, settings) for index in range(*layers))
    gradients = [
        backward(context, passes) if index in passes.trained else Gradients()
        for index, context in zip(range(*layers), contexts, strict=True)
    ]
    new_bytes = stash_bytes(stash, layers, options)
    alive_bytes = live_gradient_bytes(graph, layers, costs, options, passes)
    scratch_bytes = [max((working_bytes(cost, device.n_tiles) for cost in made.costs), default=0) for made in gradients]
    working = list(map(sum, zip(alive_bytes, scratch_bytes, strict=True)))
    inputs, weights = (tuple(cost for made in gradients for cost in made[part]) for part in (0, 1))
    parameters = {weight for layer in graph.layers[slice(*layers)] for weight in passes.parameters(layer)}
    return BackwardPass(
        costs=tuple(cost for made in gradients for cost in made.costs),
        kinds=_kinds(graph, layers, gradients),
        cycles=cycles(inputs) + cycles(weights),
        weight_cycles=cycles(weights),
        stashed=frozenset().union(*map(stash.of_layer, range(*layers))),
        activation_bytes=sum(new_bytes),
        temporary_bytes=max(map(sum, zip(accumulate(new_bytes), working, strict=True))),
        again=recomputation(stash, layers, costs, working, device, options),
        exclusive={GRADIENT: sum(graph.tensors[index].n_bytes(1, options.precision) for index in parameters)},
    )


def _kinds(graph: LayerGraph, layers: LayerRange, gradients: Sequence[Gradients]) -> tuple[str, ...]:
    """The kind of every pass: layers of one kind make their gradients alike."""
    named = zip(graph.layers[slice(*layers)], gradients, strict=True)
    return tuple(f"{layer.kind}_gradient{index}" for layer, made in named for index in range(len(made.costs)))
