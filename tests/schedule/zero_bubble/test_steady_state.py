from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings

from autoauto.schedule.zero_bubble.list_scheduling import in_order
from autoauto.schedule.zero_bubble.modulo import modulo_schedule
from autoauto.schedule.zero_bubble.problem import ZeroBubbleProblem, lower_bound, memory_taken
from autoauto.schedule.zero_bubble.steady_state import FEW, SOME, Effort, annealed, steady_state
from tests.drawn import n_examples
from tests.schedule.zero_bubble.test_list_scheduling import assert_legal, pipelines
from tests.schedule.zero_bubble.test_modulo import v_min

LITTLE = Effort(2_000, ((2, 1), (3, 0.5)), ((2, 1_000), (1, 2_000)))


@given(pipelines())
@settings(deadline=None, max_examples=n_examples(50))
def test_every_group_can_repeat_the_first(problem: ZeroBubbleProblem) -> None:
    """A host that is slower than the period delays all; an action takes time, so that starts give an order."""
    problem = replace(problem, ticks=tuple(ticks + 1 for ticks in problem.ticks))
    schedule = steady_state(replace(problem, forward_links=(0, *problem.forward_links[1:])), Random(0), LITTLE)
    if schedule is not None:
        draft = in_order(problem, schedule.priorities(problem.n_micro_batches))
        assert draft is not None
        assert_legal(problem, draft, backwards=False)


def test_two_micro_batches_of_the_drawing_need_less_time() -> None:
    """11 ticks in flight, two at a time: 5.5 each; one alone, or two at even intervals, needs 6."""
    problem = ZeroBubbleProblem((0, 1), (1,) * 6, (0, 3, 0), (0, 3), 40, 2)
    schedule = steady_state(problem, Random(0), SOME)
    assert schedule is not None
    assert (schedule.period, schedule.pace) == (11, 5.5)


@pytest.mark.parametrize(("link", "pace"), [(5, 75), (10, 90)])
def test_two_micro_batches_meet_a_bound_that_each_alone_does_not(link: int, pace: int) -> None:
    """Links of half a forward and of one: each alone takes 80 and 100 ticks, which studies/steady_states.py proves."""
    problem = v_min(4, link, 400)
    schedule = steady_state(problem, Random(0), SOME)
    assert schedule is not None
    assert (schedule.pace, len(schedule.starts)) == (pace, 2)
    assert max(memory_taken(problem)) == pace * problem.limit
    draft = in_order(problem, schedule.priorities(400))
    assert draft is not None
    assert draft.makespan < 1.01 * lower_bound(problem)


def test_three_micro_batches_need_no_more_than_7_forwards_each() -> None:
    """8 devices, links of half a forward; studies/steady_states.py proves that three need as much."""
    problem = v_min(8, 5, 32)
    first = modulo_schedule(problem, Random(0), 60_000)
    assert first is not None
    three = first.repeated(3, 3 * first.period, first.period)
    assert min(annealed(problem, three, Random(seed), 600_000).pace for seed in range(2)) == 70


def test_micro_batches_that_set_out_soon_after_each_other_stop_earlier() -> None:
    """Four of them fill the memory where the V turns; the pace is the same, which is the bound."""
    problem = v_min(8, 20, 32)
    first = modulo_schedule(problem, Random(0), 60_000)
    effort = Effort(60_000, ((4, 0.5),), ((1, 60_000),))
    four = steady_state(problem, Random(0), effort)
    assert first is not None
    assert four is not None
    assert (first.pace, four.pace, len(four.starts)) == (120, 120, 4)
    assert four.stop(problem) < first.stop(problem) - 150


def test_little_effort_repeats_a_single_micro_batch() -> None:
    problem = v_min(4, 5, 400)
    assert steady_state(problem, Random(0), FEW) == modulo_schedule(problem, Random(0), FEW.placements)
