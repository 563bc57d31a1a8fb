"""The best throughput of every n_ipu and memory proportion: `heat_map` as data, `heat_map_svg` as a picture."""

from __future__ import annotations

from typing import NamedTuple

from autoauto.records.knobs import Knobs
from autoauto.records.study_summary import CellSummary, StudySummary, TrialSummary
from autoauto.report.charts.markup import number, svg, tag, words
from autoauto.report.wording import label, varying_knobs

N_ROWS = 16
"""The most rows; with more values, configurations that differ in knobs other than n_ipu share a row."""

_TOP, _WIDTH, _HEIGHT, _MIN_COLUMN_WIDTH = 4, 420, 230, 76


class HeatMap(NamedTuple):
    """A grid of the best configurations.

    Attributes:
        rows: values of n_ipu, each with the other knobs that distinguish rows.
        columns: memory proportions.
        best: the best configuration of a row and a column; None where no tried configuration fits.
    """

    rows: tuple[str, ...]
    columns: tuple[float, ...]
    best: dict[tuple[str, float], TrialSummary | None]


def heat_map(summary: StudySummary) -> HeatMap:
    """The best of every row and column; values of schedule and the like have rows of their own up to `N_ROWS` rows."""
    names = [name for name in varying_knobs(summary) if name not in ("n_ipu", "memory_proportion")]
    grid = _grid(summary, names)
    return grid if len(grid.rows) <= N_ROWS else _grid(summary, [])


def is_wide(summary: StudySummary) -> bool:
    """Whether the picture needs the whole width of the page."""
    return len(heat_map(summary).columns) * _MIN_COLUMN_WIDTH > _WIDTH


def _grid(summary: StudySummary, names: list[str]) -> HeatMap:
    cells = sorted(summary.cells, key=lambda cell: cell.knobs.n_ipu)
    best: dict[tuple[str, float], TrialSummary | None] = {}
    for cell in cells:
        key = (_row_name(cell.knobs, names), cell.knobs.memory_proportion)
        best[key] = _better(summary, best.get(key), cell)
    return HeatMap(tuple(dict.fromkeys(row for row, _ in best)), tuple(sorted({p for _, p in best})), best)


def _row_name(knobs: Knobs, names: list[str]) -> str:
    return f"{knobs.n_ipu} {label(knobs, names)}" if names else str(knobs.n_ipu)


def _better(summary: StudySummary, so_far: TrialSummary | None, cell: CellSummary) -> TrialSummary | None:
    both = [trial for trial in (so_far, cell.best) if trial is not None]
    return max(both, key=summary.worth, default=None)


def heat_map_svg(summary: StudySummary, name: str = "heat-map") -> str:
    """A grid of rectangles with throughput and batch size; a stronger colour is faster."""
    grid = heat_map(summary)
    left = 40 + 6.5 * max(map(len, grid.rows))
    width = max((_WIDTH - left) / len(grid.columns), _MIN_COLUMN_WIDTH)
    whole = left + width * len(grid.columns)
    height = max(44.0, min(76.0, _HEIGHT / len(grid.rows)))
    bottom = _TOP + height * len(grid.rows)
    parts = []
    for line, row in enumerate(grid.rows):
        y = _TOP + height * line
        parts.append(tag("text", words(row), x=left - 10, y=y + height / 2 + 4, class_="tick", text_anchor="end"))
        for index, column in enumerate(grid.columns):
            parts.append(_cell(grid, summary, (row, column), (left + width * index, y, width, height)))
    for index, column in enumerate(grid.columns):
        x = left + width * (index + 0.5)
        parts.append(tag("text", str(column), x=x, y=bottom + 18, class_="tick", text_anchor="middle"))
    middle = (left + whole) / 2
    parts.append(tag("text", "memory proportion", x=middle, y=bottom + 38, class_="name", text_anchor="middle"))
    parts.append(tag("text", "n_ipu", x=left - 10, y=bottom + 18, class_="name", text_anchor="end"))
    return svg(name, "Best throughput by n_ipu and memory proportion", whole, bottom + 48, *parts)


def _cell(grid: HeatMap, summary: StudySummary, cell: tuple[str, float], box: tuple[float, float, float, float]) -> str:
    x, y, width, height = box
    middle, centre = x + width / 2, y + height / 2
    frame = {"x": x + 1.5, "y": y + 1.5, "width": width - 3, "height": height - 3, "rx": 4}
    trial = grid.best.get(cell)
    if trial is None:
        note = "none fits" if cell in grid.best else "not tried"
        text = tag("text", note, x=middle, y=centre + 4, class_="tick", text_anchor="middle")
        return tag("rect", class_="empty", **frame) + text
    wins = " winner" if summary.winner and trial is summary.winner.trial else ""
    rectangle = tag("rect", class_=f"heat{wins}", fill_opacity=f"{_opacity(grid, summary, trial):.2f}", **frame)
    speed = tag("text", _speed(trial), x=middle, y=centre - 1, class_="cell", text_anchor="middle")
    batch = f"batch {trial.knobs.batch_size}"
    return rectangle + speed + tag("text", batch, x=middle, y=centre + 16, class_="below", text_anchor="middle")


def _speed(trial: TrialSummary) -> str:
    speed = trial.samples_per_s
    return number(round(speed)) if speed >= 100 else f"{speed:.1f}"


def _opacity(grid: HeatMap, summary: StudySummary, trial: TrialSummary) -> float:
    """From 0.1 for the slowest cell to 0.6 for the fastest."""
    worths = [summary.worth(best) for best in grid.best.values() if best]
    return 0.1 + 0.5 * (summary.worth(trial) - min(worths)) / ((max(worths) - min(worths)) or 1.0)
