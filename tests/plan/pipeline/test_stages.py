"""Several stages a device, and stages that choose whether they recompute, against all plans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest

from autoauto.estimate.sums import last_segment_prefix_cycles
from autoauto.estimate.table import cost_table
from autoauto.evaluate.modes.training_steps import best_by_simulated_step
from autoauto.plan.pipeline.ends_together import fitting_cuts
from autoauto.plan.pipeline.stage_costs import StageCosts
from autoauto.plan.pipeline.stage_table import StageTable, arranged
from autoauto.records.costs.cost import CostTable, Exchange, TensorUse
from autoauto.records.costs.memory import device_memory
from autoauto.records.costs.profile import LayerProfile, ModelProfile
from autoauto.records.errors import BadInput, Infeasible
from autoauto.records.hardware import Link, Period
from autoauto.records.plans.plan import Plan
from autoauto.records.schedule import Order
from autoauto.schedule.orders.registry import chunks_of, has_one_stage_each, stage_devices_of
from autoauto.schedule.stash import in_flight_by_stage, turns_at_once
from autoauto.schedule.times import plan_times, timeline_of
from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Recompute
from autoauto.targets.clusters import load_cluster
from tests.drawn import daily, n_drawn


def random_profile(random: np.random.Generator, n_layers: int) -> ModelProfile:
    """Layers with code that several share, weights, temporaries and activations."""

    def layer() -> LayerProfile:
        forward, n_bytes = int(random.integers(10_000, 90_000)), int(random.integers(1, 40)) << 10
        code = {f"vertexCode_{random.integers(3)}": int(random.integers(1, 9)) << 20}
        weights, activation = int(random.integers(1, 40)) << 20, int(random.integers(1, 60)) << 20
        return LayerProfile(
            forward, 2 * forward, code, {"parameter": weights}, 2 * n_bytes, 0, n_bytes, n_bytes, activation, forward
        )

    names = tuple(map(str, range(n_layers)))
    layers = [layer() for _ in range(n_layers)]
    layers = [replace(b, input_bytes=a.output_bytes) for a, b in zip([layers[0], *layers], layers, strict=False)]
    return ModelProfile("random", "none", None, names, names, (None,) * n_layers, tuple(layers))


def with_checkpoint(profile: ModelProfile) -> ModelProfile:
    """The profile with a checkpoint before its last two layers."""
    *others, before, last = profile.layers
    return replace(profile, layers=(*others, replace(before, checkpoint_bytes=before.input_bytes), last))


def stage_table(profile: ModelProfile, knobs: Knobs, limit_bytes: float, period: Period) -> StageTable:
    """The costs of the stages of a configuration on devices with so much memory."""
    devices = stage_devices_of(knobs.mode.order, knobs.n_ipu, chunks_of(knobs.step))
    moments = in_flight_by_stage(
        knobs.mode.order, knobs.n_ipu, knobs.mode.n_micro_batches, knobs.mode.stages_per_device
    )
    cluster = load_cluster("bow-pod16").first(knobs.n_ipu)

    def table(*, recompute: bool) -> CostTable:
        in_flight = [int(each[:, 0].max()) for each in moments]
        whole = cost_table(profile, cluster, 1.0, period, in_flight, recompute=recompute)
        whole = replace(whole, memory_limit_bytes=np.full(knobs.n_ipu, int(limit_bytes)))
        if has_one_stage_each(knobs.step):
            return whole
        most = [int(moments[d][:, devices[:s].count(d)].max()) for s, d in enumerate(devices)]
        return arranged(whole, devices, most)

    recomputing = table(recompute=True) if knobs.mode.recompute is Recompute.AUTO else None
    spared = last_segment_prefix_cycles(profile) if turns_at_once(*knobs.step) else None
    return StageTable(table(recompute=knobs.mode.recompute is True), devices, moments, recomputing, spared)


def plans_that_fit(stages: StageTable) -> Iterator[Plan]:
    n_layers, choices = stages.rows.n_layers, (False, True) if stages.recomputing else (stages.recompute,)
    for inner in combinations(range(1, n_layers), stages.n_stages - 1):
        for recomputes in product(choices, repeat=stages.n_stages):
            plan = stages.evaluate((0, *inner, n_layers), recomputes)
            if plan.excess_bytes <= 0:
                yield plan


CASES = [
    (Order.ONE_F_ONE_B, 3, 1, Recompute.AUTO),
    (Order.ONE_F_ONE_B, 3, 1, True),
    (Order.GPIPE, 3, 1, Recompute.AUTO),
    (Order.POPART, 2, 1, Recompute.AUTO),
    (Order.INTERLEAVED, 2, 2, False),
    (Order.INTERLEAVED, 2, 2, Recompute.AUTO),
    (Order.INTERLEAVED, 2, 3, True),
    (Order.POPART_RING, 2, 1, False),
    (Order.POPART_RING, 2, 1, True),
    (Order.POPART_RING, 3, 1, Recompute.AUTO),
]


@pytest.mark.parametrize("period", daily([Period.BARRIER, Period.OVERLAP]))
@pytest.mark.parametrize(("order", "n_ipu", "n_each", "recompute"), CASES)
def test_it_is_the_best_of_all_cuts_and_choices(
    order: Order, n_ipu: int, n_each: int, recompute: bool | Recompute, period: Period
) -> None:
    random, n_fitting, n_mixed = np.random.default_rng(3), 0, 0
    for scarce in (1.1, 0.9, 0.75, 0.6):
        profile = random_profile(random, 7)
        knobs = Knobs(
            n_ipu=n_ipu,
            memory_proportion=0.6,
            batch_size=1,
            schedule=order,
            recompute=recompute,
            n_micro_batches=8,
            stages_per_device=n_each,
        )
        largest = stage_table(profile, knobs, 2**40, period)
        even = tuple(round(7 * s / largest.n_stages) for s in range(largest.n_stages + 1))
        limit = scarce * largest.evaluate(even, [largest.recompute] * largest.n_stages).peak_memory_bytes
        stages = stage_table(profile, knobs, limit, period)
        fitting = list(plans_that_fit(stages))
        if not fitting:
            with pytest.raises(Infeasible):
                best_by_simulated_step(stages, knobs)
            continue
        shortest = min(timeline_of(knobs.step, plan).makespan_cycles for plan in fitting)
        bounded = best_by_simulated_step(stages, knobs)
        assert bounded.plan.excess_bytes <= 0
        assert bounded.bound_cycles <= shortest
        assert timeline_of(knobs.step, bounded.plan).makespan_cycles == bounded.step_cycles
        assert bounded.step_cycles == shortest
        if stages.one_each or recompute is not Recompute.AUTO:
            assert bounded.bound_cycles == shortest
        n_fitting += 1
        n_mixed += 0 < sum(stage.recomputes for stage in bounded.plan.stages) < stages.n_stages
    assert n_fitting >= 2
    assert n_mixed or recompute is not Recompute.AUTO


@pytest.mark.parametrize(("order", "n_ipu"), [(Order.POPART, 3), (Order.ONE_F_ONE_B, 4), (Order.POPART_RING, 3)])
def test_it_is_the_best_where_the_last_stage_keeps_its_last_segment(order: Order, n_ipu: int) -> None:
    knobs = Knobs(n_ipu=n_ipu, batch_size=1, schedule=order, recompute=True, n_micro_batches=8)
    for seed in range(5):
        stages = stage_table(
            with_checkpoint(random_profile(np.random.default_rng(seed), 8)), knobs, 2**40, Period.BARRIER
        )
        shortest = min(timeline_of(knobs.step, plan).makespan_cycles for plan in plans_that_fit(stages))
        bounded = best_by_simulated_step(stages, knobs)
        assert bounded.step_cycles == bounded.bound_cycles == shortest


@pytest.mark.drawn
@pytest.mark.parametrize("order", [Order.POPART, Order.ONE_F_ONE_B])
def test_a_plan_that_fits_only_where_some_stages_recompute_is_found(order: Order) -> None:
    knobs, n_mixed = Knobs(3, 1, schedule=order, recompute=Recompute.AUTO, n_micro_batches=8), 0
    for seed in range(n_drawn(12)):
        profile = with_checkpoint(random_profile(np.random.default_rng(seed), 7))
        free = list(plans_that_fit(stage_table(profile, knobs, 2**40, Period.BARRIER)))
        tightest = min(plan.peak_memory_bytes for plan in free)
        stages = stage_table(profile, knobs, tightest, Period.BARRIER)
        fitting = [plan for plan in free if plan.peak_memory_bytes <= tightest]
        n_mixed += all(len({stage.recomputes for stage in plan.stages}) == 2 for plan in fitting)
        bounded = best_by_simulated_step(stages, knobs)
        assert bounded.step_cycles == min(timeline_of(knobs.step, plan).makespan_cycles for plan in fitting)
        with pytest.raises(Infeasible):
            best_by_simulated_step(stage_table(profile, knobs, tightest - 1, Period.BARRIER), knobs)
    assert n_mixed > n_drawn(4)


@pytest.mark.parametrize("recompute", [False, True, Recompute.AUTO])
def test_a_plan_that_fits_a_ring_is_found_whenever_there_is_one(recompute: bool | Recompute) -> None:
    random, n_found = np.random.default_rng(5), 0
    knobs = Knobs(n_ipu=3, batch_size=1, schedule=Order.POPART_RING, recompute=recompute, n_micro_batches=8)
    for share in np.linspace(0.3, 1.0, 15):
        profile = random_profile(random, 6)
        largest = stage_table(profile, knobs, 2**40, Period.BARRIER)
        needed = [plan.peak_memory_bytes for plan in plans_that_fit(largest)]
        limit = min(needed) + int(share * share * (max(needed) - min(needed)))
        costs = StageCosts.of(stage_table(profile, knobs, limit, Period.BARRIER))
        cuts = fitting_cuts(costs)
        assert (cuts is not None) == (min(needed) <= limit)
        if cuts is not None:
            choice = costs.resolve(cuts)
            assert choice is not None
            assert costs.evaluate(cuts, choice.recomputes).excess_bytes <= 0
            n_found += 1
    tightest = stage_table(profile, knobs, min(needed), Period.BARRIER)
    assert fitting_cuts(StageCosts.of(tightest)) is not None
    assert fitting_cuts(StageCosts.of(stage_table(profile, knobs, min(needed) - 1, Period.BARRIER))) is None
    assert n_found > 5


@pytest.mark.parametrize("order", [Order.ZBV, Order.V_HALF, Order.V_MIN])
def test_a_v_shape_is_between_its_bound_and_the_starting_plan(order: Order) -> None:
    knobs = Knobs(n_ipu=2, memory_proportion=0.6, batch_size=1, schedule=order, n_micro_batches=4, stages_per_device=2)
    stages = stage_table(random_profile(np.random.default_rng(1), 7), knobs, 2**40, Period.BARRIER)
    bounded = best_by_simulated_step(stages, knobs)
    steps = [timeline_of(knobs.step, plan).makespan_cycles for plan in plans_that_fit(stages)]
    assert bounded.step_cycles is not None
    assert bounded.bound_cycles <= min(steps) <= bounded.step_cycles <= 1.05 * min(steps)


def test_the_last_stage_does_not_run_again_what_follows_the_last_checkpoint() -> None:
    profile = with_checkpoint(random_profile(np.random.default_rng(1), 7))
    forward, before = [layer.forward_cycles for layer in profile.layers], [2 * c.forward_cycles for c in profile.layers]
    for order, keeps in ((Order.POPART, True), (Order.ONE_F_ONE_B, True), (Order.GPIPE, False)):
        knobs = Knobs(n_ipu=2, batch_size=1, schedule=order, n_micro_batches=8, recompute=True)
        stages = stage_table(profile, knobs, 2**40, Period.BARRIER)
        for cut in (3, 6):
            first, last = stages.evaluate((0, cut, 7), [True, True]).stages
            again = forward[cut:5] if keeps else forward[cut:]
            assert first.backward_cycles == sum(before[:cut]) + sum(forward[:cut]), "the segment of another stage"
            assert last.backward_cycles == sum(before[cut:]) + sum(again)
            assert stages.evaluate((0, cut, 7), [True, True]).stages[1].forward_cycles == sum(forward[cut:])


def test_stages_of_one_device_exchange_nothing_and_add_up_to_its_memory() -> None:
    knobs = Knobs(
        n_ipu=3, memory_proportion=0.6, batch_size=1, schedule=Order.ZBV, n_micro_batches=8, stages_per_device=2
    )
    stages = stage_table(random_profile(np.random.default_rng(1), 9), knobs, 2**40, Period.BARRIER)
    plan = stages.evaluate((0, 1, 3, 4, 6, 7, 9), [False] * 6)
    assert [stage.device for stage in plan.stages] == [0, 1, 2, 2, 1, 0]
    assert plan.stages[2].send_cycles == plan.stages[3].receive_cycles == 0
    assert plan.stages[0].send_cycles == plan.stages[1].receive_cycles > 0
    assert plan.stages[4].send_cycles == plan.stages[5].receive_cycles > 0
    times = plan_times(plan, training=True, split_backward=True)
    assert times.forward_links[3] == 0 < times.forward_links[1]
    for device, own in enumerate(stages.stages):
        parts = [stages.stage_memory(s, *plan.stages[s].layers, False) for s in own]
        shared = {key: n_bytes for part in parts for key, n_bytes in part.shared_bytes.items()}
        assert sum(plan.stages[s].memory_bytes["vertexCode"] for s in own) == sum(shared.values())
        entries = np.array([part.entry_bytes for part in parts])
        stash = int((stages.in_flight[device] @ entries).max())
        used = max(part.temporary_bytes - part.entry_bytes for part in parts)
        names = ("stash", "temporary")
        assert sum(plan.stages[s].memory_bytes[name] for s in own for name in names) == stash + used


def test_one_stage_a_device_needs_what_its_row_says() -> None:
    knobs = Knobs(
        n_ipu=3, memory_proportion=0.6, batch_size=1, schedule=Order.ONE_F_ONE_B, recompute=True, n_micro_batches=6
    )
    stages = stage_table(random_profile(np.random.default_rng(2), 8), knobs, 2**40, Period.BARRIER)
    plan = stages.evaluate((0, 2, 5, 8), [True] * 3)
    for device, stage in enumerate(plan.stages):
        [memory] = device_memory([stages.stage_memory(device, *stage.layers, True)], stages.in_flight[device])
        assert {name: n for name, n in memory.items() if n} == {n: b for n, b in stage.memory_bytes.items() if b}


def test_devices_that_transfer_by_themselves_have_one_stage() -> None:
    knobs = Knobs(
        n_ipu=2, memory_proportion=0.6, batch_size=1, schedule=Order.ZBV, n_micro_batches=4, stages_per_device=2
    )
    with pytest.raises(BadInput, match=r"several stages a device need .* period barrier or overlap, got period serial"):
        stage_table(random_profile(np.random.default_rng(1), 7), knobs, 2**40, Period.SERIAL)


def test_costs_of_many_stages_at_once_are_those_of_their_plans_also_where_tensors_skip_stages() -> None:
    """Tensors go from layer 0 to 2 and 5, and from 1 to 3, over links that are unlike each other."""
    knobs = Knobs(n_ipu=3, batch_size=1, schedule=Order.GPIPE, n_micro_batches=4)
    stages = stage_table(random_profile(np.random.default_rng(1), 6), knobs, 2**40, Period.OVERLAP)
    links = [Link(float(rate), idle) for rate, idle in ((3, 50), (5, 20), (7, 10))]
    uses = (TensorUse(0, (2, 5), 900), TensorUse(1, (3,), 700))
    exchange = Exchange(uses, tuple(links), tuple(links[::-1]), 1.0)
    stages = replace(stages, rows=replace(stages.rows, exchange=exchange))
    plain = replace(stages, rows=replace(stages.rows, exchange=None))
    costs, cuts = StageCosts.of(stages), [(0, *inner, 6) for inner in combinations(range(1, 6), 2)]
    rows = costs.plans(np.array([costs.cuts(each) for each in cuts]))
    n_more = 0
    for partition, row in zip(cuts, rows, strict=True):
        plan = stages.evaluate(partition, [False] * 3)
        without = plain.evaluate(partition, [False] * 3)
        for stage, (forward, backward, weight, receive, send), bare in zip(
            plan.stages, row, without.stages, strict=True
        ):
            assert (forward, backward) == (stage.forward_cycles, stage.backward_cycles)
            assert (weight, receive, send) == (stage.weight_cycles, stage.receive_cycles, stage.send_cycles)
            first, stop = stage.layers
            own = range(first, stop)
            received = 900 * (0 not in own and (2 in own or 5 in own)) + 700 * (1 not in own and 3 in own)
            link = links[stage.device]
            more = (link.idle_cycles + received // int(link.bytes_per_s)) * (received > 0)
            assert receive == bare.receive_cycles + more
            n_more += more > 0
        number = costs.cuts(partition)
        single = costs.stage(1, number[1], number[2])
        assert single.tolist() == row[1].tolist()
    assert n_more > 10
