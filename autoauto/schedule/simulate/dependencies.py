"""Rows of actions: what they wait for (`needs`, `in_order`) and how long they take (`compute_ticks`).

A row is all actions of one kind on one stage: row `kind * S + stage` has the codes from `row * n_numbers` on. All
actions of a row run on one device; Poplar's orders may run a stage's backward on another device than its forward.

Whether a schedule can run: `check` finds missing, doubled and misplaced actions and deadlocks, and names them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple, NoReturn

import numpy as np

from autoauto.records.errors import BadInput
from autoauto.records.schedule import BACKWARD, CHECK, FORWARD, KINDS, WEIGHT, Schedule, StageTimes
from autoauto.records.units import BoolArray, IntArray
from autoauto.schedule.orders.registry import spec_of


def check(schedule: Schedule) -> None:
    """Check that a schedule is complete and can run to its end.

    A forward waits for that of the stage before, a backward for that of the stage after or, on the last stage, for the
    forward, a weight gradient for its backward. With slots, an input from another device must have an earlier slot.
    Raises BadInput if an action is missing, doubled or on a wrong device, or would wait forever; the message says who
    waits for whom.
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
        device_of[program] = device
        slot_of[program] = when
        index_of[program] = np.arange(len(program))
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
    waits = [(none, none)] * len(work)  # the action that a device came to last, and what it waits for
    waiting_device: dict[int, int] = {}
    ready = deque(range(len(work)))
    while ready:
        device = ready.popleft()
        # The iterator has gone past the action that had to wait: it comes first now.
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


class Needs(NamedTuple):
    """Pairs of rows: an action of row `after[i]` needs the action of row `before[i]` on the same micro-batch."""

    before: IntArray
    after: IntArray


def needs(schedule: Schedule) -> Needs:
    """Every action's inputs: a micro-batch goes forward through all stages and back, a WEIGHT follows its BACKWARD.

    >>> from autoauto.schedule.orders.one_f_one_b import one_f_one_b
    >>> [rows.tolist() for rows in needs(one_f_one_b(2, 4))]  # 0F 1F 1B 0B
    [[0, 1, 3], [1, 3, 2]]
    """
    stages = np.arange(schedule.n_stages)
    forward, backward, weight = (kind * schedule.n_stages + stages for kind in (FORWARD, BACKWARD, WEIGHT))
    path = np.concatenate((forward, backward[::-1])) if schedule.has(BACKWARD) else forward
    if not schedule.has(WEIGHT):
        return Needs(path[:-1], path[1:])
    return Needs(np.concatenate((path[:-1], backward)), np.concatenate((path[1:], weight)))


def row_devices(schedule: Schedule) -> IntArray:
    """The device of every row, (kinds * S,); -1 where a schedule has no such actions."""
    devices = np.full(len(KINDS) * schedule.n_stages, -1, dtype=np.int64)
    for device, program in enumerate(schedule.programs):
        devices[program // schedule.codes.n_numbers] = device
    return devices


def in_order(schedule: Schedule) -> bool:
    """True if every action occurs once, after its inputs from its own device.

    Where the schedule has slots, inputs from other devices must have earlier ones. Without slots this function does not
    check them: the simulation finds a deadlock by itself.
    """
    indices = _action_table(schedule, [np.arange(len(program)) for program in schedule.programs])
    devices, (before, after) = row_devices(schedule), needs(schedule)
    n_numbers = schedule.codes.n_numbers
    whole = all((devices[program // n_numbers] == device).all() for device, program in enumerate(schedule.programs))
    on_own_devices = tuple(devices[: schedule.n_stages].tolist()) == schedule.devices
    if not (_complete(schedule, indices >= 0) and whole and on_own_devices):
        return False
    near, micro_batches = devices[before] == devices[after], slice(schedule.n_micro_batches)
    ordered = bool((indices[before[near], micro_batches] < indices[after[near], micro_batches]).all())
    if schedule.slots is None:
        return ordered
    slots = _action_table(schedule, schedule.slots)
    arrived = bool((slots[before[~near], micro_batches] < slots[after[~near], micro_batches]).all())
    return ordered and arrived and all((np.diff(row) >= 0).all() for row in schedule.slots)


def refuse(schedule: Schedule) -> NoReturn:
    """Raise BadInput that says why a schedule cannot run, and who waits for whom."""
    check(schedule)
    raise AssertionError("a schedule that passes its check can run")


def _action_table(schedule: Schedule, columns: Sequence[IntArray]) -> IntArray:
    """The entry of `columns` for every action, (rows, numbers); -1 where there is no such action."""
    codes = schedule.codes
    table = np.full(codes.size, -1, dtype=np.int64)
    for program, column in zip(schedule.programs, columns, strict=True):
        table[program] = column
    return table.reshape(-1, codes.n_numbers)


def _complete(schedule: Schedule, occurs: BoolArray) -> bool:
    """True if no action occurs twice, and every kind of work occurs for all stages and micro-batches or for none."""
    work = occurs.reshape(len(KINDS), schedule.n_stages, -1)[:CHECK]
    some = [bool(kind.any()) for kind in work]
    wanted = np.zeros_like(work)
    wanted[some, :, : schedule.n_micro_batches] = True
    once = int(occurs.sum()) == schedule.n_actions
    return once and np.array_equal(work, wanted) and some[FORWARD] and some[BACKWARD] >= some[WEIGHT]


def compute_ticks(schedule: Schedule, times: StageTimes) -> list[IntArray]:
    """Ticks of every action, for every device in the order of its program."""
    table = _kind_table(schedule, {FORWARD: times.forward, BACKWARD: times.backward, WEIGHT: times.weight})
    for stage, ticks in enumerate(times.checks):
        table[CHECK, stage, : len(ticks)] = ticks
    return [table.ravel()[program] for program in schedule.programs]


def exchange_ticks(schedule: Schedule, times: StageTimes) -> list[IntArray]:
    """Ticks of the exchange that follows every action, for every device in the order of its program."""
    table = _kind_table(schedule, {FORWARD: times.forward_exchange, BACKWARD: times.backward_exchange})
    return [table.ravel()[program] for program in schedule.programs]


def _kind_table(schedule: Schedule, columns: Mapping[int, IntArray]) -> IntArray:
    """The ticks of all codes, (kinds, S, numbers), from a column (S,) for every kind; 0 for other kinds."""
    table = np.zeros((len(KINDS), schedule.n_stages, schedule.codes.n_numbers), dtype=np.int64)
    for kind, column in columns.items():
        table[kind] = column[:, None]
    return table
