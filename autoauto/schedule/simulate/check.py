"""Whether a schedule can run: `check` finds missing, doubled and misplaced actions and deadlocks, and names them."""

from __future__ import annotations

from collections import deque
from itertools import chain

import numpy as np

from autoauto.records.arrays import IntArray
from autoauto.records.errors import BadInput
from autoauto.records.schedule import BACKWARD, CHECK, FORWARD, KINDS, WEIGHT, Schedule
from autoauto.schedule.orders.registry import spec_of


def check(schedule: Schedule) -> None:
    """Check that a schedule is complete and can run to its end.

    A forward waits for that of the stage before, a backward for that of the stage after or, on the last stage, for the
    forward, a weight gradient for its backward. With slots, an input from another device must have an earlier slot.

    Raises:
        BadInput: an action is missing, doubled or on a wrong device, or would wait forever; the message says who waits
            for whom.
    """
    _check_counts(schedule)
    _check_devices(schedule)
    needs = _needs(schedule)
    if schedule.slots is None:
        _check_progress(schedule, needs)
    else:
        _check_slots(schedule, schedule.slots, needs)


def _needs(schedule: Schedule) -> IntArray:
    """(size,) for every action's code the code of the action that it waits for; `size` where there is none.

    A backward needs no entry for its own forward: the chain over the last stage leads there.
    """
    codes = schedule.codes
    grid = np.arange(codes.size).reshape(len(KINDS), codes.n_stages, codes.n_numbers)
    needs = np.full_like(grid, codes.size)
    needs[FORWARD, 1:] = grid[FORWARD, :-1]
    needs[BACKWARD, -1] = grid[FORWARD, -1]
    needs[BACKWARD, :-1] = grid[BACKWARD, 1:]
    needs[WEIGHT] = grid[BACKWARD]
    return needs.ravel()


def _check_counts(schedule: Schedule) -> None:
    """Every forward occurs once; backwards all or not at all; weight gradients likewise, and only with backwards."""
    codes, everything = schedule.codes, np.concatenate(schedule.programs)
    assert ((everything >= 0) & (everything < codes.size)).all()
    counts = np.bincount(everything, minlength=codes.size).reshape(len(KINDS), codes.n_stages, codes.n_numbers)
    wanted = np.zeros_like(counts)
    wanted[FORWARD, :, : schedule.n_micro_batches] = 1
    wanted[BACKWARD, :, : schedule.n_micro_batches] = counts[BACKWARD : WEIGHT + 1].any()
    wanted[WEIGHT, :, : schedule.n_micro_batches] = counts[WEIGHT].any()
    wanted[CHECK] = np.minimum(counts[CHECK], 1)
    for code in np.flatnonzero(counts != wanted)[:1]:
        action = next(codes.actions(np.array([code])))
        raise BadInput(f"a schedule needs {action} {wanted.flat[code]} times, got it {counts.flat[code]} times")


def _check_devices(schedule: Schedule) -> None:
    codes, devices = schedule.codes, np.array(schedule.devices)
    for device, program in enumerate(schedule.programs):
        wrong = devices[codes.stages(program)] != device
        if schedule.order and spec_of(schedule.order).takes_stage_devices:  # a backward may be mapped to another device
            wrong &= codes.kinds(program) != BACKWARD
        for action in codes.actions(program[wrong][:1]):
            home = schedule.devices[action.stage]
            raise BadInput(f"a stage runs on its own device, got {action} on device {device}; move it to device {home}")


def _check_slots(schedule: Schedule, slots: tuple[IntArray, ...], needs: IntArray) -> None:
    codes = schedule.codes
    device_of, slot_of, index_of = np.empty((3, codes.size), dtype=np.int64)
    for device, (program, when) in enumerate(zip(schedule.programs, slots, strict=True)):
        if len(program) != len(when) or (np.diff(when) < 0).any():
            raise BadInput(f"the actions of a device need a slot each, and these must ascend, got others on {device}")
        device_of[program], slot_of[program], index_of[program] = device, when, np.arange(len(program))
    later = np.concatenate(schedule.programs)
    later = later[needs[later] < codes.size]
    earlier = needs[later]
    same_device = device_of[earlier] == device_of[later]
    good = np.where(same_device, index_of[earlier] < index_of[later], slot_of[earlier] < slot_of[later])
    for pair in np.stack((earlier, later), axis=1)[~good][:1]:
        first, second = codes.actions(pair)
        raise BadInput(f"{first} must be done a slot before {second}, got slots {slot_of[pair].tolist()}")


def _check_progress(schedule: Schedule, needs: IntArray) -> None:
    """Let every device run until an input is missing; the action that makes the input lets the device continue."""
    none = schedule.codes.size
    done = bytearray(none + 1)
    done[none] = True
    work = [zip(program.tolist(), needs[program].tolist(), strict=True) for program in schedule.programs]
    waits = [(none, none)] * len(work)
    waiting_device: dict[int, int] = {}
    ready = deque(range(len(work)))
    while ready:
        device = ready.popleft()
        for code, needed in chain([waits[device]], work[device]):
            if not done[needed]:
                waits[device] = code, needed
                waiting_device[needed] = device
                break
            done[code] = True
            if code in waiting_device:
                ready.append(waiting_device.pop(code))
    stuck = {device: codes for device, codes in enumerate(waits) if not done[codes[1]]}
    if stuck:
        raise BadInput(f"devices must not wait in a circle, got: {_circle(schedule, stuck)}; reorder one of them")


def _circle(schedule: Schedule, stuck: dict[int, tuple[int, int]]) -> str:
    """Who waits for whom: the action that a stuck device needs comes later in another device's program, or its own."""
    device, texts = min(stuck), dict[int, str]()
    while device not in texts:
        code, needed = stuck[device]
        later, earlier = schedule.codes.actions(np.array([code, needed]))
        texts[device] = f"device {device} waits for {earlier} before {later}"
        device = next(d for d, program in enumerate(schedule.programs) if needed in program)
    return ", ".join(list(texts.values())[list(texts).index(device) :])
