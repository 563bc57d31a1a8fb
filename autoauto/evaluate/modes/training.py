"""Steps of training by pipelines: `TrainingFlow`. Throughput is that of whole steps of all replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from typing_extensions import override

from autoauto.estimate.memory import stage_with_optimizer_state
from autoauto.evaluate.costs.layer_costs import LayerwiseCosts
from autoauto.evaluate.modes.mode import Planned, StageFlow, StepBounds
from autoauto.evaluate.modes.step_ends import StepEnds, with_known_state
from autoauto.evaluate.modes.training_bounds import TrainingBounds
from autoauto.evaluate.modes.training_steps import PLANNING_EFFORT, best_by_simulated_step, pipeline_step_cycles
from autoauto.evaluate.modes.training_table import legal_cuts, stage_tables
from autoauto.plan.pipeline.stage_costs import StageCosts
from autoauto.profile.profiler import Progress
from autoauto.records.costs.memory import StageBytes, compiled_stage, device_memory
from autoauto.records.costs.profile import CompiledRange
from autoauto.records.errors import Infeasible
from autoauto.records.hardware import Period
from autoauto.records.plans.plan import BoundedPlan, Plan, Stage
from autoauto.records.plans.timeline import Run, Timeline
from autoauto.records.units import BoolArray, samples_per_s
from autoauto.schedule.stash import in_flight_by_stage
from autoauto.schedule.times import timeline_of, with_step_end
from autoauto.space.knobs import Knobs


class TrainingFlow(StageFlow):
    """The `StageFlow` of training."""

    def __init__(self, costs: LayerwiseCosts) -> None:
        self.costs = costs
        self._bounds = TrainingBounds(costs)
        self._ends = StepEnds(costs)

    @override
    def best(self, knobs: Knobs, start: int, progress: Progress | None = None) -> BoundedPlan:
        *others, last = with_known_state(knobs, self.costs.setting)
        for each in others:  # states are on the chip where any plan fits
            try:
                return self._best(each, start, progress)
            except Infeasible:
                continue
        return self._best(last, start, progress)

    def _best(self, knobs: Knobs, start: int, progress: Progress | None) -> BoundedPlan:
        plans: list[BoundedPlan] = []
        failures: list[Infeasible] = []
        for stages in stage_tables(self.costs, knobs, progress, start):
            try:
                plans.append(best_by_simulated_step(stages, knobs))
            except Infeasible as failure:
                failures.append(failure)
        if not plans:
            raise min(failures, key=lambda failure: (not failure.excess_bytes, failure.excess_bytes))
        best = min(plans, key=lambda bounded: bounded.cost_cycles)
        # A plan has the cuts of one of the tables, so the smallest bound holds for all plans.
        bound_cycles = min(bounded.bound_cycles for bounded in plans)
        return replace(best, bound_cycles=min(best.cost_cycles, bound_cycles))

    @override
    def cut_at(self, knobs: Knobs, partition: Sequence[int], start: int = 0) -> Plan:
        for each in with_known_state(knobs, self.costs.setting):
            plan = self._cut_at(each, partition, start)
            if plan.excess_bytes <= 0:
                break  # states stay on the chip where they fit
        return plan

    def _cut_at(self, knobs: Knobs, partition: Sequence[int], start: int) -> Plan:
        tables = stage_tables(self.costs, knobs, None, start)
        stages = next((each for each in tables if each.allows(partition)), tables[0])
        plan = stages.evaluate(partition, [stages.recompute] * stages.n_stages)  # refuses a wrong partition
        if stages.recomputing is None:
            return plan
        costs = StageCosts.of(stages)
        choice = costs.resolve(costs.cuts(partition))
        return plan if choice is None else stages.evaluate(partition, choice.recomputes)

    @override
    def legal_cuts(self, knobs: Knobs) -> list[BoolArray]:
        return legal_cuts(self.costs, knobs)

    @override
    def alike(self, knobs: Knobs, plans: Mapping[int, Plan]) -> Mapping[int, Plan]:
        """All with the cuts of that plan whose step is then the shortest.

        Replicas sum the gradients of like stages, so they have the same cuts though their devices or links differ.
        """
        if len(plans) == 1:
            return plans
        ways: list[tuple[float, Mapping[int, Plan]]] = []
        for partition in dict.fromkeys(plan.partition for plan in plans.values()):
            way = {first: self.cut_at(knobs, partition, first) for first in plans}
            step_cycles = max(pipeline_step_cycles(knobs, plan) for plan in way.values())
            if all(plan.excess_bytes <= 0 for plan in way.values()):
                ways.append((step_cycles, way))
        if not ways:
            raise Infeasible("no cuts fit the devices of all replicas, which differ; try fewer replicas", 0)
        return min(ways, key=lambda pair: pair[0])[1]

    @override
    def step_cycles(self, knobs: Knobs, plan: Plan) -> float:
        """Orders are made with `PLANNING_EFFORT`."""
        if plan.period is not Period.BARRIER:
            return self._timeline(knobs, plan, PLANNING_EFFORT).makespan_cycles
        flushed = max(pipeline_step_cycles(knobs, each) for each in plan.plans)
        return flushed + max(self._ends.all_reduce_cycles(knobs, plan)) + max(self._ends.update_cycles(knobs, plan))

    @override
    def timeline(self, knobs: Knobs, plan: Plan) -> Timeline:
        return self._timeline(knobs, plan)

    def _timeline(self, knobs: Knobs, plan: Plan, effort: float = 1.0) -> Timeline:
        pipelines = (timeline_of(knobs.step, each, effort) for each in plan.plans)
        slowest = max(pipelines, key=lambda timeline: timeline.makespan_cycles)
        ends = self._ends.all_reduce_cycles(knobs, plan), self._ends.update_cycles(knobs, plan)
        return with_step_end(slowest, *ends, barrier=plan.period is Period.BARRIER)

    @override
    def samples_per_s(self, knobs: Knobs, plan: Plan, step_cycles: float | None = None) -> float:
        step_cycles = self.step_cycles(knobs, plan) if step_cycles is None else step_cycles
        cycles = max(step_cycles, knobs.mode.n_micro_batches * plan.host_bound_cycles)
        return samples_per_s(knobs.n_samples, cycles, self.costs.setting.cluster.clock_hz)

    @override
    def simulated_samples_per_s(self, knobs: Knobs, timeline: Timeline, plan: Plan) -> float:
        return self.samples_per_s(knobs, plan, timeline.makespan_cycles)

    @override
    def stage_bytes(self, knobs: Knobs, plan: Plan, compiled: Sequence[CompiledRange]) -> list[dict[str, int]]:
        """With the stash, and the optimizer's state on the chip where all of it fits."""
        for each in with_known_state(knobs, self.costs.setting):
            memory = self._stage_bytes(each, plan, compiled)
            if max(_bytes_by_device(plan, memory)) <= self.costs.setting.device_bytes(knobs):
                break
        return memory

    def _stage_bytes(self, knobs: Knobs, plan: Plan, compiled: Sequence[CompiledRange]) -> list[dict[str, int]]:
        memory: list[dict[str, int]] = [{} for _ in compiled]
        for device, in_flight in enumerate(in_flight_by_stage(*knobs.step)):
            own = [index for index, stage in enumerate(plan.stages) if stage.device == device]
            parts = [self._trained_bytes(knobs, plan.stages[index], compiled[index]) for index in own]
            for index, n_bytes in zip(own, device_memory(parts, in_flight), strict=True):
                memory[index] = n_bytes
        return memory

    def _trained_bytes(self, knobs: Knobs, stage: Stage, compiled: CompiledRange) -> StageBytes[int]:
        """The memory of a stage compiled whole, with the optimizer's state, its update, and a stash entry."""
        setting = self.costs.setting
        layers = self.costs.profile(setting.options(knobs, stage.device)).layers
        alone = compiled_stage(compiled, layers[stage.layers.start].input_bytes, recompute=stage.recomputes)
        return stage_with_optimizer_state(alone, stage.layers, layers, knobs.weight_update, setting.precision)

    @override
    def simulate(self, knobs: Knobs, measured: Plan) -> Run:
        return Run(measured, (self._timeline(knobs, measured),) * knobs.replicas)

    @override
    def step_bounds(self, knobs: Knobs) -> StepBounds | None:
        return self._bounds.of_step(knobs)

    @override
    def is_bounded_by(self, knobs: Knobs, worth: float, planned: Planned) -> bool:
        return self._bounds.holds(knobs, worth, planned)


def _bytes_by_device(plan: Plan, memory: Sequence[Mapping[str, int]]) -> list[int]:
    sums = [0] * plan.n_devices
    for stage, n_bytes in zip(plan.stages, memory, strict=True):
        sums[stage.device] += sum(n_bytes.values())
    return sums
