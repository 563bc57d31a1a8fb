"""Steps of training by pipelines: `TrainingFlow`. Throughput is that of whole steps of all replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from autoauto.estimate.sums import prefix_sums
from autoauto.evaluate.costs.costs import Costs
from autoauto.evaluate.modes.mode import Planned, StepBounds
from autoauto.evaluate.modes.training_bounds import TrainingBounds
from autoauto.evaluate.modes.training_steps import PLANNING_EFFORT, best_by_simulated_step, pipeline_step_cycles
from autoauto.evaluate.modes.training_table import stage_table
from autoauto.memo import Memo
from autoauto.plan.pipeline.stage_costs import StageCosts
from autoauto.plan.pipeline.stage_table import StageBytes, device_memory
from autoauto.plan.replicas import all_reduce_cycles, placements
from autoauto.profile.profiler import Progress
from autoauto.records.costs.cost import stash_entry_bytes
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import CompiledRange, WeightUpdate, gradient_bytes
from autoauto.records.errors import Infeasible
from autoauto.records.hardware import Period
from autoauto.records.plans.plan import BoundedPlan, Plan, Stage
from autoauto.records.plans.timeline import Run, Timeline
from autoauto.records.target import UpdatesWeights
from autoauto.records.units import IntArray, reference_cycles, samples_per_s
from autoauto.schedule.stash import in_flight_by_stage
from autoauto.schedule.times import timeline_of, with_step_end
from autoauto.space.knobs import Knobs


class TrainingFlow:
    """The `StageFlow` of training."""

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self._bounds = TrainingBounds(costs)
        # By layer, summed up: the cycles in which a device updates weights.
        self._update_cycles: Memo[tuple[CompileOptions, WeightUpdate], IntArray] = Memo(128)

    def best(self, knobs: Knobs, start: int, progress: Progress | None = None) -> BoundedPlan:
        """See `StageFlow`; the plan with the shortest step."""
        return best_by_simulated_step(stage_table(self.costs, knobs, progress, start), knobs)

    def cut_at(self, knobs: Knobs, partition: Sequence[int], start: int = 0) -> Plan:
        """See `StageFlow`; stages that may choose recompute where their stash does not fit."""
        stages = stage_table(self.costs, knobs, None, start)
        plan = stages.evaluate(partition, [stages.recompute] * stages.n_stages)  # refuses a wrong partition
        if stages.recomputing is None:
            return plan
        costs = StageCosts.of(stages)
        choice = costs.resolve(costs.cuts(partition))
        return plan if choice is None else stages.evaluate(partition, choice.recomputes)

    def alike(self, knobs: Knobs, plans: Mapping[int, Plan]) -> Mapping[int, Plan]:
        """See `StageFlow`; all with the cuts of that plan whose step is then the shortest.

        Replicas sum the gradients of like stages, so they have the same cuts though their devices or links differ.
        """
        if len(plans) == 1:
            return plans
        ways = []
        for partition in dict.fromkeys(plan.partition for plan in plans.values()):
            way = {first: self.cut_at(knobs, partition, first) for first in plans}
            step_cycles = max(pipeline_step_cycles(knobs, plan) for plan in way.values())
            if all(plan.excess_bytes <= 0 for plan in way.values()):
                ways.append((step_cycles, way))
        if not ways:
            raise Infeasible("no cuts fit the devices of all replicas, which differ; try fewer replicas", 0)
        return min(ways, key=lambda pair: pair[0])[1]

    def step_cycles(self, knobs: Knobs, plan: Plan) -> float:
        """See `StageFlow`; orders are made with `PLANNING_EFFORT`."""
        if plan.period is not Period.BARRIER:
            return self._timeline(knobs, plan, PLANNING_EFFORT).makespan_cycles
        flushed = max(pipeline_step_cycles(knobs, each) for each in plan.plans)
        return flushed + max(self._all_reduce_cycles(knobs, plan)) + max(self._weight_update_cycles(knobs, plan))

    def step(self, knobs: Knobs, plan: Plan) -> Timeline:
        """See `StageFlow`."""
        return self._timeline(knobs, plan)

    def timeline(self, knobs: Knobs, plan: Plan) -> Timeline:
        """See `StageFlow`; the whole step, of the slowest replica."""
        return self._timeline(knobs, plan)

    def _timeline(self, knobs: Knobs, plan: Plan, effort: float = 1.0) -> Timeline:
        """The step in an order made with some `effort`."""
        pipelines = (timeline_of(knobs.step, each, effort) for each in plan.plans)
        slowest = max(pipelines, key=lambda timeline: timeline.makespan_cycles)
        ends = self._all_reduce_cycles(knobs, plan), self._weight_update_cycles(knobs, plan)
        return with_step_end(slowest, *ends, barrier=plan.period is Period.BARRIER)

    def samples_per_s(self, knobs: Knobs, plan: Plan, step_cycles: float | None = None) -> float:
        """See `StageFlow`."""
        step_cycles = self.step_cycles(knobs, plan) if step_cycles is None else step_cycles
        cycles = max(step_cycles, knobs.mode.n_micro_batches * plan.host_bound_cycles)
        return samples_per_s(knobs.n_samples, cycles, self.costs.setting.cluster.clock_hz)

    def simulated_samples_per_s(self, knobs: Knobs, timeline: Timeline, plan: Plan) -> float:
        """See `StageFlow`."""
        return self.samples_per_s(knobs, plan, timeline.makespan_cycles)

    def stage_bytes(self, knobs: Knobs, plan: Plan, compiled: Sequence[CompiledRange]) -> list[dict[str, int]]:
        """See `StageFlow`; with the optimizer's state and the stash."""
        memory: list[dict[str, int]] = [{} for _ in compiled]
        for device, in_flight in enumerate(in_flight_by_stage(*knobs.step)):
            own = [index for index, stage in enumerate(plan.stages) if stage.device == device]
            parts = [self._trained_bytes(knobs, plan.stages[index], compiled[index]) for index in own]
            for index, n_bytes in zip(own, device_memory(parts, in_flight), strict=True):
                memory[index] = n_bytes
        return memory

    def _trained_bytes(self, knobs: Knobs, stage: Stage, compiled: CompiledRange) -> StageBytes:
        """What a stage compiled whole holds, with the optimizer's state; its stash entry."""
        setting = self.costs.setting
        states = knobs.weight_update.state_bytes(gradient_bytes(compiled.memory_bytes), setting.precision)
        input_bytes = self.costs.profile(setting.options(knobs)).layers[stage.layers.start].input_bytes
        stored_bytes = input_bytes + compiled.checkpoint_bytes
        entry_bytes = stash_entry_bytes(compiled.activation_bytes, stored_bytes, recompute=stage.recomputes)
        return StageBytes({**compiled.exclusive, **states}, compiled.shared, compiled.temporary_bytes, entry_bytes)

    def simulate(self, knobs: Knobs, measured: Plan) -> Run:
        """See `StageFlow`; all replicas end a step together."""
        return Run(measured, (self._timeline(knobs, measured),) * knobs.replicas)

    def step_bounds(self, knobs: Knobs) -> StepBounds | None:
        """See `StageFlow`."""
        return self._bounds.of_step(knobs)

    def is_bounded_by(self, knobs: Knobs, worth: float, planned: Planned) -> bool:
        """See `StageFlow`; known sooner than the plan."""
        return self._bounds.holds(knobs, worth, planned)

    def _weight_update_cycles(self, knobs: Knobs, plan: Plan) -> tuple[int, ...]:
        """Cycles of the reference clock in which every device updates its weights; 0 where the target does not say."""
        setting = self.costs.setting
        target, cluster = setting.target, setting.cluster
        if not isinstance(target, UpdatesWeights):
            return (0,) * plan.n_devices
        options = replace(setting.options(knobs), batch_size=1)
        key = options, knobs.weight_update
        if key not in self._update_cycles:
            by_layer = target.weight_update_cycles(setting.graph, setting.device(options), *key)
            self._update_cycles[key] = prefix_sums(by_layer, "cycles of the weight update")
        prefix, speeds = self._update_cycles[key], cluster.speeds
        firsts = [cluster.index(each.placement[0][0]) if each.placement else 0 for each in plan.plans]
        own_cycles = [0] * plan.n_devices
        for stage in plan.stages:
            own_cycles[stage.device] += int(prefix[stage.layers.stop] - prefix[stage.layers.start])
        return tuple(
            max(reference_cycles(cycles, speeds[first + device]) for first in firsts)
            for device, cycles in enumerate(own_cycles)
        )

    def _all_reduce_cycles(self, knobs: Knobs, plan: Plan) -> tuple[int, ...]:
        """Cycles in which every stage sums its gradients over the replicas."""
        cluster = self.costs.setting.devices(knobs)
        pipelines = [devices for each in plan.plans for devices in each.placement]
        firsts = sorted(cluster.index(devices[0]) for devices in pipelines)
        if len(firsts) < knobs.replicas:  # the plan of one pipeline
            firsts = list(placements(cluster, knobs.n_ipu, knobs.replicas)[0])
        rings = [[first + device for first in firsts] for device in range(plan.n_devices)]
        n_bytes = [0] * plan.n_devices
        for stage in plan.stages:
            n_bytes[stage.device] += gradient_bytes(stage.memory_bytes)
        return all_reduce_cycles(cluster, rings, n_bytes)
