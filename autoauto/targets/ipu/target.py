"""Any range of layers as one program for an IPU: `IpuTarget`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import ClassVar

from autoauto.records.costs.memory import compiled_bytes
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import OUTLINED, CompiledRange, ProgramStep, WeightUpdate
from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.target import Origin, StepOverhead, TargetTraits
from autoauto.targets.ipu.kernels import copy
from autoauto.targets.ipu.memory import (
    LAYER_CODE,
    check_code,
    live_bytes,
    outlined_bytes,
    outlined_weight_bytes,
    program_bytes,
    shared_bytes,
    weight_bytes,
    working_bytes,
)
from autoauto.targets.ipu.operator_cost import (
    DEFAULT_SETTINGS,
    CompilerSettings,
    OperatorContext,
    OperatorCost,
    PricedRange,
    relayout_cycles,
)
from autoauto.targets.ipu.operators.backward import weight_update_cycles
from autoauto.targets.ipu.operators.registry import forward_cost, prepare
from autoauto.targets.ipu.session import IpuSession
from autoauto.targets.ipu.step import Framework, step_overhead
from autoauto.targets.ipu.training import BackwardPass, backward_pass

VERSION = "ipu-12"


@dataclass(frozen=True, slots=True)
class IpuTarget:
    """A cost model of Poplar's compiler for Mk2, Bow and C600 IPUs; `notes` say what to know of its prices."""

    settings: CompilerSettings = DEFAULT_SETTINGS
    notes: tuple[str, ...] = ()
    framework: Framework = Framework.POPART
    traits: ClassVar[TargetTraits] = TargetTraits(
        Origin.MODELLED, outlined=LAYER_CODE, sessions=(IpuSession,), memory_never_falls=True
    )

    @property
    def version(self) -> str:
        """Differs whenever equal input may compile to something else."""
        framework = "" if self.framework is Framework.POPART else f" {self.framework}"
        return f"{VERSION}{self.settings}{framework}"

    def profiled(self, batch_size: int) -> tuple[int, ...]:
        """`batch_size` alone: the cost model is cheap enough for every batch size."""
        return (batch_size,)

    def depends_on(self, device: Device, options: CompileOptions) -> object:
        """The device and all options."""
        return device, options

    def compile(self, graph: LayerGraph, layers: LayerRange, device: Device, options: CompileOptions) -> CompiledRange:
        """Compile `layers` of `graph` as one program for `device`; memory limits are the caller's to check.

        A range costs at most what its layers cost alone, and never less than a shorter one: neighbours share code,
        save each other relayouts, and write over tensors that are not needed any more. For training the program also
        has a backward pass and a buffer for the gradient of every parameter (`training.py`). Bytes are those of the
        fullest tile on every tile.

        Raises:
            OutOfMemory: there is more code than a tile can run, however much memory is left.
        """
        costs = operator_costs(graph, layers, device, options, self.settings)
        priced = PricedRange(graph, layers, costs, device, options)
        after = BackwardPass()
        if options.training:
            after = backward_pass(priced, self.settings)
        kinds = tuple(layer.kind for layer in priced.chosen)
        steps = _steps(priced, live_bytes(priced, dict.fromkeys(after.stashed, layers.stop)))
        last_segment_cycles = 0
        if options.training:
            last_segment = chain.from_iterable(steps[after.again.last_segment - layers.start :])
            last_segment_cycles = sum(step.cycles for step in last_segment)
        all_costs = (*costs, *after.costs)
        compiled = CompiledRange(
            steps=tuple(chain.from_iterable(steps)),
            backward_cycles=after.cycles,
            shared=shared_bytes((*kinds, *after.kinds), all_costs, device.n_tiles),
            exclusive={**program_bytes(all_costs), **weight_bytes(priced), **after.exclusive},
            weight_cycles=after.weight_cycles,
            activation_bytes=after.activation_bytes,
            backward_temporary_bytes=after.temporary_bytes,
            checkpoint_bytes=after.again.checkpoint_bytes,
            recompute_temporary_bytes=after.again.temporary_bytes,
            last_segment_cycles=last_segment_cycles,
            binding_below_bytes=max(cost.binding_below_bytes for cost in all_costs),
        )
        memory_bytes = compiled_bytes(compiled)
        check_code(layers, memory_bytes, device)
        if options.training or sum(memory_bytes.values()) <= device.memory_bytes:
            return compiled
        return _outline(priced, compiled)

    def prepare(self, graphs: Iterable[LayerGraph], device: Device, options: CompileOptions) -> None:
        """Plan the products of the last layers of several models together."""
        prepare(OperatorContext(graph, graph.layers[-1], device, options, self.settings) for graph in graphs)

    def weight_update_cycles(
        self, graph: LayerGraph, device: Device, options: CompileOptions, update: WeightUpdate
    ) -> tuple[int, ...]:
        """Cycles by layer in which a device updates the weights of the layer."""
        return weight_update_cycles(graph, device, options, update)

    def step_overhead(self, clock_hz: float, update: WeightUpdate) -> StepOverhead:
        """The cost of a step of training that is spent once, besides its bytes and its passes."""
        return step_overhead(self.framework, clock_hz, update)


def _outline(priced: PricedRange, compiled: CompiledRange) -> CompiledRange:
    """A program that does not fit with one subgraph for equal layers: less code, but every call copies its weights.

    PopRT's benchmark of BERT-large turns this on (`enable_outlining` [poprt]). The saved bytes are a category of their
    own, below 0, so that the other categories stay the sums over layers.
    """
    saved_bytes = outlined_bytes(priced)
    if saved_bytes <= 0:
        return compiled
    steps = list(compiled.steps)
    for layer, n_bytes in zip(priced.chosen, outlined_weight_bytes(priced), strict=True):
        if n_bytes:
            copy_cycles = round(float(copy(n_bytes / priced.device.n_tiles)))
            steps.append(ProgramStep(f"{layer.name}/copy", copy_cycles, 0))
    exclusive = {**compiled.exclusive, OUTLINED: -saved_bytes}
    return replace(compiled, steps=tuple(steps), exclusive=exclusive)


def operator_costs(
    graph: LayerGraph,
    layers: LayerRange,
    device: Device,
    options: CompileOptions,
    settings: CompilerSettings = DEFAULT_SETTINGS,
) -> list[OperatorCost]:
    """The cost of every layer of a range, whatever its neighbours are."""
    contexts = [OperatorContext(graph, layer, device, options, settings) for layer in graph.layers[slice(*layers)]]
    if len(contexts) == 1:
        return [forward_cost(contexts[0])]
    # Models repeat their layers, so each is priced once: the first of those that are alike.
    first: dict[object, OperatorContext] = {}
    firsts = [first.setdefault(context.alike, context) for context in contexts]
    prepare(first.values())
    of_first = {id(context): forward_cost(context) for context in first.values()}
    costs = []
    for alike, context in zip(firsts, contexts, strict=True):
        numbers = dict(zip(alike.tensors, context.tensors, strict=True))
        costs.append(of_first[id(alike)].of_tensors(numbers))
    return costs


def _steps(priced: PricedRange, alive: Sequence[int]) -> list[list[ProgramStep]]:
    steps = []
    for layer, cost, moved, n_bytes in zip(priced.chosen, priced.costs, relayout_cycles(priced), alive, strict=True):
        temporary_bytes = n_bytes + working_bytes(cost, priced.device.n_tiles)
        parts = {"rearrange": moved, "exchange": cost.exchange_cycles, "compute": cost.compute_cycles}
        steps.append([ProgramStep(f"{layer.name}/{part}", n, temporary_bytes) for part, n in parts.items() if n])
    return steps
