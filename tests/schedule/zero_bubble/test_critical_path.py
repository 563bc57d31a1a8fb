from __future__ import annotations

from random import Random

from autoauto.schedule.zero_bubble.critical_path import advance, critical_blocks, nudged, postpone
from autoauto.schedule.zero_bubble.list_scheduling import ChoiceRule, Direction, DraftSchedule
from autoauto.schedule.zero_bubble.problem import ZeroBubbleProblem

# 0F0 0F1     0B0 0W0 0B1 0W1       the path goes along device 1 at the start and along device 0 at the end:
#     1F0 1B0 1F1 1B1 1W0 1W1       0F0 | 1F0 1B0 | 0B0 0W0 0B1 0W1, or over 1B1
TWO = Direction(ZeroBubbleProblem((0, 1), (1,) * 6, (0, 0, 0), (0, 0), 2, 2), backwards=False)
PRIORITIES: list[list[float]] = [[0, 1], [1, 3], [3, 5], [2, 4], [4, 6], [6, 7]]


def two() -> DraftSchedule:
    draft = TWO.schedule(PRIORITIES, ChoiceRule())
    assert draft is not None
    assert draft.programs == [[0, 0, 2, 4, 2, 4], [1, 3, 1, 3, 5, 5]]
    return draft


def test_the_blocks_lead_from_the_start_to_the_end() -> None:
    draft = two()
    for seed in range(20):
        blocks = critical_blocks(TWO, draft, Random(seed))
        assert all(len(block) > 1 for block in blocks)
        for block in blocks:
            starts = [draft.starts[job][number] for job, number in block]
            assert starts == list(range(starts[0], starts[0] + len(starts)))
            assert len({TWO.device[job] for job, _ in block}) == 1
    ends = {critical_blocks(TWO, draft, Random(seed))[0][-1] for seed in range(20)}
    assert ends == {(4, 1), (5, 1)}  # both devices stop last


def test_a_nudged_action_gets_a_priority_outside_its_block() -> None:
    draft = two()
    block = [(2, 0), (4, 0), (2, 1), (4, 1)]
    for seed in range(50):
        priorities = nudged(draft, [block], 1.0, Random(seed))
        moved = [(job, i) for job in range(6) for i in range(2) if priorities[job][i] != draft.starts[job][i]]
        assert moved
        assert all(priorities[job][i] < 3 or priorities[job][i] > 6 for job, i in moved)
        assert {job for job, _ in moved} <= {2, 4}
        assert all(row == sorted(row) for row in priorities)


def test_priorities_of_a_job_stay_in_order() -> None:
    row = [0.0, 1.0, 2.0, 3.0]
    postpone(row, 1, 2.5)
    assert row == [0.0, 2.5, 2.5, 3.0]
    advance(row, 3, 1.5)
    assert row == [0.0, 1.5, 1.5, 1.5]
