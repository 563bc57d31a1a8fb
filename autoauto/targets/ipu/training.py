"""The backward pass of a range: its cycles, what it keeps until then, and the gradients that it makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from autoauto.records.hardware import Device
from autoauto.records.layers import Derivative, LayerGraph, LayerRange, derivative
from autoauto.records.profile import GRADIENT, CompileOptions
from autoauto.targets.ipu.liveness import live_gradient_bytes
from autoauto.targets.ipu.memory import working_bytes
from autoauto.targets.ipu.operator_cost import DEFAULTS, Settings, Site, Work
from autoauto.targets.ipu.operators.backward import backward
from autoauto.targets.ipu.operators.gradients import Gradients, cycles


@dataclass(frozen=True, slots=True)
class BackwardPass:
    """The backward pass of a range of layers.

    Attributes:
        works, kinds: what is done on the tiles, and the kind of each.
        cycles: of all of it.
        weight_cycles: the part that makes the gradients of parameters.
        kept: the activations that it reads.
        activation_bytes: their bytes.
        temporary_bytes: the peak of what is kept, gradients of activations, and working memory.
        exclusive: the gradients of parameters, which every micro-batch adds to.
    """

    works: tuple[Work, ...] = ()
    kinds: tuple[str, ...] = ()
    cycles: int = 0
    weight_cycles: int = 0
    kept: frozenset[int] = frozenset()
    activation_bytes: int = 0
    temporary_bytes: int = 0
    exclusive: Mapping[str, int] = field(default_factory=dict)


NO_BACKWARD = BackwardPass()


def backward_pass(
    graph: LayerGraph,
    layers: LayerRange,
    works: Sequence[Work],
    device: Device,
    options: CompileOptions,
    settings: Settings = DEFAULTS,
) -> BackwardPass:
    """The backward pass of a range whose forward pass is `works`."""
    found = derivative(graph)
    sites = (Site(graph, graph.layers[index], device, options, settings) for index in range(*layers))
    gradients = [
        backward(site, found) if index in found.trained else Gradients()
        for index, site in zip(range(*layers), sites, strict=True)
    ]
    kept = _kept_bytes(found, layers, options)
    alive = live_gradient_bytes(graph, layers, works, options, found)
    working = [max((working_bytes(work, device.n_tiles) for work in made.works), default=0) for made in gradients]
    inputs, weights = (tuple(work for made in gradients for work in made[part]) for part in (0, 1))
    parameters = {weight for layer in graph.layers[slice(*layers)] for weight in found.parameters(layer)}
    return BackwardPass(
        works=tuple(work for made in gradients for work in made.works),
        kinds=_kinds(graph, layers, gradients),
        cycles=cycles(inputs) + cycles(weights),
        weight_cycles=cycles(weights),
        kept=frozenset().union(*map(found.kept, range(*layers))),
        activation_bytes=sum(kept),
        temporary_bytes=max(map(sum, zip(accumulate(kept), alive, working, strict=True))),
        exclusive={GRADIENT: sum(graph.tensors[index].n_bytes(1, options.precision) for index in parameters)},
    )


def _kinds(graph: LayerGraph, layers: LayerRange, gradients: Sequence[Gradients]) -> tuple[str, ...]:
    """The kind of every work: layers of one kind make their gradients alike."""
    named = zip(graph.layers[slice(*layers)], gradients, strict=True)
    return tuple(f"{layer.kind}_gradient{place}" for layer, made in named for place in range(len(made.works)))


def _kept_bytes(found: Derivative, layers: LayerRange, options: CompileOptions) -> list[int]:
    """What each layer is the first of the range to keep."""
    seen: set[int] = set()
    n_bytes = []
    for index in range(*layers):
        first = found.kept(index) - seen
        seen |= first
        n_bytes.append(sum(found.graph.tensors[i].n_bytes(options.batch_size, options.precision) for i in first))
    return n_bytes
