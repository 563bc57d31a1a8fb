"""One configuration, from plan to measurement, with cost models and with real devices."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autoauto.evaluate.flow import Flow
from autoauto.profile.profiler import Progress
from autoauto.profile.store.cache import ProfileCache
from autoauto.records.correction import Estimator
from autoauto.records.cost import CostTable
from autoauto.records.errors import BadInput, Infeasible, OutOfMemory
from autoauto.records.hardware import Cluster, Link, Machine, Period, StreamingMemory
from autoauto.records.knob_table import Strategy
from autoauto.records.knobs import Knobs, SearchSpace
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.phased import IoMode, PhasedOptions, PhasedPlan, PhaseKind
from autoauto.records.plan import Plan
from autoauto.records.profile import STASH, CompileOptions
from autoauto.records.schedule import Order
from autoauto.records.target import Origin
from autoauto.records.timeline import Run
from autoauto.records.trial import Status
from autoauto.schedule.times import timeline_of
from tests.evaluate.linear import MIB, LinearTarget


def test_a_configuration_that_fits_is_measured(flow: Flow) -> None:
    trial = flow.evaluate(Knobs(2, 0.6, 4))
    assert trial.fits
    assert trial.measured is not None
    assert trial.measured.partition == (0, 4, 8)
    assert trial.measured.compute_cycles == 16_000
    assert trial.samples_per_s == pytest.approx(4 * 1e6 / trial.measured.cost_cycles)
    assert (trial.excess_bytes, trial.reason) == (0, "")


def test_a_configuration_that_the_estimate_rules_out_is_not_measured(flow: Flow) -> None:
    trial = flow.evaluate(Knobs(1, 0.6, 11))
    assert not trial.fits
    assert trial.estimate is None
    assert trial.status is Status.INFEASIBLE
    assert trial.excess_bytes >= 3 * MIB
    assert trial.excess == trial.excess_bytes / (100 * MIB)
    with pytest.raises(Infeasible):
        flow.predict(Knobs(1, 0.6, 11))


def test_a_stage_too_large_for_its_device_is_out_of_memory(flow: Flow) -> None:
    greedy = replace(flow, target=LinearTarget(surplus=2.0))
    knobs = Knobs(2, 0.6, 16)
    plan = greedy.predict(knobs)
    with pytest.raises(OutOfMemory) as failure:
        greedy.measure(knobs, plan)
    assert failure.value.excess_bytes == 28 * MIB
    assert failure.value.memory_bytes["state"] == 128 * MIB
    trial = greedy.evaluate(knobs)
    assert (trial.estimate, trial.measured) == (plan, None)
    assert trial.status is Status.OUT_OF_MEMORY
    assert (trial.excess_bytes, trial.excess) == (28 * MIB, 28 / 100)


def test_a_step_of_training_is_simulated(flow: Flow) -> None:
    knobs = Knobs(2, 0.6, 2, Order.ONE_F_ONE_B, n_micro_batches=4)
    trial = replace(flow, period=Period.OVERLAP).evaluate(knobs)
    assert isinstance(trial.measured, Plan)
    assert trial.timeline is not None
    first = trial.measured.stages[0]
    assert (first.forward_cycles, first.backward_cycles, first.weight_cycles) == (8_000, 16_000, 8_000)
    assert trial.timeline.makespan_cycles == pytest.approx((4 + 2 - 1) * 24_000, rel=0.01)  # (m + p - 1)(tf + tb)
    assert trial.samples_per_s == pytest.approx(2 * 4 * 1e6 / trial.timeline.makespan_cycles)


def test_schedules_stash_what_they_have_in_flight(flow: Flow) -> None:
    def stash(order: Order, recompute: bool = False) -> list[int]:
        knobs = Knobs(2, 0.6, 2, order, recompute, 8)
        return [stage.memory_bytes[STASH] for stage in flow.measure(knobs, flow.predict(knobs)).plan.stages]

    assert stash(Order.ONE_F_ONE_B) == [4 * MIB, 0]  # one other micro-batch, 4 layers of 1 MiB
    assert stash(Order.POPART) == [2 * 4 * MIB, 0]
    assert stash(Order.GPIPE) == [7 * 4 * MIB, 7 * 4 * MIB]
    sizes = flow.profile(flow.options(Knobs(2, 0.6, 2, Order.GPIPE, n_micro_batches=8))).layers
    assert stash(Order.GPIPE, recompute=True) == [7 * sizes[0].input_bytes, 7 * sizes[4].input_bytes]


def test_recomputing_runs_forward_again(flow: Flow) -> None:
    knobs = Knobs(2, 0.6, 2, Order.GPIPE, recompute=True, n_micro_batches=8)
    estimate = flow.predict(knobs)
    for plan in (estimate, flow.measure(knobs, estimate).plan):
        assert plan.stages[0].backward_cycles == 3 * plan.stages[0].forward_cycles


def test_1f1b_fits_what_gpipe_cannot(flow: Flow) -> None:
    assert not flow.evaluate(Knobs(2, 0.6, 6, Order.GPIPE, n_micro_batches=8)).fits
    assert flow.evaluate(Knobs(2, 0.6, 6, Order.ONE_F_ONE_B, n_micro_batches=8)).fits


def test_inference_is_simulated_at_its_period(flow: Flow) -> None:
    trial = flow.evaluate(Knobs(2, 0.6, 4))
    assert trial.timeline is not None
    assert trial.measured is not None
    assert trial.timeline.period_cycles == trial.measured.cost_cycles


def test_a_space_with_more_devices_than_the_cluster_is_refused(flow: Flow) -> None:
    with pytest.raises(BadInput, match="at most 2 on pair, got 4"):
        flow.check(SearchSpace(n_ipu=(1, 4)))


def test_a_space_with_batches_that_the_model_cannot_run_is_refused(flow: Flow) -> None:
    fixed = replace(flow, graph=replace(flow.graph, fixed_batch="Reshape r1 mixes samples"))
    with pytest.raises(BadInput, match="Reshape r1"):
        fixed.check(SearchSpace(n_ipu=(1,)))
    fixed.check(SearchSpace(n_ipu=(1,), batch_size=(1,)))


def test_different_flows_have_different_fingerprints(flow: Flow) -> None:
    assert flow.fingerprint() == replace(flow).fingerprint()
    for other in (
        replace(flow, planning_proportion=0.5),
        replace(flow, graph=replace(flow.graph, content="other")),
        replace(flow, cluster=flow.cluster.with_synthetic_data()),
    ):
        assert other.fingerprint() != flow.fingerprint()


def test_overlapped_host_links_bound_the_period_from_below(flow: Flow) -> None:
    slow = replace(flow.cluster, overlapped_host_links=(Link(1e9, 10**9), Link(1e9, 5)))
    plan = replace(flow, cluster=slow).predict(Knobs(2, 0.6, 4))
    assert plan.cost_cycles == plan.host_cycles >= 10**9 + 5
    assert plan.partition == flow.predict(Knobs(2, 0.6, 4)).partition


def test_a_model_too_large_for_a_device_runs_in_phases(flow: Flow) -> None:
    streaming = StreamingMemory(1e12, 0, 10**12)
    phased = replace(flow, cluster=replace(flow.cluster, streaming_memory=streaming))
    knobs, options = Knobs(1, 0.6, 20), PhasedOptions(4, IoMode.COMPUTE)
    with pytest.raises(Infeasible):
        phased.predict(knobs)
    plan = phased.phased(knobs, options)
    assert plan.partition[-1] == 8
    assert all(phase.total_bytes <= 85 * MIB for phase in plan.phases)
    assert sum(phase.compute_cycles for phase in plan.phases) == 20 * 8000
    with pytest.raises(BadInput, match="cluster pair has none"):
        flow.phased(knobs, options)


def test_phases_are_measured(flow: Flow) -> None:
    cluster = replace(flow.cluster, streaming_memory=StreamingMemory(1e12, 0, 10**12))
    phased = replace(flow, cluster=cluster)
    knobs = Knobs(2, 0.6, 20, n_micro_batches=4, strategy=Strategy.PHASED)
    trial = phased.evaluate(knobs)
    assert isinstance(trial.measured, PhasedPlan)
    assert isinstance(trial.estimate, PhasedPlan)
    assert trial.measured.cost_cycles == trial.estimate.cost_cycles  # the target adds layers up
    assert trial.samples_per_s == pytest.approx(2 * 4 * 20 * 1e6 / trial.measured.cost_cycles)
    greedy = replace(phased, target=LinearTarget(surplus=2.0)).evaluate(knobs)
    assert (greedy.fits, isinstance(greedy.estimate, PhasedPlan)) == (False, True)
    assert "too much" in greedy.reason
    assert greedy.excess_bytes > 0


def test_phases_train_and_compute_again_when_asked(flow: Flow) -> None:
    cluster = replace(flow.cluster, streaming_memory=StreamingMemory(1e12, 0, 10**12))
    knobs = Knobs(1, 0.6, 20, Order.POPART, n_micro_batches=4)
    for recompute, backward in ((False, 2), (True, 3)):
        plan = replace(flow, cluster=cluster).phased(knobs, PhasedOptions(4, IoMode.COMPUTE, recompute=recompute))
        first, last = plan.phases[0], plan.phases[-1]
        assert first.layers == last.layers
        assert last.compute_cycles == backward * first.compute_cycles
        assert plan.phases[len(plan.phases) // 2].kind is PhaseKind.BOTH


class RunningTarget(LinearTarget):
    """Stands for real devices: a stage takes 10 % longer than its layers and as much memory."""

    def __init__(self, core_fraction: float = 1.0, needs: float = 1.0) -> None:
        super().__init__()
        self.core_fraction, self.needs = core_fraction, needs

    def run(self, graph: LayerGraph, plan: Plan, cluster: Cluster, options: CompileOptions, replicas: int) -> Run:
        limit = int(cluster.devices[0].memory_bytes * options.memory_proportion)
        stages = []
        for stage in plan.stages:
            n_layers = stage.layers.stop - stage.layers.start
            n_bytes = int(n_layers * options.batch_size * MIB * self.needs)
            if n_bytes > limit:
                raise OutOfMemory("too much", n_bytes - limit, stage.layers)
            cycles = 1100 * n_layers * options.batch_size
            stages.append(replace(stage, forward_cycles=cycles, memory_bytes={"state": n_bytes}))
        knobs = Knobs(len(stages), 1.0, options.batch_size)
        timeline = replace(timeline_of(knobs, replace(plan, stages=tuple(stages))), origin=Origin.MEASURED)
        return Run(replace(plan, stages=tuple(stages)), (timeline,) * replicas, self.core_fraction)


def running(flow: Flow) -> Flow:
    return replace(flow, target=RunningTarget(), estimator=Estimator.SUM)


def test_throughput_of_real_devices_is_that_of_their_run(flow: Flow) -> None:
    flow = running(flow)
    trial = flow.evaluate(Knobs(1, 1.0, 4, replicas=2))
    assert trial.samples_per_s == pytest.approx(2 * 4 * 1e6 / (8 * 4 * 1100), rel=0.01)
    assert trial.timeline is not None
    assert trial.timeline.origin is Origin.MEASURED


class SurprisingTarget(RunningTarget):
    """In a pipeline the layers from the fifth on take three times as long as alone, or as `surprise` returns."""

    def __init__(self, core_fraction: float = 1.0, surprise: Callable[[LayerRange], int] | None = None) -> None:
        super().__init__(core_fraction)
        self.surprise = surprise or (lambda layers: sum(3 if n >= 4 else 1 for n in range(*layers)))
        self.partitions: list[tuple[int, ...]] = []

    def run(self, graph: LayerGraph, plan: Plan, cluster: Cluster, options: CompileOptions, replicas: int) -> Run:
        self.partitions.append(plan.partition)
        cycles = (1000 * options.batch_size * self.surprise(stage.layers) for stage in plan.stages)
        stages = tuple(replace(stage, forward_cycles=n) for stage, n in zip(plan.stages, cycles, strict=True))
        ran = replace(plan, stages=stages)
        timeline = timeline_of(Knobs(len(stages), 1.0, options.batch_size), ran)
        return Run(ran, (replace(timeline, origin=Origin.MEASURED),) * replicas, self.core_fraction)


def test_cuts_are_moved_by_measured_costs_of_stages(flow: Flow) -> None:
    target = SurprisingTarget()
    trial = replace(flow, target=target, estimator=Estimator.SUM).evaluate(Knobs(2, 1.0, 4))
    assert target.partitions == [(0, 4, 8), (0, 5, 8)]  # 4 | 12 and 7 | 9
    assert trial.measured is not None
    assert trial.estimate is not None
    assert trial.measured.partition == trial.estimate.partition == (0, 5, 8)
    assert trial.samples_per_s == pytest.approx(4 * 1e6 / (9 * 4 * 1000), rel=0.01)


def test_cuts_are_moved_back_when_that_was_slower(flow: Flow) -> None:
    def surprise(layers: LayerRange) -> int:
        return {(0, 4): 4, (4, 8): 12}.get((layers.start, layers.stop), 20)

    target = SurprisingTarget(surprise=surprise)
    trial = replace(flow, target=target, estimator=Estimator.SUM).evaluate(Knobs(2, 1.0, 4))
    assert len(target.partitions) == 2
    assert trial.measured is not None
    assert trial.measured.partition == (0, 4, 8)


def test_a_disturbed_run_moves_no_cuts(flow: Flow) -> None:
    target = SurprisingTarget(core_fraction=0.5)
    replace(flow, target=target, estimator=Estimator.SUM).evaluate(Knobs(2, 1.0, 4))
    assert target.partitions == [(0, 4, 8)]


def test_more_pipelines_than_devices_is_a_trial(flow: Flow) -> None:
    trial = running(flow).evaluate(Knobs(2, 1.0, 1, replicas=2))
    assert not trial.fits
    assert "2 replicas of 2 devices need 4, pair has 2" in trial.reason


def test_memory_proportion_is_the_usable_share_of_a_real_devices_memory(flow: Flow) -> None:
    flow = running(flow)
    assert flow.evaluate(Knobs(1, 1.0, 10)).fits
    assert not flow.evaluate(Knobs(1, 0.5, 10)).fits


def test_a_disturbed_run_adds_no_examples(flow: Flow, tmp_path: Path) -> None:
    def n_examples(core_fraction: float) -> int:
        cache = ProfileCache(tmp_path / f"{core_fraction}.db")
        target = RunningTarget(core_fraction=core_fraction)
        own = replace(flow, target=target, cache=cache, estimator=Estimator.REGRESSION)
        knobs = Knobs(2, 1.0, 4)
        own.correction(knobs)
        before = own.correction(knobs).n_examples
        for batch_size in range(4, 12):
            own.evaluate(replace(knobs, batch_size=batch_size))
        return own.correction(knobs).n_examples - before

    assert n_examples(0.5) == 0
    assert n_examples(1.0) > 0


def test_training_is_not_for_real_devices(flow: Flow) -> None:
    with pytest.raises(BadInput, match="runs inference"):
        running(flow).check(SearchSpace((1,), (1.0,), (1,), (Order.GPIPE,)))


def test_expected_trials_equal_measured_ones_when_the_estimate_is_right(flow: Flow) -> None:
    fitting, failing = Knobs(2, 0.6, 4), Knobs(1, 0.6, 40)
    expected, measured = flow.expect(fitting), flow.evaluate(fitting)
    assert expected.samples_per_s == expected.estimated_samples_per_s == measured.estimated_samples_per_s
    assert expected.measured == expected.estimate == flow.predict(fitting)
    for impossible in (failing, Knobs(len(flow.cluster), 0.6, 1, replicas=2)):
        trial = flow.expect(impossible)
        assert (trial.fits, trial.reason) == (False, flow.evaluate(impossible).reason)
    training = Knobs(2, 0.6, 1, Order.GPIPE, n_micro_batches=4)
    expected, measured = flow.expect(training), flow.evaluate(training)
    assert expected.samples_per_s == measured.estimated_samples_per_s
    assert expected.timeline is not None


def test_one_plan_serves_all_numbers_of_replicas(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    made, table = list[Knobs](), Flow.table

    def counted(self: Flow, knobs: Knobs, progress: Progress | None = None) -> CostTable:
        made.append(knobs)
        return table(self, knobs, progress)

    monkeypatch.setattr(Flow, "table", counted)
    single, pair = (flow.expect(Knobs(1, 0.6, 4, replicas=replicas)) for replicas in (1, 2))
    assert made == [Knobs(1, 0.6, 4)]
    assert pair.samples_per_s == 2 * single.samples_per_s
    assert pair.estimate == single.estimate
    for replicas in (1, 2):
        with pytest.raises(Infeasible):
            flow.predict(Knobs(1, 0.6, 11, replicas=replicas))
    assert len(made) == 2


def test_a_plan_is_made_again_when_its_correction_changes(flow: Flow) -> None:
    corrected = replace(flow, estimator=Estimator.REGRESSION)
    knobs = Knobs(2, 0.6, 4)
    before, correction = corrected.predict(knobs), corrected.correction(knobs)
    assert corrected.predict(knobs).stages[0] is before.stages[0]
    other = replace(correction, forward=dict.fromkeys(correction.forward, 2.0))
    store = corrected._store(corrected.options(knobs))
    corrected._corrections[store.subject] = other
    assert corrected.predict(knobs).compute_cycles != before.compute_cycles


def test_replicas_of_a_machine_share_its_connection_to_the_host(flow: Flow) -> None:
    first = flow.profile(flow.options(Knobs(1, 0.6, 4))).layers[0].input_bytes
    slow = replace(flow, cluster=replace(flow.cluster, machine=Machine(2, first)))  # an input a second
    single, pair = (slow.evaluate(Knobs(1, 0.6, 4, replicas=replicas)) for replicas in (1, 2))
    assert (single.plan.cost_cycles, pair.plan.cost_cycles) == (10**6, 2 * 10**6)
    assert single.samples_per_s == pair.samples_per_s == pytest.approx(4.0)
    assert pair.estimated_samples_per_s == pytest.approx(4.0)
    assert pair.latency_s == pytest.approx(2.0)
    alone = replace(flow, cluster=replace(flow.cluster, machine=Machine(1, first)))
    assert alone.evaluate(Knobs(1, 0.6, 4, replicas=2)).samples_per_s == pytest.approx(8.0)
    assert flow.evaluate(Knobs(1, 0.6, 4, replicas=2)).plan.cost_cycles < 10**6
    assert isinstance(single.plan, Plan)
    timeline = slow.timeline(Knobs(1, 0.6, 4), single.plan)
    assert slow.simulated_samples_per_s(Knobs(1, 0.6, 4), timeline, single.plan) == pytest.approx(4.0)
