"""Timelines in the terminal: pictures and the table of devices."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from re import finditer
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autoauto.records.plans.timeline import Timeline
from autoauto.records.schedule import Action, Codes, Order, Schedule
from autoauto.records.target import Origin
from autoauto.report.style import ACTIVITIES, EXCHANGE, IDLE
from autoauto.report.tables.plans import timeline_table
from autoauto.report.text import timeline_picture
from autoauto.schedule.times import with_step_end
from tests.drawn import n_examples

Text = Callable[..., str]
Simulated = Callable[..., Timeline]

GPIPE = """\
gpipe, 4 micro-batches, simulated
device 0  F0 F1 F2 F3 .  .  .  .  .  .  B3--- B2--- B1--- B0---
device 1  .  F0 F1 F2 F3 .  .  .  B3--- B2--- B1--- B0--- .  .
device 2  .  .  F0 F1 F2 F3 B3--- B2--- B1--- B0--- .  .  .  .
cycles    0     2     4     6     8     10    12    14    16
F forward  B backward  . idle"""

ONE_F_ONE_B = """\
1f1b, 4 micro-batches, simulated
device 0  F0 F1 F2 .  .  .  .  B0--- F3 B1--- .  B2--- .  B3---
device 1  .  F0 F1 .  .  B0--- F2 B1--- F3 B2--- .  B3--- .  .
device 2  .  .  F0 B0--- F1 B1--- F2 B2--- F3 B3--- .  .  .  .
cycles    0     2     4     6     8     10    12    14    16
F forward  B backward  . idle"""

NO_BLANKS = """\
1f1b, 4 micro-batches, simulated
device 0  F0F1F2. . . . B0--F3B1--. B2--. B3--
device 1  . F0F1. . B0--F2B1--F3B2--. B3--. .
device 2  . . F0B0--F1B1--F2B2--F3B3--. . . .
cycles    0   2   4   6   8   10  12  14  16
F forward  B backward  . idle"""

NO_NAMES = """\
1f1b, 4 micro-batches, simulated
device 0  FFF....BBFBB.BB.BB
device 1  .FF..BBFBBFBB.BB..
device 2  ..FBBFBBFBBFBB....
cycles    0    5    10   15
F forward  B backward  . idle
cycles a column: 1, shown is what takes most
of them"""

UNEQUAL = """\
1f1b, 4 micro-batches, simulated
device 0  F0F1F2..........B0---F3B1---..B2---..B3---
device 1  ..F0F1.....B0---F2B1---F3B2---..B3---.....
device 2  ....F0B0---F1B1---F2B2---F3B3---..........
cycles    0          5,000       10,000     15,000
F forward  B backward  . idle"""

EXCHANGES = """\
gpipe, 2 micro-batches, simulated
device 0  F0 xx F1 xx .  .  .  .  .  B1--- xx B0--- xx
device 1  .  .  F0 xx F1 xx B1--- xx B0--- xx .  .  .
cycles    0     2     4     6     8     10    12    14
F forward  B backward  x exchange  . idle"""

CHUNKS = """\
interleaved, 2 micro-batches, simulated
device 0  0F0 0F1 2F0 2F1 .   .   2B0---- .   2B1---- 0B0---- 0B1----
device 1  .   1F0 1F1 3F0 3B0---- 3F1 3B1---- 1B0---- 1B1---- .   .
cycles    0       1       2       3       4       5       6       7
F forward  B backward  . idle"""

MEASURED = """\
zb1p, 1 micro-batch, measured
device 0  .  F0--- B0 W0--- xx C0 .
cycles    0           1           2
F forward  B backward  W weight gradient  C check  x exchange  . idle"""

TABLE = """\
Devices, simulated
          busy  exchange  bubble          peak in    stash
device  cycles    cycles  cycles  bubble   flight  entries
──────────────────────────────────────────────────────────
0            6         4       5  33.3 %        2        2
1            6         4       5  33.3 %        2        0
makespan: 15 cycles, ideal: 6
steady period: 3.0 cycles a micro-batch
bubble: 33.3 % of all devices' time"""

STEP_END = """\
gpipe, 2 micro-batches, simulated
device 0  F0 F1 .  .  .  B1--- B0--- RRRRR UU
device 1  .  F0 F1 B1--- B0--- RRRRRRRR UU .
cycles    0     2     4     6     8     10
F forward  B backward  R all-reduce  U update  . idle"""

LETTERS = [activity.letter for activity in ACTIVITIES]

ORDERS = (Order.INFERENCE, Order.GPIPE, Order.ONE_F_ONE_B, Order.INTERLEAVED, Order.POPART)
SIZES = (st.sampled_from(ORDERS), st.sampled_from([1, 2, 4]), st.sampled_from([8, 24]))
CYCLES = (st.sampled_from(["0", "1", "3/2", "7", "1003"]),) * 3
SMALL = (st.sampled_from("123"), st.sampled_from("123"), st.sampled_from("012"))


def one_device(*spans: tuple[str, int, int], exchange: tuple[int, int], stop: int) -> Timeline:
    """A measured timeline of one device, with four ticks a cycle."""
    codes = Codes(n_stages=1, n_micro_batches=1)
    program = codes.encode([Action.parse(action) for action, _, _ in spans])
    starts, stops = (np.array([span[column] for span in spans]) for column in (1, 2))
    schedule = Schedule(Order.ZB1P, (0,), 1, (program,))
    return Timeline(schedule, (starts,), (stops,), (np.array([exchange]),), stop, 4, Origin.MEASURED)


def rows(timeline: Timeline, width: int) -> list[str]:
    """The lines of the devices without their names."""
    n_devices = timeline.schedule.n_devices
    lines = timeline_picture(timeline, width).plain.splitlines()[1 : n_devices + 1]
    return [line[len(f"device {n_devices - 1}  ") :] for line in lines]


def test_the_end_of_a_step_is_drawn(text: Text, simulated: Simulated) -> None:
    ended = with_step_end(simulated(Order.GPIPE, 2, 2), (2, 3), (1, 1), barrier=False)
    assert text(timeline_picture(ended, 80)) == STEP_END
    assert "step: fill 1, main 6, flush 2, all-reduce 2, update 1 cycles" in text(timeline_table(ended, (2, 2)))


def test_gpipe_is_drawn(simulated: Simulated, text: Text) -> None:
    assert text(timeline_picture(simulated(Order.GPIPE, 3, 4), 80)) == GPIPE


@pytest.mark.parametrize(("width", "drawn"), [(80, ONE_F_ONE_B), (64, ONE_F_ONE_B), (63, NO_BLANKS), (45, NO_NAMES)])
def test_1f1b_is_drawn_as_wide_as_fits(simulated: Simulated, text: Text, width: int, drawn: str) -> None:
    assert text(timeline_picture(simulated(Order.ONE_F_ONE_B, 3, 4), width), width) == drawn


def test_where_units_are_too_narrow_bars_have_the_length_of_their_actions(simulated: Simulated, text: Text) -> None:
    timeline = simulated(Order.ONE_F_ONE_B, 3, 4, "1001", "2003")
    assert text(timeline_picture(timeline, 52), 52) == UNEQUAL


def test_exchanges_are_drawn(simulated: Simulated, text: Text) -> None:
    assert text(timeline_picture(simulated(Order.GPIPE, 2, 2, comm="1", barrier=True), 80)) == EXCHANGES


def test_chunks_name_their_stage(simulated: Simulated, text: Text) -> None:
    assert text(timeline_picture(simulated(Order.INTERLEAVED, 2, 2), 80)) == CHUNKS


def test_a_stage_whose_backward_is_elsewhere_is_named(simulated: Simulated) -> None:
    timeline = simulated(Order.GPIPE, 2, 1)
    programs = tuple(
        timeline.schedule.codes.encode([Action.parse(text) for text in program.split()])
        for program in ("0F0 1B0", "1F0 0B0")
    )
    crossed = replace(timeline, schedule=replace(timeline.schedule, programs=programs))
    assert rows(crossed, 80)[0].startswith("0F0 .   .   .   1B0----")


def test_every_kind_is_drawn(text: Text) -> None:
    spans = [("0F0", 1, 3), ("0B0", 3, 4), ("0W0", 4, 6), ("0C0", 7, 8)]
    drawn = text(timeline_picture(one_device(*spans, exchange=(6, 7), stop=9), 80))
    assert drawn == MEASURED


def test_bars_have_the_colour_of_their_kind(simulated: Simulated) -> None:
    picture = timeline_picture(simulated(Order.GPIPE, 2, 2, comm="1", barrier=True), 80)
    colours = {(picture.plain[span.start], str(span.style).removeprefix("black on ")) for span in picture.spans}
    assert colours == {(ACTIVITIES[activity].letter, ACTIVITIES[activity].colour) for activity in (0, 1, EXCHANGE)}


@settings(deadline=None)
@given(st.tuples(*SIZES, *CYCLES, st.booleans()), st.integers(1, 200))
def test_a_picture_is_not_wider_than_allowed(simulated: Simulated, case: tuple[Any, ...], width: int) -> None:
    timeline = simulated(*case)
    assume(timeline.stop_tick > 0)
    drawn = rows(timeline, width)
    assert len({len(row) for row in drawn}) == 1
    assert len(drawn[0]) <= max(1, width - len("device 0  "))
    axis = timeline_picture(timeline, width).plain.splitlines()[1 + len(drawn)]
    assert len(axis) <= len("device 0  ") + len(drawn[0])


@settings(deadline=None)
@given(st.tuples(*SIZES, *SMALL, st.booleans()))
def test_a_wide_picture_has_all_names_starts_and_stops(simulated: Simulated, case: tuple[Any, ...]) -> None:
    timeline = simulated(*case)
    drawn, n_hidden = rows(timeline, 8000), 0 if case[0] is Order.INTERLEAVED else 1  # a stage has one digit
    scale = Fraction(timeline.stop_tick, len(drawn[0]))
    for device, row in enumerate(drawn):
        bars = [(bar.start() * scale, (bar.end() + 1) * scale, bar[0].rstrip("-x")) for bar in finditer("[^ .]+", row)]
        times = zip(timeline.starts[device], timeline.stops[device], timeline.schedule.actions(device), strict=True)
        actions = [(start, stop, str(action)[n_hidden:]) for start, stop, action in times]
        assert bars == sorted(actions + [(start, stop, "") for start, stop in timeline.exchanges[device].tolist()])


@settings(max_examples=n_examples(30), deadline=None)
@given(st.tuples(*SIZES, *CYCLES, st.booleans()), st.integers(12, 60))
def test_without_names_a_column_shows_the_activity_with_most_of_its_time(
    simulated: Simulated, case: tuple[Any, ...], width: int
) -> None:
    timeline = simulated(*case)
    assume("cycles a column" in timeline_picture(timeline, width).plain)
    for device, row in enumerate(rows(timeline, width)):
        spans = spans_of(timeline, device, len(row))
        for column, letter in enumerate(row):
            ticks = ticks_in(spans, column * timeline.stop_tick, (column + 1) * timeline.stop_tick)
            assert ticks[LETTERS.index(letter)] == pytest.approx(max(ticks))


def spans_of(timeline: Timeline, device: int, scale: int) -> list[tuple[int, int, int]]:
    """Activity, start and stop of all actions and exchanges of a device, in ticks times `scale`."""
    kinds = timeline.schedule.codes.kinds(timeline.schedule.programs[device])
    actions = np.stack((kinds, timeline.starts[device] * scale, timeline.stops[device] * scale), axis=1)
    exchanges = [(EXCHANGE, start * scale, stop * scale) for start, stop in timeline.exchanges[device].tolist()]
    return [*map(tuple, actions.tolist()), *exchanges]


def ticks_in(spans: list[tuple[int, int, int]], start: int, stop: int) -> list[int]:
    """The ticks of every activity between `start` and `stop`."""
    ticks = [0] * len(ACTIVITIES)
    for activity, first, last in spans:
        ticks[activity] += max(min(stop, last) - max(start, first), 0)
    ticks[IDLE] = stop - start - sum(ticks)
    return ticks


def test_a_timeline_without_time_has_no_columns(simulated: Simulated) -> None:
    timeline = simulated(Order.GPIPE, 2, 2, "0", "0")
    assert rows(timeline, 80) == ["", ""]
    assert len(rows(timeline, 11)[0]) == 1


def test_the_table_is_drawn(simulated: Simulated, text: Text) -> None:
    timeline = simulated(Order.GPIPE, 2, 2, comm="1", barrier=True)
    assert text(timeline_table(timeline, [2, 0])) == TABLE


def test_the_table_says_that_checks_are_idle(text: Text) -> None:
    table = text(timeline_table(one_device(("0F0", 0, 4), ("0C0", 4, 8), exchange=(8, 12), stop=12), [0]))
    assert table.startswith("Devices, measured\n")
    assert "\n0            1         1       1  33.3 %        1        0\n" in table
    assert table.endswith("bubble: 33.3 % of all devices' time, checks count as idle")
