from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from autoauto.records.errors import BadInput
from autoauto.records.schedule import Action, Codes, Order, Schedule
from autoauto.schedule.orders.gpipe import gpipe
from autoauto.schedule.orders.one_f_one_b import one_f_one_b
from autoauto.schedule.orders.popart import popart
from autoauto.schedule.simulate.dependencies import check


def parse(
    *programs: str, m: int = 1, devices: Sequence[int] | None = None, slots: Sequence[Sequence[int]] | None = None
) -> Schedule:
    """A schedule from "0F0 0B0" for every device."""
    devices = tuple(range(len(programs))) if devices is None else tuple(devices)
    codes = Codes(len(devices), m)
    encoded = tuple(codes.encode([Action.parse(text) for text in program.split()]) for program in programs)
    when = None if slots is None else tuple(np.array(row) for row in slots)
    return Schedule(Order.GPIPE, devices, m, encoded, when)


@pytest.mark.parametrize(
    "schedule",
    [
        parse("0F0", "1F0"),
        parse("0F0 0B0", "1F0 1B0"),
        parse("0F0 0B0 0W0", "1F0 1B0 1W0"),
        parse("0C0 0F0 0C1 0B0", "1F0 1C0 1B0"),
        parse("0F0 2F0 2B0 0B0", "1F0 1B0", devices=(0, 1, 0)),
        parse("0F0 0F1 0B1 0B0", "1F1 1F0 1B1 1B0", m=2),
        parse("0F0 0B0", "1F0 1B0", slots=[[0, 2], [1, 1]]),
    ],
)
def test_schedules_that_can_run_pass(schedule: Schedule) -> None:
    check(schedule)
    assert runs_through(schedule)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (parse("0F0", "1F0 1B0"), "a schedule needs 0B0 1 times, got it 0 times"),
        (parse("0F0", ""), "needs 1F0 1 times, got it 0"),
        (parse("0F0 0F0", "1F0"), "needs 0F0 1 times, got it 2"),
        (parse("0F0 0F1", "1F0"), "needs 0F1 0 times, got it 1"),
        (parse("0F0 0W0", "1F0 1W0"), "needs 0B0 1 times, got it 0"),
        (parse("0F0 0B0 0W0", "1F0 1B0"), "needs 1W0 1 times, got it 0"),
        (parse("0F0 0C0 0C0", "1F0"), "needs 0C0 1 times, got it 2"),
        (parse("0F0 1F0", "2F0", devices=(0, 1, 1)), "its own device, got 1F0 on device 0; move it to device 1"),
        (parse("0F0 0B0 1B0", "1F0"), "its own device, got 1B0 on device 0"),
        (parse("0B0 0F0"), "got: device 0 waits for 0F0 before 0B0; reorder"),
        (parse("0F0 0W0 0B0"), "device 0 waits for 0B0 before 0W0"),
        (parse("1F0 0F0", devices=(0, 0)), "device 0 waits for 0F0 before 1F0"),
        (
            parse("0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1", m=2),
            "got: device 0 waits for 1B0 before 0B0, device 1 waits for 0F1 before 1F1; reorder one of them",
        ),
        (
            parse("0F0 0B0", "1F0 1B0", slots=[[0, 1], [1, 1]]),
            r"1B0 must be done a slot before 0B0, got slots \[1, 1\]",
        ),
        (
            parse("0F0 0B0", "1F0 1B0", slots=[[1, 3], [1, 2]]),
            r"0F0 must be done a slot before 1F0, got slots \[1, 1\]",
        ),
        (parse("0B0 0F0", slots=[[0, 0]]), "0F0 must be done a slot before 0B0"),
        (parse("0F0 0B0", slots=[[1, 0]]), "these must ascend, got others on 0"),
        (parse("0F0 0B0", slots=[[0]]), "need a slot each"),
    ],
)
def test_the_message_names_what_is_wrong(schedule: Schedule, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        check(schedule)


def test_devices_outside_the_circle_are_not_named() -> None:
    with pytest.raises(BadInput, match="got: device 2 waits for 2F0 before 3F0; reorder"):
        check(parse("0F0 4F0", "1F0", "3F0 2F0", devices=(0, 1, 2, 2, 0)))


def runs_through(schedule: Schedule) -> bool:
    """Whether some device can always continue: the definition, one action at a time."""
    last, done = schedule.n_stages - 1, set[str]()
    queues = [list(map(str, schedule.actions(device))) for device in range(schedule.n_devices)]
    while any(queues):
        for queue in filter(None, queues):
            stage, kind, m = Action.parse(queue[0])
            needs = {
                "F": [f"{stage - 1}F{m}"] if stage else [],
                "B": [f"{stage}F{m}"] + ([f"{stage + 1}B{m}"] if stage < last else []),
                "W": [f"{stage}B{m}"],
                "C": [],
            }[kind]
            if done.issuperset(needs):
                done.add(queue.pop(0))
                break
        else:
            return False
    return True


def test_the_check_agrees_with_the_definition_on_shuffled_programs() -> None:
    random, n_good = Random(4), 0
    for _ in range(400):
        schedule = random.choice([gpipe, one_f_one_b])(random.randint(2, 4), random.randint(1, 4))
        programs = [program.copy() for program in schedule.programs]
        for _ in range(random.randint(0, 3)):
            program = random.choice(programs)
            first = random.randrange(len(program) - 1)
            program[first : first + 2] = program[first : first + 2][::-1].copy()
        changed = replace(schedule, programs=tuple(programs))
        if runs_through(changed):
            check(changed)
            n_good += 1
        else:
            with pytest.raises(BadInput, match="wait in a circle"):
                check(changed)
    assert 100 < n_good < 300


def test_inputs_from_other_devices_need_an_earlier_slot() -> None:
    schedule = popart(3, 6, training=True)
    check(schedule)
    assert schedule.slots is not None
    late = tuple(slots + (device == 1) for device, slots in enumerate(schedule.slots))
    with pytest.raises(BadInput, match="must be done a slot before"):
        check(replace(schedule, slots=late))
