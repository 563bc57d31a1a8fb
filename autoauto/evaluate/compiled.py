"""Plans with the costs of ranges compiled whole, as a cost model measures them: `compiled_plan`, `compiled_phases`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autoauto.evaluate.estimates import Estimates
from autoauto.plan.pipeline.evaluate import check_memory
from autoauto.plan.pipeline.stage_table import StageBytes, device_memory
from autoauto.records.cost import CostTable, stash_entry_bytes
from autoauto.records.knobs.knobs import Knobs
from autoauto.records.phased import Phase, PhasedOptions, PhasedPlan
from autoauto.records.plan import Plan, Stage
from autoauto.records.profile import CompiledRange, gradient_bytes
from autoauto.records.units import reference_cycles
from autoauto.schedule.stash import in_flight_by_stage


def compiled_plan(estimates: Estimates, knobs: Knobs, plan: Plan) -> Plan:
    """`plan` with the compute and memory of its stages compiled whole, for the devices of its first replica."""
    cluster, options = estimates.devices(knobs), estimates.options(knobs)
    devices = list(map(cluster.index, plan.placement[0])) if plan.placement else range(len(cluster))
    indices = [devices[stage.device] for stage in plan.stages]
    compiled = [
        estimates.target.compile(estimates.graph, stage.layers, cluster.devices[index], options)
        for stage, index in zip(plan.stages, indices, strict=True)
    ]
    compiled = [
        whole.recomputed if stage.recomputes else whole for stage, whole in zip(plan.stages, compiled, strict=True)
    ]
    memory = _stage_bytes(estimates, knobs, plan, compiled)
    columns = zip(plan.stages, indices, compiled, memory, strict=True)
    return replace(plan, stages=tuple(_compiled_stage(estimates, *of_stage) for of_stage in columns))


def _compiled_stage(
    estimates: Estimates, stage: Stage, device: int, compiled: CompiledRange, memory_bytes: dict[str, int]
) -> Stage:
    """`stage` with the compute and memory of its range compiled whole for a device of the cluster."""
    speed = estimates.cluster.speeds[device]
    return replace(
        stage,
        forward_cycles=reference_cycles(compiled.forward_cycles, speed),
        backward_cycles=reference_cycles(compiled.backward_cycles, speed),
        weight_cycles=reference_cycles(compiled.weight_cycles, speed),
        memory_bytes=memory_bytes,
        limit_bytes=int(estimates.cluster.devices[device].memory_bytes),
    )


def _stage_bytes(
    estimates: Estimates, knobs: Knobs, plan: Plan, compiled: Sequence[CompiledRange]
) -> list[dict[str, int]]:
    """The memory of every stage compiled whole; in training with the optimizer's state and the stash."""
    if not knobs.training:
        return [each.memory_bytes for each in compiled]
    moments = in_flight_by_stage(knobs.schedule, knobs.n_ipu, knobs.n_micro_batches, knobs.stages_per_device)
    memory: list[dict[str, int]] = [{} for _ in compiled]
    for device, in_flight in enumerate(moments):
        own = [index for index, stage in enumerate(plan.stages) if stage.device == device]
        parts = [_trained_bytes(estimates, knobs, plan.stages[index], compiled[index]) for index in own]
        for index, n_bytes in zip(own, device_memory(parts, in_flight), strict=True):
            memory[index] = n_bytes
    return memory


def _trained_bytes(estimates: Estimates, knobs: Knobs, stage: Stage, compiled: CompiledRange) -> StageBytes:
    """What a stage compiled whole holds, with the optimizer's state; its stash entry."""
    states = knobs.weight_update.state_bytes(gradient_bytes(compiled.memory_bytes), estimates.precision)
    input_bytes = estimates.profile(estimates.options(knobs)).layers[stage.layers.start].input_bytes
    stored_bytes = input_bytes + compiled.checkpoint_bytes
    entry_bytes = stash_entry_bytes(compiled.activation_bytes, stored_bytes, recompute=stage.recomputes)
    return StageBytes({**compiled.exclusive, **states}, compiled.shared, compiled.temporary_bytes, entry_bytes)


def compiled_phases(estimates: Estimates, knobs: Knobs, options: PhasedOptions, plan: PhasedPlan) -> PhasedPlan:
    """The phases of `plan` compiled whole; their transfers remain those of the plan.

    Raises:
        OutOfMemory: a phase needs more than the device has; the error describes the one that lacks most.
    """
    table = estimates.phase_table(knobs, options)
    compiled = plan.with_phases(tuple(_compiled_phase(estimates, knobs, phase, table) for phase in plan.phases))
    check_memory(compiled.phases)
    return compiled


def _compiled_phase(estimates: Estimates, knobs: Knobs, phase: Phase, table: CostTable) -> Phase:
    """`phase` with the memory of its range compiled whole; its compute is scaled by measured over estimated."""
    device = estimates.cluster.devices[0]
    compiled = estimates.target.compile(estimates.graph, phase.layers, device, estimates.options(knobs))
    recompute_cycles = compiled.forward_cycles if knobs.recompute is True else 0
    whole = compiled.forward_cycles + compiled.backward_cycles + recompute_cycles
    estimated = table.compute_cycles(*phase.layers)
    layer_bytes = table.memory_bytes(*phase.layers)
    buffers = {name: n_bytes for name, n_bytes in phase.memory_bytes.items() if name not in layer_bytes}
    return replace(
        phase,
        compute_cycles=-(-phase.compute_cycles * whole // max(estimated, 1)),
        memory_bytes={**compiled.memory_bytes, **buffers},
        limit_bytes=int(device.memory_bytes),
    )
