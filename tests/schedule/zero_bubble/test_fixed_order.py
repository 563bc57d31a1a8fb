from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from autoauto.schedule.zero_bubble.list_scheduling import NEVER, ChoiceRule, Direction, in_order
from autoauto.schedule.zero_bubble.problem import ZeroBubbleProblem
from tests.schedule.zero_bubble.test_list_scheduling import pipelines


def strictly(problem: ZeroBubbleProblem) -> ZeroBubbleProblem:
    """Actions take time, so that their starts give their order."""
    return ZeroBubbleProblem(
        problem.devices,
        tuple(ticks + 1 for ticks in problem.ticks),
        problem.forward_links,
        problem.backward_links,
        problem.n_micro_batches,
        problem.limit,
    )


@given(pipelines(), st.booleans())
@settings(deadline=None)
def test_an_order_by_its_own_starts_has_the_same_times_or_earlier(problem: ZeroBubbleProblem, fair: bool) -> None:
    problem = strictly(problem)
    priorities: list[list[float]] = [[float(i) for i in range(problem.n_micro_batches)] for _ in problem.ticks]
    draft = Direction(problem, backwards=False).schedule(priorities, ChoiceRule(NEVER, fair))
    assert draft is not None
    again = in_order(problem, [list(row) for row in draft.starts])
    assert again is not None
    assert again.programs == draft.programs
    assert again.starts == draft.starts
    assert again.makespan == draft.makespan


def test_no_times_where_memory_does_not_suffice() -> None:
    problem = ZeroBubbleProblem((0,), (1, 1, 1), (0, 0), (0,), 2, 1)
    assert in_order(problem, [[0, 1], [2, 3], [4, 5]]) is None
    draft = in_order(problem, [[0, 3], [1, 4], [2, 5]])
    assert draft is not None
    assert draft.makespan == 6


def test_no_times_where_devices_wait_in_a_circle() -> None:
    """Device 0 wants to end with its second forward, device 1 to begin with it."""
    problem = ZeroBubbleProblem((0, 1), (1,) * 6, (0, 0, 0), (0, 0), 1, 1)
    assert in_order(problem, [[5], [1], [0], [2], [6], [3]]) is None
