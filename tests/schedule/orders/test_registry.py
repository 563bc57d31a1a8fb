from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pkgutil import iter_modules
from typing import Any

import numpy as np
import pytest

from autoauto.records.errors import BadInput
from autoauto.records.schedule import WEIGHT, Action, ActionKind, Order, Schedule, StageTimes
from autoauto.schedule import orders
from autoauto.schedule.orders.gpipe import gpipe
from autoauto.schedule.orders.interleaved import interleaved
from autoauto.schedule.orders.popart import popart
from autoauto.schedule.orders.poplar import poplar
from autoauto.schedule.orders.registry import make_schedule, spec_of, stage_devices_of
from autoauto.schedule.simulate.dependencies import check

Asap = Callable[[Schedule, Callable[[Action], int]], dict[Action, int]]


def unit_times(n_stages: int) -> StageTimes:
    ones, zeros = np.ones(n_stages, dtype=np.int64), np.zeros(n_stages, dtype=np.int64)
    return StageTimes(ones, ones, ones, np.zeros(n_stages + 1, dtype=np.int64), zeros, zeros, zeros)


def gaps(spans: list[tuple[int, int]], makespan: int) -> list[list[int]]:
    """Start and length of the idle times between the spans of a device."""
    stops = [0, *(stop for _, stop in spans)]
    starts = [*(start for start, _ in spans), makespan]
    return [[stop, start - stop] for stop, start in zip(stops, starts, strict=True) if start > stop]


def test_gpipe_and_1f1b_agree_with_the_vectors(vectors: Callable[[str], Any], asap: Asap) -> None:
    for case in vectors("schedules_1f1b_gpipe_interleaved")["cases"]:
        schedule = make_schedule(Order(case["schedule"]), case["p"], case["m"])
        ticks = by_kind(case["tf"], case["tb"])
        starts = asap(schedule, ticks)
        makespan = max(start + ticks(action) for action, start in starts.items())
        programs = [list(schedule.actions(device)) for device in range(case["p"])]
        idle = [gaps([(starts[a], starts[a] + ticks(a)) for a in program], makespan) for program in programs]
        assert makespan == case["makespan"]
        assert list(schedule.peak_in_flight) == case["peak_in_flight"]
        assert [sum(length for _, length in row) for row in idle] == case["bubble_per_rank"]
        if "order" in case:
            assert [" ".join(f"{a.kind}{a.micro_batch}" for a in program) for program in programs] == case["order"]
            assert idle == case["idle_gaps_per_rank"]


def by_kind(forward: int, backward: int) -> Callable[[Action], int]:
    return lambda action: forward if action.kind is ActionKind.FORWARD else backward


def test_an_order_by_name_is_made_by_its_function() -> None:
    pairs = [
        (make_schedule(Order.GPIPE, 3, 4), gpipe(3, 4)),
        (make_schedule(Order.INTERLEAVED, 2, 4, n_chunks=3), interleaved(2, 4, 3)),
        (make_schedule(Order.POPART, 3, 4, training=False), popart(3, 4, training=False)),
        (make_schedule(Order.GROUPED, 2, 4), poplar(Order.GROUPED, [0, 1, 1, 0], 4, training=True)),
        (
            make_schedule(Order.SEQUENTIAL, 3, 4, stage_devices=[0, 1, 0], training=False),
            poplar(Order.SEQUENTIAL, [0, 1, 0], 4, training=False),
        ),
    ]
    for made, same in pairs:
        assert (made.order, made.devices, made.n_micro_batches) == (same.order, same.devices, same.n_micro_batches)
        assert list(map(str, made.actions(1))) == list(map(str, same.actions(1)))


@pytest.mark.parametrize("order", list(Order))
def test_every_order_passes_the_check(order: Order) -> None:
    n_chunks = 2 if order is Order.INTERLEAVED else 1
    devices = stage_devices_of(order, 2, n_chunks)
    n_micro_batches = max(4, spec_of(order).min_micro_batches(2))
    schedule = make_schedule(order, 2, n_micro_batches, n_chunks=n_chunks, times=unit_times(len(devices)))
    check(schedule)
    assert (schedule.order, schedule.devices) == (order, devices)
    assert schedule.has(WEIGHT) is spec_of(order).splits_backward


@pytest.mark.parametrize("order", list(Order))
def test_every_order_holds_to_its_specification(order: Order) -> None:
    spec = spec_of(order)
    assert spec.order is order
    if spec.runs_inference:
        schedule = make_schedule(order, 2, 4, training=False)
        assert {action.kind for device in range(2) for action in schedule.actions(device)} == {ActionKind.FORWARD}
    if spec.default_max_in_flight is not None:
        times = unit_times(len(stage_devices_of(order, 3)))
        schedule = make_schedule(order, 3, 9, times=times)
        assert max(schedule.peak_in_flight) <= spec.default_max_in_flight(3)


@pytest.mark.parametrize(
    ("order", "arguments", "message"),
    [
        (Order.GPIPE, {"n_devices": 0}, "n_devices must be at least 1, got 0"),
        (Order.GPIPE, {"n_micro_batches": -2}, "n_micro_batches must be at least 1, got -2"),
        (Order.INTERLEAVED, {"n_chunks": 0}, "n_chunks must be at least 1, got 0"),
        (Order.GPIPE, {"n_chunks": 2}, "chunks are for interleaved, got 2 with gpipe"),
        (
            Order.ONE_F_ONE_B,
            {"training": False},
            "1f1b is for training; try inference, popart or one of grouped, poplar-interleaved, sequential",
        ),
        (Order.POPART, {"stage_devices": [0, 1]}, "a device for every stage is for grouped, .*, got one with popart"),
        (Order.GROUPED, {"stage_devices": [0, 1, 1, 0]}, "8 for 4 stages .forward and backward., got 4"),
        (Order.GROUPED, {"stage_devices": [0, 1], "training": False}, "4 for 4 stages .forward., got 2"),
        (
            Order.GPIPE,
            {"max_in_flight": 3},
            "a limit of activations is for zb1p, zb2p, zbv, v-half, v-min, got one with gpipe",
        ),
        (Order.ZB1P, {"max_in_flight": 0}, "max_in_flight must be at least 1, got 0"),
        (Order.ZB1P, {}, "zb1p is made for what actions take; give times"),
    ],
)
def test_arguments_that_an_order_does_not_take_are_refused(
    order: Order, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        make_schedule(order, **{"n_devices": 4, "n_micro_batches": 8} | arguments)


def test_default_devices_of_stages() -> None:
    assert stage_devices_of(Order.ONE_F_ONE_B, 3) == (0, 1, 2)
    assert stage_devices_of(Order.V_MIN, 3) == (0, 1, 2, 2, 1, 0)


FIRST = """
import importlib, sys
for name in sys.argv[1:]:
    for loaded in [module for module in sys.modules if module.startswith("autoauto.schedule")]:
        del sys.modules[loaded]
    importlib.import_module(f"autoauto.schedule.orders.{name}")
"""


def test_the_file_of_an_order_can_be_imported_before_the_registry() -> None:
    """The registry imports the files of all orders, so none of them may import the registry."""
    names = [module.name for module in iter_modules(orders.__path__)]
    assert {"gpipe", "registry"} <= set(names)
    done = subprocess.run([sys.executable, "-c", FIRST, *names], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
