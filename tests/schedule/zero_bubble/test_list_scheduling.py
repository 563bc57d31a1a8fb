from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from autoauto.schedule.zero_bubble.list_scheduling import NEVER, ChoiceRule, Direction, DraftSchedule
from autoauto.schedule.zero_bubble.problem import ZeroBubbleProblem


def pipeline(devices: tuple[int, ...], ticks: tuple[int, ...], m: int, limit: int, links: int = 0) -> ZeroBubbleProblem:
    n = len(devices)
    return ZeroBubbleProblem(devices, ticks, (0, *(links,) * n), (links,) * n, m, limit)


ONE = pipeline((0,), (2, 3, 4), 2, 2)


@st.composite
def pipelines(draw: st.DrawFn) -> ZeroBubbleProblem:
    p = draw(st.integers(1, 4))
    devices = (*range(p), *(reversed(range(p)) if draw(st.booleans()) else ()))
    n, m = len(devices), draw(st.integers(1, 5))
    ticks = tuple(draw(st.lists(st.integers(0, 5), min_size=3 * n, max_size=3 * n)))
    forward = tuple(draw(st.lists(st.integers(0, 9), min_size=n + 1, max_size=n + 1)))
    backward = tuple(draw(st.lists(st.integers(0, 9), min_size=n, max_size=n)))
    chunks = n // p
    return ZeroBubbleProblem(devices, ticks, forward, backward, m, min(draw(st.integers(chunks, 2 * n)), m * chunks))


def assert_legal(problem: ZeroBubbleProblem, draft: DraftSchedule, *, backwards: bool) -> None:
    """Every action once, after its inputs, one at a time on a device, and never more than the limit in memory."""
    n, ticks = problem.n_stages, problem.ticks
    assert [len(starts) for starts in draft.starts] == [problem.n_micro_batches] * 3 * n
    for edge in problem.edges():
        job, to = edge[1::-1] if backwards else edge[:2]
        for i in range(problem.n_micro_batches):
            assert draft.starts[job][i] + ticks[job] + edge[2] <= draft.starts[to][i]
    for device, program in enumerate(draft.programs):
        numbers, free, held = [0] * 3 * n, 0, 0
        for job in program:
            assert problem.devices[job % n] == device
            start = draft.starts[job][numbers[job]]
            assert start >= free
            free = start + ticks[job]
            numbers[job] += 1
            held += {0: 1, 1: 0, 2: -1}[job // n] * (-1 if backwards else 1)
            assert 0 <= held <= problem.limit
        assert free <= draft.makespan


@given(pipelines(), st.integers(), st.sampled_from([0, 1, 5, NEVER]), st.booleans(), st.booleans())
@settings(deadline=None)
def test_any_priorities_make_a_legal_order(
    problem: ZeroBubbleProblem, seed: int, window: int, fair: bool, backwards: bool
) -> None:
    random = Random(seed)
    priorities = [sorted(random.uniform(0, 99) for _ in range(problem.n_micro_batches)) for _ in problem.ticks]
    draft = Direction(problem, backwards=backwards).schedule(priorities, ChoiceRule(window, fair))
    assert draft is not None
    assert_legal(problem, draft, backwards=backwards)


def programs(problem: ZeroBubbleProblem, priorities: list[list[float]], rule: ChoiceRule) -> list[list[int]]:
    draft = Direction(problem, backwards=False).schedule(priorities, rule)
    assert draft is not None
    return draft.programs


def test_the_earliest_priority_comes_first() -> None:
    assert programs(ONE, [[0, 1], [2, 3], [4, 5]], ChoiceRule()) == [[0, 0, 1, 1, 2, 2]]
    assert programs(ONE, [[0, 9], [1, 10], [2, 11]], ChoiceRule()) == [[0, 1, 2, 0, 1, 2]]


def test_a_device_waits_for_an_earlier_priority_unless_it_is_fair() -> None:
    """Device 0 is free at 4, B1 comes at 6: an active order waits, as W0 would last until 7."""
    problem = pipeline((0, 1), (1, 1, 1, 2, 3, 1), 2, 2)
    priorities: list[list[float]] = [[0, 1], [0, 1], [2, 3], [0, 1], [9, 10], [9, 10]]
    assert programs(problem, priorities, ChoiceRule())[0] == [0, 0, 2, 2, 4, 4]
    assert programs(problem, priorities, ChoiceRule(fair=True))[0] == [0, 0, 2, 4, 2, 4]


def test_a_window_delays_forwards() -> None:
    """Device 0 could start both forwards at once; the priority of the second is after everything else."""
    problem = pipeline((0, 1), (1,) * 6, 2, 2)
    priorities: list[list[float]] = [[0, 50], [1, 51], [3, 53], [2, 52], [4, 54], [3, 53]]
    assert programs(problem, priorities, ChoiceRule(window=NEVER))[0] == [0, 0, 2, 4, 2, 4]
    assert programs(problem, priorities, ChoiceRule(window=10))[0] == [0, 2, 4, 0, 2, 4]


def test_messages_follow_each_other() -> None:
    """Device 0 makes both within 2 ticks, the link takes 5 for each, and device 1 starts each as it arrives."""
    draft = Direction(pipeline((0, 1), (1,) * 6, 2, 2, links=5), backwards=False).schedule(
        [[0, 1], [0, 1], [9, 9], [9, 9], [9, 9], [9, 9]], ChoiceRule()
    )
    assert draft is not None
    assert draft.starts[1] == [6, 11]


def test_the_host_sends_one_input_after_the_other() -> None:
    direction = Direction(ZeroBubbleProblem((0,), (1, 1, 1), (4, 0), (0,), 3, 3), backwards=False)
    draft = direction.schedule([[0, 1, 2], [3, 4, 5], [6, 7, 8]], ChoiceRule())
    assert draft is not None
    assert draft.starts[0] == [4, 8, 12]


def test_no_schedule_that_ends_after_the_cutoff() -> None:
    direction = Direction(ONE, backwards=False)
    priorities: list[list[float]] = [[0, 1], [2, 3], [4, 5]]
    assert direction.schedule(priorities, ChoiceRule(), cutoff=17) is None
    before = direction.n_scheduled
    draft = direction.schedule(priorities, ChoiceRule(), cutoff=18)
    assert draft is not None
    assert draft.makespan == 18
    assert direction.n_scheduled == before + 6
    assert direction.schedule(priorities, ChoiceRule(), cutoff=0) is None
    assert direction.n_scheduled == before + 6 + 1  # a run that ends at once counts as a quarter of all
