"""One model on one cluster, from profile to measurement: `Flow`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from autoauto.evaluate import check_space
from autoauto.evaluate.costs.layer_costs import LayerCosts, LayerwiseCosts
from autoauto.evaluate.modes.inference import InferenceFlow
from autoauto.evaluate.modes.mode import ModeFlow, StageFlow, StepBounds
from autoauto.evaluate.modes.training import TrainingFlow
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
from autoauto.records.plans.timeline import Races, Run, Timeline
from autoauto.records.target import RunsServers, Target, TargetTraits
from autoauto.space.knobs import Knobs
from autoauto.space.modes.generation import Generation
from autoauto.space.modes.inference import Inference
from autoauto.space.modes.mode import Mode
from autoauto.space.modes.phased import Phased
from autoauto.space.modes.training import Training
from autoauto.space.space import SearchSpace
from autoauto.space.trial import MadeFor, Trial

if TYPE_CHECKING:
    from autoauto.evaluate.modes.phased import PhasedFlow
    from autoauto.evaluate.serving.flow import ServingFlow
    from autoauto.evaluate.serving.live.flow import LiveFlow


class Flow:
    """profile -> estimate -> plan -> schedule -> measure, one configuration at a time.

        Knobs ──▶ modes ──▶ plans ──▶ costs ──▶ setting
          mode    pipelines, phases   layers,   model, devices, target
                  (inference,         or whole
                  training)           first
                  serving ──▶ ways ──▶ costs ──▶

    `expect` ends with the schedule of the estimated plan; `evaluate` also measures. Each part refers to those right of
    it only, so that a flow, and the processes of its target, end with its last use. The `setting` is what all
    configurations have in common.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    @cached_property
    def costs(self) -> LayerwiseCosts:
        """The costs of ranges of layers, for all configurations. Raises BadInput if the target compiles none."""
        return _costs_of(self.setting)

    @cached_property
    def plans(self) -> Plans:
        """The plans of pipelines; raises as `costs`."""
        kinds = tuple(map(_costs_of, self.setting.by_kind)) or (self.costs,)
        stages: dict[type[Mode], StageFlow] = {Inference: InferenceFlow(self.costs), Training: TrainingFlow(self.costs)}
        return Plans(kinds, self.costs, stages)

    @cached_property
    def phases(self) -> PhasedFlow:
        """The plans of phases, and what they give; raises as `costs`."""
        from autoauto.evaluate.modes.phased import PhasedFlow

        return PhasedFlow(self.costs)

    @cached_property
    def pipelines(self) -> PipelineFlow:
        """The mode of pipelines; raises as `costs`."""
        return PipelineFlow(self.plans)

    @cached_property
    def serving(self) -> ServingFlow | LiveFlow:
        """The evaluation of engines that serve a decoder: modelled, or measured where the target runs servers.

        Raises BadInput if the target serves none.
        """
        if isinstance(self.target, RunsServers):
            from autoauto.evaluate.serving.live.flow import LiveFlow  # of extra llamacpp

            return LiveFlow(self.setting, self.target)

        from autoauto.evaluate.serving.flow import ServingFlow  # of extra gpu

        return ServingFlow(self.setting)

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
        """The target, which prices or runs the model."""
        return self.setting.target

    @property
    def traits(self) -> TargetTraits:
        """The traits of the target: how it measures, and the values with which a search begins."""
        return self.setting.traits

    def checked(self, space: SearchSpace) -> SearchSpace:
        """The space with the sessions of the target, without configurations that cannot be evaluated.

        Raises BadInput for what the cluster, the target or the model does not allow.
        """
        return check_space.checked(self.setting, space)

    def options(self, knobs: Knobs) -> CompileOptions:
        """The options with which the target compiles at these knobs."""
        return self.setting.options(knobs)

    def profile(self, options: CompileOptions, progress: Progress | None = None) -> ModelProfile:
        """Every kind of layer compiled once, for the cluster's first device, or the profile that the target has."""
        return self.costs.profile(options, progress)

    def table(self, knobs: Knobs) -> CostTable:
        """The estimated cost of every range of layers on each device of the first pipeline.

        Raises as its costs, and BadInput for a cluster of several kinds of devices.
        """
        return self.costs.pipeline_table(knobs)

    def predict(self, knobs: Knobs, progress: Progress | None = None) -> Plan:
        """The best plan by estimated costs, and those of replicas whose devices or links differ."""
        return self.mode(knobs).best_plan(knobs, progress)

    def expect(self, knobs: Knobs) -> Trial:
        """The trial of `evaluate` if every stage cost what is estimated; no stage is measured."""
        return replace(self.mode(knobs).forecast(knobs, with_timeline=True), made_for=self.made_for)

    def forecast(self, knobs: Knobs) -> Trial:
        """The trial of `expect`, without its timeline, which takes long to simulate for long steps."""
        return self.mode(knobs).forecast(knobs)

    def fits(self, knobs: Knobs) -> bool:
        """True if the forecast fits and meets all constraints; some modes know it sooner than the forecast."""
        return self.mode(knobs).fits(knobs)

    @property
    def pools(self) -> tuple[int, ...]:
        """The numbers of pools of servers that a search tries; one pool, unless the target says more."""
        return getattr(self.target, "pools", (1,))

    def exceeds(self, knobs: Knobs, worth: float) -> bool:
        """True if an evaluation may give `worth` samples/s or more, by one simulation, or if nothing tells."""
        return self.mode(knobs).exceeds(knobs, worth)

    def forecasts(self, cell: Sequence[Knobs]) -> Sequence[Trial]:
        """The forecasts of configurations that differ in their batch size alone, without plans where it is quicker."""
        return self.mode(cell[0]).forecasts(cell)

    def upper_bound(self, knobs: Knobs) -> Trial | None:
        """A trial that is no worse than the forecast and needs no layer; None where the forecast needs none either."""
        return self.mode(knobs).upper_bound(knobs)

    def step_bounds(self, knobs: Knobs) -> StepBounds | None:
        """Bounds of the forecast that take a moment; None where there are none."""
        return self.mode(knobs).step_bounds(knobs)

    def is_bounded_by(self, knobs: Knobs, worth: float) -> bool:
        """True if the forecast gives no more than `worth` samples/s, where that is known sooner than the forecast."""
        return self.mode(knobs).is_bounded_by(knobs, worth)

    def evaluate(self, knobs: Knobs) -> Trial:
        """Plan one configuration and measure it; one that does not fit or violates a constraint is a trial too.

        On real devices a configuration that was measured before has the same cuts again.
        """
        return replace(self.mode(knobs).evaluate(knobs), made_for=self.made_for)

    def race(self, trials: Iterable[Trial] | None) -> None:
        """Let runs of pipelines end early once they are slower than the best so far, `trials` included; None for none.

        It is for searches of the highest throughput alone. Only devices that say so end runs early (`Races`).
        """
        if isinstance(self.target, Races):
            known = [trial.result.ends for trial in trials or () if trial.fits]
            self.pipelines.race(None if trials is None else filter(None, known))

    def even_samples_per_s(self, knobs: Knobs) -> float:
        """Samples/s of training with about as many blocks a stage, by a cost model; 0 where that does not fit.

        It is 0 in other modes, too.
        """
        return self.pipelines.even_samples_per_s(knobs) if knobs.training else 0.0

    def measure(self, knobs: Knobs, plan: Plan) -> Run:
        """A run of `plan` on the target's devices, or by its cost model; raises OutOfMemory if a stage does not fit."""
        return self.pipelines.run(knobs, plan)

    def timeline(self, knobs: Knobs, plan: Plan) -> Timeline:
        """The stages of a plan, simulated in their order; in training the whole step, of the slowest replica."""
        return self.mode(knobs).timeline(knobs, plan)

    def samples_per_s(self, knobs: Knobs, plan: Plan, step_cycles: float | None = None) -> float:
        """Throughput by the costs of `plan`: see `StageFlow`."""
        return self.plans.mode(knobs).samples_per_s(knobs, plan, step_cycles)

    @cached_property
    def made_for(self) -> tuple[MadeFor, ...]:
        """The model, cluster and precision of its trials."""
        return self.setting.made_for()

    def fingerprint(self) -> Mapping[str, str]:
        """All besides the knobs on which trials depend; a study refuses to continue with another one."""
        return self.setting.fingerprint()

    def mode(self, knobs: Knobs) -> ModeFlow:
        """The mode of a configuration; raises as its costs."""
        return _MODES[type(knobs.mode)](self)

    @property
    def first_mode(self) -> ModeFlow:
        """The mode that a search is for, whose ways to forecast and simulate hold for all of it."""
        return _MODES[self.setting.modes[0]](self)


_MODES: Mapping[type[Mode], Callable[[Flow], ModeFlow]] = {
    Inference: attrgetter("pipelines"),
    Training: attrgetter("pipelines"),
    Phased: attrgetter("phases"),
    Generation: attrgetter("serving"),
}
"""How configurations of every mode go through all rooms; each is made when it is first asked for."""


def _costs_of(setting: Setting) -> LayerwiseCosts:
    if setting.begins_whole:
        from autoauto.evaluate.costs.whole_first import WholeFirstCosts  # of targets on which measuring takes time

        return WholeFirstCosts(setting)
    return LayerCosts(setting)


def largest_transfers(flow: Flow, plan: Plan, batch_size: int) -> list[tuple[str, int]]:
    """The names and bytes of the largest tensors that the stage with the longest transfer moves."""
    stage = max(plan.stages, key=lambda each: each.transfer_cycles)
    return largest_crossing(flow.graph, stage.layers, batch_size, flow.setting.precision)
