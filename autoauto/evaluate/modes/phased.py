"""Phases, one after the other on every device, from streaming memory: `PhasedFlow` [popxl-phased]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from typing_extensions import override

from autoauto.estimate.correct import corrected
from autoauto.estimate.memory import without_checkpoints
from autoauto.estimate.table import cost_table, with_entry_overhead
from autoauto.evaluate.costs.layer_costs import LayerwiseCosts
from autoauto.evaluate.modes.mode import ModeFlow
from autoauto.evaluate.setting import trial_on
from autoauto.memo import Memo
from autoauto.plan.phased import LOAD_BUFFER, STORE_BUFFER, fits_at_once, may_fit, phased, phased_by_replicas
from autoauto.plan.pipeline.problem import check_memory
from autoauto.records.costs.cost import CostTable
from autoauto.records.costs.memory import compiled_bytes
from autoauto.records.errors import DoesNotFit, Infeasible
from autoauto.records.hardware import Period
from autoauto.records.plans.phased import IoMode, Phase, PhasedOptions, PhasedPlan
from autoauto.records.target import Origin
from autoauto.space.knobs import Knobs
from autoauto.space.numbers import Result
from autoauto.space.trial import Trial, latency_s, unfit_trial

_MAX_TABLES = 64  # in memory: those of all batch sizes and memory proportions that a search forecasts
_Phases = tuple[PhasedOptions, PhasedPlan] | DoesNotFit
"""The fastest phases and their options, or why there are none."""


class PhasedFlow(ModeFlow):
    """The `ModeFlow` of phases."""

    def __init__(self, costs: LayerwiseCosts) -> None:
        self.costs = costs
        self._tables: Memo[Knobs, CostTable] = Memo(_MAX_TABLES)
        self._may_fit: Memo[Knobs, bool] = Memo(_MAX_TABLES)
        # By number of replicas: those asked for, and those made with others.
        self._fastest: Memo[Knobs, dict[int, _Phases]] = Memo(_MAX_TABLES)
        self._made: Memo[Knobs, dict[int, _Phases]] = Memo(_MAX_TABLES)

    @override
    def forecast(self, knobs: Knobs, *, with_timeline: bool = False) -> Trial:
        try:
            _, phases = self.fastest(knobs)
        except DoesNotFit as failure:
            return unfit_trial(knobs, failure, self.costs.setting.device_bytes(knobs))
        return self._trial(knobs, phases, phases, Origin.ESTIMATED)

    @override
    def fits(self, knobs: Knobs) -> bool:
        """Know sooner that nothing fits, where a layer does not fit alone."""
        try:
            same = self.costs.with_equal_costs(replace(knobs, n_ipu=1))
            key = self.costs.cost_key(same)
            forecasts, setting = self.costs.forecasts, self.costs.setting

            def layers_may_fit() -> bool:
                profile = self.costs.profile(setting.options(knobs))
                table = self._one_step_table(knobs)
                return may_fit(table, profile, setting.devices(knobs), self._options(knobs))

            may = self._may_fit.of(same, lambda: forecasts.of("phases may fit", key, bool, layers_may_fit))
        except DoesNotFit:
            return False
        return may and self.forecast(knobs).fits

    @override
    def evaluate(self, knobs: Knobs) -> Trial:
        estimate: PhasedPlan | None = None
        try:
            options, estimate = self.fastest(knobs)
            phases = self._compiled(knobs, options, estimate)
        except DoesNotFit as failure:
            return unfit_trial(knobs, failure, self.costs.setting.device_bytes(knobs), estimate)
        return self._trial(knobs, estimate, phases, self.costs.setting.traits.origin)

    def plan(self, knobs: Knobs, options: PhasedOptions) -> PhasedPlan:
        """The fastest phases of one device; knobs of pipelines are not used.

        Raises:
            BadInput: the cluster cannot run phases, or not so many replicas.
            Infeasible: some layers fit no phase.
        """
        setting = self.costs.setting
        profile = self.costs.profile(setting.options(knobs))
        plan = phased(self._table(knobs, options), profile, setting.devices(knobs), options)
        return self._sharing_host(knobs, options, plan)

    def fastest(self, knobs: Knobs) -> tuple[PhasedOptions, PhasedPlan]:
        """The fastest phases over the io modes that the period allows, with their options.

        Stages and phases are compared on equal terms: loads and stores overlap with compute in phases only if devices
        overlap the transfers of stages, too. Without overlap io tiles gain nothing: they do not compute. Raises
        DoesNotFit if some layers fit no phase, or one phase holds the model, which is a replica of one device.
        """
        self.costs.setting.check_devices(knobs)
        same = self.costs.with_equal_costs(replace(knobs, n_ipu=1))
        by_count = self._fastest.of(same, dict)
        if knobs.n_ipu not in by_count:
            by_count[knobs.n_ipu] = self._stored_phases(knobs, same)
        phases = by_count[knobs.n_ipu]
        if isinstance(phases, DoesNotFit):
            raise phases.with_traceback(None)
        return phases

    def _stored_phases(self, knobs: Knobs, same: Knobs) -> _Phases:
        """The fastest phases, or why there are none; made once for all commands, where forecasts are stored."""

        def make() -> tuple[PhasedOptions, PhasedPlan]:
            by_count = self._made.of(same, dict)
            if knobs.n_ipu not in by_count:
                by_count |= self._fastest_by_replicas(knobs)
            phases = by_count[knobs.n_ipu]
            if isinstance(phases, DoesNotFit):
                raise phases
            return phases

        try:
            key = self.costs.cost_key(same), knobs.n_ipu
            return self.costs.forecasts.of("phases", key, tuple[PhasedOptions, PhasedPlan], make)
        except Infeasible as failure:
            return failure

    def _fastest_by_replicas(self, knobs: Knobs) -> dict[int, _Phases]:
        """The fastest phases of so many replicas, and of all powers of two, which a search asks for next."""
        setting, cluster = self.costs.setting, self.costs.setting.devices(knobs)
        powers = [1 << i for i in range(len(cluster).bit_length())]
        counts = sorted({knobs.n_ipu, *powers})
        compute, table = self._options(knobs), self._one_step_table(knobs)
        profile = self.costs.profile(setting.options(knobs))
        if fits_at_once(table, profile, cluster, compute):
            whole = Infeasible(
                f"phases are for models that no device holds, but one phase holds all of {setting.graph.name}; "
                "try --strategy pipeline with --replicas",
                0,
            )
            return dict.fromkeys(counts, whole)
        modes = list(IoMode) if setting.period_of_devices is Period.OVERLAP else [IoMode.COMPUTE]
        ways: dict[int, list[_Phases]] = {n: [] for n in counts}
        for io_mode in modes:
            options = replace(compute, io_mode=io_mode)
            plans = phased_by_replicas(table, profile, cluster, options, counts)
            for n, plan in zip(counts, plans, strict=True):
                if isinstance(plan, Infeasible):
                    ways[n].append(plan)
                else:
                    on_n = replace(options, n_replicas=n)
                    ways[n].append((on_n, self._sharing_host(knobs, on_n, plan)))
        return {n: _fastest(of_count) for n, of_count in ways.items()}

    @staticmethod
    def _options(knobs: Knobs) -> PhasedOptions:
        return PhasedOptions(knobs.mode.n_micro_batches, IoMode.COMPUTE, recompute=knobs.mode.recomputes_all)

    def _one_step_table(self, knobs: Knobs) -> CostTable:
        """The table of phases, which depends on the numbers of steps and of replicas in nothing."""
        one_step = replace(knobs, n_ipu=1).with_values(n_micro_batches=1)
        same = self.costs.with_equal_costs(one_step)
        return self._tables.of(same, lambda: self._table(knobs, self._options(knobs)))

    def _sharing_host(self, knobs: Knobs, options: PhasedOptions, plan: PhasedPlan) -> PhasedPlan:
        cycles = self.costs.shared_cycles(replace(knobs, n_ipu=1), range(options.n_replicas))
        return replace(plan, shared_cycles=cycles)

    def _table(self, knobs: Knobs, options: PhasedOptions) -> CostTable:
        """The estimated cost of every range of layers as a phase: on one device, with one micro-batch in flight.

        Raises BadInput if the cluster has several kinds of devices, or stages are to begin at blocks.
        """
        setting = self.costs.setting
        setting.check_one_kind("a plan of phases")
        setting.check_phases_may_begin_anywhere()
        training = ((1,), options.recompute) if knobs.training else ()
        correction = self.costs.correction(knobs)
        profile = self.costs.profile(setting.options(knobs))
        profile = without_checkpoints(corrected(profile, setting.graph, correction))
        profile = replace(profile, outlined=())  # phases have no subgraphs for equal layers
        proportion = setting.proportion(correction)
        table = cost_table(profile, setting.devices(knobs).first(1), proportion, Period.BARRIER, *training)
        return with_entry_overhead(table, profile, correction)

    def _compiled(self, knobs: Knobs, options: PhasedOptions, plan: PhasedPlan) -> PhasedPlan:
        """The phases of `plan` compiled whole; their transfers remain those of the plan.

        Raises OutOfMemory if a phase needs more than the device has; the error describes the one that lacks most.
        """
        table = self._table(knobs, options)
        compiled = plan.with_phases(tuple(self._compiled_phase(knobs, phase, table) for phase in plan.phases))
        check_memory(compiled.phases)
        return compiled

    def _compiled_phase(self, knobs: Knobs, phase: Phase, table: CostTable) -> Phase:
        """`phase` with the memory of its range compiled whole; its compute is scaled by measured over estimated."""
        setting, device = self.costs.setting, self.costs.setting.devices(knobs).devices[0]
        compiled = setting.compiler.compile(setting.graph, phase.layers, device, setting.options(knobs))
        recompute_cycles = compiled.forward_cycles if knobs.mode.recomputes_all else 0
        whole = compiled.forward_cycles + compiled.backward_cycles + recompute_cycles
        estimated = table.compute_cycles(*phase.layers)
        buffers = {name: phase.memory_bytes[name] for name in (LOAD_BUFFER, STORE_BUFFER)}
        return replace(
            phase,
            compute_cycles=-(-phase.compute_cycles * whole // max(estimated, 1)),
            memory_bytes={**compiled_bytes(compiled), **buffers},
            limit_bytes=int(device.memory_bytes),
        )

    def _trial(self, knobs: Knobs, estimate: PhasedPlan, phases: PhasedPlan, origin: Origin) -> Trial:
        setting = self.costs.setting
        clock_hz = setting.cluster.clock_hz
        result = Result(
            samples_per_s=phases.samples_per_s(knobs.batch_size, clock_hz),
            estimated_samples_per_s=estimate.samples_per_s(knobs.batch_size, clock_hz),
            latency_s=latency_s(knobs, phases, clock_hz),
        )
        return trial_on(setting, knobs, estimate, phases, result, origin)


def _fastest(ways: Sequence[_Phases]) -> _Phases:
    """The fastest phases of several ways to move tensors; if none fit, the failure that lacks least."""
    failures = [way for way in ways if isinstance(way, DoesNotFit)]
    fitting = [way for way in ways if not isinstance(way, DoesNotFit)]
    if not fitting:
        return min(failures, key=lambda failure: failure.excess_bytes)
    return min(fitting, key=lambda way: way[1].cost_cycles)
