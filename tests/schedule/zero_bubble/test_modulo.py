from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given, settings

from autoauto.schedule.zero_bubble.list_scheduling import in_order
from autoauto.schedule.zero_bubble.modulo import ModuloSchedule, modulo_schedule
from autoauto.schedule.zero_bubble.problem import ZeroBubbleProblem, lower_bound
from tests.drawn import n_examples
from tests.schedule.zero_bubble.test_list_scheduling import assert_legal, pipelines


def v_min(p: int, link: int, m: int) -> ZeroBubbleProblem:
    devices = (*range(p), *reversed(range(p)))
    limit = 2 * ((p + 1) // 3 + 1)
    return ZeroBubbleProblem(devices, (10,) * 6 * p, (0, *(link,) * 2 * p), (link,) * 2 * p, m, limit)


@given(pipelines())
@settings(deadline=None, max_examples=n_examples(50))
def test_every_micro_batch_can_repeat_the_first(problem: ZeroBubbleProblem) -> None:
    """A host that is slower than the period delays all; an action takes time, so that starts give an order."""
    problem = replace(problem, ticks=tuple(ticks + 1 for ticks in problem.ticks))
    modulo = modulo_schedule(replace(problem, forward_links=(0, *problem.forward_links[1:])), Random(0), 5_000)
    if modulo is not None:
        draft = in_order(problem, modulo.priorities(problem.n_micro_batches))
        assert draft is not None
        assert_legal(problem, draft, backwards=False)
        ends = [start + ticks for starts in modulo.starts for start, ticks in zip(starts, problem.ticks, strict=True)]
        host = problem.n_micro_batches * problem.forward_links[0]
        n_periods = (problem.n_micro_batches - 1) // len(modulo.starts)
        assert draft.makespan <= host + max(ends) + n_periods * modulo.period


def test_the_period_of_the_drawing() -> None:
    """Messages take 3 ticks, two activations fit in."""
    problem = ZeroBubbleProblem((0, 1), (1,) * 6, (0, 3, 0), (0, 3), 8, 2)
    modulo = modulo_schedule(problem, Random(0), 60_000)
    assert modulo == ModuloSchedule(6, [[0, 4, 9, 5, 10, 6]])


def test_slow_links_cost_little_more_than_the_memory_demands() -> None:
    """Many micro-batches: the makespan is within 1 % of the bound, which counts the memory that the turn loses."""
    problem = v_min(8, 20, 400)
    modulo = modulo_schedule(problem, Random(0), 60_000)
    assert modulo is not None
    draft = in_order(problem, modulo.priorities(400))
    assert draft is not None
    assert draft.makespan < 1.01 * lower_bound(problem)
