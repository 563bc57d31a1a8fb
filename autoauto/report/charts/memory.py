"""Memory by stage against the limit: `memory_by_part` as data, `memory_svg` as bars stacked by category."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from autoauto.records.phased import Phase, PhasedPlan
from autoauto.records.plan import Plan, Stage
from autoauto.records.units import MIB, format_bytes
from autoauto.report.charts.markup import Axis, bottom_axis, svg, tag, words
from autoauto.report.charts.timeline import row_height
from autoauto.report.reasons import parts_of

OTHER = "other"
N_CATEGORIES = 7
"""If there are at least two categories more than this, the smallest are summed up as `OTHER`."""

_WIDTH, _LEFT, _RIGHT, _TOP, _GAP = 1000, 140, 150, 40, 12


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
    name, parts = parts_of(measured)
    estimated: tuple[Stage | Phase, ...] = () if estimate is None else parts_of(estimate)[1]
    shown = _categories(parts)
    rows = []
    for index, part in enumerate(parts):
        memory_bytes = {category: part.memory_bytes.get(category, 0) for category in shown}
        rest = part.total_bytes - sum(memory_bytes.values())
        estimated_part = estimated[index] if index < len(estimated) else None
        rows.append(
            StageMemory(
                f"{name} {index} {part.layers}",
                memory_bytes | ({OTHER: rest} if rest else {}),
                part.limit_bytes,
                None if estimated_part is None else estimated_part.total_bytes,
                None if estimated_part is None else estimated_part.limit_bytes,
            )
        )
    return rows


def _categories(parts: tuple[Stage | Phase, ...]) -> list[str]:
    sums: dict[str, int] = {}
    for part in parts:
        for category, n_bytes in part.memory_bytes.items():
            sums[category] = sums.get(category, 0) + n_bytes
    largest = sorted(sums, key=lambda category: -sums[category])
    return largest if len(largest) <= N_CATEGORIES + 1 else largest[:N_CATEGORIES]


def memory_svg(rows: list[StageMemory], origin: str, name: str = "memory") -> str:
    """A bar per stage on the track of its limit; vertical marks show the estimate and the limit of planning."""
    largest = max(max(row.limit_bytes, row.total_bytes) for row in rows)
    axis = Axis(0.0, largest, _LEFT, _WIDTH - _RIGHT)
    height = row_height(len(rows))
    tracks = [_Track(_TOP + index * (height + _GAP), height) for index in range(len(rows))]
    bottom = _TOP + len(rows) * (height + _GAP)
    bars = (_row(row, axis, track) for row, track in zip(rows, tracks, strict=True))
    numbers = Axis(0.0, largest / MIB, _LEFT, _WIDTH - _RIGHT)
    axes = bottom_axis(numbers, bottom, f"memory (MiB), {origin}", 8, top=_TOP - 6)
    limits = _limits(rows, axis, tracks)
    return svg(name, "Memory by stage against the limit", _WIDTH, bottom + 46, axes, *bars, *limits)


def legend(rows: list[StageMemory]) -> list[tuple[str, str]]:
    """The class and the name of every category in the picture."""
    categories = list(dict.fromkeys(category for row in rows for category in row.memory_bytes))
    return [(_class(index, category), category) for index, category in enumerate(categories)]


class _Track(NamedTuple):
    """Where a row lies: its upper edge and its height, in pixels."""

    y: float
    height: float


def _row(row: StageMemory, axis: Axis, track: _Track) -> str:
    y, height = track
    middle = y + height / 2 + 4
    limit = tag("rect", x=_LEFT, y=y, width=axis.pixel(row.limit_bytes) - _LEFT, height=height, class_="track")
    share = f"{format_bytes(row.total_bytes)}, {100 * row.total_bytes / max(row.limit_bytes, 1):.0f} %"
    return "".join(
        [
            tag("text", words(row.label), x=0, y=middle, class_="label"),
            limit,
            *_bars(row, axis, track),
            _mark(axis, row.estimated_bytes, track, "estimated"),
            tag("text", share, x=axis.stop + 12, y=middle, class_="value"),
        ]
    )


def _bars(row: StageMemory, axis: Axis, track: _Track) -> Iterator[str]:
    start_bytes = 0
    for index, (category, n_bytes) in enumerate(row.memory_bytes.items()):
        x, end = axis.pixel(start_bytes), axis.pixel(start_bytes + n_bytes)
        tooltip = tag("title", words(f"{category}: {format_bytes(n_bytes)}"))
        yield tag("rect", tooltip, x=x, y=track.y, width=end - x, height=track.height, class_=_class(index, category))
        start_bytes += n_bytes


def _mark(axis: Axis, n_bytes: int | None, track: _Track, class_: str) -> str:
    if n_bytes is None:
        return ""
    x, tooltip = axis.pixel(min(n_bytes, axis.high)), tag("title", f"{class_}: {format_bytes(n_bytes)}")
    return tag("line", tooltip, x1=x, x2=x, y1=track.y - 4, y2=track.y + track.height + 4, class_=f"mark {class_}")


def _limits(rows: list[StageMemory], axis: Axis, tracks: list[_Track]) -> Iterator[str]:
    """The limits of devices and of planning; named above the picture where all stages have the same."""
    kinds = (
        ("limit", "device", [row.limit_bytes for row in rows], 0),
        ("planned", "planned", [row.planned_bytes for row in rows], 1),
    )
    for class_, name, limits, line in kinds:
        for track, n_bytes in zip(tracks, limits, strict=True):
            yield _mark(axis, n_bytes, track, class_)
        first = limits[0]
        if first is not None and set(limits) == {first}:
            text = f"{name}: {format_bytes(first)}"
            yield tag("text", text, x=axis.pixel(first), y=12 + 14 * line, class_="tick", text_anchor="end")


def _class(index: int, category: str) -> str:
    return "s-other" if category == OTHER else f"s{index}"
