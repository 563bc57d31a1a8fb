from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoauto.records.errors import BadInput
from autoauto.records.schedule import Order, Schedule
from autoauto.schedule.orders.gpipe import gpipe
from autoauto.schedule.orders.popart import popart
from autoauto.schedule.orders.poplar import compute_offsets, execution_order, poplar
from autoauto.schedule.orders.spec import there_and_back
from autoauto.schedule.simulate.dependencies import check
from tests.drawn import n_examples

ORDERS = {"Grouped": Order.GROUPED, "Interleaved": Order.POPLAR_INTERLEAVED, "Sequential": Order.SEQUENTIAL}


def test_poplars_orders_are_as_drawn(draw: Callable[[Schedule], str]) -> None:
    devices = [0, 1, 1, 0]
    assert draw(poplar(Order.GROUPED, devices, 4, training=True)) == (
        "0F0     0F1     0F2     0B0.0F3 0B1     0B2     0B3\n"
        "        1F0     1B0.1F1 1B1.1F2 1B2.1F3 1B3"
    )  # fmt: skip
    assert draw(poplar(Order.POPLAR_INTERLEAVED, devices, 4, training=True)) == (
        "0F0     0F1 0B0 0F2 0B1 0F3 0B2     0B3\n"
        "    1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3"
    )  # fmt: skip
    assert draw(poplar(Order.SEQUENTIAL, devices, 2, training=True)) == (
        "0F0         0B0 0F1         0B1\n"
        "    1F0 1B0         1F1 1B1"
    )  # fmt: skip


def test_the_plugins_offsets(vectors: Callable[[str], Any]) -> None:
    for case in vectors("tf_poplar_schedules")["circular_union"]:
        assert list(compute_offsets(Order.POPLAR_INTERLEAVED, case["mapping"])) == case["offsets"]


def test_the_plugins_traces(vectors: Callable[[str], Any]) -> None:
    for case in vectors("tf_poplar_schedules")["execution_order_traces"]:
        order, devices = ORDERS[case["schedule"]], case["stage_to_ipu"]
        schedule = poplar(order, devices, case["gradient_accumulation"], training=True)
        check(schedule)
        assert schedule.slots is not None
        assert execution_order(schedule) == case["stage_print_order"]
        assert 1 + max(int(slots[-1]) for slots in schedule.slots) == case["n_timesteps"]
        assert list(compute_offsets(order, devices)) == case["offsets"]
        assert len(case["offsets"]) == case["overlap_length"]


def test_a_backward_stage_may_be_on_another_device() -> None:
    """Devices 0 1 2 | 1 0 1, as in the plugin's own tests; no device runs two stages in one timestep."""
    schedule = poplar(Order.POPLAR_INTERLEAVED, [0, 1, 2, 1, 0, 1], 4, training=True)
    check(schedule)
    assert schedule.slots is not None
    assert all(len(set(slots.tolist())) == len(slots) for slots in schedule.slots)
    assert [str(action) for action in schedule.actions(2)] == ["2F0", "2F1", "2F2", "2F3"]
    assert execution_order(schedule)[:7] == [0, 1, 0, 2, 1, 3, 2]


@given(st.permutations(range(3)), st.integers(1, 4), st.sampled_from(sorted(ORDERS.values())), st.booleans())
@settings(max_examples=n_examples(60))
def test_every_micro_batch_passes_every_stage(devices: list[int], n_turns: int, order: Order, training: bool) -> None:
    mapping = devices + devices[::-1] if training else devices
    m = n_turns * len(compute_offsets(order, mapping))
    schedule = poplar(order, mapping, m, training=training)
    check(schedule)
    assert schedule.slots is not None
    n_at_once = max(len(slots) - len(set(slots.tolist())) for slots in schedule.slots)
    assert (n_at_once > 0) == (order is Order.GROUPED and training)
    assert sorted(execution_order(schedule)) == sorted(list(range(len(mapping))) * m)


def test_the_execution_order_of_popart_is_that_of_its_diagram() -> None:
    """[popart-pipelining]: `|` ends a pipeline cycle of PS0 to PS4, where PS2 is both passes of the last device."""
    columns = "0 | 01 | 012 | 0123 | 01234 | 1234 | 234 | 34 | 4"
    assert execution_order(popart(3, 5, training=True)) == [int(stage) for stage in columns if stage.isdigit()]
    with pytest.raises(AssertionError):
        execution_order(gpipe(2, 2))


def test_batch_serialisation_repeats_stages() -> None:
    schedule = poplar(Order.SEQUENTIAL, [0, 0, 0, 0], 4, training=True, n_serial=2)
    check(schedule)
    program = " ".join(map(str, schedule.actions(0)))
    assert program == "0F0 0F1 1F0 1F1 1B0 1B1 0B0 0B1 0F2 0F3 1F2 1F3 1B2 1B3 0B2 0B3"
    assert execution_order(schedule) == [0, 0, 1, 1, 2, 2, 3, 3] * 2


def test_with_overlapped_io_micro_batches_need_not_be_a_multiple() -> None:
    schedule = poplar(Order.GROUPED, [0, 1, 1, 0], 7, training=True, overlap_io=True)
    check(schedule)
    assert schedule.n_micro_batches == 7
    with pytest.raises(BadInput, match="multiple of 4"):
        poplar(Order.GROUPED, [0, 1, 1, 0], 7, training=True)


@pytest.mark.parametrize(
    ("order", "devices", "m", "options", "message"),
    [
        (Order.GROUPED, [0, 1, 1, 0], 6, {}, "grouped needs micro-batches in a multiple of 4, .* got 6; try 8"),
        (Order.POPLAR_INTERLEAVED, [0, 1, 1, 0], 3, {}, "multiple of 2, its overlap length, got 3; try 4"),
        (Order.GROUPED, [*there_and_back(5, 1)], 16, {}, "a multiple of 10, .* got 16; try 20"),
        (Order.GROUPED, [0, 1, 1, 0], 5, {"overlap_io": True}, "at least 6 micro-batches, got 5"),
        (Order.SEQUENTIAL, [0, 1, 1, 0], 5, {"overlap_io": True}, "only overlap in grouped pipelines, got sequential"),
        (Order.GROUPED, [0, 0], 2, {}, "at least 2 stages, got 1"),
        (Order.GROUPED, [0, 1, 1], 6, {}, r"an odd number of them, \[0, 1, 1\]"),
        (Order.GROUPED, [0, 2, 2, 0], 4, {}, r"numbered from 0 .* got stages on \[0, 2, 2, 0\]"),
        (Order.GROUPED, [0, 1, 2, 0], 4, {}, "all have a forward stage"),
        (Order.GROUPED, [0, 1, -1, 0], 4, {}, "numbered from 0"),
        (Order.POPLAR_INTERLEAVED, [0, 1, 0, 0, 1, 0], 6, {}, r"one stage a device only, .* \[0, 1, 0\]; try grouped"),
        (Order.GROUPED, [0, 0, 0, 0], 4, {"n_serial": 2}, "the order sequential, got grouped"),
        (Order.SEQUENTIAL, [0, 1, 1, 0], 4, {"n_serial": 2}, "all stages on one device"),
        (Order.SEQUENTIAL, [0, 0, 0, 0], 5, {"n_serial": 2}, "divide 5 micro-batches, got 2"),
    ],
)
def test_the_plugins_errors(order: Order, devices: list[int], m: int, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        poplar(order, devices, m, training=True, **options)


def test_inference_may_have_several_stages_on_a_device() -> None:
    schedule = poplar(Order.POPLAR_INTERLEAVED, [0, 1, 0], 4, training=False)
    check(schedule)
    assert compute_offsets(Order.POPLAR_INTERLEAVED, [0, 1, 0]) == (0,)
