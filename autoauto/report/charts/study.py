"""The charts of a study, `study_charts`: the same in its page and in the dashboard.

Throughput over batch size, `batches_chart`, has a panel per n_ipu with a line per cell; `parity_chart` shows estimated
against measured throughput.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autoauto.records.target import Origin
from autoauto.records.timeline import Timeline
from autoauto.records.trials.study_summary import StudySummary
from autoauto.records.trials.trial import Trial
from autoauto.report.charts.chart import OTHER, RING, Axis, Chart, Mark, Panel, Series, Shape
from autoauto.report.charts.heat_map import heat_map_chart
from autoauto.report.charts.latency import latency_chart
from autoauto.report.charts.memory import memory_chart
from autoauto.report.charts.timeline import N_BARS, timeline_chart
from autoauto.report.style import difference_percent
from autoauto.report.wording import ALL, clock_of, counted, label, origin_of, varying_knobs

_WIDTH, _HEIGHT = 420, 234
N_SERIES = 8
"""Number of colours. The best cells have one each; further cells are grey."""
_HEIGHT = 224
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
            f"n_ipu {n_ipu}",
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
    across, up = (Axis(f"{name} (samples/s)", low, high) for name in (Origin.ESTIMATED, origin))
    text = f"{parity_summary(trials)}. The shaded area is 5 % to either side."
    return Chart("parity", f"Estimated against {origin}", text, (Panel("", across, up, series, _WIDTH, _HEIGHT),))


def _range(speeds: Sequence[float]) -> tuple[float, float]:
    """From below the smallest to above the largest, with a margin for the shaded 5 %."""
    low, high = min(speeds, default=0.0), max(speeds, default=1.0)
    margin = max(0.08 * (high - low), 0.06 * high)
    return max(0.0, low - margin), high + margin


def _dot(trial: Trial, origin: Origin) -> Mark:
    speeds = f"estimated {trial.estimated_samples_per_s:,.1f}, {origin} {trial.samples_per_s:,.1f} samples/s"
    return Mark(trial.estimated_samples_per_s, trial.samples_per_s, f"trial {trial.number}: {speeds}")


def batches_chart(summary: StudySummary) -> Chart:
    """Dots are measured, crosses below do not fit; a colour stands for the knobs of a cell beside n_ipu."""
    names = [name for name in varying_knobs(summary) if name != "n_ipu"]
    labels = {cell.knobs: label(cell.knobs, names) for cell in summary.cells}
    styles = _styles(summary, [labels[cell.knobs] for cell in summary.cells])
    of_count: dict[int, list[Series]] = {}
    for cell in summary.cells:
        name = labels[cell.knobs]
        shown = "other combinations" if styles[name] == OTHER else "" if name == ALL else name
        marks = tuple(map(_mark, cell.trials))
        of_count.setdefault(cell.knobs.n_ipu, []).append(Series(shown, styles[name], Shape.JOINED, marks))
    across, up = _axes(summary)
    width = _WIDTHS.get(len(of_count), 360)
    panels = (
        Panel(f"n_ipu {n_ipu}", across, up, (*_grey_first(lines), *_ring(summary, n_ipu)), width, _HEIGHT, "no fit")
        for n_ipu, lines in sorted(of_count.items())
    )
    text = f"Dots are {origin_of(summary)}, crosses do not fit; the ring is the best configuration."
    return Chart("batches", "Throughput over batch size", text, tuple(panels))


def _styles(summary: StudySummary, labels: list[str]) -> dict[str, str]:
    """The style of every label: colours for the best, the same in all panels, grey for the others."""
    worth: dict[str, float] = {}
    for name, cell in zip(labels, summary.cells, strict=True):
        worth[name] = max(worth.get(name, 0.0), summary.worth(cell.best) if cell.best else 0.0)
    best = sorted(sorted(worth, key=lambda name: -worth[name])[:N_SERIES])
    return dict.fromkeys(worth, OTHER) | {name: f"s{index}" for index, name in enumerate(best)}


def _grey_first(lines: list[Series]) -> list[Series]:
    """Others are drawn over grey lines."""
    return sorted(lines, key=lambda series: (series.style != OTHER, series.style))


def _axes(summary: StudySummary) -> tuple[Axis, Axis]:
    """The same axes for all panels."""
    speeds = [trial.samples_per_s for trial in summary.ranked] or [0.0, 1.0]
    margin = 0.08 * (max(speeds) - min(speeds)) or 1.0
    largest = max(trial.knobs.batch_size for trial in summary.trials)
    across = Axis("batch size", 0.0, max(largest * 1.03, 5.0))
    return across, Axis(f"samples/s, {origin_of(summary)}", max(0.0, min(speeds) - margin), max(speeds) + margin)


def _ring(summary: StudySummary, n_ipu: int) -> list[Series]:
    winner = summary.winner
    if winner is None or winner.knobs.n_ipu != n_ipu:
        return []
    return [Series("best configuration", RING, Shape.DOT, (_mark(winner),))]


def _mark(trial: Trial) -> Mark:
    size = trial.knobs.batch_size
    if not trial.fits:
        return Mark(size, None, f"trial {trial.number}: batch {size} does not fit")
    speed = trial.samples_per_s
    return Mark(size, speed, f"trial {trial.number}: batch {size}, {speed:,.1f} samples/s")


def study_charts(summary: StudySummary, timeline: Timeline | None, n_bars: int = N_BARS) -> list[Chart]:
    """Timeline and memory of the winner, heat map, parity unless all is estimated, latency, throughput over batch size.

    Args:
        summary: the study.
        timeline: the winner's; None for phases, and when nothing fits.
        n_bars: the most bars of the timeline.
    """
    charts, winner = [], summary.winner
    if winner is not None:
        if timeline is not None:
            best = timeline_chart(timeline, clock_of(summary, winner), n_bars)
            charts.append(replace(best, title=f"{best.title} of the best configuration"))
        charts += [memory_chart(winner, origin_of(summary)), heat_map_chart(summary)]
        charts += [] if origin_of(summary) is Origin.ESTIMATED else [parity_chart(summary)]
    latency = latency_chart(summary)
    return [*charts, *([latency] if latency else []), batches_chart(summary)]
