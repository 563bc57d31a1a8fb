"""The charts of one plan: its timeline, `timeline_chart`, and its memory by stage, `memory_chart`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from autoauto.records.plans.phased import Phase, PhasedPlan
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.plans.timeline import Timeline
from autoauto.records.schedule import CHECK
from autoauto.records.units import GIB, MIB, IntArray, digits, format_bytes
from autoauto.report.charts.chart import OTHER, Axis, Chart, Mark, Panel, Series, Shape, category_axis
from autoauto.report.reasons import part_names
from autoauto.report.style import ACTIVITIES, EXCHANGE, spans_besides_actions
from autoauto.report.wording import duration, shows_stage, timeline_title
from autoauto.space.modes.mode import Mode
from autoauto.space.trial import Trial

N_BARS = 2_000
"""The most bars of a page or a picture."""

_WIDTH = 1000
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_DEVICE, _ACTIVITY, _STAGE, _MICRO_BATCH, _START, _STOP = range(6)


def timeline_chart(
    timeline: Timeline,
    clock_hz: float | None,
    n_bars: int = N_BARS,
    *,
    in_seconds: bool = False,
    device: str = "device",
) -> Chart:
    """A row of bars per device: actions, exchanges, the end of a step. A long timeline shows only both of its ends.

    Args:
        clock_hz: turns cycles into time; None shows cycles.
        in_seconds: whether the numbers are made of seconds, so that no cycles stand beside the time.
        device: what a row is of.
    """
    rows = _rows(timeline)
    parts = {"": rows}
    period = f"{timeline.period_cycles:,.0f} cycles"
    if clock_hz is not None:
        unit_s, unit = time_unit(timeline.period_cycles / clock_hz)
        time = f"{digits(timeline.period_cycles / clock_hz / unit_s)} {unit}"
        period = time if in_seconds else f"{time}, {period}"
    text = f"{timeline_title(timeline)}; a micro-batch leaves every {period}"
    if len(rows) > n_bars:
        # The rows that start first, and those that stop last.
        first = rows[np.argsort(rows[:, _START])[: n_bars // 2]]
        parts = {"first": first, "last": rows[np.argsort(rows[:, _STOP])[-(n_bars // 2) :]]}
        ranges = []
        for part in parts.values():
            numbers = part[part[:, _ACTIVITY] < CHECK, _MICRO_BATCH]
            ranges.append(f"{numbers.min():,} to {numbers.max():,}")
        text += f"; first and last {len(first):,} of {len(rows):,} bars, micro-batches {' and '.join(ranges)}"
    hover_hz = clock_hz if in_seconds else None
    panels = []
    for name, part in parts.items():
        panel = _panel(timeline, part, clock_hz, hover_hz, name, device)
        panels.append(panel._replace(width=_WIDTH // len(parts)))
    return Chart("timeline", "Timeline", text, tuple(panels))


def time_unit(seconds: float) -> tuple[float, str]:
    """The unit for a time: its length in seconds and its name; the longest in which the time is above 1.

    >>> time_unit(0.0119), time_unit(3.5e-5)
    ((0.001, 'ms'), (1e-06, 'µs'))
    """
    return next((unit for unit in _UNITS if seconds > unit[0]), _UNITS[-1])


def _rows(timeline: Timeline) -> IntArray:
    """(n, 6) device, activity, stage, micro-batch, start and stop tick of every bar; actions have a micro-batch."""
    codes, rows = timeline.schedule.codes, []
    columns = zip(timeline.schedule.programs, timeline.starts, timeline.stops, strict=True)
    for device, (program, starts, stops) in enumerate(columns):
        action = (codes.kinds(program), codes.stages(program), codes.micro_batches(program), starts, stops)
        rows.append(np.stack((np.full_like(program, device), *action), axis=1))
        activity, start, stop = spans_besides_actions(timeline, device).T
        same, none = np.full_like(activity, device), np.zeros_like(activity)
        rows.append(np.stack((same, activity, same, none, start, stop), axis=1))
    every = np.concatenate(rows)
    # A bar without length would not be seen.
    return every[every[:, _STOP] > every[:, _START]]


def _panel(
    timeline: Timeline, rows: IntArray, clock_hz: float | None, hover_hz: float | None, name: str, called: str
) -> Panel:
    """A row per device, from the first start to the last stop of `rows`; without a name all of the timeline."""
    n_devices = timeline.schedule.n_devices
    unit, per_tick = "cycles", 1.0 / timeline.ticks_per_cycle
    if clock_hz is not None:
        unit_s, unit = time_unit(timeline.makespan_cycles / clock_hz)
        per_tick /= clock_hz * unit_s
    low, high = 0.0, max(timeline.stop_tick, 1) * per_tick
    if name:
        low = float(rows[:, _START].min()) * per_tick
        high = float(rows[:, _STOP].max()) * per_tick
    tracks = Series("", "track", Shape.BAR, tuple(Mark(low, device, stop=high) for device in range(n_devices)))
    return Panel(
        name,
        Axis(f"time ({unit}), {timeline.origin}", low, high),
        category_axis("", tuple(f"{called} {device}" for device in range(n_devices))),
        (tracks, *_series(timeline, rows, per_tick, hover_hz)),
        _WIDTH,
        n_devices * (37.5 if n_devices <= 8 else 27.5),
    )


def _series(timeline: Timeline, rows: IntArray, per_tick: float, hover_hz: float | None) -> Iterator[Series]:
    with_stage, per_cycle = shows_stage(timeline.schedule), timeline.ticks_per_cycle
    for number in np.unique(rows[:, _ACTIVITY]).tolist():
        activity, marks = ACTIVITIES[number], []
        for device, _, stage, micro_batch, start, stop in rows[rows[:, _ACTIVITY] == number].tolist():
            name, text = activity.name, ""
            if number < EXCHANGE:  # an action of the schedule
                action = f"{activity.letter}{micro_batch}"
                name = f"{stage}{action} {activity.name}"
                text = f"{stage}{action}" if with_stage else action
            first, last = start / per_cycle, stop / per_cycle
            hover = f"{name}, {last - first:,.12g} cycles from {first:,.12g} to {last:,.12g}"
            if hover_hz is not None:
                length, start_text, stop_text = (duration(n, hover_hz) for n in (last - first, first, last))
                hover = f"{name}, {length} from {start_text} to {stop_text}"
            marks.append(Mark(start * per_tick, device, hover, text, stop * per_tick))
        yield Series(activity.name, f"do-{activity.name.partition(' ')[0]}", Shape.BAR, tuple(marks))


REST = "other"
_DIGITS = {MIB: 6, GIB: 3}
"""Of a limit in a picture."""
N_CATEGORIES = 7
"""If there are at least two categories more than this, the smallest are summed up as `REST`."""


class StageMemory(NamedTuple):
    """The memory of a stage or phase.

    Attributes:
        memory_bytes: by category, the largest of the plan first, the smallest together as "other".
        estimated_bytes: the sum over all categories by the estimate; None when there was none.
        planned_bytes: the limit that the plan was made for; None when there was no estimate.
    """

    label: str
    memory_bytes: Mapping[str, int]
    limit_bytes: int
    estimated_bytes: int | None
    planned_bytes: int | None

    @property
    def total_bytes(self) -> int:
        """Memory over all categories."""
        return sum(self.memory_bytes.values())


def memory_by_part(measured: Plan | PhasedPlan, estimate: Plan | PhasedPlan | None, mode: Mode) -> list[StageMemory]:
    """The memory of every stage or phase, by the same few categories; the mode names its layers."""
    if isinstance(measured, Plan) and isinstance(estimate, Plan):  # replicas with other plans, in the same order
        estimate = estimate.in_order_of(measured)
    parts: tuple[Stage | Phase, ...] = measured.parts
    estimated: tuple[Stage | Phase, ...] = () if estimate is None else estimate.parts
    sums: Counter[str] = Counter()
    for part in parts:
        sums.update(part.memory_bytes)
    shown = [category for category, _ in sums.most_common()]  # the largest of all parts together first
    if len(shown) > N_CATEGORIES + 1:
        shown = shown[:N_CATEGORIES]
    rows = []
    for index, (name, part) in enumerate(zip(part_names(measured), parts, strict=True)):
        memory_bytes = {category: part.memory_bytes.get(category, 0) for category in shown}
        rest = part.total_bytes - sum(memory_bytes.values())
        if rest:
            memory_bytes[REST] = rest
        label = f"{name} {mode.parts_short(part.layers, measured.partition[-1])}"
        estimated_bytes = planned_bytes = None
        if index < len(estimated):
            estimated_bytes = estimated[index].total_bytes
            planned_bytes = estimated[index].limit_bytes
        rows.append(StageMemory(label, memory_bytes, part.limit_bytes, estimated_bytes, planned_bytes))
    return rows


def memory_chart(finalist: Trial, origin: str) -> Chart:
    """A bar per stage on the track of its limit; ticks show the estimate, the limit and the limit of planning."""
    rows = memory_by_part(finalist.plan, finalist.estimate, finalist.knobs.mode)
    largest_bytes = max(max(row.limit_bytes, row.total_bytes) for row in rows)
    unit = format_bytes(largest_bytes).rpartition(" ")[2]
    unit_bytes = GIB if unit == "GiB" else MIB
    tracks, labels = [], []
    for y, row in enumerate(rows):
        tracks.append(Mark(0.0, y, stop=row.limit_bytes / unit_bytes))
        share = 100 * row.total_bytes / max(row.limit_bytes, 1)
        labels.append(Mark(row.total_bytes / unit_bytes, y, "", f"{format_bytes(row.total_bytes)}, {share:.0f} %"))
    limit = f"{finalist.knobs.session.words.unit} limit"
    series = (
        Series("", "track", Shape.BAR, tuple(tracks)),
        *_memory_series(rows, unit_bytes),
        _ticks(unit_bytes, "estimated", "estimated", [row.estimated_bytes for row in rows]),
        _ticks(unit_bytes, limit, "limit", [row.limit_bytes for row in rows], is_named=True),
        _ticks(unit_bytes, "planned limit", "planned", [row.planned_bytes for row in rows], is_named=True),
        Series("", "value", Shape.LABEL, tuple(labels)),
    )
    across = Axis(f"memory ({unit}), {origin}", 0.0, largest_bytes / unit_bytes)
    height = len(rows) * (42.0 if len(rows) <= 8 else 34.0)
    panel = Panel("", across, category_axis("", tuple(row.label for row in rows)), series, _WIDTH, height)
    marks = "the tick is what the estimate promised, orange lines are the limits."
    text = f"Trial {finalist.number}, {origin}; {marks}"
    return Chart("memory", "Memory against the limit", text, (panel,))


def _memory_series(rows: list[StageMemory], unit_bytes: int) -> list[Series]:
    """One series per category, its bars after those of the categories before."""
    categories = dict.fromkeys(category for row in rows for category in row.memory_bytes)
    stops_bytes, series = [0] * len(rows), []
    for index, category in enumerate(categories):
        marks = []
        for y, row in enumerate(rows):
            n_bytes = row.memory_bytes.get(category, 0)
            start = stops_bytes[y] / unit_bytes
            stops_bytes[y] += n_bytes
            hover = f"{category}: {format_bytes(n_bytes)}"
            marks.append(Mark(start, y, hover, "", stops_bytes[y] / unit_bytes))
        style = OTHER if category == REST else f"s{index}"
        series.append(Series(category, style, Shape.BAR, tuple(marks)))
    return series


def _ticks(unit_bytes: int, name: str, style: str, sizes_bytes: Sequence[int | None], is_named: bool = False) -> Series:
    """A tick for every size; where all stages have the same, its name may be written above, in the axis's unit."""
    text = ""
    if is_named and sizes_bytes[0] and len(set(sizes_bytes)) == 1:
        text = f"{name} {sizes_bytes[0] / unit_bytes:,.{_DIGITS[unit_bytes]}g}"
    marks = []
    for y, n_bytes in enumerate(sizes_bytes):
        if n_bytes is not None:
            marks.append(Mark(n_bytes / unit_bytes, y, f"{name}: {format_bytes(n_bytes)}", text))
    return Series(name, style, Shape.TICK, tuple(marks))
