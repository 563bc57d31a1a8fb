from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autoauto.flow import Flow
from autoauto.profile.cache import ProfileCache
from autoauto.records.errors import BadInput, Infeasible, OutOfMemory
from autoauto.records.hardware import Cluster, Device, Link, StreamingMemory
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.phased import IoMode, PhasedOptions, PhasedPlan, PhaseKind
from autoauto.records.plan import Plan
from autoauto.records.profile import STASH, CompiledRange, CompileOptions, ProgramStep
from autoauto.records.schedule import Order
from autoauto.records.trial import Knobs, SearchSpace, Strategy
from autoauto.records.units import Precision

MIB = 1024**2
DEVICE = Device("small", 1e6, 100 * MIB, 1472, 638976)


class LinearTarget:
    """A layer takes 1,000 cycles and 1 MiB a sample; compiled whole, a range takes `surplus` times the memory.

    In training the backward pass takes twice as long, half of it for weights, and half of the memory is kept for it.
    """

    version = "linear 1"

    def __init__(self, surplus: float = 1.0) -> None:
        self.surplus = surplus

    def compile(self, graph: LayerGraph, layers: LayerRange, device: Device, options: CompileOptions) -> CompiledRange:
        n_layers = layers.stop - layers.start
        surplus = self.surplus if n_layers > 1 else 1.0
        n_bytes = int(n_layers * options.batch_size * MIB * surplus)
        cycles = 1000 * n_layers * options.batch_size
        step = ProgramStep("all", cycles, 0)
        if not options.training:
            return CompiledRange((step,), 0, {}, {"state": n_bytes})
        return CompiledRange((step,), 2 * cycles, {}, {"state": n_bytes}, cycles, activation_bytes=n_bytes // 2)


@pytest.fixture
def flow(chain: Callable[..., LayerGraph], tmp_path: Path) -> Flow:
    link = Link(1e12, 0)
    cluster = Cluster("pair", "ipu", (DEVICE, DEVICE), (link, link), (link, link))
    return Flow(chain(kinds=["a"] * 8), cluster, LinearTarget(), cache=ProfileCache(tmp_path / "cache.db"))


def test_a_configuration_that_fits_is_measured(flow: Flow) -> None:
    outcome = flow.evaluate(Knobs(2, 0.6, 4))
    assert outcome.fits
    assert outcome.measured is not None
    assert outcome.measured.partition == (0, 4, 8)
    assert outcome.measured.compute_cycles == 16_000
    assert outcome.samples_per_s == pytest.approx(4 * 1e6 / outcome.measured.cost_cycles)
    assert (outcome.excess_bytes, outcome.reason) == (0, "")


def test_what_the_estimate_rules_out_is_not_measured(flow: Flow) -> None:
    outcome = flow.evaluate(Knobs(1, 0.6, 11))
    assert not outcome.fits
    assert outcome.estimate is None
    assert outcome.memory_bytes == 100 * MIB
    assert outcome.excess_bytes >= 3 * MIB
    with pytest.raises(Infeasible):
        flow.predict(Knobs(1, 0.6, 11))


def test_what_the_target_cannot_hold_is_out_of_memory(flow: Flow) -> None:
    greedy = replace(flow, target=LinearTarget(surplus=2.0))
    knobs = Knobs(2, 0.6, 16)
    plan = greedy.predict(knobs)
    with pytest.raises(OutOfMemory) as failure:
        greedy.measure(knobs, plan)
    assert failure.value.excess_bytes == 28 * MIB
    assert failure.value.memory_bytes["state"] == 128 * MIB
    outcome = greedy.evaluate(knobs)
    assert (outcome.estimate, outcome.measured) == (plan, None)
    assert (outcome.excess_bytes, outcome.memory_bytes) == (28 * MIB, 100 * MIB)


def test_a_step_of_training_is_simulated(flow: Flow) -> None:
    knobs = Knobs(2, 0.6, 2, Order.ONE_F_ONE_B, n_micro_batches=4)
    outcome = replace(flow, overlap=True).evaluate(knobs)
    assert isinstance(outcome.measured, Plan)
    assert outcome.timeline is not None
    first = outcome.measured.stages[0]
    assert (first.forward_cycles, first.backward_cycles, first.weight_cycles) == (8_000, 16_000, 8_000)
    assert outcome.timeline.makespan_cycles == pytest.approx((4 + 2 - 1) * 24_000, rel=0.01)  # (m + p - 1)(tf + tb)
    assert outcome.samples_per_s == pytest.approx(2 * 4 * 1e6 / outcome.timeline.makespan_cycles)


def test_schedules_hold_what_they_have_in_flight(flow: Flow) -> None:
    def stash(order: Order, recompute: bool = False) -> list[int]:
        knobs = Knobs(2, 0.6, 2, order, recompute, 8)
        return [stage.memory_bytes[STASH] for stage in flow.measure(knobs, flow.predict(knobs)).stages]

    assert stash(Order.ONE_F_ONE_B) == [4 * MIB, 0]  # one micro-batch besides the one in work, 4 layers of 1 MiB
    assert stash(Order.POPART) == [2 * 4 * MIB, 0]
    assert stash(Order.GPIPE) == [7 * 4 * MIB, 7 * 4 * MIB]
    sizes = flow.profile(flow.options(Knobs(2, 0.6, 2, Order.GPIPE, n_micro_batches=8))).layers
    assert stash(Order.GPIPE, recompute=True) == [7 * sizes[0].input_bytes, 7 * sizes[4].input_bytes]


def test_recomputing_runs_forward_again(flow: Flow) -> None:
    knobs = Knobs(2, 0.6, 2, Order.GPIPE, recompute=True, n_micro_batches=8)
    estimate = flow.predict(knobs)
    for plan in (estimate, flow.measure(knobs, estimate)):
        assert plan.stages[0].backward_cycles == 3 * plan.stages[0].forward_cycles


def test_1f1b_fits_what_gpipe_cannot(flow: Flow) -> None:
    assert not flow.evaluate(Knobs(2, 0.6, 6, Order.GPIPE, n_micro_batches=8)).fits
    assert flow.evaluate(Knobs(2, 0.6, 6, Order.ONE_F_ONE_B, n_micro_batches=8)).fits


def test_inference_is_simulated_at_its_period(flow: Flow) -> None:
    outcome = flow.evaluate(Knobs(2, 0.6, 4))
    assert outcome.timeline is not None
    assert outcome.measured is not None
    assert outcome.timeline.period_cycles == outcome.measured.cost_cycles


def test_a_space_with_more_devices_than_the_cluster_is_refused(flow: Flow) -> None:
    with pytest.raises(BadInput, match="at most 2 on pair, got 4"):
        flow.check(SearchSpace(n_ipu=(1, 4)))


def test_a_space_with_batches_that_the_model_cannot_run_is_refused(flow: Flow) -> None:
    fixed = replace(flow, graph=replace(flow.graph, fixed_batch="Reshape r1 mixes samples"))
    with pytest.raises(BadInput, match="Reshape r1"):
        fixed.check(SearchSpace(n_ipu=(1,)))
    fixed.check(SearchSpace(n_ipu=(1,), batch_size=(1,)))


def test_synthetic_data_frees_the_host_links_only(flow: Flow) -> None:
    host = Link(1e6, 500)
    slow = replace(flow.cluster, receive_links=(host, Link(1e9, 7)), send_links=(Link(1e9, 7), host))
    knobs = Knobs(2, 0.6, 1)
    free = replace(flow, cluster=slow.with_synthetic_data()).predict(knobs)
    paid = replace(flow, cluster=slow).predict(knobs)
    assert 7 <= free.transfer_cycles < 500 < paid.transfer_cycles


def test_the_fingerprint_tells_flows_apart(flow: Flow) -> None:
    assert flow.fingerprint() == replace(flow).fingerprint()
    for other in (
        replace(flow, planning_proportion=0.5),
        replace(flow, graph=replace(flow.graph, content="other")),
        replace(flow, cluster=flow.cluster.with_synthetic_data()),
    ):
        assert other.fingerprint() != flow.fingerprint()


def test_fp8_needs_devices_that_have_it(flow: Flow) -> None:
    with pytest.raises(BadInput, match="fp8 needs devices that multiply in it, pair has small; try --cluster c600"):
        replace(flow, precision=Precision.FP8)
    devices = (replace(DEVICE, fp8=True),) * 2
    narrow = replace(flow, precision=Precision.FP8, cluster=replace(flow.cluster, devices=devices))
    assert [layer.attribute("precision") for layer in narrow.graph.layers] == ["fp8"] * 7 + [None]
    assert narrow.graph == replace(narrow, planning_proportion=0.5).graph


def test_overlapped_host_links_bound_the_period_from_below(flow: Flow) -> None:
    slow = replace(flow.cluster, overlapped_host_links=(Link(1e9, 10**9), Link(1e9, 5)))
    plan = replace(flow, cluster=slow).predict(Knobs(2, 0.6, 4))
    assert plan.cost_cycles == plan.host_cycles >= 10**9 + 5
    assert plan.partition == flow.predict(Knobs(2, 0.6, 4)).partition


def test_what_fits_no_device_runs_in_phases(flow: Flow) -> None:
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
    outcome = phased.evaluate(knobs)
    assert isinstance(outcome.measured, PhasedPlan)
    assert isinstance(outcome.estimate, PhasedPlan)
    assert outcome.measured.cost_cycles == outcome.estimate.cost_cycles  # the target adds layers up
    assert outcome.samples_per_s == pytest.approx(2 * 4 * 20 * 1e6 / outcome.measured.cost_cycles)
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
