from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from autoauto.records.errors import BadInput
from autoauto.records.schedule import Action, ActionKind, Schedule, StageTimes
from autoauto.schedule.orders.gpipe import gpipe
from autoauto.schedule.orders.one_f_one_b import one_f_one_b, with_bubble_checks
from autoauto.schedule.simulate.dependencies import check

Asap = Callable[[Schedule, Callable[[Action], int]], dict[Action, int]]


def equal_times(n_stages: int, forward: int, backward: int) -> StageTimes:
    zeros = np.zeros(n_stages, dtype=np.int64)
    links = np.zeros(n_stages + 1, dtype=np.int64)
    return StageTimes(zeros + forward, zeros + backward, zeros, links, zeros, zeros, zeros)


def ticks_of(times: StageTimes) -> Callable[[Action], int]:
    def ticks(action: Action) -> int:
        if action.kind is ActionKind.CHECK:
            return int(times.checks[action.stage][action.micro_batch])
        return int((times.forward if action.kind is ActionKind.FORWARD else times.backward)[action.stage])

    return ticks


def test_bubble_checks_are_as_drawn(draw: Callable[[Schedule], str]) -> None:
    """[pipeline-notes, 2.3], p = m = 4: 3 checks after the third forward of the first device."""
    schedule, _ = with_bubble_checks(one_f_one_b(4, 4), equal_times(4, 1, 1))
    assert draw(schedule) == (
        "0F0 0F1 0F2 0C0 0C1 0C2 0F3 0B0 0C3 0C4 0C5 0B1 0B2 0B3\n"
        "1C0 1F0 1F1 1C1 1C2 1F2 1B0 1F3 1B1 1C3 1C4 1B2 1B3 1C5\n"
        "2C0 2C1 2F0 2C2 2F1 2B0 2F2 2B1 2F3 2B2 2C3 2B3 2C4 2C5\n"
        "3C0 3C1 3C2 3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3C3 3C4 3C5"
    )


@pytest.mark.parametrize(("forward", "backward"), [(1, 1), (1, 2), (5, 2), (3, 7)])
def test_checks_fill_the_bubble_and_nothing_else_moves(asap: Asap, forward: int, backward: int) -> None:
    for p, m in product(range(1, 7), range(1, 10)):
        plain, times = one_f_one_b(p, m), equal_times(p, forward, backward)
        schedule, checked = with_bubble_checks(plain, times)
        check(schedule)
        ticks = ticks_of(checked)
        starts = asap(schedule, ticks)
        before = asap(plain, ticks)
        makespan = (m + p - 1) * (forward + backward)
        assert max(before[action] + ticks(action) for action in before) == makespan
        for device in range(p):
            clock = 0
            for action in schedule.actions(device):
                assert starts[action] == clock
                clock += ticks(action)
            assert clock == makespan
            assert int(checked.checks[device].sum()) == (p - 1) * (forward + backward)


def test_the_counts_hold_with_more_micro_batches_than_devices() -> None:
    """[pipeline-notes, 2.3], pp_stage from 1: pp_stage - 1, p - pp_stage, p - pp_stage and pp_stage - 1 checks."""
    schedule, _ = with_bubble_checks(one_f_one_b(4, 6), equal_times(4, 1, 2))
    assert ["".join(action.kind for action in schedule.actions(device)) for device in range(4)] == [
        "" + "FFF" + "CCC" + "FBFBFB" + "CCC" + "BBB" + "",
        "C" + "FF" + "CC" + "FBFBFBFB" + "CC" + "BB" + "C",
        "CC" + "F" + "C" + "FBFBFBFBFB" + "C" + "B" + "CC",
        "CCC" + "" + "" + "FBFBFBFBFBFB" + "" + "" + "CCC",
    ]


def test_the_bubble_is_that_of_the_notes(vectors: Callable[[str], Any]) -> None:
    units = vectors("schedules_1f1b_gpipe_interleaved")["seed_004_checks"]["bubble_units_per_device"]
    for (forward, backward), expected in zip([(1, 1), (1, 2)], units.values(), strict=True):
        _, times = with_bubble_checks(one_f_one_b(4, 4), equal_times(4, forward, backward))
        assert [int(ticks.sum()) for ticks in times.checks] == [expected] * 4


def test_shorter_checks_leave_the_makespan_unchanged(asap: Asap) -> None:
    for check_ticks in (0, 1, 2):
        schedule, times = with_bubble_checks(one_f_one_b(4, 6), equal_times(4, 2, 3), check_ticks)
        ticks = ticks_of(times)
        starts = asap(schedule, ticks)
        assert max(start + ticks(action) for action, start in starts.items()) == (6 + 3) * 5
        assert all(row.tolist() == [check_ticks] * 6 for row in times.checks)


def test_pipelines_without_the_ideal_diagram_are_refused() -> None:
    schedule, times = one_f_one_b(3, 4), equal_times(3, 2, 3)
    with pytest.raises(BadInput, match="2 and 3 ticks, got 3; try 2"):
        with_bubble_checks(schedule, times, 3)
    with pytest.raises(BadInput, match="got -1"):
        with_bubble_checks(schedule, times, -1)
    with pytest.raises(BadInput, match="plain 1f1b schedule, got gpipe"):
        with_bubble_checks(gpipe(3, 4), times)
    with pytest.raises(BadInput, match="got one that has checks"):
        with_bubble_checks(*with_bubble_checks(schedule, times))
    with pytest.raises(BadInput, match=r"equal times, got backward ticks \[3, 4, 3\]"):
        with_bubble_checks(schedule, replace(times, backward=np.array([3, 4, 3])))
    for name in ("forward_links", "backward_links", "forward_exchange", "backward_exchange"):
        slow = getattr(times, name).copy()
        slow[1] = 5
        with pytest.raises(BadInput, match="links that take no time, got one of 5 ticks"):
            with_bubble_checks(schedule, replace(times, **{name: slow}))
