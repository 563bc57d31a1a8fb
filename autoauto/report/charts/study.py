"""The charts of a study, `study_charts`: the same in its page and in the dashboard.

Throughput over batch size, `batches_chart`, has a panel per n_ipu with a line per cell; `parity_chart` shows estimated
against measured throughput.

The best throughput of every n_ipu and memory proportion, on GPUs of every n_ipu and group: `heat_map` as a grid,
`heat_map_chart` as a chart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from autoauto.records.interval import Interval
from autoauto.records.plans.timeline import Timeline
from autoauto.records.target import Origin, studied_origin
from autoauto.report.charts.chart import HOLLOW, OTHER, RING, Axis, Chart, Mark, Panel, Series, Shape, category_axis
from autoauto.report.charts.engines import engines_chart
from autoauto.report.charts.objectives import objectives_chart
from autoauto.report.charts.plan import N_BARS, memory_chart, timeline_chart
from autoauto.report.charts.rates import rates_chart
from autoauto.report.charts.users import users_chart
from autoauto.report.style import difference_percent
from autoauto.report.wording import (
    ALL,
    clock_of,
    counted,
    label,
    origin_of,
    shown_clock,
    speed_text,
    trials_origin,
    unit_of,
    varying_knobs,
    words_of,
)
from autoauto.space.knobs import Knobs
from autoauto.space.modes.generation import Generation
from autoauto.space.study_summary import StudySummary
from autoauto.space.table import flat_value
from autoauto.space.trial import Cell, Trial

N_ROWS = 16
"""The most rows; with more values, configurations that differ in knobs other than n_ipu share a row."""

_WIDTH, _HEIGHT = 420, 224
_MAP_HEIGHT, _MIN_COLUMN_WIDTH = 230, 76


class HeatMap(NamedTuple):
    """A grid of the best configurations.

    Attributes:
        rows: values of n_ipu, each with the other knobs that distinguish rows.
        columns: memory proportions, or sizes of groups of GPUs (`_across`).
        best: the best configuration of a row and a column; None where no tried configuration fits.
        notes: what is known where none does: an estimate, which batch size does not fit, or that none fits.
    """

    rows: tuple[str, ...]
    columns: tuple[float, ...]
    best: dict[tuple[str, float], Trial | None]
    notes: dict[tuple[str, float], str]


def heat_map(summary: StudySummary) -> HeatMap:
    """The best of every row and column; values of schedule and the like have rows of their own up to `N_ROWS` rows."""
    names = [name for name in varying_knobs(summary) if name not in ("n_ipu", _across(summary))]
    grid = _grid(summary, names)
    return grid if len(grid.rows) <= N_ROWS else _grid(summary, [])


def _grid(summary: StudySummary, names: list[str]) -> HeatMap:
    cells = sorted(summary.cells, key=lambda cell: cell.knobs.n_ipu)
    best: dict[tuple[str, float], Trial | None] = {}
    for cell in cells:
        key = (_row_name(cell.knobs, names), flat_value(cell.knobs, _across(summary)))
        best[key] = _better(summary, best.get(key), cell)
    notes = {key: _note(summary, names, key) for key, trial in best.items() if trial is None}
    return HeatMap(tuple(dict.fromkeys(row for row, _ in best)), tuple(sorted({p for _, p in best})), best, notes)


def _note(summary: StudySummary, names: list[str], key: tuple[str, float]) -> str:
    """What is known of a row and a column of which no tried configuration fits."""

    def is_here(knobs: Knobs) -> bool:
        return (_row_name(knobs, names), flat_value(knobs, _across(summary))) == key

    estimates = [each for each in summary.alternatives if each.samples_per_s and is_here(each.knobs)]
    if estimates:
        best = max(estimates, key=lambda each: each.samples_per_s)
        bound = "at most" if best.at_most else "estimated"
        return f"{best.samples_per_s:,.0f}\n{bound}"
    here = [trial for trial in summary.trials if is_here(trial.knobs)]
    if any(trial.ended_early for trial in here):
        return f"{max(trial.samples_per_s for trial in here if trial.ended_early):,.0f}\nended early"
    tried = min(trial.knobs.batch_size for trial in here)
    smallest = tried if summary.space is None else min(summary.space["batch_size"])
    return "none fits" if tried <= smallest else f"batch {tried}\ndoes not fit"


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
                empty.append(Mark(x, y, "", grid.notes.get((row, column), "not tried"), x + 1))
            else:
                full.append(_cell(trial, _across(summary), (x, y), _opacity(summary.worth(trial), worths)))
                if trial.number == winner:
                    frames.append(Mark(x, y, full[-1].hover, "", x + 1))
    series = [Series("", "heat", Shape.CELL, tuple(full)), Series("", "empty", Shape.CELL, tuple(empty))]
    series += [Series("", RING, Shape.CELL, (frame,)) for frame in frames]
    called = words_of(cell.knobs for cell in summary.cells).name
    rows, columns = category_axis(called("n_ipu"), grid.rows), tuple(map(str, grid.columns))
    width = max(_WIDTH, 40 + 7 * max(map(len, grid.rows)) + _MIN_COLUMN_WIDTH * len(columns))
    height = len(grid.rows) * max(44.0, min(76.0, _MAP_HEIGHT / len(grid.rows)))
    panel = Panel(
        "", category_axis(called(_across(summary)).replace("_", " "), columns), rows, tuple(series), width, height
    )
    best = f"Best {_unit(summary)} of every combination of knobs over all batch sizes"
    text = f"{best}, {trials_origin(summary)}; the framed one wins."
    return Chart("heat-map", "Best throughput", text, (panel,))


def _unit(summary: StudySummary) -> str:
    return unit_of(trial.knobs for trial in summary.trials)


def _across(summary: StudySummary) -> str:
    """The knob of the columns: the first of these that the configurations have, what targets of a kind vary most."""
    own = {name for cell in summary.cells for name in cell.knobs.values}
    return next(
        (name for name in ("tensor_parallel", "memory_proportion", "cores_per_device") if name in own), "replicas"
    )


def _cell(trial: Trial, across: str, corner: tuple[int, int], opacity: float) -> Mark:
    (x, y), knobs, speed = corner, trial.knobs, trial.samples_per_s
    called = knobs.session.words.name
    where = f"{called('n_ipu')} {knobs.n_ipu}, {called(across).replace('_', ' ')} {flat_value(knobs, across)}"
    hover = f"trial {trial.number}: {where}, batch {knobs.batch_size}, {_speed(trial)}"
    shown = f"{speed:,.0f}" if speed >= 100 else f"{speed:.1f}"
    return Mark(x, y, hover, f"{shown}\nbatch {knobs.batch_size}", x + 1, opacity)


def _speed(trial: Trial) -> str:
    return f"{speed_text(Interval(trial.samples_per_s, None), trial.unit)} {trial.unit}"


def _opacity(worth: float, worths: list[float]) -> float:
    """From 0.1 for the slowest cell to 0.6 for the fastest."""
    return 0.1 + 0.5 * (worth - min(worths)) / ((max(worths) - min(worths)) or 1.0)


N_SERIES = 8
"""Number of colours. The best cells have one each; further cells are grey."""
_WIDTHS = {1: 420, 2: 520}
"""Width of a panel by the number of panels; with three and more each has 360."""


def compared_trials(summary: StudySummary) -> list[Trial]:
    """The configurations with an estimated and a measured throughput."""
    return [trial for trial in summary.trials if trial.fits and trial.estimated_samples_per_s > 0]


def parity_summary(trials: Sequence[Trial]) -> str:
    """Mean and largest difference between estimate and measurement, in words."""
    errors = [difference_percent(trial.estimated_samples_per_s, trial.samples_per_s) or 0.0 for trial in trials]
    if not errors:
        return "no configuration has both"
    mean = sum(map(abs, errors)) / len(errors)
    largest = max(errors, key=abs)
    return f"{counted(len(errors), 'configuration')}: mean error {mean:.1f} %, largest {largest:+.1f} %"


def parity_chart(summary: StudySummary) -> Chart:
    """A dot per configuration, on the diagonal where the estimate is exact; 5 % to either side are shaded."""
    trials, origin = compared_trials(summary), origin_of(summary)
    low, high = _range([speed for trial in trials for speed in (trial.samples_per_s, trial.estimated_samples_per_s)])
    corners = [(low, low), (low * 1.05, low), (high, high / 1.05), (high, high), (high * 0.95, high), (low, low / 0.95)]
    counts = sorted({trial.knobs.n_ipu for trial in trials})
    dots = (
        Series(
            f"{words_of(trial.knobs for trial in trials).name('n_ipu')} {n_ipu}",
            f"s{index % 8}",
            Shape.DOT,
            tuple(_dot(t, origin) for t in trials if t.knobs.n_ipu == n_ipu),
        )
        for index, n_ipu in enumerate(counts)
    )
    series = (
        Series("", "tolerance", Shape.AREA, tuple(Mark(x, y) for x, y in corners)),
        Series("equal", "diagonal", Shape.LINE, (Mark(low, low), Mark(high, high))),
        *dots,
    )
    across, up = (Axis(f"{name} ({_unit(summary)})", low, high) for name in (Origin.ESTIMATED, origin))
    text = f"{parity_summary(trials)}. The shaded area is 5 % to either side."
    return Chart("parity", f"Estimated against {origin}", text, (Panel("", across, up, series, _WIDTH, _HEIGHT),))


def _range(speeds: Sequence[float]) -> tuple[float, float]:
    """From below the smallest to above the largest, with a margin for the shaded 5 %."""
    low, high = min(speeds, default=0.0), max(speeds, default=1.0)
    margin = max(0.08 * (high - low), 0.06 * high)
    return max(0.0, low - margin), high + margin


def _dot(trial: Trial, origin: Origin) -> Mark:
    speeds = f"estimated {trial.estimated_samples_per_s:,.1f}, {origin} {trial.samples_per_s:,.1f} {trial.unit}"
    return Mark(trial.estimated_samples_per_s, trial.samples_per_s, f"trial {trial.number}: {speeds}")


def batches_chart(summary: StudySummary) -> Chart:
    """Throughput over batch size, a panel for every n_ipu and a colour for every cell's other knobs.

    Dots are measured; crosses below the axis do not fit.
    """
    names = [name for name in varying_knobs(summary) if name != "n_ipu"]
    labels = {cell.knobs: label(cell.knobs, names) for cell in summary.cells}
    styles = _styles(summary, [labels[cell.knobs] for cell in summary.cells])
    of_count: dict[int, list[Series]] = {}
    for cell in summary.cells:
        name = labels[cell.knobs]
        shown = "other combinations" if styles[name] == OTHER else "" if name == ALL else name
        marks = tuple(map(_mark, cell.trials))
        of_count.setdefault(cell.knobs.n_ipu, []).append(Series(shown, styles[name], Shape.JOINED, marks))
    for n_ipu, marks in _estimates(summary).items():
        of_count.setdefault(n_ipu, []).append(Series("", HOLLOW, Shape.DOT, marks))
    across, up = _axes(summary)
    width = _WIDTHS.get(len(of_count), 360)
    called = words_of(cell.knobs for cell in summary.cells).name
    panels = (
        Panel(
            f"{called('n_ipu')} {n_ipu}",
            across,
            up,
            (*_grey_first(lines), *_ring(summary, n_ipu)),
            width,
            _HEIGHT,
            "no fit",
        )
        for n_ipu, lines in sorted(of_count.items())
    )
    text = f"Dots are {trials_origin(summary)}, crosses do not fit; the ring is the best configuration."
    if any(trial.ended_early for trial in summary.trials):
        text = text.replace("crosses do not fit", "crosses do not fit or ended early, as slower than the best")
    text += " Hollow marks are estimates of what was not tried." if _estimates(summary) else ""
    return Chart("batches", "Throughput over batch size", text, tuple(panels))


def _estimates(summary: StudySummary) -> dict[int, tuple[Mark, ...]]:
    """The estimates of simple uses that were not tried, by n_ipu."""
    tried = {trial.knobs for trial in summary.trials}
    marks: dict[int, tuple[Mark, ...]] = {}
    for each in summary.alternatives:
        if each.samples_per_s and each.knobs not in tried and not each.at_most:
            knobs = each.knobs
            hover = (
                f"{each.name}: batch {knobs.batch_size}, {each.samples_per_s:,.1f} {_unit(summary)}, {Origin.ESTIMATED}"
            )
            mark = Mark(knobs.batch_size, each.samples_per_s, hover)
            marks[knobs.n_ipu] = (*marks.get(knobs.n_ipu, ()), mark)
    return marks


def _styles(summary: StudySummary, labels: list[str]) -> dict[str, str]:
    """The style of every label: colours for the best, the same in all panels, grey for the others."""
    worth: dict[str, float] = {}
    for name, cell in zip(labels, summary.cells, strict=True):
        worth[name] = max(worth.get(name, 0.0), summary.worth(cell.best) if cell.best else 0.0)
    best = sorted(sorted(worth, key=lambda name: -worth[name])[:N_SERIES])
    return dict.fromkeys(worth, OTHER) | {name: f"s{index}" for index, name in enumerate(best)}


def _grey_first(lines: list[Series]) -> list[Series]:
    """Lines in the order in which they are drawn: grey ones first, so that no colour is hidden."""
    return sorted(lines, key=lambda series: (series.style != OTHER, series.style))


def _axes(summary: StudySummary) -> tuple[Axis, Axis]:
    """The same axes for all panels."""
    estimates = [mark for marks in _estimates(summary).values() for mark in marks]
    speeds = [trial.samples_per_s for trial in summary.ranked]
    speeds = [*speeds, *(mark.y or 0.0 for mark in estimates)] or [0.0, 1.0]
    margin = max(0.08 * (max(speeds) - min(speeds)), 0.02 * max(speeds)) or 1.0  # what is nearly equal looks so
    sizes = [trial.knobs.batch_size for trial in summary.trials] + [int(mark.x) for mark in estimates]
    largest = max(sizes, default=1)
    across = Axis("batch size", 0.0, max(largest * 1.03, 5.0))
    return across, Axis(
        f"{_unit(summary)}, {trials_origin(summary)}", max(0.0, min(speeds) - margin), max(speeds) + margin
    )


def _ring(summary: StudySummary, n_ipu: int) -> list[Series]:
    winner = summary.winner
    if winner is None or winner.knobs.n_ipu != n_ipu:
        return []
    return [Series("best configuration", RING, Shape.DOT, (_mark(winner),))]


def _mark(trial: Trial) -> Mark:
    size = trial.knobs.batch_size
    if trial.ended_early:
        return Mark(size, None, f"trial {trial.number}: batch {size}, {trial.reason}")
    if not trial.fits:
        return Mark(size, None, f"trial {trial.number}: batch {size} does not fit")
    return Mark(size, trial.samples_per_s, f"trial {trial.number}: batch {size}, {_speed(trial)}")


def study_charts(summary: StudySummary, timeline: Timeline | None, n_bars: int = N_BARS) -> list[Chart]:
    """Timeline and memory of the winner, heat map, parity of what was measured, speeds, throughput over sizes.

    A chart with a single point, which compares nothing, is left out.

    Args:
        summary: the study.
        timeline: the winner's; None for phases, and when nothing fits.
        n_bars: the most bars of the timeline.
    """
    charts, winner = [], summary.winner
    if winner is not None:
        if timeline is not None:
            in_seconds, device = shown_clock(summary) is not None, winner.knobs.session.words.device
            best = timeline_chart(timeline, clock_of(summary, winner), n_bars, in_seconds=in_seconds, device=device)
            charts.append(replace(best, title=f"{best.title} of the best configuration"))
        charts += [memory_chart(winner, studied_origin(summary.attributes)), heat_map_chart(summary)]
        is_forecast = origin_of(summary) is Origin.ESTIMATED or isinstance(winner.knobs.mode, Generation)
        charts += [] if is_forecast else [parity_chart(summary)]
    rates = rates_chart(summary.rate_curves)
    of_speeds = filter(None, (rates, engines_chart(summary), users_chart(summary), objectives_chart(summary)))
    return [chart for chart in (*charts, *of_speeds, batches_chart(summary)) if chart.n_points != 1]
