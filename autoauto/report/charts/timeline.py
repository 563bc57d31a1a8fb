"""A timeline as a chart, `timeline_chart`: a row per device, a bar per action."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from autoauto.records.schedule import CHECK
from autoauto.records.timeline import Timeline
from autoauto.records.units import IntArray
from autoauto.report.charts.chart import Axis, Chart, Mark, Panel, Series, Shape, category_axis
from autoauto.report.style import ACTIVITIES, EXCHANGE, spans_besides_actions
from autoauto.report.wording import shows_stage, timeline_title

N_BARS = 2_000
"""The most bars of a page or a picture."""

_WIDTH = 1000
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_DEVICE, _ACTIVITY, _STAGE, _MICRO_BATCH, _START, _STOP = range(6)


def timeline_chart(timeline: Timeline, clock_hz: float | None, n_bars: int = N_BARS) -> Chart:
    """The bars of all actions and exchanges, and of the end of a step; of a longer timeline those at both ends.

    Args:
        timeline: the timeline.
        clock_hz: turns cycles into time; None shows cycles.
        n_bars: the most bars.
    """
    rows = _rows(timeline)
    whole = len(rows) <= n_bars
    parts = {"": rows} if whole else _ends(rows, n_bars // 2)
    panels = (_panel(timeline, part, clock_hz, name, _WIDTH // len(parts)) for name, part in parts.items())
    text = _period(timeline, clock_hz) + ("" if whole else f"; {_shown(list(parts.values()), len(rows))}")
    return Chart("timeline", "Timeline", text, tuple(panels))


def _period(timeline: Timeline, clock_hz: float | None) -> str:
    """Order, micro-batches, origin and period of a timeline."""
    period = f"{timeline.period_cycles:,.0f} cycles"
    if clock_hz is not None:
        unit_s, unit = time_unit(timeline.period_cycles / clock_hz)
        period = f"{timeline.period_cycles / clock_hz / unit_s:,.3g} {unit}, {period}"
    return f"{timeline_title(timeline)}; a micro-batch leaves every {period}"


def time_unit(seconds: float) -> tuple[float, str]:
    """The unit for a time: its length in seconds and its name; the longest in which the time is above 1.

    >>> time_unit(0.0119), time_unit(3.5e-5)
    ((0.001, 'ms'), (1e-06, 'µs'))
    """
    return next((unit for unit in _UNITS if seconds > unit[0]), _UNITS[-1])


def _rows(timeline: Timeline) -> IntArray:
    """(n, 6) device, activity, stage, micro-batch, start and stop tick of every bar; actions have the middle two."""
    codes, rows = timeline.schedule.codes, []
    columns = zip(timeline.schedule.programs, timeline.starts, timeline.stops, strict=True)
    for device, (program, starts, stops) in enumerate(columns):
        action = (codes.kinds(program), codes.stages(program), codes.micro_batches(program), starts, stops)
        rows.append(np.stack((np.full_like(program, device), *action), axis=1))
        others = spans_besides_actions(timeline, device)
        rows.append(np.insert(np.insert(others, 0, device, axis=1), [2] * 2, [device, 0], axis=1))
    every = np.concatenate(rows)
    return every[every[:, _STOP] > every[:, _START]]


def _ends(rows: IntArray, half: int) -> dict[str, IntArray]:
    """The rows that start first, and those that stop last."""
    return {
        "first": rows[np.argsort(rows[:, _START])[:half]],
        "last": rows[np.argsort(rows[:, _STOP])[-half:]],
    }


def _shown(parts: list[IntArray], n_rows: int) -> str:
    """The number of bars that are shown, and the micro-batches in each part."""
    numbers = [part[part[:, _ACTIVITY] < CHECK, _MICRO_BATCH] for part in parts]
    ranges = " and ".join(f"{part.min():,} to {part.max():,}" for part in numbers)
    return f"first and last {len(parts[0]):,} of {n_rows:,} bars, micro-batches {ranges}"


def _panel(timeline: Timeline, rows: IntArray, clock_hz: float | None, name: str, width: int) -> Panel:
    """A row per device, from the first start to the last stop of `rows`."""
    n_devices, stop_tick = timeline.schedule.n_devices, max(timeline.stop_tick, 1)
    unit_s, unit = (1.0, "cycles") if clock_hz is None else time_unit(timeline.makespan_cycles / clock_hz)
    per_tick = 1.0 / timeline.ticks_per_cycle / (1.0 if clock_hz is None else clock_hz * unit_s)
    ends = (rows[:, _START].min(), rows[:, _STOP].max()) if name else (0, stop_tick)
    low, high = (float(tick) * per_tick for tick in ends)
    tracks = Series("", "track", Shape.BAR, tuple(Mark(low, device, stop=high) for device in range(n_devices)))
    return Panel(
        name,
        Axis(f"time ({unit}), {timeline.origin}", low, high),
        category_axis("", tuple(f"device {device}" for device in range(n_devices))),
        (tracks, *_series(timeline, rows, per_tick)),
        width,
        n_devices * (37.5 if n_devices <= 8 else 27.5),
    )


def _series(timeline: Timeline, rows: IntArray, per_tick: float) -> Iterator[Series]:
    """One per activity."""
    with_stage, per_cycle = shows_stage(timeline.schedule), timeline.ticks_per_cycle
    for number in np.unique(rows[:, _ACTIVITY]).tolist():
        activity, marks = ACTIVITIES[number], []
        for device, _, stage, micro_batch, start, stop in rows[rows[:, _ACTIVITY] == number].tolist():
            action = "" if number >= EXCHANGE else f"{activity.letter}{micro_batch}"
            name = f"{stage}{action} {activity.name}" if action else activity.name
            first, last = start / per_cycle, stop / per_cycle
            hover = f"{name}, {last - first:,.12g} cycles from {first:,.12g} to {last:,.12g}"
            text = f"{stage}{action}" if with_stage and action else action
            marks.append(Mark(start * per_tick, device, hover, text, stop * per_tick))
        yield Series(activity.name, f"do-{activity.name.partition(' ')[0]}", Shape.BAR, tuple(marks))
