"""The charts of a study, `study_charts`: the same in its page and in the dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from autoauto.records.interval import Interval
from autoauto.records.plans.timeline import Timeline
from autoauto.records.target import Origin, studied_origin
from autoauto.records.units import format_number
from autoauto.report.charts.chart import HOLLOW, OTHER, RING, Axis, Chart, Mark, Panel, Series, Shape, category_axis
from autoauto.report.charts.dots import N_COLOURS, colour, trial_series
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
from autoauto.space.study_summary import Alternative, StudySummary
from autoauto.space.table import flat_value
from autoauto.space.trial import Trial

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
    across = _across(summary)

    def key_of(knobs: Knobs) -> tuple[str, float]:
        row = f"{knobs.n_ipu} {label(knobs, names)}" if names else str(knobs.n_ipu)
        return row, flat_value(knobs, across)

    best: dict[tuple[str, float], Trial | None] = {}
    for cell in sorted(summary.cells, key=lambda cell: cell.knobs.n_ipu):
        key = key_of(cell.knobs)
        both = [trial for trial in (best.get(key), cell.best) if trial is not None]
        best[key] = max(both, key=summary.worth, default=None)
    notes = {}
    for key, trial in best.items():
        if trial is None:
            trials = [trial for trial in summary.trials if key_of(trial.knobs) == key]
            uses = [use for use in summary.alternatives if use.samples_per_s and key_of(use.knobs) == key]
            notes[key] = _note(summary, trials, uses)
    # Rows are in the order of their first cells, columns in that of their numbers.
    rows = tuple(dict.fromkeys(row for row, _ in best))
    return HeatMap(rows, tuple(sorted({column for _, column in best})), best, notes)


def _note(summary: StudySummary, trials: list[Trial], uses: list[Alternative]) -> str:
    """The text of an empty cell of the map, made of its trials, none of which fits, and of estimates of simple uses."""
    if uses:
        best = max(uses, key=lambda use: use.samples_per_s)
        bound = "at most" if best.at_most else "estimated"
        return f"{format_number(best.samples_per_s, 0)}\n{bound}"
    so_far = [trial.samples_per_s for trial in trials if trial.ended_early]
    if so_far:
        return f"{format_number(max(so_far), 0)}\nended early"
    tried = min(trial.knobs.batch_size for trial in trials)
    smallest = tried if summary.space is None else min(summary.space["batch_size"])
    return "none fits" if tried <= smallest else f"batch {tried}\ndoes not fit"


def heat_map_chart(summary: StudySummary) -> Chart:
    """A grid of cells with throughput and batch size; a stronger colour is faster."""
    grid, across = heat_map(summary), _across(summary)
    worths = [summary.worth(best) for best in grid.best.values() if best]
    slowest, fastest = min(worths, default=0.0), max(worths, default=0.0)
    full: list[Mark] = []
    empty: list[Mark] = []
    frames: list[Series] = []
    for y, row in enumerate(grid.rows):
        for x, column in enumerate(grid.columns):
            trial = grid.best.get((row, column))
            if trial is None:
                empty.append(Mark(x, y, "", grid.notes.get((row, column), "not tried"), x + 1))
                continue
            opacity = 0.1 + 0.5 * (summary.worth(trial) - slowest) / ((fastest - slowest) or 1.0)
            cell = _cell(trial, across, (x, y), opacity)
            full.append(cell)
            if summary.winner is not None and trial.number == summary.winner.number:
                frames.append(Series("", RING, Shape.CELL, (Mark(x, y, cell.hover, "", x + 1),)))
    series = (
        Series("", "heat", Shape.CELL, tuple(full)),
        Series("", "empty", Shape.CELL, tuple(empty)),
        *frames,
    )
    called = words_of(cell.knobs for cell in summary.cells).name
    columns = category_axis(called(across).replace("_", " "), tuple(map(str, grid.columns)))
    rows = category_axis(called("n_ipu"), grid.rows)
    width = max(_WIDTH, 40 + 7 * max(map(len, grid.rows)) + _MIN_COLUMN_WIDTH * len(grid.columns))
    height = len(grid.rows) * max(44.0, min(76.0, _MAP_HEIGHT / len(grid.rows)))
    best = f"Best {_unit(summary)} of every combination of knobs over all batch sizes"
    text = f"{best}, {trials_origin(summary)}; the framed one wins."
    return Chart("heat-map", "Best throughput", text, (Panel("", columns, rows, series, width, height),))


def _unit(summary: StudySummary) -> str:
    return unit_of(trial.knobs for trial in summary.trials)


def _across(summary: StudySummary) -> str:
    """The knob of the columns: the first of these that the configurations have, what targets of a kind vary most."""
    own = {name for cell in summary.cells for name in cell.knobs.values}
    for name in ("tensor_parallel", "memory_proportion", "cores_per_device"):
        if name in own:
            return name
    return "replicas"


def _cell(trial: Trial, across: str, corner: tuple[int, int], opacity: float) -> Mark:
    (x, y), knobs, speed = corner, trial.knobs, trial.samples_per_s
    called = knobs.session.words.name
    where = f"{called('n_ipu')} {knobs.n_ipu}, {called(across).replace('_', ' ')} {flat_value(knobs, across)}"
    hover = f"trial {trial.number}: {where}, batch {knobs.batch_size}, {_speed(trial)}"
    shown = format_number(speed, 0) if speed >= 100 else format_number(speed)
    return Mark(x, y, hover, f"{shown}\nbatch {knobs.batch_size}", x + 1, opacity)


def _speed(trial: Trial) -> str:
    return f"{speed_text(Interval(trial.samples_per_s, None), trial.unit)} {trial.unit}"


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
    speeds = [trial.samples_per_s for trial in trials] + [trial.estimated_samples_per_s for trial in trials]
    low, high = min(speeds, default=0.0), max(speeds, default=1.0)
    margin = max(0.08 * (high - low), 0.06 * high)  # for the shaded 5 % around all values
    low, high = max(0.0, low - margin), high + margin
    # From the lower left corner along the lower edge of the area to the upper right corner, and back along its upper.
    corners = [(low, low), (low * 1.05, low), (high, high / 1.05), (high, high), (high * 0.95, high), (low, low / 0.95)]
    series = (
        Series("", "tolerance", Shape.AREA, tuple(Mark(x, y) for x, y in corners)),
        Series("equal", "diagonal", Shape.LINE, (Mark(low, low), Mark(high, high))),
        *trial_series(trials, lambda trial: _dot(trial, origin)),
    )
    across = Axis(f"{Origin.ESTIMATED} ({_unit(summary)})", low, high)
    up = Axis(f"{origin} ({_unit(summary)})", low, high)
    text = f"{parity_summary(trials)}. The shaded area is 5 % to either side."
    return Chart("parity", f"Estimated against {origin}", text, (Panel("", across, up, series, _WIDTH, _HEIGHT),))


def _dot(trial: Trial, origin: Origin) -> Mark:
    estimated = format_number(trial.estimated_samples_per_s)
    speeds = f"estimated {estimated}, {origin} {format_number(trial.samples_per_s)} {trial.unit}"
    return Mark(trial.estimated_samples_per_s, trial.samples_per_s, f"trial {trial.number}: {speeds}")


def batches_chart(summary: StudySummary) -> Chart:
    """Throughput over batch size, a panel for every n_ipu and a colour for every cell's other knobs."""
    names = [name for name in varying_knobs(summary) if name != "n_ipu"]
    labels = [label(cell.knobs, names) for cell in summary.cells]
    styles = _styles(summary, labels)
    lines: dict[int, list[Series]] = {}  # by n_ipu
    for cell, name in zip(summary.cells, labels, strict=True):
        shown = name
        if styles[name] == OTHER:
            shown = "other combinations"
        elif name == ALL:
            shown = ""
        series = Series(shown, styles[name], Shape.JOINED, tuple(map(_mark, cell.trials)))
        lines.setdefault(cell.knobs.n_ipu, []).append(series)
    estimates = _estimates(summary)
    for n_ipu, marks in estimates.items():
        lines.setdefault(n_ipu, []).append(Series("", HOLLOW, Shape.DOT, tuple(marks)))
    across, up = _axes(summary, [mark for marks in estimates.values() for mark in marks])
    width = _WIDTHS.get(len(lines), 360)
    called = words_of(cell.knobs for cell in summary.cells).name("n_ipu")
    panels, winner = [], summary.winner
    for n_ipu, some in sorted(lines.items()):
        # Grey lines are drawn first, so that they hide no colour.
        drawn = sorted(some, key=lambda series: (series.style != OTHER, series.style))
        if winner is not None and winner.knobs.n_ipu == n_ipu:
            drawn.append(Series("best configuration", RING, Shape.DOT, (_mark(winner),)))
        panels.append(Panel(f"{called} {n_ipu}", across, up, tuple(drawn), width, _HEIGHT, "no fit"))
    crosses = "crosses do not fit"
    if any(trial.ended_early for trial in summary.trials):
        crosses += " or ended early, as slower than the best"
    text = f"Dots are {trials_origin(summary)}, {crosses}; the ring is the best configuration."
    if estimates:
        text += " Hollow marks are estimates of what was not tried."
    return Chart("batches", "Throughput over batch size", text, tuple(panels))


def _estimates(summary: StudySummary) -> dict[int, list[Mark]]:
    """The estimates of simple uses that were not tried, by n_ipu."""
    tried = {trial.knobs for trial in summary.trials}
    marks: dict[int, list[Mark]] = {}
    for each in summary.alternatives:
        if each.samples_per_s and each.knobs not in tried and not each.at_most:
            speed = f"{format_number(each.samples_per_s)} {_unit(summary)}, {Origin.ESTIMATED}"
            hover = f"{each.name}: batch {each.knobs.batch_size}, {speed}"
            mark = Mark(each.knobs.batch_size, each.samples_per_s, hover)
            marks.setdefault(each.knobs.n_ipu, []).append(mark)
    return marks


def _styles(summary: StudySummary, labels: list[str]) -> dict[str, str]:
    """The style of every label: colours for the best, the same in all panels, grey for the others."""
    worth: dict[str, float] = {}
    for name, cell in zip(labels, summary.cells, strict=True):
        worth[name] = max(worth.get(name, 0.0), summary.worth(cell.best) if cell.best else 0.0)
    # Colours go to the best labels, in the order of their names.
    best = sorted(sorted(worth, key=lambda name: -worth[name])[:N_COLOURS])
    return dict.fromkeys(worth, OTHER) | {name: colour(index) for index, name in enumerate(best)}


def _axes(summary: StudySummary, estimates: list[Mark]) -> tuple[Axis, Axis]:
    """The axes of all panels, with room for estimates, too."""
    speeds = [trial.samples_per_s for trial in summary.ranked] + [mark.y or 0.0 for mark in estimates]
    low, high = min(speeds, default=0.0), max(speeds, default=1.0)
    margin = max(0.08 * (high - low), 0.02 * high) or 1.0  # values that are nearly equal look nearly equal
    sizes = [trial.knobs.batch_size for trial in summary.trials] + [int(mark.x) for mark in estimates]
    across = Axis("batch size", 0.0, max(max(sizes, default=1) * 1.03, 5.0))
    return across, Axis(f"{_unit(summary)}, {trials_origin(summary)}", max(0.0, low - margin), high + margin)


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
    """
    charts: list[Chart | None] = []
    winner = summary.winner
    if winner is not None:
        if timeline is not None:
            in_seconds = shown_clock(summary) is not None
            device = winner.knobs.session.words.device
            best = timeline_chart(timeline, clock_of(summary, winner), n_bars, in_seconds=in_seconds, device=device)
            charts.append(replace(best, title=f"{best.title} of the best configuration"))
        charts += [memory_chart(winner, studied_origin(summary.attributes)), heat_map_chart(summary)]
        # Where numbers are forecasts themselves, there is nothing to compare with estimates.
        if origin_of(summary) is not Origin.ESTIMATED and not isinstance(winner.knobs.mode, Generation):
            charts.append(parity_chart(summary))
    charts += [rates_chart(summary.rate_curves), engines_chart(summary), users_chart(summary)]
    charts += [objectives_chart(summary), batches_chart(summary)]
    return [chart for chart in charts if chart is not None and chart.n_points != 1]
