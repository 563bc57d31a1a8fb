"""Estimated against measured throughput: `compared_trials` as data, `parity_svg` as a picture."""

from __future__ import annotations

from collections.abc import Sequence

from autoauto.records.study_summary import StudySummary, TrialSummary
from autoauto.report.charts.markup import Axis, bottom_axis, left_axis, svg, tag, words
from autoauto.report.style import ESTIMATED, difference_percent
from autoauto.report.wording import origin_of

_LEFT, _TOP, _WIDTH, _HEIGHT = 60, 30, 420, 310


def compared_trials(summary: StudySummary) -> list[TrialSummary]:
    """The configurations with an estimated and a measured throughput."""
    return [trial for trial in summary.trials if trial.fits and trial.estimated_samples_per_s > 0]


def parity_summary(trials: Sequence[TrialSummary]) -> str:
    """Mean and largest difference between estimate and measurement, in words."""
    errors = [difference_percent(trial.estimated_samples_per_s, trial.samples_per_s) or 0.0 for trial in trials]
    if not errors:
        return "nothing was measured"
    mean = sum(map(abs, errors)) / len(errors)
    largest = max(errors, key=abs)
    return f"{len(errors):,} configurations: mean error {mean:.1f} %, largest {largest:+.1f} %"


def device_counts(summary: StudySummary) -> list[int]:
    """The values of n_ipu in the picture, in the order of their colours."""
    return sorted({trial.knobs.n_ipu for trial in compared_trials(summary)})


def parity_svg(summary: StudySummary, name: str = "parity") -> str:
    """A dot per configuration, on the diagonal where the estimate is exact; 5 % to either side are shaded."""
    trials = compared_trials(summary)
    low, high = _range([speed for trial in trials for speed in (trial.samples_per_s, trial.estimated_samples_per_s)])
    across = Axis(low, high, _LEFT, _WIDTH - 10)
    up = Axis(low, high, _HEIGHT - 46, _TOP)
    bottom = bottom_axis(across, up.start, f"{ESTIMATED} (samples/s)", 5, top=_TOP)
    left = left_axis(up, _LEFT, f"{origin_of(summary)} (samples/s)", 5, right=across.stop)
    title = f"Estimated against measured throughput, {parity_summary(trials)}"
    return svg(name, title, _WIDTH, _HEIGHT, bottom, left, _diagonal(across, up), *_dots(trials, across, up))


def _range(speeds: Sequence[float]) -> tuple[float, float]:
    """From below the smallest to above the largest, with a margin for the shaded 5 %."""
    low, high = min(speeds, default=0.0), max(speeds, default=1.0)
    margin = max(0.08 * (high - low), 0.06 * high)
    return max(0.0, low - margin), high + margin


def _diagonal(across: Axis, up: Axis) -> str:
    """The diagonal, and 5 % of the measured value to either side of it, cut at the picture's edges."""
    low, high = across.low, across.high
    corners = [(low, low), (low * 1.05, low), (high, high / 1.05), (high, high), (high * 0.95, high), (low, low / 0.95)]
    points = " ".join(f"{across.pixel(x):.1f},{up.pixel(y):.1f}" for x, y in corners)
    ends = {"x1": across.start, "y1": up.start, "x2": across.stop, "y2": up.stop}
    return tag("polygon", points=points, class_="tolerance") + tag("line", class_="diagonal", **ends)


def _dots(trials: Sequence[TrialSummary], across: Axis, up: Axis) -> list[str]:
    """One circle where several would cover each other."""
    counts = sorted({trial.knobs.n_ipu for trial in trials})
    distinct: dict[tuple[int, int, int], TrialSummary] = {}
    for trial in trials:
        x, y = across.pixel(trial.estimated_samples_per_s), up.pixel(trial.samples_per_s)
        distinct.setdefault((round(x), round(y), counts.index(trial.knobs.n_ipu)), trial)
    return [_dot(trial, across, up, series) for (_, _, series), trial in distinct.items()]


def _dot(trial: TrialSummary, across: Axis, up: Axis, series: int) -> str:
    speeds = f"estimated {trial.estimated_samples_per_s:,.1f}, measured {trial.samples_per_s:,.1f} samples/s"
    tooltip = tag("title", words(f"trial {trial.number}: {speeds}"))
    x, y = across.pixel(trial.estimated_samples_per_s), up.pixel(trial.samples_per_s)
    return tag("circle", tooltip, cx=x, cy=y, r=4, class_=f"dot s{series % 8}")
