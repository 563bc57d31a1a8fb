"""Drawings in a terminal: progress bars on stderr, and timelines, a row of characters per device."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count, groupby
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from autoauto.records.plans.timeline import Timeline
from autoauto.records.schedule import KINDS, Action
from autoauto.records.units import IntArray, digits, format_number
from autoauto.report.style import ACTIVITIES, EXCHANGE, IDLE, printable, spans_besides_actions
from autoauto.report.wording import action_name, shows_stage, timeline_title
from autoauto.space.trial import SearchActivity

if TYPE_CHECKING:  # most commands draw nothing
    from rich.progress import Progress, ProgressColumn
    from rich.text import Text

_BAR_WIDTH = 8


class CountReporter(Protocol):
    """Updates a bar of `progress_bar`."""

    def __call__(self, done: int, total: int, now: str = "") -> None:
        """Show that `done` of `total` are done, and what is being done."""


SearchReporter = Callable[[SearchActivity, int, int, float | None, float | None, str], None]
"""Updates a bar of `search_bar`: the activity, how many are done and of all, the best throughput so far, the seconds
left, and what it waits for now, if that takes long enough to be read."""


@contextmanager
def progress_bar(what: str, unit: str) -> Iterator[CountReporter]:
    """Show a bar on stderr until the block ends; show nothing if stderr is no terminal.

    Args:
        what: the task, for example "profile".
        unit: what is counted, for example "kinds".
    """
    if not sys.stderr.isatty():
        yield _show_nothing
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn(what),
        BarColumn(bar_width=_BAR_WIDTH),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with _bar(*columns) as progress:
        task = progress.add_task("", total=None)

        def report(done: int, total: int, now: str = "") -> None:
            progress.update(task, completed=done, total=total, description=printable(now))

        yield report


@contextmanager
def search_bar() -> Iterator[SearchReporter]:
    """Show a bar on stderr until the block ends; show nothing if stderr is no terminal."""
    if not sys.stderr.isatty():
        yield _show_nothing
        return
    from rich.progress import BarColumn, TextColumn

    columns = (
        TextColumn("{task.fields[phase]}"),
        BarColumn(bar_width=_BAR_WIDTH),
        TextColumn("{task.description}", markup=False),
    )
    with _bar(*columns) as progress:
        task = progress.add_task("", total=None, phase=SearchActivity.PREDICTING)

        def report(
            phase: SearchActivity, done: int, total: int, samples_per_s: float | None, left_s: float | None, now: str
        ) -> None:
            line = describe(done, total, samples_per_s, left_s, now)
            progress.update(task, completed=done, total=total, description=line, phase=phase)

        yield report


def describe(done: int, total: int, samples_per_s: float | None, left_s: float | None, now: str) -> str:
    """The state of a search in few words: with its bar they fit a line of 60 columns."""
    parts = [f"{done:,}/{total:,}"]
    if left_s is not None:
        parts.append(f"{timedelta(seconds=round(left_s))} left")
    if samples_per_s is not None:
        parts.append(f"best {format_number(samples_per_s, 0)}/s")
    if now:
        parts.append(now)
    return ", ".join(parts)


def _bar(*columns: ProgressColumn) -> Progress:
    from rich.console import Console
    from rich.progress import Progress

    return Progress(*columns, console=Console(stderr=True), transient=True)


def _show_nothing(*_: Any, **__: Any) -> None:
    """Replace a reporter where no person sees a bar."""


class _Canvas(NamedTuple):
    """The scale of a picture in characters: ticks become columns.

    A unit is the largest number of ticks that divides every start and stop.

    Attributes:
        n_columns, stop_tick: the columns of the picture, and the ticks that they show.
        cell: columns per unit where all units have the same width; 1 elsewhere.
        gap: blank columns after every bar; None where names do not fit.
    """

    n_columns: int
    stop_tick: int
    cell: int
    gap: int | None

    def column(self, tick: int) -> int:
        return tick * self.n_columns // max(self.stop_tick, 1)


def timeline_picture(timeline: Timeline, width: int) -> Text:
    """A row per device, time from left to right, in lines of at most `width` columns.

    The first of these forms that fits is drawn, here for a forward of 1 and a backward of 2 cycles:

        F0 .  B0---   units of equal width, names, and a blank after every bar
        F0. B0--      the same without blanks
        F0..B0---     bars as long as their actions, where units of equal width do not fit
        F.BB          no names: a column shows the activity that takes most of its time
    """
    from rich.text import Text

    schedule = timeline.schedule
    names = [*(f"device {device}" for device in range(schedule.n_devices)), "cycles"]
    longest = max(map(len, names)) + 2
    canvas = _canvas(timeline, max(1, width - longest))
    picture = Text(f"{timeline_title(timeline)}\n")
    for device in range(schedule.n_devices):
        picture.append(names[device].ljust(longest))
        pieces = _shares(timeline, device, canvas) if canvas.gap is None else _bars(timeline, device, canvas)
        for text, activity in pieces:
            colour = ACTIVITIES[activity].colour
            picture.append(text, f"black on {colour}" if colour else "")
        picture.append("\n")
    picture.append(f"{names[-1]:{longest}}{_axis(timeline, canvas)}\n")
    return picture.append(_legend(timeline, canvas))


def _canvas(timeline: Timeline, n_columns: int) -> _Canvas:
    """The form of `timeline_picture` that fits into `n_columns`."""
    actions = [np.stack(times, axis=1) for times in zip(timeline.starts, timeline.stops, strict=True)]
    others = [spans_besides_actions(timeline, device)[:, 1:] for device in range(timeline.schedule.n_devices)]
    ticks, stop_tick = np.concatenate([*actions, *others]), timeline.stop_tick
    # Every start and stop is a multiple of the unit, so bars of whole units keep their proportions.
    n_units = max(1, stop_tick // max(1, int(np.gcd.reduce(ticks, axis=None, initial=stop_tick))))
    schedule = timeline.schedule
    number = max(int(schedule.codes.micro_batches(program).max(initial=0)) for program in schedule.programs)
    longest = len(action_name(Action(schedule.n_stages - 1, KINDS[0], number), shows_stage(schedule)))
    if n_units * longest <= n_columns:
        gap = int(n_units * (longest + 1) <= n_columns)
        return _Canvas(n_units * (longest + gap), stop_tick, longest + gap, gap)
    durations = np.concatenate([times[:, 1] - times[:, 0] for times in actions])
    # Names are shown while at most one action in four is shorter than its name; those few become letters.
    spare = int(np.quantile(durations, 0.25)) * n_columns // max(stop_tick, 1) - longest
    if spare >= 0:
        return _Canvas(n_columns, stop_tick, 1, min(spare, 1))
    cell = n_columns // n_units
    return _Canvas(n_units * cell or n_columns, stop_tick, max(cell, 1), None)


def _bars(timeline: Timeline, device: int, canvas: _Canvas) -> Iterator[tuple[str, int]]:
    """Text and activity from left to right, a bar for every action, exchange and end of a step of the device."""
    assert canvas.gap is not None
    schedule, with_stage = timeline.schedule, shows_stage(timeline.schedule)
    bars: list[tuple[int, int, int, str]] = []
    times = zip(timeline.starts[device].tolist(), timeline.stops[device].tolist(), strict=True)
    for (start, stop), action in zip(times, schedule.actions(device), strict=True):
        bars.append((start, stop, KINDS.index(action.kind), action_name(action, with_stage)))
    for activity, start, stop in spans_besides_actions(timeline, device).tolist():
        bars.append((start, stop, activity, ""))
    bars.sort()
    bars.append((canvas.stop_tick, canvas.stop_tick, IDLE, ""))  # fills the row to its end
    idle, column = ACTIVITIES[IDLE].letter.ljust(canvas.cell), 0
    for start, stop, activity, name in bars:
        first, last = canvas.column(start), canvas.column(stop)
        yield idle * ((first - column) // canvas.cell), IDLE
        # A bar gives up its last column for the gap, unless it has only this one.
        length = max(last - first - canvas.gap, min(last - first, 1))
        yield _span_bar(activity, name, length), activity
        yield " " * (last - first - length), IDLE
        column = last


def _span_bar(activity: int, name: str, length: int) -> str:
    """The name and a line, or the activity's letter all along where there is no name or no room for it.

    >>> _span_bar(0, "F10", 5), _span_bar(0, "F10", 2), _span_bar(EXCHANGE, "", 3)
    ('F10--', 'FF', 'xxx')
    """
    return name.ljust(length, "-") if name and len(name) <= length else ACTIVITIES[activity].letter * length


def _shares(timeline: Timeline, device: int, canvas: _Canvas) -> Iterator[tuple[str, int]]:
    """Text and activity from left to right; each column has the letter of the activity with most of its ticks."""
    edges = np.linspace(0, timeline.stop_tick, canvas.n_columns + 1)
    kinds = timeline.schedule.codes.kinds(timeline.schedule.programs[device])
    times = np.stack((timeline.starts[device], timeline.stops[device]), axis=1)
    others = spans_besides_actions(timeline, device)
    spans_by_activity = [times[kinds == kind] for kind in range(len(KINDS))]
    spans_by_activity += [others[others[:, 0] == activity, 1:] for activity in range(EXCHANGE, IDLE)]
    # The ticks of an activity in a column are those before its right edge without those before its left edge.
    ticks = np.stack([np.diff(np.interp(edges, *_ticks_before(spans))) for spans in spans_by_activity])
    # All other ticks of a column are idle.
    ticks = np.vstack((ticks, np.diff(edges) - ticks.sum(axis=0)))
    for activity, columns in groupby(np.argmax(ticks, axis=0).tolist()):
        yield ACTIVITIES[activity].letter * len(list(columns)), activity


def _ticks_before(spans: IntArray) -> tuple[IntArray, IntArray]:
    """Corners, x and y, of the piecewise linear function "ticks of the disjoint `spans` before tick x".

    Over the spans [2, 5) and [6, 8) it rises from 0 to 3 and from 3 to 5, and is flat elsewhere.
    """
    lengths = spans[:, 1] - spans[:, 0]
    after = np.cumsum(lengths)
    return np.append(0, spans), np.append(0, np.stack((after - lengths, after), axis=1))


def _axis(timeline: Timeline, canvas: _Canvas) -> str:
    """Cycles under their columns, every 1, 2 or 5 times a power of ten, with two blanks or more between them."""
    width = len(f"{timeline.makespan_cycles:,.0f}") + 2
    per_cycle = timeline.ticks_per_cycle
    for step in (lead * 10**power for power in count() for lead in (1, 2, 5)):
        if canvas.column(step * per_cycle) >= width or step * per_cycle > canvas.stop_tick:
            break
    line = ""
    for cycle in range(0, canvas.stop_tick // per_cycle + 1, step):
        longer = f"{line:<{canvas.column(cycle * per_cycle)}}{cycle:,}"
        if len(longer) <= canvas.n_columns:
            line = longer
    return line


def _legend(timeline: Timeline, canvas: _Canvas) -> str:
    schedule = timeline.schedule
    others = [spans_besides_actions(timeline, device)[:, 0] for device in range(schedule.n_devices)]
    shown = [kind for kind in range(len(KINDS)) if schedule.has(kind)]
    shown += np.unique(np.concatenate(others)).tolist()
    shown.append(IDLE)
    names = "  ".join(f"{ACTIVITIES[activity].letter} {ACTIVITIES[activity].name}" for activity in shown)
    if canvas.gap is not None:
        return names
    cycles = timeline.makespan_cycles / canvas.n_columns
    return f"{names}\ncycles a column: {digits(cycles, 4)}, shown is what takes most of them"
