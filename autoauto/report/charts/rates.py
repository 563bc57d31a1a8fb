"""Latencies over the request rate, and up to which rate every number of replicas keeps its bound: `rates_chart`.

seconds  │      1 replica  /    2 replicas  /
─ bound ─┼────────────────o────────────────o────
         │       ________/        ________/            a line each for p50, p99, and what a bound is on
         └────────────────────────────────────── requests/s
"""

from __future__ import annotations

from autoauto.records.costs.rate_curve import RateBound, RateCurves, RateLine
from autoauto.records.target import Origin
from autoauto.records.units import digits
from autoauto.report.bounds import TIMES
from autoauto.report.charts.chart import RING, Axis, Chart, Mark, Panel, Series, Shape
from autoauto.report.charts.dots import colour
from autoauto.report.charts.plan import time_unit
from autoauto.report.wording import counted, time_text

_WIDTH, _HEIGHT, _MARGIN = 420, 234, 1.06
_FARTHEST = 3.0
"""So many times the bound, or what keeps it, is the axis at most: latencies of an overload are far larger."""
_PANELS = {"ttft": "TTFT", "tpot": "TPOT", "latency": "request latency"}


def rates_chart(curves: RateCurves | None) -> Chart | None:
    """A panel per latency, and there a colour per number of replicas; None without curves."""
    if curves is None:
        return None
    panels = []
    for name in _PANELS:
        bounds = [bound for bound in curves.bounds if bound.name.startswith(name)]
        if bounds or name != "tpot":
            panels.append(_panel(curves, name, bounds))
    text = f"Times are {Origin.SIMULATED}, of the end of forecasts at which bounds must hold; from bottom to top "
    text += "p50 and p99, and what a bound is on. Rings are the highest rates that replicas keep up with"
    if curves.bounds:
        bounds_text = (f"{TIMES[bound.name]} <= {time_text(bound.limit_s)}" for bound in curves.bounds)
        text += f" and that keep {' and '.join(bounds_text)}"
    text += ". Crosses are rates at which the queue grows as long as requests come."
    return Chart("rates", "Latency over the request rate", text, tuple(panels))


def _panel(curves: RateCurves, name: str, bounds: list[RateBound]) -> Panel:
    names = {f"{name}_p50_s", f"{name}_p99_s"} | {bound.name for bound in bounds}
    drawn = [each for each in sorted(names) if all(each in line.values for line in curves.lines)]
    longest_s = [bound.limit_s for bound in bounds]
    for line in curves.lines:
        columns = [line.values[each] for each in drawn]
        within = [column[: line.beyond] or column[:1] for column in columns]  # which keep the bounds
        longest_s.append(min(max(map(max, columns)), _FARTHEST * max(map(max, within))))
    most_s = max(longest_s)
    unit_s, unit = time_unit(most_s)
    across = Axis("requests/s", 0.0, _MARGIN * max(line.requests_per_s[-1] for line in curves.lines))
    up = Axis(f"{_PANELS[name]} ({unit}), {Origin.SIMULATED}", 0.0, _MARGIN * most_s / unit_s)
    series: list[Series] = []
    for index, line in enumerate(curves.lines):
        for each in drawn:
            series.append(_line(line, each, colour(index), most_s, unit_s))
    for bound in bounds:
        ends = Mark(0.0, bound.limit_s / unit_s), Mark(across.high, bound.limit_s / unit_s)
        series.append(Series("", "limit", Shape.LINE, ends))
    ringed = bounds[0].name if bounds else f"{name}_p99_s"
    rings: list[Mark] = []  # around the highest rates that replicas serve, where they are known
    for line in curves.lines:
        if line.highest is not None and ringed in line.values:
            time_s = line.values[ringed][line.requests_per_s.index(line.highest)]
            rate = f"{counted(line.n_replicas, 'replica')}: up to {digits(line.highest, 4)} requests/s"
            rings.append(Mark(line.highest, time_s / unit_s, f"{rate}, {TIMES[ringed]} {time_text(time_s)}"))
    series.append(Series("", RING, Shape.DOT, tuple(rings)))
    has_crosses = any(mark.y is None for each in series for mark in each.marks)
    return Panel(_PANELS[name], across, up, tuple(series), _WIDTH, _HEIGHT, "grows" if has_crosses else "")


def _line(line: RateLine, name: str, style: str, most_s: float, unit_s: float) -> Series:
    """A percentile of some replicas: a line with dots, which ends where it leaves the panel, and crosses below it."""
    replicas = counted(line.n_replicas, "replica")
    marks: list[Mark] = []
    before: tuple[float, float] | None = None  # the last point inside the panel, from which a line may leave it
    growths = line.values["queue_growth_per_s"]
    for rate, time_s, growth in zip(line.requests_per_s, line.values[name], growths, strict=True):
        hover = f"{replicas}, {digits(rate, 4)} requests/s: {TIMES[name]} "
        if growth:
            marks.append(Mark(rate, None, f"{hover}grows, as the queue does by {digits(growth)} requests a second"))
            before = None
        elif time_s <= most_s:
            marks.append(Mark(rate, time_s / unit_s, hover + time_text(time_s)))
            before = (rate, time_s)
        elif before is not None:
            # The rate at which the straight line from the last point reaches the edge.
            last_rate, last_s = before
            crossing = last_rate + (rate - last_rate) * (most_s - last_s) / (time_s - last_s)
            marks.append(Mark(crossing, most_s / unit_s, f"{hover}{time_text(time_s)}"))
            before = None
    return Series(replicas, style, Shape.JOINED, tuple(marks))
