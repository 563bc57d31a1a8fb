from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings

from autoauto.schedule.zero_bubble.fixed_order import in_order
from autoauto.schedule.zero_bubble.modulo import modulo_schedule, three_in_turn
from autoauto.schedule.zero_bubble.problem import ZeroBubbleProblem, lower_bound, memory_taken
from tests.schedule.zero_bubble.test_list_scheduling import assert_legal, pipelines


def v_min(p: int, link: int, m: int) -> ZeroBubbleProblem:
    devices = (*range(p), *reversed(range(p)))
    limit = 2 * ((p + 1) // 3 + 1)
    return ZeroBubbleProblem(devices, (10,) * 6 * p, (0, *(link,) * 2 * p), (link,) * 2 * p, m, limit)


@given(pipelines())
@settings(deadline=None, max_examples=50)
def test_every_micro_batch_can_repeat_the_first(problem: ZeroBubbleProblem) -> None:
    """A host that is slower than the period delays all; an action takes time, so that starts give an order."""
    problem = replace(problem, ticks=tuple(ticks + 1 for ticks in problem.ticks))
    modulo = modulo_schedule(replace(problem, forward_links=(0, *problem.forward_links[1:])), Random(0))
    if modulo is not None:
        draft = in_order(problem, modulo.priorities(problem.n_micro_batches))
        assert draft is not None
        assert_legal(problem, draft, backwards=False)
        ends = [start + ticks for starts in modulo.starts for start, ticks in zip(starts, problem.ticks, strict=True)]
        host = problem.n_micro_batches * problem.forward_links[0]
        n_periods = (problem.n_micro_batches - 1) // len(modulo.starts)
        assert draft.makespan <= host + max(ends) + n_periods * modulo.period


def test_the_period_of_the_drawing() -> None:
    """Messages take 3 ticks; 11 ticks in flight, two micro-batches at a time: 5.5 each, as they set out at 0 and 5."""
    problem = ZeroBubbleProblem((0, 1), (1,) * 6, (0, 3, 0), (0, 3), 8, 2)
    modulo = modulo_schedule(problem, Random(0))
    assert modulo is not None
    assert modulo.starts == [[0, 4, 9, 5, 10, 6], [5, 9, 14, 10, 15, 11]]
    assert (modulo.period, modulo.pace) == (11, 5.5)


def test_slow_links_cost_little_more_than_the_memory_demands() -> None:
    """Many micro-batches: the makespan is within 1 % of the bound, which counts the memory that the turn loses."""
    problem = v_min(8, 20, 400)
    modulo = modulo_schedule(problem, Random(0))
    assert modulo is not None
    draft = in_order(problem, modulo.priorities(400))
    assert draft is not None
    assert draft.makespan < 1.01 * lower_bound(problem)


@pytest.mark.parametrize(("link", "pace"), [(5, 75), (10, 90)])
def test_two_micro_batches_meet_a_bound_that_each_alone_does_not(link: int, pace: int) -> None:
    """Links of half a forward and of one: each alone takes 80 and 100 ticks, which studies/steady_states.py proves."""
    problem = v_min(4, link, 400)
    modulo = modulo_schedule(problem, Random(0))
    assert modulo is not None
    assert (modulo.pace, len(modulo.starts)) == (pace, 2)
    assert max(memory_taken(problem)) == pace * problem.limit
    draft = in_order(problem, modulo.priorities(400))
    assert draft is not None
    assert draft.makespan < 1.01 * lower_bound(problem)


def test_three_micro_batches_meet_a_bound_that_two_do_not() -> None:
    """Six devices; the rounded ticks are half an action each, so the period is exact."""
    problem = v_min(6, 5, 400)
    three, two = three_in_turn(problem, Random(0)), modulo_schedule(problem, Random(0))
    assert three is not None
    assert two is not None
    assert len(three.starts) == 3
    assert max(memory_taken(problem)) == three.pace * problem.limit
    assert three.pace < two.pace
    draft = in_order(problem, three.priorities(400))
    assert draft is not None
    ends = [start + ticks for starts in three.starts for start, ticks in zip(starts, problem.ticks, strict=True)]
    assert draft.makespan <= max(ends) + 133 * three.period


def test_three_micro_batches_need_no_more_than_7_forwards_each() -> None:
    """8 devices, links of half a forward; studies/steady_states.py proves that three need as much."""
    three = three_in_turn(v_min(8, 5, 32), Random(0))
    assert three is not None
    assert three.pace == 70


def test_unequal_stages_are_rounded() -> None:
    equal = v_min(6, 5, 60)
    ticks = tuple(ticks + job % 3 - 1 for job, ticks in enumerate(equal.ticks))
    three = three_in_turn(replace(equal, ticks=ticks), Random(0))
    assert three == three_in_turn(equal, Random(0))
    assert three is not None
    assert in_order(replace(equal, ticks=ticks), three.priorities(60)) is not None


def test_many_stages_are_not_searched_for_three_micro_batches() -> None:
    assert three_in_turn(v_min(11, 5, 44), Random(0)) is None
