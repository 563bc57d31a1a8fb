"""A timeline as an SVG picture, `timeline_svg`: a row per device, a bar per action."""

from __future__ import annotations

from collections.abc import Iterator

from autoauto.records.schedule import KINDS
from autoauto.records.timeline import Timeline
from autoauto.report.charts.markup import Axis, bottom_axis, round_step, svg, tag, words
from autoauto.report.style import ACTIVITIES, EXCHANGE
from autoauto.report.wording import action_name, shows_stage, timeline_title

N_BARS = 2_000
"""The most bars that are drawn; of a longer timeline the beginning is shown."""

_WIDTH, _LEFT = 1000, 74
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def timeline_svg(timeline: Timeline, clock_hz: float | None, name: str = "timeline") -> str:
    """The picture; a bar's tooltip has its cycles.

    Args:
        timeline: the timeline.
        clock_hz: turns cycles into time; None shows cycles.
        name: the picture's id.
    """
    shown_tick = _shown_tick(timeline)
    cycles = shown_tick / timeline.ticks_per_cycle
    length, unit = _length(cycles, clock_hz)
    height = row_height(timeline.schedule.n_devices)
    bottom = timeline.schedule.n_devices * height * 1.25
    axis = Axis(0.0, length, _LEFT, _WIDTH - 8)
    ticks = Axis(0.0, shown_tick, _LEFT, _WIDTH - 8)
    rows = (_row(timeline, device, ticks, height) for device in range(timeline.schedule.n_devices))
    axes = bottom_axis(axis, bottom, f"time ({unit}), {timeline.source}", 8, top=0)
    return svg(name, f"Timeline: {timeline_title(timeline)}", _WIDTH, bottom + 46, axes, *rows)


def _length(cycles: float, clock_hz: float | None) -> tuple[float, str]:
    """The length of `cycles` and its unit."""
    if clock_hz is None:
        return cycles, "cycles"
    unit_s, unit = time_unit(cycles / clock_hz)
    return cycles / clock_hz / unit_s, unit


def time_unit(seconds: float) -> tuple[float, str]:
    """The unit for a time: its length in seconds and its name.

    >>> time_unit(0.0119), time_unit(3.5e-5)
    ((0.001, 'ms'), (1e-06, 'µs'))
    """
    return next((unit for unit in _UNITS if round_step(max(seconds, 1e-12)) > unit[0]), _UNITS[-1])


def legend(timeline: Timeline) -> list[tuple[str, str]]:
    """The class and the name of every kind of bar in the picture."""
    kinds = [kind for kind in range(len(KINDS)) if timeline.schedule.has(kind)]
    kinds += [EXCHANGE] if any(map(len, timeline.exchanges)) else []
    return [(_class(kind), ACTIVITIES[kind].name) for kind in kinds]


def timeline_summary(timeline: Timeline, clock_hz: float | None) -> str:
    """The timeline's title and period, and which part of it the picture shows where it is too long."""
    length, unit = _length(timeline.period_cycles, clock_hz)
    period = f"{timeline.period_cycles:,.0f} cycles"
    if clock_hz is not None:
        period = f"{length:,.3g} {unit}, {period}"
    share = _shown_tick(timeline) / max(timeline.stop_tick, 1)
    part = "" if share == 1 else f"; the first {100 * share:.3g} % of it, about {N_BARS:,} bars"
    return f"{timeline_title(timeline)}; a micro-batch leaves every {period}{part}"


def _shown_tick(timeline: Timeline) -> int:
    n_bars = sum(map(len, timeline.starts)) + sum(map(len, timeline.exchanges))
    return timeline.stop_tick if n_bars <= N_BARS else max(1, timeline.stop_tick * N_BARS // n_bars)


def row_height(n_rows: int) -> float:
    """Height of a row in pixels; rows are lower where there are many.

    >>> row_height(4), row_height(16)
    (30.0, 22.0)
    """
    return 30.0 if n_rows <= 8 else 22.0


def _row(timeline: Timeline, device: int, ticks: Axis, height: float) -> str:
    y = device * height * 1.25
    label = tag("text", f"device {device}", x=0, y=y + height / 2 + 4, class_="label")
    track = tag("rect", x=_LEFT, y=y, width=ticks.stop - _LEFT, height=height, class_="track")
    return label + track + "".join(_bars(timeline, device, ticks, (y, height)))


def _bars(timeline: Timeline, device: int, ticks: Axis, row: tuple[float, float]) -> Iterator[str]:
    with_stage = shows_stage(timeline.schedule)
    times = zip(timeline.starts[device].tolist(), timeline.stops[device].tolist(), strict=True)
    for (start, stop), action in zip(times, timeline.schedule.actions(device), strict=True):
        name = action_name(action, with_stage)
        yield _bar(timeline, ticks, row, (start, stop), KINDS.index(action.kind), name)
    for start, stop in timeline.exchanges[device].tolist():
        yield _bar(timeline, ticks, row, (start, stop), EXCHANGE, "")


def _bar(timeline: Timeline, ticks: Axis, row: tuple[float, float], span: tuple[int, int], kind: int, name: str) -> str:
    """A bar from `span`, start and stop tick, in `row`, its upper edge and height; with its name if that fits."""
    (start, stop), (y, height) = span, row
    if start >= ticks.high or stop == start:
        return ""
    x, end = ticks.pixel(start), ticks.pixel(min(stop, ticks.high))
    text = f"{name} {ACTIVITIES[kind].name}, {timeline.cycles(stop - start):,.12g} cycles".strip()
    width = max(end - x, 0.3)
    bar = tag("rect", tag("title", words(text)), x=x, y=y, width=width, height=height, class_=_class(kind))
    longest = len(f"F{timeline.schedule.n_micro_batches - 1}") + 2 * shows_stage(timeline.schedule)
    if not name or width < 6.5 * longest + 2:
        return bar
    return bar + tag("text", name, x=x + width / 2, y=y + height / 2 + 4, class_="on-bar", text_anchor="middle")


def _class(kind: int) -> str:
    return f"do-{ACTIVITIES[kind].name.partition(' ')[0]}"
