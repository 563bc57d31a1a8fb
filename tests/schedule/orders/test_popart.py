from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from autoauto.records.errors import BadInput
from autoauto.records.schedule import Action, ActionKind, Schedule
from autoauto.schedule.orders.popart import popart, popart_phases
from autoauto.schedule.simulate.dependencies import check


def test_popart_is_as_drawn(draw: Callable[[Schedule], str]) -> None:
    """The last diagram of [popart-pipelining]: the utilisation of 3 IPUs by 5 micro-batches."""
    assert draw(popart(3, 5, training=True)) == (
        "0F0     0F1     0F2     0F3     0F4.0B0 0B1     0B2     0B3     0B4\n"
        "        1F0     1F1     1F2.1B0 1F3.1B1 1F4.1B2 1B3     1B4\n"
        "                2F0.2B0 2F1.2B1 2F2.2B2 2F3.2B3 2F4.2B4"
    )


def test_inference_is_as_drawn(draw: Callable[[Schedule], str]) -> None:
    assert draw(popart(3, 3, training=False)) == (
        "0F0 0F1 0F2\n"
        "    1F0 1F1 1F2\n"
        "        2F0 2F1 2F2"
    )  # fmt: skip


def stages_by_cycle(schedule: Schedule) -> dict[int, list[int]]:
    """The cycles of every pipeline stage; the last device's backward is part of the stage of its forward."""
    stages: dict[int, list[int]] = {}
    assert schedule.slots is not None
    for device, cycles in enumerate(schedule.slots):
        for cycle, action in zip(cycles.tolist(), schedule.actions(device), strict=True):
            forward = action.kind is ActionKind.FORWARD
            stage = action.stage if forward else 2 * (schedule.n_stages - 1) - action.stage
            if forward or stage != action.stage:
                stages.setdefault(stage, []).append(cycle)
    return stages


@pytest.mark.parametrize("training", [True, False])
def test_cycles_and_phases_of_the_vectors(vectors: Callable[[str], Any], training: bool) -> None:
    for case in vectors("popart_pipeline_cycles_stash")["training" if training else "inference"]:
        n_devices, m = case.get("ipus", case["P"]), case["G"]
        phases = popart_phases(n_devices, m, training=training)
        assert (phases.fill, phases.main, phases.n_cycles) == (case["fill"], case["main"], case["cycles"])
        assert phases.flush == phases.fill
        if not case["valid"]:
            with pytest.raises(BadInput, match=f"at least 1 cycle, so {case['P']} micro-batches"):
                popart(n_devices, m, training=training)
            continue
        schedule = popart(n_devices, m, training=training)
        check(schedule)
        cycles = stages_by_cycle(schedule)
        assert sorted(cycles) == list(range(case["P"]))
        assert all(cycles[stage] == list(range(stage, stage + m)) for stage in cycles)
        assert [[stage, stage + m] for stage in sorted(cycles)] == case.get("do_stage", [[s, s + m] for s in cycles])


def test_in_lock_step_it_takes_as_long_as_1f1b(vectors: Callable[[str], Any]) -> None:
    for case in vectors("popart_pipeline_cycles_stash")["lockstep_total_time"]:
        schedule = popart(case["ipus"], case["G"], training=True)
        ticks = {ActionKind.FORWARD: case["tf"], ActionKind.BACKWARD: case["tb"]}
        assert total_ticks(schedule, ticks) == case["total"] == case["equals_1f1b"]


def total_ticks(schedule: Schedule, ticks: dict[ActionKind, int]) -> int:
    """Every cycle takes as long as its busiest device."""
    work: dict[tuple[int, int], int] = {}
    assert schedule.slots is not None
    for device, cycles in enumerate(schedule.slots):
        for cycle, action in zip(cycles.tolist(), schedule.actions(device), strict=True):
            work[cycle, device] = work.get((cycle, device), 0) + ticks[action.kind]
    n_cycles = 1 + max(cycle for cycle, _ in work)
    return sum(max(work.get((c, d), 0) for d in range(schedule.n_devices)) for c in range(n_cycles))


def test_the_last_backward_follows_its_forward() -> None:
    actions = list(popart(4, 9, training=True).actions(3))
    assert actions[::2] == [Action(3, ActionKind.FORWARD, m) for m in range(9)]
    assert actions[1::2] == [Action(3, ActionKind.BACKWARD, m) for m in range(9)]
