"""The plans of configurations by estimated costs, on all devices: `Plans`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from autoauto.evaluate.kinds import across_kinds, best_on_kinds, whole_on_kinds
from autoauto.evaluate.steps import best_by_simulated_step, pipeline_step_cycles, plan_samples_per_s
from autoauto.evaluate.whole_model import WholeModelEstimates
from autoauto.plan.phased import fits_at_once, phased
from autoauto.plan.pipeline.optimal import anytime
from autoauto.plan.pipeline.problem import evaluate
from autoauto.plan.pipeline.range_plans import best_with_stage_replicas
from autoauto.plan.pipeline.stage_costs import StageCosts
from autoauto.plan.replicas import placements
from autoauto.profile.profiler import Progress
from autoauto.records.costs.correction import Correction
from autoauto.records.costs.cost import CostTable
from autoauto.records.errors import BadInput, DoesNotFit, Infeasible
from autoauto.records.hardware import Period
from autoauto.records.plans.phased import IoMode, PhasedOptions, PhasedPlan
from autoauto.records.plans.plan import BoundedPlan, Plan, replicated
from autoauto.records.units import Precision, format_bytes
from autoauto.space.knobs import Knobs

_MAX_CONFIGURATIONS = 512  # whose plans are in memory: those of one pipeline, for all numbers of replicas
_MAX_PHASE_TABLES = 64  # in memory: those of all batch sizes and memory proportions that a search forecasts
Devices = int | tuple[int, ...]
"""Those of a pipeline: the first of neighbours in a line, or how many of every kind it may have."""


@dataclass(frozen=True, slots=True)
class PlanCache:
    """What was planned.

    Attributes:
        pipelines: by the configuration of one pipeline, then by its devices: the corrections that it was planned with,
            and the plan, or why there is none.
        phase_tables: the costs of phases, by configurations of one step.
    """

    pipelines: dict[Knobs, dict[Devices, tuple[tuple[Correction, ...], BoundedPlan | Infeasible]]] = field(
        default_factory=dict
    )
    phase_tables: dict[Knobs, CostTable] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plans:
    """The best plans by estimated costs: of one pipeline, of all replicas, and of phases.

    Attributes:
        estimates: of all costs.
        known: what was planned before.
    """

    estimates: WholeModelEstimates
    known: PlanCache

    def best(self, knobs: Knobs, progress: Progress | None = None) -> Plan:
        """The best plan, and those of replicas whose devices or links differ.

        Raises:
            Infeasible: no plan respects the limits, or the cluster has too few devices.
        """
        self.check_weights(knobs)
        if self.estimates.runs_whole(knobs):
            return self._on_devices(knobs, lambda devices: self._whole_plan(knobs, devices))
        return self._on_devices(knobs, lambda devices: self.of_pipeline(knobs, devices, progress).plan)

    def _whole_plan(self, knobs: Knobs, devices: Devices) -> Plan:
        if isinstance(devices, tuple):
            return whole_on_kinds(self.estimates, knobs, devices)
        return self.estimates.whole_plan(knobs)

    def of_pipeline(
        self, knobs: Knobs, devices: Devices | None = None, progress: Progress | None = None
    ) -> BoundedPlan:
        """The cheapest plan of one pipeline, nearly always an exact one; made once.

        Args:
            knobs: the configuration, with any number of replicas.
            devices: of the pipeline; by default the first of a line, or any of every kind.
            progress: of profiling.

        Raises:
            BadInput: the devices are of several kinds, and the plan is for training.
            Infeasible: no plan respects the limits.
        """
        if devices is None:
            devices = tuple(kind.n_devices for kind in self.estimates.cluster.kinds) or 0
        same = self.estimates.with_equal_costs(_of_one_pipeline(knobs), progress)
        corrections = self.estimates.corrections(knobs, progress)
        if same not in self.known.pipelines and len(self.known.pipelines) >= _MAX_CONFIGURATIONS:
            del self.known.pipelines[next(iter(self.known.pipelines))]
        by_devices = self.known.pipelines.setdefault(same, {})
        known = by_devices.get(devices)
        if known is None or known[0] != corrections:
            known = by_devices[devices] = corrections, self._plan_or_failure(knobs, devices, progress)
        if isinstance(known[1], Infeasible):
            raise known[1].with_traceback(None)
        return known[1]

    def are_known_as_no_better(self, knobs: Knobs, cycles: float) -> bool:
        """Whether plans of a configuration of training are known, and none has a step below `cycles`."""
        plans = [plan for _, plan in self.known.pipelines.get(_of_one_pipeline(knobs), {}).values()]
        return bool(plans) and all(
            isinstance(plan, Infeasible) or (plan.step_cycles is not None and plan.step_cycles >= cycles)
            for plan in plans
        )

    def cut_at(self, knobs: Knobs, partition: Sequence[int]) -> Plan:
        """The plan that cuts at `partition`, the boundaries from 0 to the number of layers, for all replicas.

        Raises:
            BadInput: stages cannot begin there, the devices have no given order, or one stage may have several devices.
            Infeasible: there are too few devices.
        """
        if knobs.mode.stage_replicas:
            raise BadInput("a partition is for stages of one device each, got stage replicas; leave one of them out")
        table = self.estimates.table(knobs)
        plan = self._pipeline_cut_at(knobs, partition)
        if wrong := [cut for cut in partition if not table.cut_allowed[cut]]:
            raise BadInput(
                f"no stage may begin at layer {', '.join(map(str, wrong))}, where layers of one weight would be parted "
                "or no block begins; try `plan` for the best cuts"
            )
        return self.on_all_replicas(knobs, plan)

    def _pipeline_cut_at(self, knobs: Knobs, partition: Sequence[int], start: int = 0) -> Plan:
        """The plan of these cuts on a pipeline that begins with the device `start`; no limit is checked."""
        if not knobs.training:
            return evaluate(self.estimates.table(knobs, None, start), partition)
        stages = self.estimates.stage_table(knobs, None, start)
        plan = stages.evaluate(partition, [stages.recompute] * stages.n_stages)  # refuses a wrong partition
        if stages.recomputing is None:
            return plan
        costs = StageCosts.of(stages)
        choice = costs.resolve(costs.cuts(partition))
        return plan if choice is None else stages.evaluate(partition, choice.recomputes)

    def plan_to_measure(self, knobs: Knobs) -> Plan:
        """The plan to measure: the best, or on real devices one that may fit although it is predicted not to.

        If no predicted plan fits, the memory limits are raised until the lower end of the prediction interval fills the
        memory, since the estimate may be too high; not where the user has set `planning_proportion`, nor where devices
        are of several kinds.

        Raises:
            Infeasible: no plan respects the limits.
        """
        estimates = self.estimates
        self.check_weights(knobs)
        try:
            return self.best(knobs)
        except Infeasible as failure:
            may_fit = estimates.traits.runs_plans and failure.excess_bytes and not estimates.cluster.kinds
            if not may_fit or estimates.planning_proportion is not None:
                raise
            interval, table = estimates.correction(knobs).memory_interval, estimates.table(knobs)  # of inference
            limits = (table.memory_limit_bytes * (interval.high / interval.low)).astype(table.memory_limit_bytes.dtype)
            return self.by_period(replace(table, memory_limit_bytes=limits), knobs)

    def by_period(self, table: CostTable, knobs: Knobs) -> Plan:
        """The plan of inference with the shortest period by the costs of a table, for all replicas.

        Raises:
            BadInput: devices that may run one stage in turn differ.
            Infeasible: no plan respects the limits, or there are too few devices.
        """
        return self.on_all_replicas(knobs, _best_by_period(table, knobs).plan)

    def on_all_replicas(self, knobs: Knobs, plan: Plan) -> Plan:
        """The same plan of a pipeline for all replicas.

        Raises:
            Infeasible: there are too few devices.
        """
        return self._on_devices(knobs, lambda _: plan)

    def phased(self, knobs: Knobs, options: PhasedOptions) -> PhasedPlan:
        """The fastest phases of one device; knobs of pipelines are not used.

        Raises:
            BadInput: the cluster cannot run phases, or not so many replicas.
            Infeasible: some layers fit no phase.
        """
        return self._phases(knobs, options, self.estimates.phase_table(knobs, options))

    def fastest_phases(self, knobs: Knobs) -> tuple[PhasedOptions, PhasedPlan]:
        """The fastest phases over the io modes that the period allows, with their options.

        Stages and phases are compared on equal terms: loads and stores overlap with compute in phases only if devices
        overlap the transfers of stages, too. Without overlap io tiles gain nothing: they do not compute.

        Raises:
            DoesNotFit: some layers fit no phase, or one phase holds the model, which is a replica of one device.
        """
        estimates = self.estimates
        self._check_devices(knobs)
        n_steps, recompute = knobs.mode.n_micro_batches, knobs.mode.recompute is True
        compute = PhasedOptions(n_steps, IoMode.COMPUTE, n_replicas=knobs.n_ipu, recompute=recompute)
        table = self._phase_table(knobs, compute)
        if fits_at_once(table, estimates.profile(estimates.options(knobs)), estimates.cluster, compute):
            raise Infeasible(
                f"phases are for models that no device holds, but one phase holds all of {estimates.graph.name}; "
                "try --strategy pipeline with --replicas",
                0,
            )
        modes = (*IoMode,) if estimates.period_of_devices is Period.OVERLAP else (IoMode.COMPUTE,)
        plans, failures = [], []
        for options in (replace(compute, io_mode=io_mode) for io_mode in modes):
            try:
                plans.append((options, self._phases(knobs, options, table)))
            except DoesNotFit as failure:
                failures.append(failure)
        if not plans:
            raise min(failures, key=lambda failure: failure.excess_bytes)
        return min(plans, key=lambda pair: pair[1].cost_cycles)

    def _phase_table(self, knobs: Knobs, options: PhasedOptions) -> CostTable:
        tables = self.known.phase_tables
        one_step = replace(knobs, n_ipu=1).with_values(n_micro_batches=1)  # the table depends on neither number
        if one_step not in tables:
            if len(tables) >= _MAX_PHASE_TABLES:
                del tables[next(iter(tables))]
            tables[one_step] = self.estimates.phase_table(knobs, options)
        return tables[one_step]

    def _phases(self, knobs: Knobs, options: PhasedOptions, table: CostTable) -> PhasedPlan:
        estimates = self.estimates
        plan = phased(table, estimates.profile(estimates.options(knobs)), estimates.cluster, options)
        shared_cycles = estimates.shared_cycles(replace(knobs, n_ipu=1), range(options.n_replicas))
        return replace(plan, shared_cycles=shared_cycles)

    def _on_devices(self, knobs: Knobs, plan_on: Callable[[Devices], Plan]) -> Plan:
        """The plans of all replicas, on the devices on which they have the highest throughput.

        Args:
            knobs: the configuration.
            plan_on: plans the pipeline on some `Devices`; equal pipelines are planned once.

        Raises:
            Infeasible: there are too few devices, or a plan does not fit.
        """
        self._check_devices(knobs)
        cluster = self.estimates.cluster
        attempts = (
            across_kinds(cluster, knobs, plan_on, only_equal=self.estimates.traits.runs_plans)
            if cluster.kinds
            else (
                partial(self._in_line, knobs, starts, plan_on)
                for starts in placements(self.estimates.devices(knobs), knobs.n_ipu, knobs.replicas)
            )
        )
        ways, failures = [], []
        for attempt in attempts:
            try:
                ways.append(attempt())
            except Infeasible as failure:
                failures.append(failure)
        if not ways:
            raise min(failures, key=lambda failure: (not failure.excess_bytes, failure.excess_bytes))
        return max(ways, key=lambda plan: plan_samples_per_s(self.estimates, knobs, plan)) if len(ways) > 1 else ways[0]

    def _in_line(self, knobs: Knobs, starts: Sequence[int], plan_from: Callable[[int], Plan]) -> Plan:
        """The plans of pipelines that begin with these devices."""
        machine_device, first_like = self.estimates.devices(knobs).machine_device, self.estimates.first_like
        plans = {first: plan_from(first) for first in dict.fromkeys(first_like(knobs, start) for start in starts)}
        if knobs.training and len(plans) > 1:
            plans = self._with_equal_cuts(knobs, plans)
        pipelines = []
        for start in starts:
            plan = plans[first_like(knobs, start)]
            devices = tuple(map(machine_device, range(start, start + plan.n_devices)))
            pipelines.append((plan, devices))
        return replicated(pipelines, self.estimates.shared_cycles(knobs, starts))

    def _with_equal_cuts(self, knobs: Knobs, plans: Mapping[int, Plan]) -> dict[int, Plan]:
        """The plans of pipelines by their first device, all with the cuts of that one whose step is then the shortest.

        Replicas sum the gradients of like stages, so they have the same cuts though their devices or links differ.
        """
        ways = []
        for partition in dict.fromkeys(plan.partition for plan in plans.values()):
            way = {first: self._pipeline_cut_at(knobs, partition, first) for first in plans}
            step_cycles = max(pipeline_step_cycles(knobs, plan) for plan in way.values())
            if all(plan.excess_bytes <= 0 for plan in way.values()):
                ways.append((step_cycles, way))
        if not ways:
            raise Infeasible("no cuts fit the devices of all replicas, which differ; try fewer replicas", 0)
        return min(ways, key=lambda pair: pair[0])[1]

    def _plan_or_failure(self, knobs: Knobs, devices: Devices, progress: Progress | None) -> BoundedPlan | Infeasible:
        try:
            if isinstance(devices, tuple):
                return best_on_kinds(self.estimates, knobs, devices, progress)
            if knobs.training:
                return best_by_simulated_step(self.estimates.stage_table(knobs, progress, devices), knobs)
            return _best_by_period(self.estimates.table(knobs, progress, devices), knobs)
        except Infeasible as failure:
            return failure

    def check_weights(self, knobs: Knobs) -> None:
        """Refuse, on real devices, whose profile takes long, a pipeline that cannot even hold the weights.

        Raises:
            Infeasible: it cannot.
        """
        if not self.estimates.traits.runs_plans:
            return
        graph = self.estimates.graph
        devices = self.estimates.devices(knobs).devices
        n_bytes = sum(sorted(int(device.memory_bytes) for device in devices)[-knobs.n_ipu :])
        weight_bytes = graph.n_weight_bytes(Precision.FP16)  # the shortest format that a file of floats may have
        if (excess := weight_bytes - n_bytes) > 0:
            raise Infeasible(
                f"the weights of {graph.name} alone need {format_bytes(weight_bytes)} or more, and the "
                f"{format_bytes(n_bytes)} of {knobs.n_ipu} devices must hold them; try more devices or more memory",
                excess,
            )

    def _check_devices(self, knobs: Knobs) -> None:
        """Refuse more devices than there are."""
        cluster = self.estimates.cluster
        if knobs.n_ipu * knobs.replicas > len(self.estimates.devices(knobs)):
            cores = f" of {n_cores} cores" if (n_cores := knobs.session.cores_per_device) > 1 else ""
            raise Infeasible(
                f"{knobs.replicas} replicas of {knobs.n_ipu} devices{cores} need {knobs.n_devices}, "
                f"{cluster.name} has {len(cluster)}",
                0,
            )


def _of_one_pipeline(knobs: Knobs) -> Knobs:
    """The configuration of one pipeline alone; where replicas divide the optimizer's state, their number matters."""
    return knobs if knobs.weight_update.n_shards > 1 else replace(knobs, replicas=1)


def _best_by_period(table: CostTable, knobs: Knobs) -> BoundedPlan:
    """The plan of inference with the shortest period: one stage a device, or with stage replicas on at most all."""
    return best_with_stage_replicas(table) if knobs.mode.stage_replicas else anytime(table)
