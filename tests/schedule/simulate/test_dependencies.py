from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autoauto.records.errors import BadInput
from autoauto.records.schedule import Action, Codes, Order, Schedule
from autoauto.schedule.orders.one_f_one_b import one_f_one_b
from autoauto.schedule.orders.popart import popart
from autoauto.schedule.simulate.dependencies import in_order, needs, refuse, row_devices


def schedule(*texts: str, devices: tuple[int, ...]) -> Schedule:
    """One micro-batch on two stages."""
    encode = Codes(2, 1).encode
    return Schedule(Order.GROUPED, devices, 1, tuple(encode(list(map(Action.parse, text.split()))) for text in texts))


SPLIT = schedule("0F0 1F0 1B0 1W0 0B0 0W0", devices=(0, 0))
ELSEWHERE = schedule("0F0 1B0", "1F0 0B0", devices=(0, 1))


def test_weight_gradients_follow_their_backwards() -> None:
    before, after = (rows.tolist() for rows in needs(SPLIT))
    names = ["0F", "1F", "0B", "1B", "0W", "1W"]
    pairs = {(names[a], names[b]) for a, b in zip(before, after, strict=True)}
    assert pairs == {("0F", "1F"), ("1F", "1B"), ("1B", "0B"), ("0B", "0W"), ("1B", "1W")}


def test_a_backward_may_be_on_another_device() -> None:
    assert row_devices(ELSEWHERE).tolist() == [0, 1, 1, 0, -1, -1, -1, -1]
    assert in_order(ELSEWHERE)


def test_only_inputs_from_the_device_itself_must_come_first() -> None:
    assert in_order(SPLIT)
    assert not in_order(schedule("0F0 1F0 1B0 0B0 1W0", devices=(0, 0)))  # 0W0 is missing
    assert not in_order(schedule("0F0 1F0 0B0 1B0", devices=(0, 0)))
    circle = schedule("0B0 0F0", "1F0 1B0", devices=(0, 1))
    assert in_order(circle)  # 0B0 waits for the other device, which the simulation finds out


def test_slots_must_let_inputs_arrive() -> None:
    good = popart(3, 5, training=True)
    assert good.slots is not None
    assert in_order(good)
    late = (good.slots[0] + 1, *good.slots[1:])
    assert not in_order(replace(good, slots=late))
    assert in_order(replace(good, slots=None))
    assert not in_order(replace(good, slots=(good.slots[0][::-1], *(slots + 9 for slots in good.slots[1:]))))


def test_a_refusal_names_the_missing_action() -> None:
    good = one_f_one_b(2, 2)
    with pytest.raises(BadInput, match="0F1"):
        refuse(replace(good, programs=(np.delete(good.programs[0], 1), good.programs[1])))
    with pytest.raises(AssertionError):
        refuse(good)
