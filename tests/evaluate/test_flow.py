"""One configuration, from plan to measurement, with cost models and with real devices."""

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autoauto.evaluate.costs.layer_costs import LayerCosts
from autoauto.evaluate.flow import Flow
from autoauto.evaluate.modes.inference import InferenceFlow
from autoauto.plan.pipeline.optimal import optimal
from autoauto.profile.cache import ProfileCache
from autoauto.profile.profiler import Progress
from autoauto.records.costs.correction import Estimator
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import STASH, CompiledRange, Optimizer, OptimizerState, WeightUpdate
from autoauto.records.errors import BadInput, Infeasible, OutOfMemory
from autoauto.records.hardware import Cluster, Device, Link, Machine, MachineDevice, Period, StreamingMemory
from autoauto.records.interval import RunEnds
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.plans.phased import IoMode, PhasedOptions, PhasedPlan, PhaseKind
from autoauto.records.plans.plan import BoundedPlan, Plan
from autoauto.records.plans.timeline import Run
from autoauto.records.schedule import Order
from autoauto.records.target import RUNS_PLANS, Origin, StepOverhead
from autoauto.records.units import Precision
from autoauto.report.reasons import part_names
from autoauto.report.tables.compare import Speeds, compare_table
from autoauto.schedule.times import timeline_of
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Strategy
from autoauto.space.objectives import Objective
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Status
from autoauto.targets.ipu.session import memory_proportion
from tests.evaluate.linear import DEVICE, MIB, LinearTarget


def test_a_configuration_that_fits_is_measured(flow: Flow) -> None:
    trial = flow.evaluate(Knobs(n_ipu=2, memory_proportion=0.6, batch_size=4))
    assert trial.fits
    assert trial.measured is not None
    assert trial.measured.partition == (0, 4, 8)
    assert trial.measured.compute_cycles == 16_000
    assert trial.samples_per_s == pytest.approx(4 * 1e6 / trial.measured.cost_cycles)
    assert (trial.excess_bytes, trial.reason) == (0, "")
    assert trial.origin is flow.traits.origin is Origin.MEASURED
    assert flow.expect(Knobs(n_ipu=2, memory_proportion=0.6, batch_size=4)).origin is Origin.ESTIMATED


def test_a_configuration_that_the_estimate_rules_out_is_not_measured(flow: Flow) -> None:
    trial = flow.evaluate(Knobs(n_ipu=1, memory_proportion=0.6, batch_size=11))
    assert not trial.fits
    assert trial.estimate is None
    assert trial.status is Status.INFEASIBLE
    assert trial.excess_bytes >= 3 * MIB
    assert trial.excess == trial.excess_bytes / (100 * MIB)
    with pytest.raises(Infeasible):
        flow.predict(Knobs(n_ipu=1, memory_proportion=0.6, batch_size=11))


def test_a_stage_too_large_for_its_device_is_out_of_memory(flow: Flow) -> None:
    greedy = flow.with_setting(target=LinearTarget(surplus=2.0))
    knobs = Knobs(n_ipu=2, memory_proportion=0.6, batch_size=16)
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
    knobs = Knobs(n_ipu=2, memory_proportion=0.6, batch_size=2, schedule=Order.ONE_F_ONE_B, n_micro_batches=4)
    trial = flow.with_setting(period=Period.OVERLAP).evaluate(knobs)
    assert isinstance(trial.measured, Plan)
    assert trial.timeline is not None
    first = trial.measured.stages[0]
    assert (first.forward_cycles, first.backward_cycles, first.weight_cycles) == (8_000, 16_000, 8_000)
    assert trial.timeline.makespan_cycles == pytest.approx((4 + 2 - 1) * 24_000, rel=0.01)  # (m + p - 1)(tf + tb)
    assert trial.samples_per_s == pytest.approx(2 * 4 * 1e6 / trial.timeline.makespan_cycles)


def test_replicas_train_side_by_side_and_sum_their_gradients(flow: Flow) -> None:
    link = Link(1e7, 100)  # 10 bytes a cycle
    four = flow.with_setting(cluster=Cluster("four", "ipu", (DEVICE,) * 4, (link,) * 4, (link,) * 4))
    single = Knobs(n_ipu=2, memory_proportion=0.6, batch_size=2, schedule=Order.ONE_F_ONE_B, n_micro_batches=4)
    alone, pair = four.evaluate(single), four.evaluate(replace(single, replicas=2))
    assert alone.timeline is not None
    assert pair.timeline is not None
    assert pair.timeline.step_parts["all-reduce"] == 200 + 2 * 400_000 / 10  # both stages over one cable, two waits
    assert pair.step.makespan_cycles == alone.timeline.makespan_cycles + pair.timeline.step_parts["all-reduce"]
    assert pair.samples_per_s == pytest.approx(2 * 2 * 4 * 1e6 / pair.timeline.makespan_cycles)
    assert pair.estimated_samples_per_s == pytest.approx(pair.samples_per_s)


class UpdatingTarget(LinearTarget):
    """Every layer's weights take 50 cycles, on one shard; a state takes a cycle more each."""

    def weight_update_cycles(
        self, graph: LayerGraph, device: Device, options: CompileOptions, update: WeightUpdate
    ) -> tuple[int, ...]:
        return ((50 + len(update.state_bytes(1, options.precision))) // update.n_shards,) * len(graph)


def test_the_optimizer_has_its_memory_and_its_part_of_a_step(flow: Flow) -> None:
    flow = flow.with_setting(target=UpdatingTarget())
    plain = Knobs(n_ipu=2, memory_proportion=0.6, batch_size=2, schedule=Order.GPIPE, n_micro_batches=4)
    adam = flow.evaluate(plain.with_values(optimizer=Optimizer.ADAM))
    assert adam.timeline is not None
    assert isinstance(adam.estimate, Plan)
    assert isinstance(adam.measured, Plan)
    for plan in (adam.estimate, adam.measured):
        assert plan.stages[0].memory_bytes["firstMoment"] == 2 * 4 * 100_000  # fp32 for gradients of fp16
    assert adam.timeline.step_parts["update"] == 4 * 52
    assert adam.step.makespan_cycles == timeline_of(plain.step, adam.measured).makespan_cycles + 4 * 52
    assert flow.evaluate(plain).samples_per_s > adam.samples_per_s


def test_an_optimizer_that_does_not_fit_fits_in_shards(flow: Flow) -> None:
    link = Link(1e12, 0)
    four = flow.with_setting(
        target=UpdatingTarget(),
        cluster=Cluster("four", "ipu", (DEVICE,) * 4, (link,) * 4, (link,) * 4),
        planning_proportion=22 / 100,
    )
    knobs = Knobs(
        n_ipu=2,
        memory_proportion=0.6,
        batch_size=5,
        schedule=Order.GPIPE,
        n_micro_batches=1,
        replicas=2,
        optimizer=Optimizer.LAMB,
    )
    assert not four.expect(knobs.with_values(master_weights=True)).fits
    shards = four.expect(knobs.with_values(master_weights=True, shard_optimizer=True))
    assert shards.fits
    assert shards.timeline is not None
    assert shards.timeline.step_parts["update"] == 4 * (53 // 2)


class SlowEnd(UpdatingTarget):
    """A bucket has two layers' gradients; a round takes 1,000 cycles, a transfer waits 20, and hosts take 5."""

    def step_overhead(self, clock_hz: float, update: WeightUpdate) -> StepOverhead:
        return StepOverhead(1_000, 200_000, 20, 5)


def test_states_that_do_not_fit_are_in_streaming_memory_and_a_step_moves_them(flow: Flow) -> None:
    link = Link(1e12, 0)
    memory = StreamingMemory(1e6, 10, 10**9)  # a byte a cycle
    cluster = Cluster("four", "ipu", (DEVICE,) * 4, (link,) * 4, (link,) * 4, memory)
    four = flow.with_setting(target=SlowEnd(), cluster=cluster, planning_proportion=22 / 100)
    knobs = Knobs(
        n_ipu=2,
        memory_proportion=0.6,
        batch_size=5,
        schedule=Order.GPIPE,
        replicas=2,
        optimizer=Optimizer.LAMB,
        master_weights=True,
    )
    ends = {location: four.expect(knobs.with_values(optimizer_state=location)) for location in OptimizerState}
    auto, on_chip, streaming, sharded = (ends[location] for location in OptimizerState)
    assert not on_chip.fits
    assert (auto.plan, auto.step.makespan_cycles) == (sharded.plan, sharded.step.makespan_cycles)
    parts = [each.timeline.step_parts for each in (streaming, sharded) if each.timeline]
    state_bytes = 4 * 3 * 200_000  # of a device: three states in fp32 for gradients of 4 layers in fp16
    assert [each["update"] for each in parts] == [
        4 * 50 + 2 * (3 * 4 * (10 + 20) + state_bytes) + 5,
        4 * 25 + 2 * (3 * 4 * (10 + 20) + state_bytes // 2) + 5,
    ]
    # Of a layer of 50,000 weights: states, gradients in fp32 and the change, and copies of gradients and their shard.
    needed = [300_000 * 2 + 100_000 * 3, 300_000 + 50_000 * 3 + 150_000]
    for trial, n_bytes in zip((streaming, sharded), needed, strict=True):
        stages = [
            each
            for plan in (trial.plan, four.evaluate(trial.knobs).measured)
            if isinstance(plan, Plan)
            for each in plan.stages
        ]
        activations = 1_920  # stashed before the last layer of a stage: an estimate counts it beside the update
        extra = [activations, activations, 0, 0]
        assert [stage.memory_bytes["temporary"] for stage in stages] == [n_bytes + each for each in extra]
    # Two buckets, or a tensor a layer, in two rounds each; the bytes take next to nothing.
    assert [each["all-reduce"] for each in parts] == [pytest.approx(n * 2 * 1_000, abs=10) for n in (2, 4)]
    with pytest.raises(BadInput, match="needs a streaming memory, four has none"):
        four.with_setting(cluster=replace(cluster, streaming_memory=None)).expect(
            knobs.with_values(optimizer_state=OptimizerState.STREAMING)
        )


def test_replicas_whose_links_differ_train_with_the_same_cuts(flow: Flow) -> None:
    fast, slow = Link(1e12, 0), Link(1e3, 0)
    links = (fast, fast, slow, fast, slow, fast)  # replicas of three devices: the slow links are elsewhere
    uneven = flow.with_setting(
        cluster=Cluster("uneven", "ipu", (DEVICE,) * 6, links, (*links[1:], fast)), period=Period.OVERLAP
    )
    knobs = Knobs(
        n_ipu=3, memory_proportion=0.6, batch_size=2, schedule=Order.ONE_F_ONE_B, n_micro_batches=8, replicas=2
    )
    free = [uneven.plans.of_pipeline(replace(knobs, replicas=1), start).plan for start in (0, 3)]
    plan = uneven.predict(knobs)
    assert free[0].partition != free[1].partition
    assert len(plan.plans) == 2
    assert len({each.partition for each in plan.plans}) == 1
    steps = [timeline_of(knobs.step, each).makespan_cycles for each in plan.plans]
    assert uneven.timeline(knobs, plan).step_parts["fill"] > 0
    assert uneven.timeline(knobs, plan).makespan_cycles >= max(steps)
    assert min(steps) >= min(timeline_of(knobs.step, each).makespan_cycles for each in free)


def test_schedules_stash_what_they_have_in_flight(flow: Flow) -> None:
    def stash(order: Order, recompute: bool = False) -> list[int]:
        knobs = Knobs(
            n_ipu=2, memory_proportion=0.6, batch_size=2, schedule=order, recompute=recompute, n_micro_batches=8
        )
        return [stage.memory_bytes[STASH] for stage in flow.measure(knobs, flow.predict(knobs)).plan.stages]

    assert stash(Order.ONE_F_ONE_B) == [4 * MIB, 0]  # one other micro-batch, 4 layers of 1 MiB
    assert stash(Order.POPART) == [2 * 4 * MIB, 0]
    assert stash(Order.GPIPE) == [7 * 4 * MIB, 7 * 4 * MIB]
    sizes = flow.profile(
        flow.options(Knobs(n_ipu=2, memory_proportion=0.6, batch_size=2, schedule=Order.GPIPE, n_micro_batches=8))
    ).layers
    assert stash(Order.GPIPE, recompute=True) == [7 * sizes[0].input_bytes, 7 * sizes[4].input_bytes]


def test_recomputing_runs_forward_again(flow: Flow) -> None:
    knobs = Knobs(n_ipu=2, memory_proportion=0.6, batch_size=2, schedule=Order.GPIPE, recompute=True, n_micro_batches=8)
    estimate = flow.predict(knobs)
    for plan in (estimate, flow.measure(knobs, estimate).plan):
        assert plan.stages[0].backward_cycles == 3 * plan.stages[0].forward_cycles


def test_1f1b_fits_what_gpipe_cannot(flow: Flow) -> None:
    assert not flow.evaluate(
        Knobs(n_ipu=2, memory_proportion=0.6, batch_size=6, schedule=Order.GPIPE, n_micro_batches=8)
    ).fits
    assert flow.evaluate(
        Knobs(n_ipu=2, memory_proportion=0.6, batch_size=6, schedule=Order.ONE_F_ONE_B, n_micro_batches=8)
    ).fits


def test_inference_is_simulated_at_its_period(flow: Flow) -> None:
    trial = flow.evaluate(Knobs(n_ipu=2, memory_proportion=0.6, batch_size=4))
    assert trial.timeline is not None
    assert trial.measured is not None
    assert trial.timeline.period_cycles == trial.measured.cost_cycles


def test_a_space_with_more_devices_than_the_cluster_is_refused(flow: Flow) -> None:
    with pytest.raises(BadInput, match="at most 2 on pair, got 4"):
        flow.checked(SearchSpace(n_ipu=(1, 4)))


def test_a_batch_size_that_the_model_cannot_run_is_an_outcome(flow: Flow) -> None:
    fixed = flow.with_setting(graph=replace(flow.graph, fixed_batch="Reshape r1 mixes samples"))
    alone, together = (
        fixed.evaluate(Knobs(n_ipu=1, memory_proportion=0.6, batch_size=batch_size)) for batch_size in (1, 2)
    )
    assert alone.runs
    assert not together.runs
    assert "Reshape r1" in together.reason


def test_different_flows_have_different_fingerprints(flow: Flow) -> None:
    assert flow.fingerprint() == flow.with_setting().fingerprint()
    for other in (
        flow.with_setting(planning_proportion=0.5),
        flow.with_setting(graph=replace(flow.graph, content="other")),
        flow.with_setting(cluster=flow.cluster.with_synthetic_data()),
    ):
        assert other.fingerprint() != flow.fingerprint()


def test_overlapped_host_links_bound_the_period_from_below(flow: Flow) -> None:
    slow = replace(flow.cluster, overlapped_host_links=(Link(1e9, 10**9), Link(1e9, 5)))
    plan = flow.with_setting(cluster=slow).predict(Knobs(n_ipu=2, memory_proportion=0.6, batch_size=4))
    assert plan.cost_cycles == plan.host_cycles >= 10**9 + 5
    assert plan.partition == flow.predict(Knobs(n_ipu=2, memory_proportion=0.6, batch_size=4)).partition


def test_a_model_too_large_for_a_device_runs_in_phases(flow: Flow) -> None:
    streaming = StreamingMemory(1e12, 0, 10**12)
    phased = flow.with_setting(cluster=replace(flow.cluster, streaming_memory=streaming))
    knobs, options = Knobs(n_ipu=1, memory_proportion=0.6, batch_size=20), PhasedOptions(4, IoMode.COMPUTE)
    with pytest.raises(Infeasible):
        phased.predict(knobs)
    plan = phased.phases.plan(knobs, options)
    assert plan.partition[-1] == 8
    assert all(phase.total_bytes <= 85 * MIB for phase in plan.phases)
    assert sum(phase.compute_cycles for phase in plan.phases) == 20 * 8000
    with pytest.raises(BadInput, match="cluster pair has none"):
        flow.phases.plan(knobs, options)


def test_phases_are_measured(flow: Flow) -> None:
    cluster = replace(flow.cluster, streaming_memory=StreamingMemory(1e12, 0, 10**12))
    phased = flow.with_setting(cluster=cluster)
    knobs = Knobs(n_ipu=2, memory_proportion=0.6, batch_size=20, n_micro_batches=4, strategy=Strategy.PHASED)
    trial = phased.evaluate(knobs)
    assert isinstance(trial.measured, PhasedPlan)
    assert isinstance(trial.estimate, PhasedPlan)
    assert trial.measured.cost_cycles == trial.estimate.cost_cycles  # the target adds layers up
    assert trial.samples_per_s == pytest.approx(2 * 4 * 20 * 1e6 / trial.measured.cost_cycles)
    greedy = phased.with_setting(target=LinearTarget(surplus=2.0)).evaluate(knobs)
    assert (greedy.fits, isinstance(greedy.estimate, PhasedPlan)) == (False, True)
    assert "too much" in greedy.reason
    assert greedy.excess_bytes > 0


def test_phases_train_and_compute_again_when_asked(flow: Flow) -> None:
    cluster = replace(flow.cluster, streaming_memory=StreamingMemory(1e12, 0, 10**12))
    knobs = Knobs(n_ipu=1, memory_proportion=0.6, batch_size=20, schedule=Order.POPART, n_micro_batches=4)
    for recompute, backward in ((False, 2), (True, 3)):
        plan = flow.with_setting(cluster=cluster).phases.plan(
            knobs, PhasedOptions(4, IoMode.COMPUTE, recompute=recompute)
        )
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
        limit = int(cluster.devices[0].memory_bytes * memory_proportion(options))
        stages = []
        for stage in plan.stages:
            n_layers = stage.layers.stop - stage.layers.start
            n_bytes = int(n_layers * options.batch_size * MIB * self.needs)
            if n_bytes > limit:
                raise OutOfMemory("too much", n_bytes - limit, stage.layers)
            cycles = 1100 * n_layers * options.batch_size
            stages.append(replace(stage, forward_cycles=cycles, memory_bytes={"state": n_bytes}))
        knobs = Knobs(n_ipu=len(stages), memory_proportion=1.0, batch_size=options.batch_size)
        timeline = replace(timeline_of(knobs.step, replace(plan, stages=tuple(stages))), origin=Origin.MEASURED)
        return Run(replace(plan, stages=tuple(stages)), (timeline,) * replicas, self.core_fraction)


def running(flow: Flow) -> Flow:
    return flow.with_setting(target=RunningTarget(), estimator=Estimator.SUM)


def test_throughput_of_real_devices_is_that_of_their_run(flow: Flow) -> None:
    flow = running(flow)
    trial = flow.evaluate(Knobs(n_ipu=1, memory_proportion=1.0, batch_size=4, replicas=2))
    assert trial.samples_per_s == pytest.approx(2 * 4 * 1e6 / (8 * 4 * 1100), rel=0.01)
    assert trial.timeline is not None
    assert trial.timeline.origin is Origin.MEASURED


class RacingTarget(RunningTarget):
    """Its runs are known to 10 %, and end early where they are slower than the best so far."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[RunEnds | None] = []

    def race(
        self,
        graph: LayerGraph,
        plan: Plan,
        cluster: Cluster,
        options: CompileOptions,
        replicas: int,
        best: RunEnds | None,
    ) -> Run:
        self.asked.append(best)
        run = replace(self.run(graph, plan, cluster, options, replicas), period_error=0.1)
        ends = run.ends(options.batch_size, cluster.clock_hz)
        assert ends is not None
        return replace(run, ended_early=best is not None and ends.is_below(best))


def test_runs_race_against_the_best_so_far(flow: Flow) -> None:
    target = RacingTarget()
    flow = flow.with_setting(target=target, estimator=Estimator.SUM)
    fast, slow = (Knobs(n_ipu=1, memory_proportion=1.0, batch_size=4, replicas=n) for n in (2, 1))
    assert flow.evaluate(slow).fits
    assert target.asked == [None]
    flow = flow.with_setting()
    flow.race(())
    best, beaten = flow.evaluate(fast), flow.evaluate(slow)
    assert best.result.ends == pytest.approx((best.samples_per_s / 1.1, best.samples_per_s / 0.9, 1.0))
    assert target.asked[1:] == [None, best.result.ends]
    assert (beaten.status, beaten.fits, beaten.runs) == (Status.ENDED_EARLY, False, True)
    assert beaten.samples_per_s == pytest.approx(best.samples_per_s / 2, rel=0.01)
    assert beaten.reason.startswith(f"slower than the best so far: {beaten.samples_per_s:,.1f} samples/s until then")
    flow.race(None)
    assert flow.evaluate(slow).fits  # in turns all run to their ends
    again = flow.with_setting()
    again.race([best])
    assert again.evaluate(slow).ended_early


def test_what_breaks_a_constraint_is_no_best_so_far(flow: Flow) -> None:
    flow = flow.with_setting(target=RacingTarget(), estimator=Estimator.SUM, constraints=(Constraint("replicas < 2"),))
    flow.race(())
    fast, slow = (Knobs(n_ipu=1, memory_proportion=1.0, batch_size=4, replicas=n) for n in (2, 1))
    assert flow.evaluate(fast).status is Status.CONSTRAINED
    assert flow.evaluate(slow).fits


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
        timeline = timeline_of(Knobs(n_ipu=len(stages), memory_proportion=1.0, batch_size=options.batch_size).step, ran)
        return Run(ran, (replace(timeline, origin=Origin.MEASURED),) * replicas, self.core_fraction)


def test_cuts_are_moved_by_measured_costs_of_stages(flow: Flow) -> None:
    target = SurprisingTarget()
    trial = flow.with_setting(target=target, estimator=Estimator.SUM).evaluate(
        Knobs(n_ipu=2, memory_proportion=1.0, batch_size=4)
    )
    assert target.partitions == [(0, 4, 8), (0, 5, 8)]  # 4 | 12 and 7 | 9
    assert trial.measured is not None
    assert trial.estimate is not None
    assert trial.measured.partition == trial.estimate.partition == (0, 5, 8)
    assert trial.samples_per_s == pytest.approx(4 * 1e6 / (9 * 4 * 1000), rel=0.01)


def test_cuts_are_moved_back_when_that_was_slower(flow: Flow) -> None:
    def surprise(layers: LayerRange) -> int:
        return {(0, 4): 4, (4, 8): 12}.get((layers.start, layers.stop), 20)

    target = SurprisingTarget(surprise=surprise)
    trial = flow.with_setting(target=target, estimator=Estimator.SUM).evaluate(
        Knobs(n_ipu=2, memory_proportion=1.0, batch_size=4)
    )
    assert len(target.partitions) == 2
    assert trial.measured is not None
    assert trial.measured.partition == (0, 4, 8)


def test_a_measured_configuration_has_the_same_cuts_again(flow: Flow) -> None:
    target, knobs = SurprisingTarget(), Knobs(n_ipu=2, memory_proportion=1.0, batch_size=4)
    flow = flow.with_setting(target=target, estimator=Estimator.SUM)
    first = flow.evaluate(knobs)
    target.partitions.clear()
    assert flow.evaluate(knobs).estimate == first.estimate
    assert target.partitions == [(0, 5, 8)]
    other = flow.with_setting()
    other.pipelines.measure_again(knobs, flow.plans.cut_at(knobs, (0, 3, 8)))
    assert other.evaluate(knobs).plan.partition == (0, 3, 8)


def test_a_plan_has_the_cuts_that_are_asked_for(flow: Flow) -> None:
    plan = flow.plans.cut_at(Knobs(n_ipu=2, memory_proportion=0.6, batch_size=1, replicas=1), (0, 3, 8))
    assert plan.partition == (0, 3, 8)
    assert plan.compute_cycles == 5000
    for knobs, partition, message in (
        (
            Knobs(n_ipu=2, memory_proportion=0.6, batch_size=1),
            (0, 8),
            "a partition for 2 devices needs 3 ascending boundaries from 0 to 8, got",
        ),
        (Knobs(n_ipu=2, memory_proportion=0.6, batch_size=1), (0, 9, 8), "needs 3 ascending boundaries"),
        (
            Knobs(n_ipu=2, memory_proportion=0.6, batch_size=1, stage_replicas=True),
            (0, 4, 8),
            "stages of one device each",
        ),
    ):
        with pytest.raises(BadInput, match=message):
            flow.plans.cut_at(knobs, partition)


def test_no_stage_begins_where_a_weight_would_be_parted(flow: Flow, chain: Callable[..., LayerGraph]) -> None:
    tied = flow.with_setting(graph=chain(kinds=["a"] * 8, tie=(2, 5)))
    with pytest.raises(BadInput, match="no stage may begin at layer 4, where layers of one weight would be parted"):
        tied.plans.cut_at(Knobs(n_ipu=2, memory_proportion=0.6, batch_size=1), (0, 4, 8))


def test_a_disturbed_run_moves_no_cuts(flow: Flow) -> None:
    target = SurprisingTarget(core_fraction=0.5)
    flow.with_setting(target=target, estimator=Estimator.SUM).evaluate(
        Knobs(n_ipu=2, memory_proportion=1.0, batch_size=4)
    )
    assert target.partitions == [(0, 4, 8)]


class UnevenTarget(RunningTarget):
    """Real devices that run stages in turn. In a stage the layers from the fifth on take `factor` times as long."""

    traits = replace(RUNS_PLANS, stage_replicas=True, period=Period.SERIAL)

    def __init__(self, factor: int = 1) -> None:
        super().__init__()
        self.factor = factor
        self.plans: list[Plan] = []

    def run(self, graph: LayerGraph, plan: Plan, cluster: Cluster, options: CompileOptions, replicas: int) -> Run:
        self.plans.append(plan)
        cycles = (sum(1000 * (self.factor if n >= 4 else 1) for n in range(*stage.layers)) for stage in plan.stages)
        stages = zip(plan.stages, cycles, strict=True)
        ran = replace(plan, stages=tuple(replace(stage, forward_cycles=n * options.batch_size) for stage, n in stages))
        timeline = timeline_of(
            Knobs(n_ipu=plan.n_devices, memory_proportion=1.0, batch_size=options.batch_size, stage_replicas=True).step,
            ran,
        )
        return Run(ran, (replace(timeline, origin=Origin.MEASURED),) * replicas)


def shared_flow(flow: Flow, n_devices: int, memory_mib: int, factor: int = 1) -> Flow:
    """`flow` on like devices with so much memory, whose links take 100 cycles."""
    device, link = replace(flow.cluster.devices[0], memory_bytes=memory_mib * MIB), Link(1e12, 100)
    cluster = Cluster("line", "host", (device,) * n_devices, (link,) * n_devices, (link,) * n_devices)
    target = UnevenTarget(factor)
    return flow.with_setting(cluster=cluster, target=target, planning_proportion=1.0, estimator=Estimator.SUM)


def compositions(total: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a number as a sum of ones and more."""
    if total == 0:
        yield ()
    for first in range(1, total + 1):
        yield from ((first, *rest) for rest in compositions(total - first))


@pytest.mark.parametrize(("n_devices", "memory_mib"), [(1, 8), (2, 8), (3, 6), (4, 5), (5, 3), (3, 2)])
def test_the_plan_with_stage_replicas_is_the_cheapest_of_all(flow: Flow, n_devices: int, memory_mib: int) -> None:
    """Eight layers of 1 MiB and 1,000 cycles, on at most so many devices: all cuts and all counts of replicas."""
    flow, knobs = (
        shared_flow(flow, n_devices, memory_mib),
        Knobs(n_ipu=n_devices, memory_proportion=1.0, batch_size=1, stage_replicas=True),
    )
    costs = [
        max(-(-1000 * n_layers // m) - 2 * (-100 // m) for n_layers, m in zip(layers, n_replicas, strict=True))
        for n_used in range(1, n_devices + 1)
        for n_replicas in compositions(n_used)
        for layers in compositions(8)
        if len(layers) == len(n_replicas) and max(layers) <= memory_mib
    ]
    if not costs:
        with pytest.raises(Infeasible, match="every stage must fit"):
            flow.predict(knobs)
        return
    plan = flow.predict(knobs)
    assert plan.cost_cycles == min(costs)
    assert plan.n_devices <= n_devices
    trial = flow.evaluate(knobs)
    assert trial.measured == plan
    assert trial.samples_per_s == pytest.approx(1e6 / plan.cost_cycles, rel=0.01)
    assert flow.expect(knobs).samples_per_s == trial.estimated_samples_per_s


def test_cuts_and_replicas_are_moved_by_measured_costs_of_stages(flow: Flow) -> None:
    """A device holds five of eight layers; the last four take three times as long as estimated: 4 | 12 / 2."""
    flow = shared_flow(flow, 3, 5, factor=3)
    knobs = Knobs(n_ipu=3, memory_proportion=1.0, batch_size=1, stage_replicas=True)
    trial = flow.evaluate(knobs)
    assert isinstance(flow.target, UnevenTarget)
    assert flow.target.plans[0].partition != (0, 4, 8)
    assert isinstance(trial.measured, Plan)
    assert [(stage.layers, stage.n_replicas) for stage in trial.measured.stages] == [((0, 4), 1), ((4, 8), 2)]
    assert isinstance(trial.estimate, Plan)
    assert trial.estimate.partition == (0, 4, 8)


def test_stage_replicas_are_refused_where_they_cannot_run(flow: Flow) -> None:
    space = SearchSpace((2,), (1.0,), (1,), stage_replicas=(False, True))
    with pytest.raises(BadInput, match=r"^--target ipu has no --stage-replicas; leave it out, or try --target host$"):
        flow.checked(space)
    shared = shared_flow(flow, 2, 8)
    shared.checked(space)
    with pytest.raises(BadInput, match="got --period barrier; try serial"):
        shared.with_setting(period=Period.BARRIER).checked(space)
    slow = replace(shared.cluster.devices[0], clock_hz=5e5)
    unlike = shared.with_setting(cluster=replace(shared.cluster, devices=(shared.cluster.devices[0], slow)))
    with pytest.raises(BadInput, match=r"stage replicas .* need like devices"):
        unlike.predict(Knobs(n_ipu=2, memory_proportion=1.0, batch_size=1, stage_replicas=True))


def test_more_pipelines_than_devices_is_a_trial(flow: Flow) -> None:
    trial = running(flow).evaluate(Knobs(n_ipu=2, memory_proportion=1.0, batch_size=1, replicas=2))
    assert not trial.fits
    assert "2 replicas of 2 devices need 4, pair has 2" in trial.reason


def test_memory_proportion_is_the_usable_share_of_a_real_devices_memory(flow: Flow) -> None:
    flow = running(flow)
    assert flow.evaluate(Knobs(n_ipu=1, memory_proportion=1.0, batch_size=10)).fits
    assert not flow.evaluate(Knobs(n_ipu=1, memory_proportion=0.5, batch_size=10)).fits


def test_weights_that_no_real_device_holds_are_refused_before_anything_is_profiled(flow: Flow) -> None:
    class Unused(RunningTarget):
        def compile(self, *_: object) -> CompiledRange:
            raise AssertionError("no layer is compiled")

    weights = flow.graph.n_weight_bytes(Precision.FP16)
    small = replace(flow.cluster.devices[0], memory_bytes=weights // 3)
    tight = flow.with_setting(target=Unused(), cluster=replace(flow.cluster, devices=(small, small)))
    for knobs, excess in (
        (Knobs(n_ipu=1, memory_proportion=1.0, batch_size=1), weights - weights // 3),
        (Knobs(n_ipu=2, memory_proportion=1.0, batch_size=1), weights - 2 * (weights // 3)),
    ):
        for trial in (tight.expect(knobs), tight.evaluate(knobs)):
            assert trial.reason.startswith("the weights of chain alone need ")
            assert trial.excess_bytes == excess
    assert (
        tight.with_setting(target=LinearTarget())
        .expect(Knobs(n_ipu=1, memory_proportion=0.6, batch_size=1))
        .reason[:11]
        != "the weights"
    )


def test_a_disturbed_run_adds_no_examples(flow: Flow, tmp_path: Path) -> None:
    def n_examples(core_fraction: float) -> int:
        cache = ProfileCache(tmp_path / f"{core_fraction}.db")
        target = RunningTarget(core_fraction=core_fraction)
        own = flow.with_setting(target=target, cache=cache, estimator=Estimator.REGRESSION)
        knobs = Knobs(n_ipu=2, memory_proportion=1.0, batch_size=4)
        own.costs.correction(knobs)
        before = own.costs.correction(knobs).n_examples
        for batch_size in range(4, 12):
            own.evaluate(replace(knobs, batch_size=batch_size))
        return own.costs.correction(knobs).n_examples - before

    assert n_examples(0.5) == 0
    assert n_examples(1.0) > 0


def test_training_is_not_for_real_devices(flow: Flow) -> None:
    with pytest.raises(BadInput, match="runs inference"):
        running(flow).checked(SearchSpace((1,), (1.0,), (1,), schedule=(Order.GPIPE,)))


def test_expected_trials_equal_measured_ones_when_the_estimate_is_right(flow: Flow) -> None:
    fitting, failing = (
        Knobs(n_ipu=2, memory_proportion=0.6, batch_size=4),
        Knobs(n_ipu=1, memory_proportion=0.6, batch_size=40),
    )
    expected, measured = flow.expect(fitting), flow.evaluate(fitting)
    assert expected.samples_per_s == expected.estimated_samples_per_s == measured.estimated_samples_per_s
    assert expected.measured == expected.estimate == flow.predict(fitting)
    for impossible in (failing, Knobs(n_ipu=len(flow.cluster), memory_proportion=0.6, batch_size=1, replicas=2)):
        trial = flow.expect(impossible)
        assert (trial.fits, trial.reason) == (False, flow.evaluate(impossible).reason)
    training = Knobs(n_ipu=2, memory_proportion=0.6, batch_size=1, schedule=Order.GPIPE, n_micro_batches=4)
    expected, measured = flow.expect(training), flow.evaluate(training)
    assert expected.samples_per_s == measured.estimated_samples_per_s
    assert expected.timeline is not None


def test_one_plan_serves_all_numbers_of_replicas(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    made, best = list[Knobs](), InferenceFlow.best

    def counted(self: InferenceFlow, knobs: Knobs, start: int, progress: Progress | None = None) -> BoundedPlan:
        made.append(replace(knobs, replicas=1))
        return best(self, knobs, start, progress)

    monkeypatch.setattr(InferenceFlow, "best", counted)
    single, pair = (
        flow.expect(Knobs(n_ipu=1, memory_proportion=0.6, batch_size=4, replicas=replicas)) for replicas in (1, 2)
    )
    assert made == [Knobs(n_ipu=1, memory_proportion=0.6, batch_size=4)]
    assert pair.samples_per_s == 2 * single.samples_per_s
    assert [plan and plan.parts for plan in (pair.estimate, pair.measured)] == [single.plan.parts] * 2
    for replicas in (1, 2):
        with pytest.raises(Infeasible):
            flow.predict(Knobs(n_ipu=1, memory_proportion=0.6, batch_size=11, replicas=replicas))
    assert len(made) == 2


def test_a_plan_is_made_again_when_its_correction_changes(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    corrected = running(flow).with_setting(estimator=Estimator.REGRESSION)
    knobs = Knobs(n_ipu=2, memory_proportion=0.6, batch_size=4)
    before, correction = corrected.predict(knobs), corrected.costs.correction(knobs)
    assert corrected.predict(knobs).stages[0] is before.stages[0]
    other = replace(correction, forward=dict.fromkeys(correction.forward, 2.0))
    monkeypatch.setattr(LayerCosts, "correction", lambda *_: other)
    assert corrected.predict(knobs).compute_cycles != before.compute_cycles


def test_replicas_of_a_machine_share_its_connection_to_the_host(flow: Flow) -> None:
    first = flow.profile(flow.options(Knobs(n_ipu=1, memory_proportion=0.6, batch_size=4))).layers[0].input_bytes
    slow = flow.with_setting(cluster=replace(flow.cluster, machine=Machine(2, first)))  # an input a second
    single, pair = (
        slow.evaluate(Knobs(n_ipu=1, memory_proportion=0.6, batch_size=4, replicas=replicas)) for replicas in (1, 2)
    )
    assert (single.plan.cost_cycles, pair.plan.cost_cycles) == (10**6, 2 * 10**6)
    assert single.samples_per_s == pair.samples_per_s == pytest.approx(4.0)
    assert pair.estimated_samples_per_s == pytest.approx(4.0)
    assert pair.latency_s == pytest.approx(2.0)
    alone = flow.with_setting(cluster=replace(flow.cluster, machine=Machine(1, first)))
    assert alone.evaluate(
        Knobs(n_ipu=1, memory_proportion=0.6, batch_size=4, replicas=2)
    ).samples_per_s == pytest.approx(8.0)
    assert flow.evaluate(Knobs(n_ipu=1, memory_proportion=0.6, batch_size=4, replicas=2)).plan.cost_cycles < 10**6
    assert isinstance(single.plan, Plan)
    knobs = Knobs(n_ipu=1, memory_proportion=0.6, batch_size=4)
    timeline = slow.timeline(knobs, single.plan)
    simulated_per_s = slow.plans.mode(knobs).simulated_samples_per_s(knobs, timeline, single.plan)
    assert simulated_per_s == pytest.approx(4.0)


def machines(flow: Flow, n_devices: int, size: int) -> Flow:
    """The flow on more devices; a link between machines takes much longer than one within."""
    links = [Link(1e12, 0) if d % size else Link(1e5, 100) for d in range(1, n_devices)]
    host = flow.cluster.receive_links[0]
    cluster = replace(
        flow.cluster,
        devices=flow.cluster.devices[:1] * n_devices,
        receive_links=(host, *links),
        send_links=(*links, host),
        machine=Machine(size, 1e12),
    )
    return flow.with_setting(cluster=cluster)


def devices_of(plan: Plan | PhasedPlan | None) -> list[list[MachineDevice]]:
    """The devices of all replicas of every plan."""
    assert isinstance(plan, Plan)
    return [list(replica) for each in plan.plans for replica in each.placement]


def test_pipelines_stay_inside_machines_where_that_is_faster(flow: Flow) -> None:
    flow = machines(flow, 8, 4)
    trial = flow.evaluate(Knobs(n_ipu=3, memory_proportion=0.6, batch_size=4, replicas=2))
    assert (
        devices_of(trial.estimate) == devices_of(trial.measured) == [[(0, 0), (0, 1), (0, 2)], [(1, 0), (1, 1), (1, 2)]]
    )
    assert trial.samples_per_s == 2 * flow.evaluate(Knobs(n_ipu=3, memory_proportion=0.6, batch_size=4)).samples_per_s


def test_a_replica_that_crosses_machines_has_a_plan_of_its_own(flow: Flow) -> None:
    flow = machines(flow, 6, 3)
    knobs = Knobs(n_ipu=2, memory_proportion=0.6, batch_size=4, replicas=3)
    trial = flow.evaluate(knobs)
    assert isinstance(trial.measured, Plan)
    assert devices_of(trial.measured) == [[(0, 2), (1, 0)], [(0, 0), (0, 1)], [(1, 1), (1, 2)]]
    crossing, inside = trial.measured.plans
    assert isinstance(trial.estimate, Plan)
    assert (
        trial.estimate.stages
        == optimal(flow.costs.pipeline_table(Knobs(n_ipu=2, memory_proportion=0.6, batch_size=4), start=2)).stages
    )
    assert (
        trial.estimate.other_plans[0].stages
        == optimal(flow.table(Knobs(n_ipu=2, memory_proportion=0.6, batch_size=4))).stages
    )
    assert crossing.cost_cycles > inside.cost_cycles
    each = [4 * flow.cluster.clock_hz / plan.cost_cycles for plan in (crossing, inside, inside)]
    assert trial.samples_per_s == trial.estimated_samples_per_s == pytest.approx(sum(each))
    timeline = flow.timeline(knobs, crossing)
    assert flow.plans.mode(knobs).simulated_samples_per_s(knobs, timeline, crossing) == pytest.approx(sum(each))
    assert trial.latency_s == pytest.approx(crossing.latency_cycles / flow.cluster.clock_hz)
    assert (trial.result.compute_cycles, trial.result.transfer_cycles) == (
        crossing.compute_cycles,
        crossing.transfer_cycles,
    )
    per_device = Objective.PER_DEVICE.of(trial)
    assert per_device == pytest.approx(6 * flow.cluster.clock_hz / trial.samples_per_s)
    run = flow.measure(knobs, flow.predict(knobs))
    assert [timeline.period_cycles for timeline in run.timelines] == [
        flow.timeline(knobs, plan).period_cycles for plan in (crossing, inside, inside)
    ]
    assert part_names(crossing)[:3] == ["stage 0 of replica 1", "stage 1 of replica 1", "stage 0 of replica 0, 2"]
    assert (
        "the slowest"
        in compare_table(
            flow.predict(knobs).in_order_of(run.plan),
            flow.timeline(knobs, crossing),
            run,
            Speeds(1.0, 1.0, 1.0),
            Origin.MODELLED,
        ).caption
    )
    bound = Constraint(f"transfer_cycles <= {crossing.transfer_cycles - 1}")
    assert flow.with_setting(constraints=(bound,)).evaluate(knobs).status is Status.CONSTRAINED


def test_a_replica_that_turns_out_slower_is_the_first_of_the_measured_plan(flow: Flow) -> None:
    """Estimates are alike for both clocks but for rounding; compiled whole, the second device takes much longer."""

    class Slower(LinearTarget):
        def compile(
            self, graph: LayerGraph, layers: LayerRange, device: Device, options: CompileOptions
        ) -> CompiledRange:
            plain = super().compile(graph, layers, device, options)
            if len(range(*layers)) == 1 or device.name != "other":
                return plain
            return replace(plain, steps=tuple(step._replace(cycles=10 * step.cycles) for step in plain.steps))

    other = replace(DEVICE, name="other", clock_hz=2 * DEVICE.clock_hz)
    cluster = replace(flow.cluster, devices=(DEVICE, other))
    trial = flow.with_setting(target=Slower(), cluster=cluster).evaluate(
        Knobs(n_ipu=1, memory_proportion=0.6, batch_size=4, replicas=2)
    )
    assert devices_of(trial.estimate) == [[(0, 0)], [(0, 1)]]
    assert devices_of(trial.measured) == [[(0, 1)], [(0, 0)]]


def test_replicas_of_unlike_devices_each_have_the_plan_of_their_devices(flow: Flow) -> None:
    slow = replace(DEVICE, clock_hz=DEVICE.clock_hz / 2)
    link = flow.cluster.receive_links[0]
    cluster = replace(flow.cluster, devices=(DEVICE, slow), receive_links=(link, link), send_links=(link, link))
    trial = flow.with_setting(cluster=cluster).evaluate(Knobs(n_ipu=1, memory_proportion=0.6, batch_size=4, replicas=2))
    single = flow.evaluate(Knobs(n_ipu=1, memory_proportion=0.6, batch_size=4)).samples_per_s
    assert trial.samples_per_s == trial.estimated_samples_per_s == pytest.approx(1.5 * single, rel=1e-3)


def test_a_flow_is_pickled_for_processes_that_measure(flow: Flow) -> None:
    knobs = Knobs(n_ipu=2, memory_proportion=0.6, batch_size=4)
    before = flow.evaluate(knobs)
    assert pickle.loads(pickle.dumps(flow)).evaluate(knobs).samples_per_s == before.samples_per_s
