"""The backward pass of a range of layers: `backward_pass`, its cycles, its stashed activations and its gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph, LayerRange, derivative
from autoauto.records.profile import GRADIENT, CompileOptions
from autoauto.targets.ipu.liveness import live_gradient_bytes
from autoauto.targets.ipu.memory import working_bytes
from autoauto.targets.ipu.operator_cost import DEFAULT_SETTINGS, CompilerSettings, OperatorContext, OperatorCost
from autoauto.targets.ipu.operators.backward import backward
from autoauto.targets.ipu.operators.gradients import Gradients, cycles
from autoauto.targets.ipu.recomputation import NOTHING_AGAIN, Recomputation, recomputation, stash_bytes


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
    passes = derivative(graph)
    contexts = (OperatorContext(graph, graph.layers[index], device, options, settings) for index in range(*layers))
    gradients = [
        backward(context, passes) if index in passes.trained else Gradients()
        for index, context in zip(range(*layers), contexts, strict=True)
    ]
    new_bytes = stash_bytes(passes, layers, options)
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
        stashed=frozenset().union(*map(passes.stashed, range(*layers))),
        activation_bytes=sum(new_bytes),
        temporary_bytes=max(map(sum, zip(accumulate(new_bytes), working, strict=True))),
        again=recomputation(passes, layers, costs, working, device, options),
        exclusive={GRADIENT: sum(graph.tensors[index].n_bytes(1, options.precision) for index in parameters)},
    )


def _kinds(graph: LayerGraph, layers: LayerRange, gradients: Sequence[Gradients]) -> tuple[str, ...]:
    """The kind of every pass: layers of one kind make their gradients alike."""
    named = zip(graph.layers[slice(*layers)], gradients, strict=True)
    return tuple(f"{layer.kind}_gradient{index}" for layer, made in named for index in range(len(made.costs)))
