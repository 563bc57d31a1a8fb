from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from autoauto.records.schedule import Order
from autoauto.schedule.poplar import compute_offsets, execution_order, poplar
from autoauto.schedule.poplar_strings import Lane, ramp_down, ramp_up, steady

ABCD = ("abcd", (0, 1, 2, 3))


def test_the_plugins_strings(vectors: Callable[[str], Any]) -> None:
    strings = vectors("tf_poplar_schedules")["schedule_strings_stages_abcd_offsets_0123"]
    assert steady(*ABCD) == strings["steady"]
    assert ramp_up(*ABCD) == strings["ramp_up"]
    assert ramp_down(*ABCD) == strings["ramp_down"]
    assert ramp_up(*ABCD, recompute=True) == strings["ramp_up_recompute_2bwd"]
    assert ramp_down(*ABCD, recompute=True) == strings["ramp_down_recompute_2bwd"]
    overlapped = strings["overlap_io"]
    assert steady(*ABCD, overlap_io=True) == overlapped["steady"]
    assert {lane.name.lower(): ramp_up(*ABCD, lane=lane) for lane in Lane} == overlapped["ramp_up"]
    assert {lane.name.lower(): ramp_down(*ABCD, lane=lane) for lane in Lane} == overlapped["ramp_down"]


@pytest.mark.parametrize("order", [Order.GROUPED, Order.POPLAR_INTERLEAVED, Order.SEQUENTIAL])
@pytest.mark.parametrize("n_devices", [2, 3, 4])
def test_they_spell_the_order_of_execution(order: Order, n_devices: int) -> None:
    devices = [*range(n_devices), *reversed(range(n_devices))]
    offsets = compute_offsets(order, devices)
    schedule = poplar(order, devices, 4 * len(offsets), training=True)
    letters = "abcdefgh"[: len(devices)]
    loop = steady(letters, offsets, grouped=order is Order.GROUPED)
    spelt = (ramp_up(letters, offsets) + 3 * loop + ramp_down(letters, offsets)).replace(".", "")
    assert spelt == "".join(letters[number] for number in execution_order(schedule))


def test_recomputation_in_an_interleaved_ramp_up() -> None:
    """Stages 0 to 3 and backwards 4 to 7, micro-batches two timesteps apart.

    forwards run       0 1 20 31 20 31 20 31
    backwards run      . . .  .  4  5  64 75
    recomputations     . . .  3  2  31 20 31

    Stage 3 runs just before every backward 4; of stage 0, only the last is followed by no other before backward 7.
    """
    string = ramp_up("01234567", (0, 2, 4, 6), recompute=True)
    timesteps = [string[i : i + 4].replace(".", "") for i in range(0, len(string), 4)]
    assert timesteps == ["", "", "", "3", "2", "31", "20", "31"]
