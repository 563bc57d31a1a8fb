from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoauto.records.errors import BadInput
from autoauto.records.plans.timeline import Timeline
from autoauto.records.schedule import Action, ActionKind, Codes, Order, Schedule, StageTimes, Transfers
from autoauto.records.units import IntArray
from autoauto.schedule.orders.gpipe import gpipe
from autoauto.schedule.orders.inference import inference
from autoauto.schedule.orders.interleaved import interleaved
from autoauto.schedule.orders.one_f_one_b import one_f_one_b, with_bubble_checks
from autoauto.schedule.orders.popart import popart
from autoauto.schedule.simulate.dependencies import check, compute_ticks, exchange_ticks
from autoauto.schedule.simulate.simulate import simulate
from autoauto.schedule.times import stage_times
from tests.drawn import n_examples


def test_the_ticks_of_an_action_are_those_of_its_stage_and_kind() -> None:
    words = ("0C0 0F0 0C1 0B0 0W0", "1F0 1B0 1W0 1C0")
    encode = Codes(2, 1).encode
    programs = tuple(encode([Action.parse(word) for word in text.split()]) for text in words)
    forward, backward, weight = np.array([[10, 11], [20, 21], [30, 31]])
    links, checks = np.zeros(3, dtype=np.int64), (np.array([1, 2]), np.array([3]))
    forward_exchange, backward_exchange = np.array([[50, 51], [60, 61]])
    times = StageTimes(forward, backward, weight, links, links[1:], forward_exchange, backward_exchange, checks=checks)
    schedule = Schedule(Order.ZB1P, (0, 1), 1, programs)
    assert [row.tolist() for row in compute_ticks(schedule, times)] == [[1, 10, 2, 20, 30], [11, 21, 31, 3]]
    assert [row.tolist() for row in exchange_ticks(schedule, times)] == [[0, 50, 0, 60, 0], [51, 61, 0, 0]]


F, B, W, C = ActionKind
Spans = dict[Action, tuple[int, int]]


def equal_times(schedule: Schedule, forward: int, backward: int, comm: Fraction = Fraction(0)) -> StageTimes:
    columns = ([Fraction(value)] * schedule.n_devices for value in (forward, backward, 0, comm))
    return stage_times(schedule.devices, *columns, split_backward=False)


def spans(timeline: Timeline) -> Spans:
    """Start and stop of all actions, in ticks."""
    return {
        action: (start, stop)
        for device, (starts, stops) in enumerate(zip(timeline.starts, timeline.stops, strict=True))
        for action, start, stop in zip(timeline.schedule.actions(device), starts.tolist(), stops.tolist(), strict=True)
    }


# Closed forms.


def test_gpipe_and_1f1b_agree_with_the_vectors(vectors: Callable[[str], Any]) -> None:
    for case in vectors("schedules_1f1b_gpipe_interleaved")["cases"]:
        schedule = (gpipe if case["schedule"] == "gpipe" else one_f_one_b)(case["p"], case["m"])
        timeline = simulate(schedule, equal_times(schedule, case["tf"], case["tb"]))
        assert timeline.makespan_cycles == case["makespan"]
        assert list(timeline.bubble_cycles) == case["bubble_per_rank"]
        assert timeline.bubble_fraction == pytest.approx(case["bubble_fraction"], abs=1e-6)
        assert list(schedule.peak_in_flight) == case["peak_in_flight"]
        for device, gaps in enumerate(case.get("idle_gaps_per_rank", [])):
            assert [[start, stop - start] for start, stop in timeline.gaps(device).tolist()] == gaps
        for device, order in enumerate(case.get("order", [])):
            assert [str(action)[1:] for action in schedule.actions(device)] == order.split()


def test_interleaved_agrees_with_the_vectors(vectors: Callable[[str], Any]) -> None:
    for case in vectors("schedules_1f1b_gpipe_interleaved")["interleaved"]:
        schedule = interleaved(case["p"], case["m"], case["v"])
        timeline = simulate(schedule, equal_times(schedule, case["tf"], case["tb"]))
        assert timeline.makespan_cycles == case["makespan"]
        assert set(timeline.bubble_cycles) == {case["bubble_per_rank"]}


def test_lockstep_agrees_with_the_vectors(vectors: Callable[[str], Any]) -> None:
    for case in vectors("popart_pipeline_cycles_stash")["lockstep_total_time"]:
        p, m = case["ipus"], case["G"]
        schedule, other = popart(p, m, training=True), one_f_one_b(p, m)
        times = equal_times(schedule, case["tf"], case["tb"])
        assert simulate(schedule, times, Transfers.BARRIER).makespan_cycles == case["total"]
        assert simulate(other, times).makespan_cycles == case["equals_1f1b"]


@pytest.mark.parametrize("comm", [0, 1, 3])
def test_an_inference_pipeline_is_as_fast_as_its_slowest_part(comm: int) -> None:
    schedule = inference(4, 50)
    timeline = simulate(schedule, equal_times(schedule, 2, 0, Fraction(comm)))
    assert timeline.period_cycles == max(2, comm)
    assert timeline.makespan_cycles == 4 * 2 + 3 * comm + 49 * max(2, comm)


def test_checks_fill_the_bubbles_and_delay_nothing() -> None:
    schedule = one_f_one_b(4, 6)
    times = equal_times(schedule, 1, 2)
    checked, check_times = with_bubble_checks(schedule, times)
    plain, full = simulate(schedule, times), simulate(checked, check_times)
    assert full.makespan_cycles == plain.makespan_cycles == 27
    assert full.bubble_cycles == plain.bubble_cycles == (9,) * 4
    for starts, stops in zip(full.starts, full.stops, strict=True):
        assert [0, *stops.tolist()] == [*starts.tolist(), 27]


# Two simulators that share nothing with autoauto's, on random programs.


def needs(action: Action, last: int) -> Iterator[Action]:
    stage, kind, micro_batch = action
    if kind is F and stage > 0:
        yield Action(stage - 1, F, micro_batch)
    if kind is B:
        yield Action(stage + 1, B, micro_batch) if stage < last else Action(stage, F, micro_batch)
    if kind is W:
        yield Action(stage, B, micro_batch)


def random_schedule(random: Random, with_slots: bool) -> Schedule:
    """Any stages on any devices, in any order without a deadlock, with some checks."""
    n_stages, m = random.randint(1, 5), random.randint(1, 6)
    n_devices = random.randint(1, n_stages)
    devices = [*range(n_devices), *(random.randrange(n_devices) for _ in range(n_stages - n_devices))]
    random.shuffle(devices)
    kinds = random.choice(((F,), (F, B), (F, B, W)))
    home = {Action(s, kind, i): devices[s] for s in range(n_stages) for kind in kinds for i in range(m)}
    if W not in kinds and random.random() < 0.3:  # Poplar's orders may do so
        elsewhere = random.choices(range(n_devices), k=n_stages)
        home |= {action: elsewhere[action.stage] for action in home if action.kind is B}
    programs: list[list[tuple[Action, int]]] = [[] for _ in range(n_devices)]
    slot: dict[Action, int] = {}
    while len(slot) < len(home):
        ready = [a for a in home if a not in slot and all(need in slot for need in needs(a, n_stages - 1))]
        action = random.choice(ready)
        program = programs[home[action]]
        inputs = [slot[need] + (home[need] != home[action]) for need in needs(action, n_stages - 1)]
        slot[action] = max([0, *inputs, *(last for _, last in program[-1:])]) + random.choice((0, 0, 0, 1, 3))
        program.append((action, slot[action]))
    for device, number in product(range(n_devices), range(random.choice((0, 0, 2)))):
        index = random.randrange(len(programs[device]))
        programs[device].insert(index, (Action(devices.index(device), C, number), programs[device][index][1]))
    codes = Codes(n_stages, m)
    rows = tuple(np.array([number for _, number in program]) for program in programs)
    encoded = tuple(codes.encode([action for action, _ in program]) for program in programs)
    return Schedule(Order.GROUPED, tuple(devices), m, encoded, rows if with_slots else None)


def random_times(random: Random, n_stages: int) -> StageTimes:
    most = random.choice((1, 9, 10**9))

    def row(n: int = n_stages) -> IntArray:
        return np.array([random.randint(0, most) for _ in range(n)])

    checks = tuple(row(2) for _ in range(n_stages))
    return StageTimes(row(), row(), row(), row(n_stages + 1), row(), row(), row(), random.randint(1, 3), checks)


def ticks(times: StageTimes, action: Action) -> int:
    columns = {F: times.forward, B: times.backward, W: times.weight}
    if action.kind is C:
        return int(times.checks[action.stage][action.micro_batch])
    return int(columns[action.kind][action.stage])


def link_ticks(times: StageTimes, action: Action, user: Action) -> int:
    if action.kind is not user.kind:
        return 0
    return int(times.forward_links[user.stage] if user.kind is F else times.backward_links[action.stage])


def by_relaxation(schedule: Schedule, times: StageTimes) -> tuple[Spans, int]:
    """Delay actions until none starts too early."""
    programs = [list(schedule.actions(device)) for device in range(schedule.n_devices)]
    home = {action: device for device, program in enumerate(programs) for action in program}
    users: dict[Action, list[Action]] = defaultdict(list)
    for action in home:
        for need in needs(action, schedule.n_stages - 1):
            users[need].append(action)
    times_of: Spans = dict.fromkeys(home, (0, 0))
    while True:
        arrival: dict[Action, int] = defaultdict(int)
        link: dict[tuple[int, int], int] = defaultdict(int)
        to_host = 0
        for turn, action in enumerate(a for a in programs[schedule.devices[0]] if a.kind is F and a.stage == 0):
            arrival[action] = (turn + 1) * int(times.forward_links[0])
        for device, action in ((d, action) for d, program in enumerate(programs) for action in program):
            for user in users[action]:
                ends = device, home[user]
                if ends[0] != ends[1]:
                    link[ends] = max(link[ends], times_of[action][1]) + link_ticks(times, action, user)
                    arrival[user] = link[ends]
            if action.kind is F and action.stage == schedule.n_stages - 1:
                to_host = max(to_host, times_of[action][1]) + int(times.forward_links[-1])
        before = dict(times_of)
        for program in programs:
            now = 0
            for action in program:
                start = max(now, arrival[action])
                now = start + ticks(times, action)
                times_of[action] = (start, now)
        if times_of == before:
            return times_of, max([to_host, *(stop for _, stop in times_of.values())])


def earliest_slots(schedule: Schedule) -> dict[Action, int]:
    """The levels of the graph of all actions."""
    programs = [list(schedule.actions(device)) for device in range(schedule.n_devices)]
    home = {action: device for device, program in enumerate(programs) for action in program}
    before = {b: a for program in programs for a, b in pairwise(program)}
    level: dict[Action, int] = {}
    while len(level) < len(home):
        for action, device in home.items():
            inputs = [need for need in needs(action, schedule.n_stages - 1) if home[need] != device]
            inputs += [before[action]] if action in before else []
            if action not in level and all(need in level for need in inputs):
                level[action] = max([0, *(level[need] + 1 for need in inputs)])
    return level


def slot_by_slot(schedule: Schedule, times: StageTimes) -> tuple[Spans, int, list[list[list[int]]]]:
    """All compute, then all exchange."""
    programs = [list(schedule.actions(device)) for device in range(schedule.n_devices)]
    exchange = {F: times.forward_exchange, B: times.backward_exchange}
    if schedule.slots is None:
        slot = earliest_slots(schedule)
    else:
        rows = zip(programs, schedule.slots, strict=True)
        slot = {action: k for program, row in rows for action, k in zip(program, row.tolist(), strict=True)}
    times_of: Spans = {}
    exchanges: list[list[list[int]]] = [[] for _ in programs]
    now = 0
    for k in range(max(slot.values()) + 1):
        clocks = [now] * len(programs)
        lengths = [0] * len(programs)
        for device, program in enumerate(programs):
            for action in program:
                if slot[action] == k:
                    times_of[action] = (clocks[device], clocks[device] + ticks(times, action))
                    clocks[device] = times_of[action][1]
            exchanging = {(a.stage, a.kind) for a in program if a.kind in exchange and (schedule.slots or slot[a] == k)}
            lengths[device] = sum(int(exchange[kind][stage]) for stage, kind in exchanging)
        now = max(clocks)
        for device, length in enumerate(lengths):
            exchanges[device] += [[now, now + length]] if length else []
        now += max(lengths)
    return times_of, now, exchanges


@given(st.integers(0, 2**64))
@settings(deadline=None, derandomize=True, max_examples=n_examples(300))
def test_overlap_agrees_with_relaxation(seed: int) -> None:
    random = Random(seed)
    schedule = random_schedule(random, with_slots=random.random() < 0.1)
    times = random_times(random, schedule.n_stages)
    timeline = simulate(schedule, times)
    assert (spans(timeline), timeline.stop_tick) == by_relaxation(schedule, times)
    assert timeline.ticks_per_cycle == times.ticks_per_cycle
    assert all(len(exchanges) == 0 for exchanges in timeline.exchanges)


@given(st.integers(0, 2**64))
@settings(deadline=None, derandomize=True, max_examples=n_examples(300))
def test_barrier_agrees_with_a_simulation_slot_by_slot(seed: int) -> None:
    random = Random(seed)
    schedule = random_schedule(random, with_slots=random.random() < 0.5)
    times = random_times(random, schedule.n_stages)
    timeline = simulate(schedule, times, Transfers.BARRIER)
    exchanges = [rows.tolist() for rows in timeline.exchanges]
    assert (spans(timeline), timeline.stop_tick, exchanges) == slot_by_slot(schedule, times)


@given(st.integers(0, 2**64), st.sampled_from(Transfers))
@settings(deadline=None, derandomize=True)
def test_every_tick_of_a_device_is_work_exchange_or_bubble(seed: int, transfers: Transfers) -> None:
    random = Random(seed)
    schedule = random_schedule(random, with_slots=False)
    timeline = simulate(schedule, random_times(random, schedule.n_stages), transfers)
    assert timeline.makespan_cycles >= timeline.ideal_cycles
    for device in range(schedule.n_devices):
        idle = timeline.gaps(device)
        assert timeline.cycles(int((idle[:, 1] - idle[:, 0]).sum())) == timeline.bubble_cycles[device]


# Schedules that cannot run.


def programs(*texts: str, n_stages: int = 2, m: int = 2, slots: tuple[tuple[int, ...], ...] | None = None) -> Schedule:
    codes = Codes(n_stages, m)
    rows = tuple(codes.encode([Action.parse(word) for word in text.split()]) for text in texts)
    numbers = None if slots is None else tuple(map(np.array, slots))
    return Schedule(Order.ONE_F_ONE_B, tuple(range(n_stages)), m, rows, numbers)


BROKEN = {
    "circle": programs("0F0 0B0 0F1 0B1", "1F1 1F0 1B0 1B1"),
    "own input": programs("0F0 0F1 0B0 0B1", "1B0 1F0 1F1 1B1"),
    "weight first": programs("0F0 0W0 0B0", m=1, n_stages=1),
    "weight without backward": programs("0F0 0W0", m=1, n_stages=1),
    "missing": programs("0F0 0F1", "1F0"),
    "missing on a device of its own": programs("0F0 0F1 0B0 0B1", "1F0 1F1"),
    "twice": programs("0F0 0F1 0F1", "1F0 1F1"),
    "one micro-batch too many": programs("0F0 0F1 0F2", "1F0 1F1 1F2"),
    "wrong device": programs("1F0 1F1", "0F0 0F1"),
    "two devices": programs("0F0 0F1 1F1", "1F0"),
    "slots too early": programs("0F0 0F1", "1F0 1F1", slots=((0, 1), (0, 2))),
    "slots backwards": programs("0F0 0F1", "1F0 1F1", slots=((1, 0), (2, 2))),
    "slots of a circle": programs("0F0 0B0 0F1 0B1", "1F1 1F0 1B0 1B1", slots=((0, 1, 2, 3), (1, 2, 3, 4))),
}


@pytest.mark.parametrize("transfers", Transfers)
@pytest.mark.parametrize("name", BROKEN)
def test_schedules_that_cannot_run_are_refused(name: str, transfers: Transfers) -> None:
    schedule = BROKEN[name]
    with pytest.raises(BadInput):
        simulate(schedule, equal_times(schedule, 1, 1), transfers)


@given(st.integers(0, 2**64), st.sampled_from(Transfers))
@settings(deadline=None, derandomize=True, max_examples=n_examples(300))
def test_the_simulation_refuses_exactly_what_the_check_refuses(seed: int, transfers: Transfers) -> None:
    random = Random(seed)
    schedule = random_schedule(random, with_slots=random.random() < 0.5)
    rows = [row.tolist() for row in schedule.programs]
    row = random.choice(rows)
    a, b = (random.randrange(len(row)) for _ in range(2))
    match random.choice(("swap", "replace", "same")):
        case "swap":
            row[a], row[b] = row[b], row[a]
        case "replace":
            row[a] = row[b]
    changed = replace(schedule, programs=tuple(map(np.array, rows)))
    times = random_times(random, schedule.n_stages)
    assert refusal(lambda: simulate(changed, times, transfers)) == refusal(lambda: check(changed))


def refusal(action: Callable[[], object]) -> str:
    try:
        action()
    except BadInput as error:
        return str(error)
    return ""


def test_a_deadlock_is_named() -> None:
    with pytest.raises(BadInput, match=r"0 waits for 1B0.* 1 waits for 0F1"):
        simulate(BROKEN["circle"], equal_times(BROKEN["circle"], 1, 1))


def test_too_many_ticks_are_refused() -> None:
    schedule = inference(2, 3)
    times = equal_times(schedule, 2**53, 0)
    assert simulate(schedule, times).stop_tick == 4 * 2**53
    with pytest.raises(BadInput, match="less than 2\\*\\*62 ticks"):
        simulate(inference(2, 1000), times)
