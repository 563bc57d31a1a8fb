"""The best throughput of every n_ipu and memory proportion, as an SVG picture."""

from __future__ import annotations

from typing import NamedTuple

from autoauto.records.knobs import Knobs
from autoauto.records.study_summary import CellFindings, Findings, Tried
from autoauto.report.charts.markup import number, svg, tag, words
from autoauto.report.wording import label, varying

N_ROWS = 16
"""Rows there may be; with more, knobs other than n_ipu share a row."""

_TOP, _WIDTH, _HEIGHT, _COLUMN = 4, 420, 230, 76


class HeatMap(NamedTuple):
    """A grid of the best configurations.

    Attributes:
        rows: values of n_ipu, each with the other knobs that tell rows apart.
        columns: memory proportions.
        best: the best configuration of a row and a column; None where all that was tried does not fit.
    """

    rows: tuple[str, ...]
    columns: tuple[float, ...]
    best: dict[tuple[str, float], Tried | None]


def heat_map(found: Findings) -> HeatMap:
    """The best of every n_ipu and memory proportion, apart by schedule and the like where that is few rows."""
    names = [name for name in varying(found) if name not in ("n_ipu", "memory_proportion")]
    grid = _grid(found, names)
    return grid if len(grid.rows) <= N_ROWS else _grid(found, [])


def is_wide(found: Findings) -> bool:
    """Whether the picture needs a line of its own."""
    return len(heat_map(found).columns) * _COLUMN > _WIDTH


def _grid(found: Findings, names: list[str]) -> HeatMap:
    cells = sorted(found.cells, key=lambda cell: cell.knobs.n_ipu)
    best: dict[tuple[str, float], Tried | None] = {}
    for cell in cells:
        place = (_row_name(cell.knobs, names), cell.knobs.memory_proportion)
        best[place] = _better(found, best.get(place), cell)
    return HeatMap(tuple(dict.fromkeys(row for row, _ in best)), tuple(sorted({p for _, p in best})), best)


def _row_name(knobs: Knobs, names: list[str]) -> str:
    return f"{knobs.n_ipu} {label(knobs, names)}" if names else str(knobs.n_ipu)


def _better(found: Findings, so_far: Tried | None, cell: CellFindings) -> Tried | None:
    both = [tried for tried in (so_far, cell.best) if tried is not None]
    return max(both, key=found.worth, default=None)


def heat_map_svg(found: Findings, name: str = "heat-map") -> str:
    """A stronger colour is faster; each cell says its throughput and its batch size."""
    grid = heat_map(found)
    left = 40 + 6.5 * max(map(len, grid.rows))
    width = max((_WIDTH - left) / len(grid.columns), _COLUMN)
    whole = left + width * len(grid.columns)
    height = max(44.0, min(76.0, _HEIGHT / len(grid.rows)))
    bottom = _TOP + height * len(grid.rows)
    parts = []
    for line, row in enumerate(grid.rows):
        y = _TOP + height * line
        parts.append(tag("text", words(row), x=left - 10, y=y + height / 2 + 4, class_="tick", text_anchor="end"))
        for place, column in enumerate(grid.columns):
            parts.append(_cell(grid, found, (row, column), (left + width * place, y, width, height)))
    for place, column in enumerate(grid.columns):
        x = left + width * (place + 0.5)
        parts.append(tag("text", str(column), x=x, y=bottom + 18, class_="tick", text_anchor="middle"))
    middle = (left + whole) / 2
    parts.append(tag("text", "memory proportion", x=middle, y=bottom + 38, class_="name", text_anchor="middle"))
    parts.append(tag("text", "n_ipu", x=left - 10, y=bottom + 18, class_="name", text_anchor="end"))
    return svg(name, "Best throughput by n_ipu and memory proportion", whole, bottom + 48, *parts)


def _cell(grid: HeatMap, found: Findings, cell: tuple[str, float], box: tuple[float, float, float, float]) -> str:
    x, y, width, height = box
    middle, place = x + width / 2, y + height / 2
    frame = {"x": x + 1.5, "y": y + 1.5, "width": width - 3, "height": height - 3, "rx": 4}
    tried = grid.best.get(cell)
    if tried is None:
        said = "none fits" if cell in grid.best else "not tried"
        text = tag("text", said, x=middle, y=place + 4, class_="tick", text_anchor="middle")
        return tag("rect", class_="empty", **frame) + text
    wins = " winner" if found.winner and tried is found.winner.tried else ""
    speed = tag("text", _speed(tried), x=middle, y=place - 1, class_="cell", text_anchor="middle")
    batch = tag("text", f"batch {tried.knobs.batch_size}", x=middle, y=place + 16, class_="below", text_anchor="middle")
    return (
        tag("rect", class_=f"heat{wins}", fill_opacity=f"{_strength(grid, found, tried):.2f}", **frame) + speed + batch
    )


def _speed(tried: Tried) -> str:
    speed = tried.samples_per_s
    return number(round(speed)) if speed >= 100 else f"{speed:.1f}"


def _strength(grid: HeatMap, found: Findings, tried: Tried) -> float:
    """From 0.1 for the slowest cell to 0.6 for the fastest."""
    worths = [found.worth(one) for one in grid.best.values() if one]
    return 0.1 + 0.5 * (found.worth(tried) - min(worths)) / ((max(worths) - min(worths)) or 1.0)
