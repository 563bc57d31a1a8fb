"""Forward passes by pipelines: `InferenceFlow`. Throughput is that of the steady state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

from typing_extensions import override

from autoauto.evaluate.costs.layer_costs import LayerwiseCosts
from autoauto.evaluate.modes.mode import StageFlow
from autoauto.plan.pipeline.optimal import anytime, has_plan
from autoauto.plan.pipeline.problem import evaluate
from autoauto.plan.pipeline.range_plans import best_with_stage_replicas
from autoauto.profile.profiler import Progress
from autoauto.records.costs.cost import CostTable
from autoauto.records.costs.memory import compiled_bytes
from autoauto.records.costs.profile import CompiledRange
from autoauto.records.plans.plan import BoundedPlan, Plan
from autoauto.records.plans.timeline import Run, Timeline
from autoauto.records.units import BoolArray, samples_per_s
from autoauto.schedule.times import timeline_of
from autoauto.space.knobs import Knobs


def best_by_period(table: CostTable, knobs: Knobs) -> BoundedPlan:
    """The plan of inference with the shortest period: one stage a device, or with stage replicas on at most all."""
    return best_with_stage_replicas(table) if knobs.mode.stage_replicas else anytime(table)


@dataclass(frozen=True, slots=True)
class InferenceFlow(StageFlow):
    """The `StageFlow` of inference."""

    costs: LayerwiseCosts

    @override
    def has_plan(self, knobs: Knobs, start: int) -> bool | None:
        if knobs.mode.stage_replicas:
            return None
        return has_plan(self.costs.pipeline_table(knobs, None, start))

    @override
    def best(self, knobs: Knobs, start: int, progress: Progress | None = None) -> BoundedPlan:
        return best_by_period(self.costs.pipeline_table(knobs, progress, start), knobs)

    @override
    def cut_at(self, knobs: Knobs, partition: Sequence[int], start: int = 0) -> Plan:
        return evaluate(self.costs.pipeline_table(knobs, None, start), partition)

    @override
    def legal_cuts(self, knobs: Knobs) -> list[BoolArray]:
        return [self.costs.pipeline_table(knobs).cut_allowed]

    @override
    def alike(self, knobs: Knobs, plans: Mapping[int, Plan]) -> Mapping[int, Plan]:
        return plans

    @override
    def timeline(self, knobs: Knobs, plan: Plan) -> Timeline:
        return timeline_of(knobs.step, plan)

    @override
    def samples_per_s(self, knobs: Knobs, plan: Plan, step_cycles: float | None = None) -> float:
        return plan.samples_per_s(knobs.batch_size * knobs.replicas, self.costs.setting.cluster.clock_hz)

    @override
    def simulated_samples_per_s(self, knobs: Knobs, timeline: Timeline, plan: Plan) -> float:
        """`timeline` is that of the replicas which run `plan` itself."""
        clock_hz = self.costs.setting.cluster.clock_hz
        n_others = sum(len(other.placement) for other in plan.other_plans)
        cycles = max(timeline.period_cycles, plan.host_bound_cycles)
        others = (other.samples_per_s(knobs.batch_size * len(other.placement), clock_hz) for other in plan.other_plans)
        return samples_per_s(knobs.batch_size * (knobs.replicas - n_others), cycles, clock_hz) + sum(others)

    @override
    def stage_bytes(self, knobs: Knobs, plan: Plan, compiled: Sequence[CompiledRange]) -> list[dict[str, int]]:
        return list(map(compiled_bytes, compiled))

    @override
    def simulate(self, knobs: Knobs, measured: Plan) -> Run:
        plans = measured.plans
        counts = [len(each.placement) for each in plans] if measured.other_plans else [knobs.replicas]
        timelines = (repeat(self.timeline(knobs, each), n) for each, n in zip(plans, counts, strict=True))
        return Run(measured, tuple(chain.from_iterable(timelines)))
