from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from autoauto.records.schedule import StageTimes
from autoauto.schedule.zero_bubble.list_scheduling import ChoiceRule, Direction
from autoauto.schedule.zero_bubble.problem import ZeroBubbleProblem, is_turn, lower_bound, steady_loss_at_turn
from tests.schedule.zero_bubble.test_list_scheduling import pipelines

FOUR = np.arange(4)
NOTHING = np.zeros(4, dtype=np.int64)
TIMES = StageTimes(
    forward=np.arange(10, 14),
    backward=np.arange(20, 24),
    weight=np.arange(30, 34),
    forward_links=np.arange(40, 45),
    backward_links=np.arange(50, 54),
    forward_exchange=NOTHING,
    backward_exchange=NOTHING,
)
V = ZeroBubbleProblem.of(TIMES, [0, 1, 1, 0], 3, None)


def test_jobs_are_numbered_by_kind_then_stage() -> None:
    assert V.ticks == (10, 11, 12, 13, 20, 21, 22, 23, 30, 31, 32, 33)
    assert V.work == [10 + 20 + 30 + 13 + 23 + 33, 11 + 21 + 31 + 12 + 22 + 32]
    assert V.path == [0, 1, 2, 3, 7, 6, 5, 4]


def test_messages_within_a_device_take_no_time() -> None:
    messages = {(job, to): ticks for job, to, ticks in V.edges()}
    assert messages == {
        (0, 1): 41,
        (1, 2): 0,  # both on device 1
        (2, 3): 43,
        (3, 7): 0,
        (7, 6): 53,
        (6, 5): 0,
        (5, 4): 51,
        **{(4 + stage, 8 + stage): 0 for stage in range(4)},
    }


def test_without_a_limit_all_activations_may_be_held() -> None:
    assert V.limit == 6
    assert ZeroBubbleProblem.of(TIMES, range(4), 3, None).limit == 3
    assert ZeroBubbleProblem.of(TIMES, range(4), 3, 2).limit == 2
    assert ZeroBubbleProblem.of(TIMES, range(4), 3, 8).limit == 3


def equal(
    p: int, m: int, limit: int, ticks: tuple[int, int, int], link: int = 0, *, v: bool = False
) -> ZeroBubbleProblem:
    devices = (*range(p), *(reversed(range(p)) if v else ()))
    n = len(devices)
    jobs = tuple(t for t in ticks for _ in range(n))
    return ZeroBubbleProblem(devices, jobs, (0, *(link,) * n), (link,) * n, m, min(limit, m * (1 + v)))


def test_the_bound_of_zb1p_is_its_closed_form() -> None:
    for p, (f, b, w), link in product((1, 2, 5), ((10, 10, 10), (20, 20, 10), (10, 11, 9)), (0, 1)):
        closed_form = 3 * p * (f + b + w) + (p - 1) * (f + b - w + 4 * link)
        assert lower_bound(equal(p, 3 * p, p, (f, b, w), link)) == closed_form


def test_with_ample_memory_only_the_skew_is_left() -> None:
    assert lower_bound(equal(4, 8, 8, (10, 10, 10))) == 240 + 30
    assert lower_bound(equal(4, 8, 8, (10, 10, 10), v=True)) == 480 + 30


def test_v_shapes_with_little_memory() -> None:
    """V-half and V-min of 4 devices: vectors/schedules_zero_bubble.json has 53 and 59."""
    assert lower_bound(equal(4, 8, 6, (1, 1, 1), v=True)) == 53
    assert lower_bound(equal(4, 8, 4, (1, 1, 1), v=True)) == 59


def test_a_memory_for_one_activation_leaves_no_overlap() -> None:
    """F down and up again, B down and up again, W: nothing overlaps but the other stages' W."""
    assert lower_bound(equal(2, 5, 1, (2, 3, 4), link=1)) == 5 * (2 + 1 + 2 + 3 + 1 + 3 + 4)


def test_a_limit_that_is_never_reached_has_no_effect() -> None:
    ticks = (2, 3, 4)
    assert lower_bound(replace(equal(3, 4, 4, ticks), limit=99)) == lower_bound(equal(3, 4, 4, ticks))


def test_the_slowest_stage_decides() -> None:
    """Stage 1 takes 5 + 7 for each of 4 micro-batches; 2 pass before, 3 + 4 after. W of stage 1 fits in."""
    assert lower_bound(ZeroBubbleProblem((0, 1), (2, 5, 3, 7, 4, 0), (0, 0, 0), (0, 0), 4, 4)) == 2 + 4 * 12 + 3 + 4


def test_one_micro_batch_takes_as_long_as_its_path() -> None:
    assert lower_bound(equal(3, 1, 3, (2, 3, 4), link=1)) == 3 * 2 + 3 * 3 + 4 + 4


def test_the_last_device_of_a_v_starts_late_and_stops_early() -> None:
    """Its stages 3 and 4 hold a micro-batch for 5 + 4 forwards, as many B, 2 W and 4 x 3 messages; 4 are held at once.

    Device 3 starts after three forwards and messages; three B and messages and a W follow its last B. Its memory loses
    4 actions a micro-batch; 2 more of the first F and of the last B, and as many of the second F and of the first B.
    When the last B leaves, up to 4 W of these actions, and their loss, are still to come.
    """
    slow = equal(4, 24, 4, (100, 100, 100), 200, v=True)
    held = (2 * (5 + 4) + 2) * 100 + 4 * 3 * 200
    loss = (24 * 4 + 4 * 2) * 100
    assert lower_bound(slow) == 3 * 300 + (24 * held + loss) // 4 - 2 * 100 + (3 * 300 + 100)


def test_the_turn_of_a_v_loses_memory() -> None:
    """The second F and the first B where the limit is odd, else all other actions; one stage a device has no turn."""
    v = replace(V, limit=4)
    assert [is_turn(v, device) for device in (0, 1)] == [False, True]
    assert steady_loss_at_turn(v, 1) == (11 + 21 + 31) + 32
    assert steady_loss_at_turn(replace(v, limit=3), 1) == 12 + 22
    assert steady_loss_at_turn(equal(2, 4, 2, (1, 1, 1)), 1) == 0


@given(pipelines(), st.integers())
@settings(deadline=None)
def test_no_order_is_shorter_than_the_bound(problem: ZeroBubbleProblem, seed: int) -> None:
    random = Random(seed)
    priorities = [sorted(random.uniform(0, 99) for _ in range(problem.n_micro_batches)) for _ in problem.ticks]
    draft = Direction(problem, backwards=False).schedule(priorities, ChoiceRule())
    assert draft is not None
    assert lower_bound(problem) <= draft.makespan


@given(pipelines(), st.integers())
@settings(deadline=None)
def test_the_turn_loses_what_the_bound_says(problem: ZeroBubbleProblem, seed: int) -> None:
    """Counted in an order: memory that is empty, or held although the micro-batch is here and nothing runs for it."""
    n, ticks, m, turn = problem.n_stages, problem.ticks, problem.n_micro_batches, max(problem.devices)
    if not is_turn(problem, turn):
        return
    random, outer = Random(seed), problem.devices.index(turn)
    inner = outer + 1
    priorities = [sorted(random.uniform(0, 99) for _ in range(m)) for _ in ticks]
    draft = Direction(problem, backwards=False).schedule(priorities, ChoiceRule())
    assert draft is not None
    stop = max(draft.starts[2 * n + s][-1] + ticks[2 * n + s] for s in (outer, inner))
    away = sum(draft.starts[n + inner]) - sum(draft.starts[inner]) - m * ticks[inner]
    held = 2 * away + m * (problem.work[turn] + ticks[inner] + ticks[n + inner])
    loss = problem.limit * (stop - draft.starts[outer][0]) - held
    assert loss >= m * steady_loss_at_turn(problem, turn)
