from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, product
from typing import Any

import pytest

from autoauto.records.errors import BadInput
from autoauto.records.schedule import Action, ActionKind, Schedule
from autoauto.schedule.orders.interleaved import chunk_order, interleaved, n_warm_up
from autoauto.schedule.simulate.dependencies import check

Asap = Callable[[Schedule, Callable[[Action], int]], dict[Action, int]]


def test_interleaved_1f1b_is_as_drawn(draw: Callable[[Schedule], str]) -> None:
    assert draw(interleaved(3, 3, 2)) == (
        "0F0 0F1 0F2 3F0 3F1 3F2         3B0     3B1     3B2 0B0 0B1 0B2\n"
        "    1F0 1F1 1F2 4F0 4F1 4F2 4B0     4B1     4B2 1B0 1B1 1B2\n"
        "        2F0 2F1 2F2 5F0 5B0 5F1 5B1 5F2 5B2 2B0 2B1 2B2"
    )


def signed_chunks(schedule: Schedule, device: int) -> list[int]:
    """An order as Megatron writes it: chunks from 1, negative for backwards."""
    p = schedule.n_devices
    return [(1 + a.stage // p) * (1 if a.kind is ActionKind.FORWARD else -1) for a in schedule.actions(device)]


def test_megatrons_example_has_the_same_order(vectors: Callable[[str], Any]) -> None:
    example = vectors("schedules_1f1b_gpipe_interleaved")["megatron_checks"]["order_example_PP2_N3_M5_VP2"]
    chunks, micro_batches = chunk_order(5, 2, 3)
    assert (chunks.tolist(), micro_batches.tolist()) == (example["model_chunk_id"], example["microbatch_id"])
    order = signed_chunks(interleaved(2, 5, 2, group_size=3), 0)
    assert order == example["order"]
    assert [chunk for chunk in order if chunk > 0] == example["forward"]
    assert [chunk for chunk in order if chunk < 0] == example["backward"]
    assert n_warm_up(2, 0, 2, 3) == example["warmup"]


def test_makespans_and_peaks_of_the_vectors(vectors: Callable[[str], Any], asap: Asap) -> None:
    for case in vectors("schedules_1f1b_gpipe_interleaved")["interleaved"]:
        p, v, m = case["p"], case["v"], case["m"]
        schedule, ticks = interleaved(p, m, v), by_kind(case["tf"], case["tb"])
        makespan = max(start + ticks(action) for action, start in asap(schedule, ticks).items())
        assert makespan == case["makespan"] * v
        assert makespan - m * v * (case["tf"] + case["tb"]) == case["bubble_per_rank"] * v
        assert [n_warm_up(p, device, v, p) for device in range(p)] == case["num_warmup"]
        assert list(schedule.peak_in_flight) == case["peak_chunks_in_flight"]


def by_kind(forward: int, backward: int) -> Callable[[Action], int]:
    return lambda action: forward if action.kind is ActionKind.FORWARD else backward


def test_the_properties_of_megatrons_tests_hold(vectors: Callable[[str], Any]) -> None:
    grid = vectors("schedules_1f1b_gpipe_interleaved")["megatron_checks"]["test_grid"]
    for (p, group_size), m, v in product(grid["(p,group)"], grid["m"], grid["v"]):
        n_chunks = v or 1
        if n_chunks > 1 and not (group_size <= m and (m % group_size == 0 or m % group_size >= p)):
            continue
        schedule = interleaved(p, m, n_chunks, group_size)
        check(schedule)
        for device in range(p):
            order = signed_chunks(schedule, device)
            assert len(order) == 2 * m * n_chunks
            for chunk in range(1, n_chunks + 1):
                held = list(accumulate((c > 0) - (c < 0) for c in order if abs(c) == chunk))
                assert min(held) >= 0
                assert held[-1] == 0


@pytest.mark.parametrize(("p", "v"), [(2, 2), (3, 2), (4, 2), (4, 3)])
def test_the_bubble_shrinks_with_the_chunks(p: int, v: int, asap: Asap) -> None:
    starts = asap(interleaved(p, 3 * p, v), lambda action: 1)
    assert max(starts.values()) + 1 == 2 * 3 * p * v + 2 * (p - 1)


def test_every_allowed_group_size_gives_a_valid_schedule() -> None:
    n_allowed = n_refused = 0
    for p, m, v, group_size in product(range(1, 5), range(1, 12), (2, 3), range(1, 13)):
        if p <= group_size <= m and (m % group_size == 0 or m % group_size >= p):
            check(interleaved(p, m, v, group_size))
            n_allowed += 1
        else:
            with pytest.raises(BadInput, match="needs micro-batches in groups of at least"):
                interleaved(p, m, v, group_size)
            n_refused += 1
    assert min(n_allowed, n_refused) > 200


def test_one_chunk_is_1f1b(draw: Callable[[Schedule], str]) -> None:
    assert draw(interleaved(3, 2, 1)) == (
        "0F0 0F1             0B0     0B1\n"
        "    1F0 1F1     1B0     1B1\n"
        "        2F0 2B0 2F1 2B1"
    )  # fmt: skip


def test_a_refusal_says_what_to_try() -> None:
    with pytest.raises(BadInput) as raised:
        interleaved(4, 6, 2)
    assert str(raised.value) == (
        "interleaved on 4 devices needs micro-batches in groups of at least 4, the last too, got 6 in groups of 4; "
        "try a multiple of 4"
    )
