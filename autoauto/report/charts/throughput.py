"""Throughput over batch size, `batches_chart`: a panel per n_ipu with a line per cell."""

from __future__ import annotations

from autoauto.records.trials.study_summary import StudySummary
from autoauto.records.trials.trial import Trial
from autoauto.report.charts.chart import OTHER, RING, Axis, Chart, Mark, Panel, Series, Shape
from autoauto.report.wording import ALL, label, origin_of, varying_knobs

N_SERIES = 8
"""Number of colours. The best cells have one each; further cells are grey."""

_HEIGHT = 224
_WIDTHS = {1: 420, 2: 520}
"""Width of a panel by the number of panels; with three and more each has 360."""


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
