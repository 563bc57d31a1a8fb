"""One model on one cluster, from profile to measurement: `Flow`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from autoauto.evaluate import check_space
from autoauto.evaluate.costs.costs import Costs, pipeline_table
from autoauto.evaluate.costs.layer_costs import LayerCosts
from autoauto.evaluate.modes.inference import InferenceFlow
from autoauto.evaluate.modes.mode import ModeFlow, StageFlow, StagePlanning, StepBounds
from autoauto.evaluate.modes.phased import PhasedFlow
from autoauto.evaluate.modes.training import TrainingFlow
from autoauto.evaluate.pipelines.measure import Measurements
from autoauto.evaluate.pipelines.pipeline_flow import PipelineFlow
from autoauto.evaluate.pipelines.plans import Plans
from autoauto.evaluate.setting import Setting
from autoauto.profile.liveness import largest_crossing
from autoauto.profile.profiler import Progress
from autoauto.records.costs.cost import CostTable
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import ModelProfile
from autoauto.records.hardware import Cluster
from autoauto.records.layers import LayerGraph
from autoauto.records.plans.plan import Plan
from autoauto.records.plans.timeline import Run, Timeline
from autoauto.records.target import Target, TargetTraits
from autoauto.space.knobs import Knobs
from autoauto.space.modes.generation import Generation
from autoauto.space.modes.inference import Inference
from autoauto.space.modes.mode import Mode
from autoauto.space.modes.phased import Phased
from autoauto.space.modes.training import Training
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Trial


class Flow:
    """profile -> estimate -> plan -> schedule -> measure, one configuration at a time.

        Knobs ──▶ modes ──▶ plans ──▶ costs ──▶ setting
          mode    pipelines, phases   layers,   model, devices, target
                  (inference,         or whole
                  training)           first

    `expect` ends with the schedule of the estimated plan; `evaluate` also measures. Each part refers to those right of
    it only, so that a flow, and the processes of its target, end with its last use.

    Attributes:
        setting: what all configurations have in common.
        costs: of ranges of layers, for all configurations.
        plans: of pipelines.
        phases: plans of phases, and what they give.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.costs = costs = _costs_of(setting)
        kinds = tuple(map(_costs_of, setting.by_kind)) or (costs,)
        measured: dict[type[Mode], StageFlow] = {Inference: InferenceFlow(costs), Training: TrainingFlow(costs)}
        planned: dict[type[Mode], StagePlanning] = {**measured}
        parts: tuple[TokenStages, ...] = ()
        if setting.traits.generates:
            from autoauto.evaluate.modes.generation import GenerationFlow, TokenStages  # of extra gpu

            parts = tuple(map(TokenStages, kinds)) if setting.cluster.kinds else ()
            planned[Generation] = stages = TokenStages(costs, parts)
        self.plans = Plans(
            kinds, costs, planned, [Plans((each.costs,), each.costs, {Generation: each}) for each in parts]
        )
        self.phases = PhasedFlow(costs)
        self._measurements = Measurements(self.plans, measured)
        pipelines = PipelineFlow(self.plans, self._measurements)
        self._modes: dict[type[Mode], ModeFlow] = {Inference: pipelines, Training: pipelines, Phased: self.phases}
        if setting.traits.generates:
            self._modes[Generation] = GenerationFlow(self.plans, stages)

    def with_setting(self, **changes: Any) -> Flow:
        """Another flow, with fields of the setting changed."""
        return Flow(replace(self.setting, **changes))

    @property
    def graph(self) -> LayerGraph:
        """The model."""
        return self.setting.graph

    @property
    def cluster(self) -> Cluster:
        """All devices."""
        return self.setting.cluster

    @property
    def target(self) -> Target:
        """What compiles ranges of layers."""
        return self.setting.target

    @property
    def traits(self) -> TargetTraits:
        """How the target measures, and what a search on it begins with."""
        return self.setting.traits

    def checked(self, space: SearchSpace) -> SearchSpace:
        """See `check_space.checked`."""
        return check_space.checked(self.setting, space)

    def options(self, knobs: Knobs) -> CompileOptions:
        """The options with which the target compiles at these knobs."""
        return self.setting.options(knobs)

    def profile(self, options: CompileOptions, progress: Progress | None = None) -> ModelProfile:
        """Every kind of layer compiled once, for the cluster's first device, or the profile that the target has."""
        return self.costs.profile(options, progress)

    def table(self, knobs: Knobs) -> CostTable:
        """The estimated cost of every range of layers on each device of the first pipeline.

        Raises:
            BadInput: the cluster has several kinds of devices, in any order.
        """
        return pipeline_table(self.costs, knobs)

    def predict(self, knobs: Knobs, progress: Progress | None = None) -> Plan:
        """See `Plans.best`."""
        return self.plans.best(knobs, progress)

    def expect(self, knobs: Knobs) -> Trial:
        """The trial of `evaluate` if every stage cost what is estimated; no stage is measured."""
        return self._mode(knobs).forecast(knobs, with_timeline=True)

    def forecast(self, knobs: Knobs) -> Trial:
        """The trial of `expect`, without its timeline, which takes long to simulate for long steps."""
        return self._mode(knobs).forecast(knobs)

    def fits(self, knobs: Knobs) -> bool:
        """See `ModeFlow`."""
        return self._mode(knobs).fits(knobs)

    def forecasts(self, cell: Sequence[Knobs]) -> Sequence[Trial] | None:
        """See `ModeFlow`."""
        return self._mode(cell[0]).forecasts(cell)

    def upper_bound(self, knobs: Knobs) -> Trial | None:
        """See `ModeFlow`."""
        return self._mode(knobs).upper_bound(knobs)

    def step_bounds(self, knobs: Knobs) -> StepBounds | None:
        """See `ModeFlow`."""
        return self._mode(knobs).step_bounds(knobs)

    def is_bounded_by(self, knobs: Knobs, worth: float) -> bool:
        """See `ModeFlow`."""
        return self._mode(knobs).is_bounded_by(knobs, worth)

    def evaluate(self, knobs: Knobs) -> Trial:
        """Plan one configuration and measure it; one that does not fit or violates a constraint is a trial too.

        On real devices a configuration that was measured before has the same cuts again.
        """
        return self._mode(knobs).evaluate(knobs)

    def plan_to_measure(self, knobs: Knobs) -> Plan:
        """See `Measurements.plan`."""
        return self._measurements.plan(knobs)

    def even_samples_per_s(self, knobs: Knobs) -> float:
        """See `Measurements.even_samples_per_s`."""
        return self._measurements.even_samples_per_s(knobs)

    def measure(self, knobs: Knobs, plan: Plan) -> Run:
        """See `Measurements.run`."""
        return self._measurements.run(knobs, plan)

    def measure_again(self, knobs: Knobs, plan: Plan) -> None:
        """See `Measurements.again`."""
        self._measurements.again(knobs, plan)

    def timeline(self, knobs: Knobs, plan: Plan) -> Timeline:
        """The stages of `plan`, simulated in their order; in training the whole step, of the slowest replica."""
        return self.plans.mode(knobs).timeline(knobs, plan)

    def samples_per_s(self, knobs: Knobs, plan: Plan, step_cycles: float | None = None) -> float:
        """Throughput by the costs of `plan`: see `StageFlow`."""
        return self.plans.mode(knobs).samples_per_s(knobs, plan, step_cycles)

    def simulated_samples_per_s(self, knobs: Knobs, timeline: Timeline, plan: Plan) -> float:
        """Throughput by the `timeline` of `plan`: in training of whole steps, for inference of the steady state."""
        return self._measurements.mode(knobs).simulated_samples_per_s(knobs, timeline, plan)

    def measured_samples_per_s(self, knobs: Knobs, run: Run) -> float:
        """Throughput of a run: by its timelines where they were measured, else by the costs of its plan."""
        return self._measurements.samples_per_s(knobs, run)

    def fingerprint(self) -> Mapping[str, str]:
        """See `Setting.fingerprint`."""
        return self.setting.fingerprint()

    def _mode(self, knobs: Knobs) -> ModeFlow:
        return self._modes[type(knobs.mode)]


def _costs_of(setting: Setting) -> Costs:
    """The costs as the target wants them: by layers, by the whole model first, or by requests for text."""
    if setting.traits.generates:
        from autoauto.evaluate.costs.token_costs import TokenCosts  # of extra gpu

        return TokenCosts(setting)
    if setting.begins_whole:
        from autoauto.evaluate.costs.whole_first import WholeFirstCosts  # of targets on which measuring takes time

        return WholeFirstCosts(setting)
    return LayerCosts(setting)


def largest_transfers(flow: Flow, plan: Plan, batch_size: int) -> list[tuple[str, int]]:
    """The names and bytes of the largest tensors that the stage with the longest transfer moves."""
    stage = max(plan.stages, key=lambda each: each.transfer_cycles)
    return largest_crossing(flow.graph, stage.layers, batch_size, flow.setting.precision)
