from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autoauto.records.schedule import Action, ActionKind, Schedule
from autoauto.schedule.orders.inference import inference
from autoauto.schedule.simulate.dependencies import check


def test_inference_is_as_drawn(draw: Callable[[Schedule], str]) -> None:
    assert draw(inference(3, 4)) == (
        "0F0 0F1 0F2 0F3\n"
        "    1F0 1F1 1F2 1F3\n"
        "        2F0 2F1 2F2 2F3"
    )  # fmt: skip


def test_it_takes_as_many_cycles_as_the_tutorials_engine_in_lock_step(
    vectors: Callable[[str], Any], asap: Callable[[Schedule, Callable[[Action], int]], dict[Action, int]]
) -> None:
    for case in vectors("fake_api")["vectors_computed"]:
        p, m = case["devices"], case["requests"]
        schedule = inference(p, m)
        check(schedule)
        starts = asap(schedule, lambda action: 1)
        assert max(starts.values()) + 1 == case["cycles_lockstep"]
        for request in range(m):
            path = [starts[Action(stage, ActionKind.FORWARD, request)] for stage in range(p)]
            assert path[-1] + 1 - path[0] == case["latency_cycles_per_request"]
        n_forwards = [len(list(schedule.actions(device))) for device in range(p)]
        assert [*n_forwards[:-1], 0] == case["sends_per_device"]
        assert [0, *n_forwards[1:]] == case["receives_per_device"]
        assert [action.micro_batch for action in schedule.actions(p - 1)] == list(range(m))


def test_one_device_runs_all_micro_batches_in_turn(draw: Callable[[Schedule], str]) -> None:
    assert draw(inference(1, 3)) == "0F0 0F1 0F2"
