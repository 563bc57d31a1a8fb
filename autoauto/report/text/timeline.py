"""A timeline in the terminal: a row of characters for every device, and a table of its cycles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count, groupby
from typing import NamedTuple

import numpy as np
from rich.table import Table
from rich.text import Text

from autoauto.records.schedule import CHECK, KINDS, Action, IntArray, Schedule
from autoauto.records.timeline import Timeline
from autoauto.report.style import format_value, plain_table


class Activity(NamedTuple):
    """How something that a device does is shown."""

    letter: str
    name: str
    colour: str


ACTIVITIES = (
    Activity("F", "forward", "#56B4E9"),
    Activity("B", "backward", "#E69F00"),
    Activity("W", "weight gradient", "#009E73"),
    Activity("C", "check", "#CC79A7"),
    Activity("x", "exchange", "#999999"),
    Activity(".", "idle", ""),
)
"""By index into `KINDS`, then exchange and idle; colours that the colour-blind tell apart (Okabe and Ito's)."""

EXCHANGE, IDLE = len(KINDS), len(KINDS) + 1


class _Canvas(NamedTuple):
    """How ticks become columns.

    Attributes:
        n_columns, stop_tick: so many columns show so many ticks.
        cell: columns that show one unit, which divides every duration; 1 where units have no equal width.
        gap: blank columns after every bar; None where there is no room for names.
    """

    n_columns: int
    stop_tick: int
    cell: int
    gap: int | None

    def column(self, tick: int) -> int:
        """The column in which something that starts at this tick begins."""
        return tick * self.n_columns // max(self.stop_tick, 1)


def timeline_picture(timeline: Timeline, width: int) -> Text:
    """A row a device, time from left to right, in lines of at most `width` columns.

    Where there is room, every action is a bar that begins with its kind and micro-batch, and with its stage where
    devices have several. Where every action lasts whole units of time and they fit, every unit has the same width.
    Else a column shows what takes most of its time.
    """
    schedule = timeline.schedule
    names = [*(f"device {device}" for device in range(schedule.n_devices)), "cycles"]
    longest = max(map(len, names)) + 2
    canvas = _canvas(timeline, max(1, width - longest))
    picture = Text(f"{title(timeline)}\n")
    for device in range(schedule.n_devices):
        picture.append(names[device].ljust(longest))
        pieces = _shares(timeline, device, canvas) if canvas.gap is None else _bars(timeline, device, canvas)
        for text, activity in pieces:
            colour = ACTIVITIES[activity].colour
            picture.append(text, f"black on {colour}" if colour else "")
        picture.append("\n")
    picture.append(f"{names[-1]:{longest}}{_axis(timeline, canvas)}\n")
    return picture.append(_legend(timeline, canvas))


def shows_stage(schedule: Schedule) -> bool:
    """Whether an action is written "2F0", because its device's number does not say its stage; "F0" where it does."""
    stages = map(schedule.codes.stages, schedule.programs)
    return any(bool((of_device != device).any()) for device, of_device in enumerate(stages))


def title(timeline: Timeline) -> str:
    """What is shown and where it comes from, as in "1f1b, 4 micro-batches, simulated"."""
    schedule = timeline.schedule
    plural = "es" if schedule.n_micro_batches > 1 else ""
    return f"{schedule.order}, {schedule.n_micro_batches:,} micro-batch{plural}, {timeline.source}"


def _name(action: Action, with_stage: bool) -> str:
    return str(action) if with_stage else f"{action.kind}{action.micro_batch}"


def _canvas(timeline: Timeline, n_columns: int) -> _Canvas:
    """Names if they fit, if need be without blanks between them, and units of equal width if those fit."""
    actions = [np.stack(times, axis=1) for times in zip(timeline.starts, timeline.stops, strict=True)]
    ticks, stop_tick = np.concatenate([*actions, *timeline.exchanges]), timeline.stop_tick
    n_units = max(1, stop_tick // max(1, int(np.gcd.reduce(ticks, axis=None, initial=stop_tick))))
    longest = _longest_name(timeline.schedule)
    if n_units * longest <= n_columns:
        gap = int(n_units * (longest + 1) <= n_columns)
        return _Canvas(n_units * (longest + gap), stop_tick, longest + gap, gap)
    durations = np.concatenate([times[:, 1] - times[:, 0] for times in actions])
    # Where one action in four is shorter than its name, the others keep theirs.
    spare = int(np.quantile(durations, 0.25)) * n_columns // max(stop_tick, 1) - longest
    if spare >= 0:
        return _Canvas(n_columns, stop_tick, 1, min(spare, 1))
    cell = n_columns // n_units
    return _Canvas(n_units * cell or n_columns, stop_tick, max(cell, 1), None)


def _longest_name(schedule: Schedule) -> int:
    numbers = max(int(schedule.codes.micro_batches(program).max(initial=0)) for program in schedule.programs)
    return len(_name(Action(schedule.n_stages - 1, KINDS[0], numbers), shows_stage(schedule)))


def _bars(timeline: Timeline, device: int, canvas: _Canvas) -> Iterator[tuple[str, int]]:
    """Text and activity from left to right, a bar for everything that the device does."""
    assert canvas.gap is not None
    schedule, with_stage, done = timeline.schedule, shows_stage(timeline.schedule), 0
    times = zip(timeline.starts[device].tolist(), timeline.stops[device].tolist(), strict=True)
    actions = zip(times, schedule.actions(device), strict=True)
    bars = [(start, stop, KINDS.index(action.kind), _name(action, with_stage)) for (start, stop), action in actions]
    bars += [(start, stop, EXCHANGE, "") for start, stop in timeline.exchanges[device].tolist()]
    for start, stop, activity, name in [*sorted(bars), (canvas.stop_tick, canvas.stop_tick, IDLE, "")]:
        first, last = canvas.column(start), canvas.column(stop)
        yield ACTIVITIES[IDLE].letter.ljust(canvas.cell) * ((first - done) // canvas.cell), IDLE
        length = max(last - first - canvas.gap, min(last - first, 1))
        yield _bar(activity, name, length), activity
        yield " " * (last - first - length), IDLE
        done = last


def _bar(activity: int, name: str, length: int) -> str:
    """The name and a line, or the activity's letter all along where there is no name or no room for it.

    >>> _bar(0, "F10", 5), _bar(0, "F10", 2), _bar(EXCHANGE, "", 3)
    ('F10--', 'FF', 'xxx')
    """
    return name.ljust(length, "-") if name and len(name) <= length else ACTIVITIES[activity].letter * length


def _shares(timeline: Timeline, device: int, canvas: _Canvas) -> Iterator[tuple[str, int]]:
    """Text and activity from left to right, a character for what takes most of a column's ticks."""
    edges = np.linspace(0, timeline.stop_tick, canvas.n_columns + 1)
    kinds = timeline.schedule.codes.kinds(timeline.schedule.programs[device])
    times = np.stack((timeline.starts[device], timeline.stops[device]), axis=1)
    used = [*(times[kinds == kind] for kind in range(len(KINDS))), timeline.exchanges[device]]
    ticks = np.stack([np.diff(np.interp(edges, *_ticks_before(spans))) for spans in used])
    ticks = np.vstack((ticks, np.diff(edges) - ticks.sum(axis=0)))
    for activity, columns in groupby(np.argmax(ticks, axis=0).tolist()):
        yield ACTIVITIES[activity].letter * len(list(columns)), activity


def _ticks_before(spans: IntArray) -> tuple[IntArray, IntArray]:
    """Corners of the function that says how many ticks of disjoint `spans` lie before a tick."""
    lengths = spans[:, 1] - spans[:, 0]
    after = np.cumsum(lengths)
    return np.append(0, spans), np.append(0, np.stack((after - lengths, after), axis=1))


def _axis(timeline: Timeline, canvas: _Canvas) -> str:
    """Cycles under the columns in which they begin, at a distance that leaves two blanks."""
    room = len(f"{timeline.makespan_cycles:,.0f}") + 2
    steps = (lead * 10**power for power in count() for lead in (1, 2, 5))
    per_cycle = timeline.ticks_per_cycle
    step = next(
        step for step in steps if canvas.column(step * per_cycle) >= room or step * per_cycle > canvas.stop_tick
    )
    line = ""
    for cycle in range(0, canvas.stop_tick // per_cycle + 1, step):
        begun = f"{line:<{canvas.column(cycle * per_cycle)}}{cycle:,}"
        line = begun if len(begun) <= canvas.n_columns else line
    return line


def _legend(timeline: Timeline, canvas: _Canvas) -> str:
    shown = [kind for kind in range(len(KINDS)) if timeline.schedule.has(kind)]
    shown += [EXCHANGE] if any(map(len, timeline.exchanges)) else []
    names = "  ".join(f"{ACTIVITIES[activity].letter} {ACTIVITIES[activity].name}" for activity in [*shown, IDLE])
    if canvas.gap is not None:
        return names
    cycles = timeline.makespan_cycles / canvas.n_columns
    return f"{names}\ncycles a column: {cycles:,.4g}, shown is what takes most of them"


def timeline_table(timeline: Timeline, stash_entries: Iterable[int]) -> Table:
    """One row a device: its cycles by use and the activations that it holds at most.

    Args:
        timeline: what to show.
        stash_entries: for every device, how many activations its stash keeps.
    """
    numbers = ["busy\ncycles", "exchange\ncycles", "bubble\ncycles", "bubble", "peak in\nflight", "stash\nentries"]
    table = plain_table(f"Devices, {timeline.source}", ["device", *numbers], numbers)
    cycles = zip(timeline.busy_cycles, timeline.exchange_cycles, timeline.bubble_cycles, strict=True)
    held = zip(timeline.schedule.peak_in_flight, stash_entries, strict=True)
    for device, (used, counts) in enumerate(zip(cycles, held, strict=True)):
        share = f"{100 * used[-1] / (timeline.makespan_cycles or 1):.1f} %"
        table.add_row(str(device), *(format_value("cycles", value) for value in used), share, *map(str, counts))
    table.caption = _totals(timeline)
    return table


def _totals(timeline: Timeline) -> str:
    makespan, ideal, period = (
        format_value("cycles", cycles)
        for cycles in (timeline.makespan_cycles, timeline.ideal_cycles, timeline.period_cycles)
    )
    checks = ", checks count as idle" if timeline.schedule.has(CHECK) else ""
    return (
        f"makespan: {makespan} cycles, ideal: {ideal}\n"
        f"steady period: {period} cycles a micro-batch\n"
        f"bubble: {100 * timeline.bubble_fraction:.1f} % of all devices' time{checks}"
    )
