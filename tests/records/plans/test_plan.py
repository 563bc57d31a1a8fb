"""Costs and latency of a plan, and moves of its cuts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoauto.records.hardware import MachineDevice, Period
from autoauto.records.layers import LayerRange
from autoauto.records.plans.plan import CutMoves, Explanation, Move, Plan, Stage, replicated


def stage(start: int, stop: int, compute: int, transfer: int, device: int = 0) -> Stage:
    memory = {"parameter": 60, "temporary": 40}
    return Stage(LayerRange(start, stop), device, compute - 2, 2, transfer - 1, 1, memory, 120)


PLAN = Plan((stage(0, 4, 100, 7), stage(4, 6, 90, 9, device=1)))


def test_the_period_is_the_largest_compute_plus_the_largest_transfer() -> None:
    assert (PLAN.compute_cycles, PLAN.transfer_cycles, PLAN.cost_cycles) == (100, 9, 109)
    assert PLAN.samples_per_s(2, 109.0) == pytest.approx(2.0)


def test_a_partition_starts_at_the_first_layer_and_stops_after_the_last() -> None:
    assert PLAN.partition == (0, 4, 6)


def test_a_stage_adds_up() -> None:
    first = PLAN.stages[0]
    assert (first.compute_cycles, first.transfer_cycles, first.total_bytes) == (100, 7, 100)


def test_stages_leave_no_gap() -> None:
    with pytest.raises(AssertionError):
        Plan((stage(0, 4, 1, 1), stage(5, 6, 1, 1)))


def test_a_device_with_two_stages_spends_their_sum() -> None:
    plan = Plan((stage(0, 1, 10, 1), stage(1, 2, 20, 2, device=1), stage(2, 3, 15, 4)))
    assert plan.device_compute_cycles == {0: 25, 1: 20}
    assert (plan.compute_cycles, plan.transfer_cycles, plan.cost_cycles) == (25, 5, 30)


def test_with_overlap_the_longer_of_both_sets_the_period() -> None:
    assert Plan(PLAN.stages, Period.OVERLAP).cost_cycles == 100


@pytest.mark.parametrize(("shared", "period", "binds"), [(0, 109, False), (108, 109, False), (500, 500, True)])
def test_no_period_is_shorter_than_what_all_pipelines_of_a_machine_move(shared: int, period: int, binds: bool) -> None:
    plan = Plan(PLAN.stages, shared_cycles=shared)
    assert (plan.cost_cycles, plan.host_binds) == (period, binds)
    assert plan.host_bound_cycles == shared
    assert Plan(PLAN.stages, host_cycles=700, shared_cycles=shared).cost_cycles == 700


def test_a_micro_batch_waits_once_for_a_shared_connection() -> None:
    waiting = 500 - PLAN.cost_cycles
    stages_later = len(PLAN.stages) - 1
    longer = Plan(PLAN.stages, shared_cycles=500).latency_cycles
    assert longer == PLAN.latency_cycles + (stages_later + 1) * waiting
    assert Plan(PLAN.stages, shared_cycles=PLAN.cost_cycles).latency_cycles == PLAN.latency_cycles


@pytest.mark.parametrize(("host_cycles", "period", "binds"), [(0, 109, False), (108, 109, False), (500, 500, True)])
def test_no_period_is_shorter_than_the_hosts_transfers(host_cycles: int, period: int, binds: bool) -> None:
    plan = Plan(PLAN.stages, host_cycles=host_cycles)
    assert (plan.cost_cycles, plan.host_binds) == (period, binds)


def test_a_micro_batch_moves_on_by_a_stage_every_period() -> None:
    assert PLAN.latency_cycles == 6 + 109 + 100 + 1  # in, one period, the slowest compute, out
    assert Plan(PLAN.stages[:1]).latency_cycles == Plan(PLAN.stages[:1]).cost_cycles == 107


def test_with_overlap_a_micro_batch_never_waits() -> None:
    for period in (Period.OVERLAP, Period.DUPLEX):
        assert Plan(PLAN.stages, period).latency_cycles == 6 + 100 + max(1, 8) + 90 + 1


def test_one_thing_at_a_time_sends_and_receives_in_turn() -> None:
    assert Plan(PLAN.stages, Period.SERIAL).latency_cycles == 6 + 100 + 1 + 8 + 90 + 1


def test_devices_that_run_a_stage_in_turn_share_its_cycles_and_bind_together() -> None:
    """Three devices have 101, 7 and 5 cycles in turn: 34 + 3 + 2; the micro-batch passes one of them."""
    first, second = Stage(LayerRange(0, 1), 0, 101, 0, 7, 5, {}, 1, n_replicas=3), stage(1, 2, 10, 1, device=3)
    plan = Plan((first, second), Period.SERIAL)
    assert (plan.cost_cycles, plan.n_devices, list(first.devices)) == (39, 4, [0, 1, 2])
    assert (plan.compute_bottlenecks, plan.transfer_bottlenecks) == ((0,), (0,))
    alone = replace(plan, stages=(replace(first, n_replicas=1), replace(second, device=1)))
    assert plan.latency_cycles == alone.latency_cycles


def test_host_transfers_while_devices_compute_add_to_the_latency() -> None:
    assert Plan(PLAN.stages, host_cycles=500).latency_cycles == 6 + 500 + 100 + 1 + 500


def test_the_next_best_move_is_the_cheapest_that_fits() -> None:
    cuts = (
        CutMoves(3, Move(2, 50, 0), Move(4, 30, 7)),
        CutMoves(6, Move(5, 40, 0), None),
    )
    assert Explanation((0,), (1,), 0, 10, cuts).next_best == Move(5, 40, 0)


def test_there_is_no_next_best_when_no_move_fits() -> None:
    assert Explanation((0,), (0,), 0, 10, (CutMoves(3, None, Move(4, 30, 7)),)).next_best is None
    assert Explanation((0,), (0,), 0, 10, ()).next_best is None


def replica(machine: int, n_devices: int = 2) -> tuple[MachineDevice, ...]:
    return tuple(MachineDevice(machine, device) for device in range(n_devices))


FASTER = Plan((stage(0, 3, 40, 7), stage(3, 6, 50, 4, device=1)))


def test_replicas_with_other_plans_add_up_and_the_slowest_is_the_first() -> None:
    plan = replicated([(FASTER, replica(0)), (PLAN, replica(1)), (FASTER, replica(2))], shared_cycles=3)
    assert [each.cost_cycles for each in plan.plans] == [109, 57]
    assert plan.replica_numbers == ((1,), (0, 2))
    assert plan.samples_per_s(3 * 4, 1e6) == pytest.approx(4e6 * (1 / 109 + 2 / 57))
    assert plan.parts == (*PLAN.stages, *FASTER.stages)
    alike = replicated([(PLAN, replica(0)), (PLAN, replica(1))])
    assert (alike.other_plans, alike.mean_cost_cycles) == ((), 109)


def test_plans_of_replicas_are_compared_on_the_same_devices() -> None:
    estimated = replicated([(FASTER, replica(0)), (PLAN, replica(1))])
    slower = replace(FASTER, stages=(stage(0, 3, 400, 7), *FASTER.stages[1:]))
    measured = replicated([(slower, replica(0)), (PLAN, replica(1))])
    assert [each.cost_cycles for each in measured.plans] == [407, 109]
    again = estimated.in_order_of(measured)
    assert [each.placement for each in again.plans] == [each.placement for each in measured.plans]
    assert [each.cost_cycles for each in again.plans] == [57, 109]
    assert PLAN.in_order_of(PLAN) is PLAN


def test_the_transfers_of_a_stage_on_several_devices_are_rounded_like_the_period() -> None:
    moved = Stage(LayerRange(0, 1), 0, 2, 0, 3, 3, {}, 1, n_replicas=2)
    plan = Plan((moved,), Period.OVERLAP)
    assert plan.device_transfer_cycles == {0: plan.cost_cycles} == {0: 4}
    assert plan.transfer_bottlenecks == (0,)
