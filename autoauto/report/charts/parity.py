"""Estimated against measured throughput: `compared_trials`, and `parity_chart` as a chart."""

from __future__ import annotations

from collections.abc import Sequence

from autoauto.records.target import Origin
from autoauto.records.trials.study_summary import StudySummary
from autoauto.records.trials.trial import Trial
from autoauto.report.charts.chart import Axis, Chart, Mark, Panel, Series, Shape
from autoauto.report.style import difference_percent
from autoauto.report.wording import counted, origin_of

_WIDTH, _HEIGHT = 420, 234


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
