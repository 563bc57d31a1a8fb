"""How a step of training ends."""

from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoauto.records.plans.timeline import Timeline
from autoauto.records.schedule import Order, Transfers
from autoauto.schedule.orders.registry import make_schedule
from autoauto.schedule.simulate.simulate import simulate
from autoauto.schedule.times import stage_times, with_step_end


def pipeline(order: Order, m: int, forward: Sequence[int], *, barrier: bool = False) -> Timeline:
    """A backward takes twice as long as a forward, messages take nothing."""
    rows = [[Fraction(cycles * n) for cycles in forward] for n in (1, 2, 0, 0)]
    times = stage_times(range(len(forward)), *rows, split_backward=False)
    transfers = Transfers.BARRIER if barrier else Transfers.OVERLAP
    return simulate(make_schedule(order, len(forward), m, times=times), times, transfers)


# 0  F0 F1 .  .  .  B0-- B1-- R----    m = 2, p = 2, GPipe: 9 cycles, device 1 is done after 7
# 1  .  F0 F1 B0-- B1-- R---- U .      and reduces while device 0 still computes


@pytest.mark.parametrize(("barrier", "stop", "reduce_1"), [(False, 14, [7, 10]), (True, 14, [9, 12])])
def test_stages_reduce_while_others_compute_unless_all_exchange_at_once(
    barrier: bool, stop: int, reduce_1: list[int]
) -> None:
    ended = with_step_end(pipeline(Order.GPIPE, 2, (1, 1), barrier=barrier), (4, 3), (1, 1), barrier=barrier)
    assert ended.step_end is not None
    assert (ended.makespan_cycles, ended.step_end.flushed_tick) == (stop, 9)
    assert ended.step_end.all_reduce.tolist() == [[9, 13], reduce_1]
    assert ended.step_end.update.tolist() == [[13, 14], [13, 14] if barrier else [10, 11]]
    assert ended.step_parts == {"fill": 1, "main": 6, "flush": 2, "all-reduce": 4, "update": 1}


def test_the_end_of_a_step_is_no_bubble() -> None:
    ended = with_step_end(pipeline(Order.GPIPE, 2, (1, 1)), (4, 3), (1, 1), barrier=False)
    assert ended.busy_cycles == (7, 7)
    assert ended.exchange_cycles == (4, 3)
    assert ended.bubble_cycles == (3, 4)
    assert ended.gaps(1).tolist() == [[0, 1], [11, 14]]


def test_an_all_reduce_may_hide_behind_the_flush() -> None:
    alone = pipeline(Order.GPIPE, 4, (1, 1))
    assert with_step_end(alone, (0, 2), (0, 0), barrier=False).makespan_cycles == alone.makespan_cycles


@given(
    st.sampled_from([Order.GPIPE, Order.ONE_F_ONE_B, Order.POPART]),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.integers(0, 3),
    st.lists(st.integers(0, 9), min_size=8, max_size=8),
    st.booleans(),
)
def test_the_parts_of_a_step_add_up(
    order: Order, forward: list[int], more: int, ends: list[int], barrier: bool
) -> None:
    p = len(forward)
    alone = pipeline(order, 2 * p - 1 + more, forward, barrier=barrier)
    ended = with_step_end(alone, ends[:p], ends[4 : 4 + p], barrier=barrier)
    assert sum(ended.step_parts.values()) == ended.makespan_cycles
    assert min(ended.step_parts.values()) >= 0
    assert (
        alone.makespan_cycles <= ended.makespan_cycles <= alone.makespan_cycles + max(ends[:p]) + max(ends[4 : 4 + p])
    )
    for device in range(p):
        idle = sum(int(stop - start) for start, stop in ended.gaps(device))
        assert ended.cycles(idle) == pytest.approx(ended.bubble_cycles[device])
