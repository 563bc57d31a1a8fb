"""Actions, their codes, and schedules."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoauto.records.errors import BadInput
from autoauto.records.schedule import (
    BACKWARD,
    CHECK,
    FORWARD,
    KINDS,
    WEIGHT,
    Action,
    ActionKind,
    Codes,
    Order,
    Schedule,
    StageTimes,
)


def single_device(text: str, n_stages: int = 1, m: int = 4) -> Schedule:
    """A schedule of some actions on one device."""
    codes = Codes(n_stages, m).encode([Action.parse(word) for word in text.split()])
    return Schedule(Order.INTERLEAVED, (0,) * n_stages, m, (codes,))


@given(st.integers(0, 10**6), st.sampled_from(ActionKind), st.integers(0, 10**6))
def test_actions_print_and_parse(stage: int, kind: ActionKind, micro_batch: int) -> None:
    action = Action(stage, kind, micro_batch)
    assert Action.parse(str(action)) == action


@pytest.mark.parametrize("text", ["", "F", "2F", "F0", "2X0", "2f0", "-2F0", "2F-0", "2F0.5", "2F0 ", "2FF0", "2F0B1"])
def test_other_texts_are_no_actions(text: str) -> None:
    with pytest.raises(BadInput, match="an action is written 2F0"):
        Action.parse(text)


@given(st.integers(1, 6), st.integers(1, 20), st.data())
def test_codes_and_actions_are_one_to_one(n_stages: int, m: int, data: st.DataObject) -> None:
    codes = Codes(n_stages, m)
    numbers = st.integers(0, codes.n_numbers - 1)
    action = st.builds(Action, st.integers(0, n_stages - 1), st.sampled_from(ActionKind), numbers)
    actions = data.draw(st.lists(action))
    rows = codes.encode(actions)
    assert list(codes.actions(rows)) == actions
    assert all(0 <= code < codes.size for code in rows.tolist())
    assert [KINDS[kind] for kind in codes.kinds(rows)] == [action.kind for action in actions]
    assert codes.stages(rows).tolist() == [action.stage for action in actions]
    assert codes.micro_batches(rows).tolist() == [action.micro_batch for action in actions]


def test_every_action_has_a_code_of_its_own() -> None:
    codes = Codes(3, 8)
    assert [str(action) for action in codes.actions(np.arange(codes.size))] == [
        f"{stage}{kind}{number}" for kind in "FBWC" for stage in range(3) for number in range(8)
    ]
    assert codes.of(WEIGHT, 2, [1, 0]).tolist() == codes.encode([Action.parse("2W1"), Action.parse("2W0")]).tolist()


def test_codes_have_room_for_checks_when_micro_batches_are_few() -> None:
    codes = Codes(4, 1)
    checks = [Action(3, ActionKind.CHECK, number) for number in range(6)]
    assert list(codes.actions(codes.encode(checks))) == checks
    assert set(codes.encode(checks)).isdisjoint(codes.of(CHECK, 2, range(6)))


def test_a_schedule_has_the_actions_of_its_programs() -> None:
    codes = Codes(2, 2)
    programs = tuple(codes.of(kind, stage, [0, 1]) for stage, kind in ((0, FORWARD), (1, FORWARD)))
    schedule = Schedule(Order.INFERENCE, (0, 1), 2, programs)
    assert (schedule.n_stages, schedule.n_devices, schedule.n_actions) == (2, 2, 4)
    assert [str(action) for action in schedule.actions(1)] == ["1F0", "1F1"]
    assert [schedule.has(kind) for kind in (FORWARD, BACKWARD, WEIGHT, CHECK)] == [True, False, False, False]


def test_every_device_has_a_stage_and_a_program() -> None:
    program = np.array([0])
    with pytest.raises(AssertionError):
        Schedule(Order.GPIPE, (0, 2), 1, (program, program))
    with pytest.raises(AssertionError):
        Schedule(Order.GPIPE, (0,), 0, (program,))


def test_stages_on_several_devices_take_micro_batches_in_turn() -> None:
    schedule = Schedule.of_inference((2, 1, 3), 4)
    assert (schedule.n_stages, schedule.n_devices, schedule.devices) == (3, 6, (0, 2, 3))
    assert [schedule.devices_of(stage) for stage in range(3)] == [range(2), range(2, 3), range(3, 6)]
    drawn = [" ".join(map(str, schedule.actions(device))) for device in range(6)]
    assert drawn == ["0F0 0F2", "0F1 0F3", "1F0 1F1 1F2 1F3", "2F0 2F3", "2F1", "2F2"]
    with pytest.raises(AssertionError):
        Schedule(Order.INFERENCE, (0, 1), 4, schedule.programs, n_replicas=(2, 1))


@pytest.mark.parametrize(
    ("text", "n_stages", "peak"),
    [
        ("0F0 0F1 0F2", 1, 1),  # inference
        ("0F0 0F1 0B0 0F2 0B1 0B2", 1, 2),
        ("0F0 0F1 0F2 0B2 0B1 0B0", 1, 3),
        ("0C0 0F0 0C1 0B0 0C2 0F1 0B1", 1, 1),
        ("0F0 0B0 0F1 0W0 0B1 0W1", 1, 2),  # the weight gradient ends the stash
        ("0F0 1F0 0F1 1B0 0B0 1F1 1B1 0B1", 2, 3),  # chunks count one by one
    ],
)
def test_the_peak_in_flight_counts_stashed_activations(text: str, n_stages: int, peak: int) -> None:
    assert single_device(text, n_stages).peak_in_flight == (peak,)


def test_times_have_their_number_of_stages() -> None:
    none = np.zeros(4, dtype=np.int64)
    assert StageTimes(none[1:], none[1:], none[1:], none, none[1:], none[1:], none[1:]).n_stages == 3
