"""Memory by stage against the limit: `memory_by_part` as numbers, `memory_chart` as bars stacked by category."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from autoauto.records.phased import Phase, PhasedPlan
from autoauto.records.plan import Plan, Stage
from autoauto.records.trials.trial import Trial
from autoauto.records.units import MIB, format_bytes
from autoauto.report.charts.chart import OTHER, Axis, Chart, Mark, Panel, Series, Shape, category_axis
from autoauto.report.reasons import part_names

REST = "other"
N_CATEGORIES = 7
"""If there are at least two categories more than this, the smallest are summed up as `REST`."""

_WIDTH = 1000


class StageMemory(NamedTuple):
    """The memory of a stage or phase.

    Attributes:
        label: the stage or phase.
        memory_bytes: by category, the largest of the plan first, the smallest together as "other".
        limit_bytes: the memory of its device.
        estimated_bytes: the sum over all categories by the estimate; None when there was none.
        planned_bytes: the limit that the plan was made for; None when there was no estimate.
    """

    label: str
    memory_bytes: Mapping[str, int]
    limit_bytes: int
    estimated_bytes: int | None
    planned_bytes: int | None

    @property
    def total_bytes(self) -> int:
        """Memory over all categories."""
        return sum(self.memory_bytes.values())


def memory_by_part(measured: Plan | PhasedPlan, estimate: Plan | PhasedPlan | None) -> list[StageMemory]:
    """The memory of every stage or phase, by the same few categories."""
    if isinstance(measured, Plan) and isinstance(estimate, Plan):
        estimate = estimate.in_order_of(measured)
    parts: tuple[Stage | Phase, ...] = measured.parts
    estimated: tuple[Stage | Phase, ...] = () if estimate is None else estimate.parts
    shown = _categories(parts)
    rows = []
    for index, (name, part) in enumerate(zip(part_names(measured), parts, strict=True)):
        memory_bytes = {category: part.memory_bytes.get(category, 0) for category in shown}
        rest = part.total_bytes - sum(memory_bytes.values())
        estimated_part = estimated[index] if index < len(estimated) else None
        rows.append(
            StageMemory(
                f"{name} {part.layers}",
                memory_bytes | ({REST: rest} if rest else {}),
                part.limit_bytes,
                None if estimated_part is None else estimated_part.total_bytes,
                None if estimated_part is None else estimated_part.limit_bytes,
            )
        )
    return rows


def _categories(parts: Sequence[Stage | Phase]) -> list[str]:
    sums: dict[str, int] = {}
    for part in parts:
        for category, n_bytes in part.memory_bytes.items():
            sums[category] = sums.get(category, 0) + n_bytes
    largest = sorted(sums, key=lambda category: -sums[category])
    return largest if len(largest) <= N_CATEGORIES + 1 else largest[:N_CATEGORIES]


def memory_chart(finalist: Trial, origin: str) -> Chart:
    """A bar per stage on the track of its limit; ticks show the estimate, the limit and the limit of planning."""
    rows = memory_by_part(finalist.plan, finalist.estimate)
    largest_bytes = max(max(row.limit_bytes, row.total_bytes) for row in rows)
    tracks = (Mark(0.0, y, stop=row.limit_bytes / MIB) for y, row in enumerate(rows))
    shares = (
        f"{format_bytes(row.total_bytes)}, {100 * row.total_bytes / max(row.limit_bytes, 1):.0f} %" for row in rows
    )
    labels = (
        Mark(row.total_bytes / MIB, y, "", share) for y, (row, share) in enumerate(zip(rows, shares, strict=True))
    )
    series = (
        Series("", "track", Shape.BAR, tuple(tracks)),
        *_categories_of(rows),
        _ticks("estimated", "estimated", [row.estimated_bytes for row in rows]),
        _ticks("device limit", "limit", [row.limit_bytes for row in rows], is_named=True),
        _ticks("planned limit", "planned", [row.planned_bytes for row in rows], is_named=True),
        Series("", "value", Shape.LABEL, tuple(labels)),
    )
    height = len(rows) * (42.0 if len(rows) <= 8 else 34.0)
    across = Axis(f"memory (MiB), {origin}", 0.0, largest_bytes / MIB)
    panel = Panel("", across, category_axis("", tuple(row.label for row in rows)), series, _WIDTH, height)
    marks = "the tick is what the estimate promised, orange lines are the limits."
    text = f"Trial {finalist.number}, {origin}; {marks}"
    return Chart("memory", "Memory against the limit", text, (panel,))


def _categories_of(rows: list[StageMemory]) -> list[Series]:
    """One series per category, its bars after those of the categories before."""
    categories = list(dict.fromkeys(category for row in rows for category in row.memory_bytes))
    starts_bytes, series = [0] * len(rows), []
    for index, category in enumerate(categories):
        marks = []
        for y, row in enumerate(rows):
            start_bytes, n_bytes = starts_bytes[y], row.memory_bytes.get(category, 0)
            starts_bytes[y] += n_bytes
            hover = f"{category}: {format_bytes(n_bytes)}"
            marks.append(Mark(start_bytes / MIB, y, hover, "", starts_bytes[y] / MIB))
        series.append(Series(category, OTHER if category == REST else f"s{index}", Shape.BAR, tuple(marks)))
    return series


def _ticks(name: str, style: str, sizes_bytes: Sequence[int | None], is_named: bool = False) -> Series:
    """A tick for every size; where all stages have the same, its name may be written above, in the axis's unit."""
    common_bytes = sizes_bytes[0] if is_named and len(set(sizes_bytes)) == 1 else None
    text = f"{name} {common_bytes / MIB:,.6g}" if common_bytes else ""
    marks = (
        Mark(n_bytes / MIB, y, f"{name}: {format_bytes(n_bytes)}", text)
        for y, n_bytes in enumerate(sizes_bytes)
        if n_bytes is not None
    )
    return Series(name, style, Shape.TICK, tuple(marks))
