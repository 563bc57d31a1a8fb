from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autoauto.records.schedule import Action, ActionKind, Order, StageTimes
from autoauto.schedule.orders.gpipe import gpipe
from autoauto.schedule.orders.inference import inference
from autoauto.schedule.orders.interleaved import interleaved
from autoauto.schedule.orders.one_f_one_b import one_f_one_b
from autoauto.schedule.orders.popart import popart
from autoauto.schedule.orders.poplar import compute_offsets, poplar
from autoauto.schedule.orders.registry import make_schedule
from autoauto.schedule.stash import in_flight, stash_entries, turns_at_once


def test_popart_agrees_with_the_vectors(vectors: Callable[[str], Any]) -> None:
    for case in vectors("popart_pipeline_cycles_stash")["training"]:
        if case["valid"]:
            schedule = popart(case["ipus"], case["G"], training=True)
            assert list(stash_entries(schedule)) == case["stash_entries_per_ipu"]


def test_inference_stashes_nothing() -> None:
    assert stash_entries(popart(3, 5, training=False)) == stash_entries(inference(3, 5)) == (0, 0, 0)


def test_stashes_of_training_orders() -> None:
    assert stash_entries(one_f_one_b(4, 8)) == (4, 3, 2, 0)
    assert stash_entries(gpipe(3, 5)) == (5, 5, 5)
    assert stash_entries(interleaved(2, 4, 2)) == (5, 3)
    assert stash_entries(one_f_one_b(1, 8)) == (0,)


@pytest.mark.parametrize(("order", "depth"), [(Order.GROUPED, 2), (Order.POPLAR_INTERLEAVED, 1), (Order.SEQUENTIAL, 0)])
def test_poplars_fifos_hold_all_activations_but_the_newest(order: Order, depth: int) -> None:
    for n_stages in (2, 3, 5):
        devices = [*range(n_stages), *reversed(range(n_stages))]
        schedule = poplar(order, devices, 2 * len(compute_offsets(order, devices)), training=True)
        expected = tuple(depth * (n_stages - 1 - stage) for stage in range(n_stages))
        assert stash_entries(schedule) == expected == tuple(peak - 1 for peak in schedule.peak_in_flight)


def test_the_plugins_fifo_test(vectors: Callable[[str], Any]) -> None:
    case = vectors("tf_poplar_schedules")["fifo_depth_test"]
    schedule = poplar(Order.POPLAR_INTERLEAVED, [0, 1, 2, 2, 1, 0], 6, training=True)
    assert case["schedule"] == "Interleaved"
    assert stash_entries(schedule) == (case["depth_of_stage0_inputs"], case["depth_of_stage1_inputs"], 0)


def test_stages_of_one_device_add_up() -> None:
    schedule = poplar(Order.GROUPED, [0, 1, 0, 0, 1, 0], 6, training=True)
    assert stash_entries(schedule) == (4 + 0, 2)
    assert peak_of(list(schedule.actions(0)), stage=0) - 1 == 4
    assert peak_of(list(schedule.actions(0)), stage=2) - 1 == 0


def peak_of(actions: list[Action], stage: int) -> int:
    held = peak = 0
    for action in actions:
        if action.stage == stage:
            held += 1 if action.kind is ActionKind.FORWARD else -1
            peak = max(peak, held)
    return peak


@pytest.mark.parametrize(
    ("order", "held"),
    [
        (Order.GPIPE, (8, 8, 8)),
        (Order.ONE_F_ONE_B, (3, 2, 1)),
        (Order.POPART, (5, 3, 1)),
        (Order.ZB1P, (3, 3, 3)),
        (Order.ZB2P, (6, 6, 6)),
    ],
)
def test_activations_in_flight_of_every_order(order: Order, held: tuple[int, ...]) -> None:
    assert in_flight(order, 3, 8) == held


@pytest.mark.parametrize("order", [Order.ZB1P, Order.ZB2P])
@pytest.mark.parametrize("n_micro_batches", [1, 2, 5, 12])
def test_zero_bubble_orders_stay_within_their_limit(order: Order, n_micro_batches: int) -> None:
    ticks = np.array([3, 5, 4])
    links, none = np.zeros(4, dtype=np.int64), np.zeros(3, dtype=np.int64)
    times = StageTimes(ticks, ticks, ticks, links, none, none, none)
    schedule = make_schedule(order, 3, n_micro_batches, times=times)
    limit = in_flight(order, 3, n_micro_batches)
    assert all(held <= allowed for held, allowed in zip(schedule.peak_in_flight, limit, strict=True))


def test_the_last_stage_turns_at_once_where_no_other_action_lies_between() -> None:
    orders = (Order.POPART, Order.POPART_RING, Order.ONE_F_ONE_B, Order.GPIPE, Order.ZB1P)
    assert [turns_at_once(order, 3, 12, 1) for order in orders] == [True, True, True, False, False]
    assert turns_at_once(Order.INTERLEAVED, 2, 4, 2)
    assert turns_at_once(Order.GPIPE, 3, 1, 1), "a single micro-batch"
