"""Throughput over batch size, a panel for every n_ipu and a line for every cell, as SVG pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autoauto.records.study_summary import CellFindings, Findings, Tried
from autoauto.report.charts.markup import Axis, bottom_axis, left_axis, svg, tag, words
from autoauto.report.wording import ALL, label, origin_of, varying

N_SERIES = 8
"""Colours that a panel has; of more cells the best get one each, and the rest are grey."""

_LEFT, _TOP, _HEIGHT, _LANE = 60, 30, 300, 12
_WIDTHS = {1: 1000, 2: 520}
"""Of a panel, by how many there are; of three and more each has 360."""


@dataclass(frozen=True)
class Panel:
    """The cells of one n_ipu.

    Attributes:
        name: what the panel shows.
        series: for every cell its class, its name and its trials; the grey ones have the class "s-other".
    """

    name: str
    series: tuple[tuple[str, str, CellFindings], ...]


def panels(found: Findings) -> list[Panel]:
    """One panel for every n_ipu; a cell's colour says the rest of its knobs, the same in all panels."""
    names = [name for name in varying(found) if name != "n_ipu"]
    worth: dict[str, float] = {}
    for cell in found.cells:
        key = label(cell.knobs, names)
        worth[key] = max(worth.get(key, 0.0), found.worth(cell.best) if cell.best else 0.0)
    best = set(sorted(worth, key=lambda key: -worth[key])[:N_SERIES])
    classes = dict.fromkeys(worth, "s-other") | {key: f"s{index}" for index, key in enumerate(sorted(best))}
    made = []
    for n_ipu in sorted({cell.knobs.n_ipu for cell in found.cells}):
        cells = [cell for cell in found.cells if cell.knobs.n_ipu == n_ipu]
        series = [(classes[key], key, cell) for cell in cells for key in [label(cell.knobs, names)]]
        made.append(Panel(f"n_ipu {n_ipu}", tuple(sorted(series, key=lambda one: one[0] != "s-other"))))
    return made


def legend(shown: Sequence[Panel]) -> list[tuple[str, str]]:
    """The class and the name of every line, the grey ones together; nothing where there is one."""
    names = {class_: name for panel in shown for class_, name, _ in panel.series}
    if list(names.values()) == [ALL]:
        return []
    other = [("s-other", "other cells")] if names.pop("s-other", None) else []
    return [*sorted(names.items()), *other]


def panel_width(n_panels: int) -> int:
    """How wide each of so many panels is."""
    return _WIDTHS.get(n_panels, 360)


def batches_svg(panel: Panel, found: Findings, name: str, width: int) -> str:
    """Dots are measured, crosses below do not fit: each colour has a lane of its own there."""
    speeds = [tried.samples_per_s for tried in found.ranked] or [0.0, 1.0]
    room = 0.08 * (max(speeds) - min(speeds)) or 1.0
    largest = max(tried.knobs.batch_size for tried in found.tried)
    lanes = sorted({class_ for class_, _, _ in panel.series})
    floor = _HEIGHT - 46 - _LANE * len(lanes)
    across = Axis(0.0, max(largest * 1.03, 5.0), _LEFT, width - 10)
    up = Axis(max(0.0, min(speeds) - room), max(speeds) + room, floor, _TOP)
    axes = bottom_axis(across, _HEIGHT - 46, "batch size", 5, top=_TOP)
    axes += left_axis(up, _LEFT, f"samples/s, {origin_of(found)}", 5, right=across.stop)
    place = floor + _LANE * len(lanes) / 2 + 8
    unfit = tag("text", "no fit", x=_LEFT - 8, y=place, class_="tick", text_anchor="end")
    lane_top = tag("line", x1=_LEFT, x2=width - 10, y1=floor + 4, y2=floor + 4, class_="grid")
    lines = (_line(cell, class_, across, up, found) for class_, _, cell in panel.series)
    crosses = (
        _crosses(cell, class_, across, floor + _LANE * (lanes.index(class_) + 0.5) + 5)
        for class_, _, cell in panel.series
    )
    title = f"Throughput over batch size, {panel.name}"
    return svg(name, title, width, _HEIGHT, axes, lane_top, unfit, *lines, *crosses)


def _line(cell: CellFindings, class_: str, across: Axis, up: Axis, found: Findings) -> str:
    fitting = [tried for tried in cell.tried if tried.fits]
    places = [(across.place(tried.knobs.batch_size), up.place(tried.samples_per_s)) for tried in fitting]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    thinned = {(round(x), round(y)): (tried, x, y) for tried, (x, y) in zip(fitting, places, strict=True)}
    dots = "".join(_dot(tried, x, y, class_, found) for tried, x, y in thinned.values())
    return tag("polyline", points=points, class_=f"line {class_}") + dots


def _dot(tried: Tried, x: float, y: float, class_: str, found: Findings) -> str:
    wins = found.winner is not None and tried.number == found.winner.tried.number
    said = f"trial {tried.number}: batch {tried.knobs.batch_size}, {tried.samples_per_s:,.1f} samples/s"
    dot = tag("circle", tag("title", words(said)), cx=x, cy=y, r=4, class_=f"dot {class_}")
    return dot + (tag("circle", cx=x, cy=y, r=8, class_="ring") if wins else "")


def _crosses(cell: CellFindings, class_: str, across: Axis, y: float) -> str:
    unfit = {round(across.place(tried.knobs.batch_size)): tried for tried in cell.tried if not tried.fits}
    parts = []
    for tried in unfit.values():
        x = across.place(tried.knobs.batch_size)
        said = tag("title", words(f"trial {tried.number}: batch {tried.knobs.batch_size} does not fit"))
        path = f"M{x - 3:.1f} {y - 3:.1f}l6 6m0 -6l-6 6"
        parts.append(tag("path", said, d=path, class_=f"cross {class_}"))
    return "".join(parts)
