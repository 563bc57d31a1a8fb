from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoauto.schedule.zero_bubble.cyclic_order import CyclicOrder
from autoauto.schedule.zero_bubble.list_scheduling import in_order
from autoauto.schedule.zero_bubble.modulo import ModuloSchedule, modulo_schedule
from autoauto.schedule.zero_bubble.problem import ZeroBubbleProblem
from tests.drawn import n_drawn, n_examples
from tests.schedule.zero_bubble.test_list_scheduling import assert_legal, pipelines
from tests.schedule.zero_bubble.test_modulo import v_min

MANY = 200
TWO = ZeroBubbleProblem((0, 1), (3, 2, 4, 3, 2, 1), (0, 1, 0), (0, 1), MANY, 2)
SLOW = replace(TWO, forward_links=(0, 9, 0), backward_links=(0, 1))
"""The wire down is slower than any device."""
V = v_min(3, 15, MANY)


def timed(problem: ZeroBubbleProblem, size: int) -> CyclicOrder | None:
    """A group of micro-batches that set out one after the other, each a period after the last."""
    first = modulo_schedule(replace(problem, forward_links=(0, *problem.forward_links[1:])), Random(0), 0)
    if first is None:
        return None
    order = CyclicOrder(problem, first.repeated(size, size * first.period, first.period))
    return order if order.is_timed() else None


def in_the_long_run(problem: ZeroBubbleProblem, schedule: ModuloSchedule) -> float:
    """The oracle: the ticks of a group when devices run many of them in this order, each action as soon as it can."""
    size, makespans = len(schedule.starts), []
    for m in (MANY, MANY + 60 * size):
        draft = in_order(replace(problem, n_micro_batches=m), schedule.priorities(m))
        assert draft is not None
        makespans.append(draft.makespan)
    return (makespans[1] - makespans[0]) / 60


def some_moves(order: CyclicOrder, random: Random, count: int) -> None:
    """Moves that are legal, if the period then is at most twice as long."""
    for _ in range(count):
        move = order.move(random.randrange(len(order.device)), random.choice((-3, -2, -1, 1, 2, 3)))
        if move is not None and order.retime(move, 2 * order.period):
            order.tighten()
        elif move is not None:
            order.undo(move)


@pytest.mark.drawn
@pytest.mark.parametrize(("problem", "size"), list(product((TWO, SLOW, V), (1, 2, 3))))
def test_the_period_of_an_order_is_that_of_its_run(problem: ZeroBubbleProblem, size: int) -> None:
    for seed in range(n_drawn(8)):
        order = timed(problem, size)
        assert order is not None
        some_moves(order, Random(seed), 40)
        order.tighten()
        assert order.period - 1 < in_the_long_run(problem, order.schedule()) <= order.period


@given(pipelines(), st.integers(1, 3), st.integers())
@settings(deadline=None, max_examples=n_examples(50))
def test_any_moves_leave_a_legal_order(problem: ZeroBubbleProblem, size: int, seed: int) -> None:
    problem = replace(problem, ticks=tuple(ticks + 1 for ticks in problem.ticks))
    order = timed(problem, size)
    if order is not None:
        some_moves(order, Random(seed), 20)
        order.tighten()
        schedule = order.schedule()
        draft = in_order(problem, schedule.priorities(problem.n_micro_batches))
        assert draft is not None
        assert_legal(problem, draft, backwards=False)
        host = problem.n_micro_batches * problem.forward_links[0]
        groups = -(-problem.n_micro_batches // size) * size
        assert draft.makespan <= host + schedule.stop(replace(problem, n_micro_batches=groups))


def test_the_cycle_has_the_ratio_of_the_period() -> None:
    for seed in range(10):
        order = timed(v_min(4, 5, MANY), 2)
        assert order is not None
        some_moves(order, Random(seed), 30)
        assert order.shortest(order.tighten()) == order.period


def test_an_undone_move_changes_nothing() -> None:
    order = timed(v_min(4, 15, MANY), 2)
    assert order is not None
    before = (list(order.position), list(order.after), list(order.height), [list(each) for each in order.sequences])
    n_undone = 0
    for action, by in product(range(len(order.device)), (-4, -1, 1, 4)):
        move = order.move(action, by)
        if move is not None:
            order.undo(move)
            n_undone += 1
        assert (order.position, order.after, order.height, order.sequences) == before
    assert n_undone > 10
