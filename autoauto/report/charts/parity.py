"""Estimated against measured throughput of every measured configuration, as an SVG picture."""

from __future__ import annotations

from collections.abc import Sequence

from autoauto.records.study_summary import Findings, Tried
from autoauto.report.charts.markup import Axis, bottom_axis, left_axis, svg, tag, words
from autoauto.report.style import ESTIMATED
from autoauto.report.text.compare import difference_percent
from autoauto.report.wording import origin_of

_LEFT, _TOP, _WIDTH, _HEIGHT = 60, 30, 420, 310


def compared(found: Findings) -> list[Tried]:
    """The configurations that have both numbers."""
    return [tried for tried in found.tried if tried.fits and tried.estimated_samples_per_s > 0]


def parity_summary(tried: Sequence[Tried]) -> str:
    """How far estimates are from what was measured, in words."""
    errors = [difference_percent(one.estimated_samples_per_s, one.samples_per_s) or 0.0 for one in tried]
    if not errors:
        return "nothing was measured"
    mean = sum(map(abs, errors)) / len(errors)
    worst = max(errors, key=abs)
    return f"{len(errors):,} configurations: mean error {mean:.1f} %, largest {worst:+.1f} %"


def parity_svg(found: Findings, name: str = "parity") -> str:
    """A dot a configuration, on the diagonal where the estimate is right; the band is 5 % to either side."""
    dots = compared(found)
    low, high = _range([speed for one in dots for speed in (one.samples_per_s, one.estimated_samples_per_s)])
    across = Axis(low, high, _LEFT, _WIDTH - 10)
    up = Axis(low, high, _HEIGHT - 46, _TOP)
    bottom = bottom_axis(across, up.start, f"{ESTIMATED} (samples/s)", 5, top=_TOP)
    left = left_axis(up, _LEFT, f"{origin_of(found)} (samples/s)", 5, right=across.stop)
    title = f"Estimated against measured throughput, {parity_summary(dots)}"
    return svg(name, title, _WIDTH, _HEIGHT, bottom, left, _band(across, up), *_dots(dots, across, up))


def _range(speeds: Sequence[float]) -> tuple[float, float]:
    """From below the least to above the most, with room for the band."""
    low, high = min(speeds, default=0.0), max(speeds, default=1.0)
    room = max(0.08 * (high - low), 0.06 * high)
    return max(0.0, low - room), high + room


def device_counts(found: Findings) -> list[int]:
    """The values of n_ipu that have a colour of their own, in its order."""
    return sorted({tried.knobs.n_ipu for tried in compared(found)})


def _band(across: Axis, up: Axis) -> str:
    """Five percent of what was measured to either side of the diagonal, cut at the picture's edges."""
    low, high = across.low, across.high
    corners = [(low, low), (low * 1.05, low), (high, high / 1.05), (high, high), (high * 0.95, high), (low, low / 0.95)]
    points = " ".join(f"{across.place(x):.1f},{up.place(y):.1f}" for x, y in corners)
    ends = {"x1": across.start, "y1": up.start, "x2": across.stop, "y2": up.stop}
    return tag("polygon", points=points, class_="band") + tag("line", class_="diagonal", **ends)


def _dots(dots: Sequence[Tried], across: Axis, up: Axis) -> list[str]:
    """One circle where several would cover each other."""
    counts = sorted({one.knobs.n_ipu for one in dots})
    places: dict[tuple[int, int, int], Tried] = {}
    for one in dots:
        x, y = across.place(one.estimated_samples_per_s), up.place(one.samples_per_s)
        places.setdefault((round(x), round(y), counts.index(one.knobs.n_ipu)), one)
    return [_dot(one, across, up, series) for (_, _, series), one in places.items()]


def _dot(one: Tried, across: Axis, up: Axis, series: int) -> str:
    speeds = f"estimated {one.estimated_samples_per_s:,.1f}, measured {one.samples_per_s:,.1f} samples/s"
    told = tag("title", words(f"trial {one.number}: {speeds}"))
    x, y = across.place(one.estimated_samples_per_s), up.place(one.samples_per_s)
    return tag("circle", told, cx=x, cy=y, r=4, class_=f"dot s{series % 8}")
