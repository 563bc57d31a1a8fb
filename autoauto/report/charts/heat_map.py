"""The best throughput of every n_ipu and memory proportion: `heat_map` as a grid, `heat_map_chart` as a chart."""

from __future__ import annotations

from typing import NamedTuple

from autoauto.records.knobs.knobs import Knobs
from autoauto.records.trials.study_summary import StudySummary
from autoauto.records.trials.trial import Cell, Trial
from autoauto.report.charts.chart import RING, Chart, Mark, Panel, Series, Shape, category_axis
from autoauto.report.wording import label, origin_of, varying_knobs

N_ROWS = 16
"""The most rows; with more values, configurations that differ in knobs other than n_ipu share a row."""

_WIDTH, _HEIGHT, _MIN_COLUMN_WIDTH = 420, 230, 76


class HeatMap(NamedTuple):
    """A grid of the best configurations.

    Attributes:
        rows: values of n_ipu, each with the other knobs that distinguish rows.
        columns: memory proportions.
        best: the best configuration of a row and a column; None where no tried configuration fits.
    """

    rows: tuple[str, ...]
    columns: tuple[float, ...]
    best: dict[tuple[str, float], Trial | None]


def heat_map(summary: StudySummary) -> HeatMap:
    """The best of every row and column; values of schedule and the like have rows of their own up to `N_ROWS` rows."""
    names = [name for name in varying_knobs(summary) if name not in ("n_ipu", "memory_proportion")]
    grid = _grid(summary, names)
    return grid if len(grid.rows) <= N_ROWS else _grid(summary, [])


def _grid(summary: StudySummary, names: list[str]) -> HeatMap:
    cells = sorted(summary.cells, key=lambda cell: cell.knobs.n_ipu)
    best: dict[tuple[str, float], Trial | None] = {}
    for cell in cells:
        key = (_row_name(cell.knobs, names), cell.knobs.memory_proportion)
        best[key] = _better(summary, best.get(key), cell)
    return HeatMap(tuple(dict.fromkeys(row for row, _ in best)), tuple(sorted({p for _, p in best})), best)


def _row_name(knobs: Knobs, names: list[str]) -> str:
    return f"{knobs.n_ipu} {label(knobs, names)}" if names else str(knobs.n_ipu)


def _better(summary: StudySummary, so_far: Trial | None, cell: Cell) -> Trial | None:
    both = [trial for trial in (so_far, cell.best) if trial is not None]
    return max(both, key=summary.worth, default=None)


def heat_map_chart(summary: StudySummary) -> Chart:
    """A grid of cells with throughput and batch size; a stronger colour is faster."""
    grid, winner = heat_map(summary), summary.winner.number if summary.winner else None
    worths = [summary.worth(best) for best in grid.best.values() if best]
    full: list[Mark] = []
    empty: list[Mark] = []
    frames: list[Mark] = []
    for y, row in enumerate(grid.rows):
        for x, column in enumerate(grid.columns):
            trial = grid.best.get((row, column))
            if trial is None:
                note = "none fits" if (row, column) in grid.best else "not tried"
                empty.append(Mark(x, y, "", note, x + 1))
            else:
                full.append(_cell(trial, (x, y), _opacity(summary.worth(trial), worths)))
                if trial.number == winner:
                    frames.append(Mark(x, y, full[-1].hover, "", x + 1))
    series = [Series("", "heat", Shape.CELL, tuple(full)), Series("", "empty", Shape.CELL, tuple(empty))]
    series += [Series("", RING, Shape.CELL, (frame,)) for frame in frames]
    rows, columns = category_axis("n_ipu", grid.rows), tuple(map(str, grid.columns))
    width = max(_WIDTH, 40 + 7 * max(map(len, grid.rows)) + _MIN_COLUMN_WIDTH * len(columns))
    height = len(grid.rows) * max(44.0, min(76.0, _HEIGHT / len(grid.rows)))
    panel = Panel("", category_axis("memory proportion", columns), rows, tuple(series), width, height)
    text = (
        f"Best samples/s of every combination of knobs over all batch sizes, {origin_of(summary)}; the framed one wins."
    )
    return Chart("heat-map", "Best throughput", text, (panel,))


def _cell(trial: Trial, corner: tuple[int, int], opacity: float) -> Mark:
    (x, y), knobs, speed = corner, trial.knobs, trial.samples_per_s
    where = f"n_ipu {knobs.n_ipu}, memory proportion {knobs.memory_proportion}"
    hover = f"trial {trial.number}: {where}, batch {knobs.batch_size}, {speed:,.1f} samples/s"
    shown = f"{speed:,.0f}" if speed >= 100 else f"{speed:.1f}"
    return Mark(x, y, hover, f"{shown}\nbatch {knobs.batch_size}", x + 1, opacity)


def _opacity(worth: float, worths: list[float]) -> float:
    """From 0.1 for the slowest cell to 0.6 for the fastest."""
    return 0.1 + 0.5 * (worth - min(worths)) / ((max(worths) - min(worths)) or 1.0)
