"""Throughput over batch size: `panels` as data, one per n_ipu, and `batches_svg`, a picture with a line per cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from autoauto.records.study_summary import CellSummary, StudySummary, TrialSummary
from autoauto.report.charts.markup import Axis, bottom_axis, left_axis, svg, tag, words
from autoauto.report.wording import ALL, label, origin_of, varying_knobs

N_SERIES = 8
"""Number of colours. The best cells have one each; further cells are grey."""

_LEFT, _TOP, _HEIGHT, _LANE = 60, 30, 300, 12
_WIDTHS = {1: 1000, 2: 520}
"""Width of a panel by the number of panels; with three and more each has 360."""


class CellSeries(NamedTuple):
    """The trials of a cell in a panel.

    Attributes:
        class_: the class of its colour, "s0" and so on; "s-other" for grey.
        name: the knobs other than n_ipu that distinguish the cell.
        cell: its trials.
    """

    class_: str
    name: str
    cell: CellSummary


class Panel(NamedTuple):
    """The cells of one n_ipu; grey series come first, so that others are drawn over them."""

    name: str
    series: tuple[CellSeries, ...]


def panels(summary: StudySummary) -> list[Panel]:
    """One panel for every n_ipu; a colour stands for the other knobs of a cell, the same in all panels."""
    names = [name for name in varying_knobs(summary) if name != "n_ipu"]
    worth: dict[str, float] = {}
    for cell in summary.cells:
        key = label(cell.knobs, names)
        worth[key] = max(worth.get(key, 0.0), summary.worth(cell.best) if cell.best else 0.0)
    best = set(sorted(worth, key=lambda key: -worth[key])[:N_SERIES])
    classes = dict.fromkeys(worth, "s-other") | {key: f"s{index}" for index, key in enumerate(sorted(best))}
    of_count: dict[int, list[CellSeries]] = {}
    for cell in sorted(summary.cells, key=lambda cell: cell.knobs.n_ipu):
        key = label(cell.knobs, names)
        of_count.setdefault(cell.knobs.n_ipu, []).append(CellSeries(classes[key], key, cell))
    return [
        Panel(f"n_ipu {n_ipu}", tuple(sorted(series, key=lambda line: line.class_ != "s-other")))
        for n_ipu, series in of_count.items()
    ]


def legend(shown: Sequence[Panel]) -> list[tuple[str, str]]:
    """The class and the name of every line, the grey ones together; empty when there is only one line."""
    names = {series.class_: series.name for panel in shown for series in panel.series}
    if list(names.values()) == [ALL]:
        return []
    other = [("s-other", "other cells")] if names.pop("s-other", None) else []
    return [*sorted(names.items()), *other]


def panel_width(n_panels: int) -> int:
    """Width in pixels of each of `n_panels` panels."""
    return _WIDTHS.get(n_panels, 360)


def batches_svg(panel: Panel, summary: StudySummary, name: str, width: int) -> str:
    """Dots are measured, crosses below do not fit; each colour has a lane of its own for its crosses."""
    speeds = [trial.samples_per_s for trial in summary.ranked] or [0.0, 1.0]
    margin = 0.08 * (max(speeds) - min(speeds)) or 1.0
    largest = max(trial.knobs.batch_size for trial in summary.trials)
    lanes = sorted({series.class_ for series in panel.series})
    floor = _HEIGHT - 46 - _LANE * len(lanes)
    across = Axis(0.0, max(largest * 1.03, 5.0), _LEFT, width - 10)
    up = Axis(max(0.0, min(speeds) - margin), max(speeds) + margin, floor, _TOP)
    axes = bottom_axis(across, _HEIGHT - 46, "batch size", 5, top=_TOP)
    axes += left_axis(up, _LEFT, f"samples/s, {origin_of(summary)}", 5, right=across.stop)
    middle = floor + _LANE * len(lanes) / 2 + 8
    unfit = tag("text", "no fit", x=_LEFT - 8, y=middle, class_="tick", text_anchor="end")
    lane_top = tag("line", x1=_LEFT, x2=width - 10, y1=floor + 4, y2=floor + 4, class_="grid")
    lines = (_line(series, across, up, summary) for series in panel.series)
    crosses = (
        _crosses(series, across, floor + _LANE * (lanes.index(series.class_) + 0.5) + 5) for series in panel.series
    )
    title = f"Throughput over batch size, {panel.name}"
    return svg(name, title, width, _HEIGHT, axes, lane_top, unfit, *lines, *crosses)


def _line(series: CellSeries, across: Axis, up: Axis, summary: StudySummary) -> str:
    fitting = [trial for trial in series.cell.trials if trial.fits]
    points = [(across.pixel(trial.knobs.batch_size), up.pixel(trial.samples_per_s)) for trial in fitting]
    corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    distinct = {(round(x), round(y)): (trial, x, y) for trial, (x, y) in zip(fitting, points, strict=True)}
    dots = "".join(_dot(trial, x, y, series.class_, summary) for trial, x, y in distinct.values())
    return tag("polyline", points=corners, class_=f"line {series.class_}") + dots


def _dot(trial: TrialSummary, x: float, y: float, class_: str, summary: StudySummary) -> str:
    wins = summary.winner is not None and trial.number == summary.winner.trial.number
    text = f"trial {trial.number}: batch {trial.knobs.batch_size}, {trial.samples_per_s:,.1f} samples/s"
    dot = tag("circle", tag("title", words(text)), cx=x, cy=y, r=4, class_=f"dot {class_}")
    return dot + (tag("circle", cx=x, cy=y, r=8, class_="ring") if wins else "")


def _crosses(series: CellSeries, across: Axis, y: float) -> str:
    distinct = {round(across.pixel(trial.knobs.batch_size)): trial for trial in series.cell.trials if not trial.fits}
    parts = []
    for trial in distinct.values():
        x = across.pixel(trial.knobs.batch_size)
        tooltip = tag("title", words(f"trial {trial.number}: batch {trial.knobs.batch_size} does not fit"))
        path = f"M{x - 3:.1f} {y - 3:.1f}l6 6m0 -6l-6 6"
        parts.append(tag("path", tooltip, d=path, class_=f"cross {series.class_}"))
    return "".join(parts)
