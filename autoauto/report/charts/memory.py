"""Memory by stage against the limit, stacked by category, as an SVG picture."""

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

_WIDTH, _LEFT, _RIGHT, _TOP, _GAP = 1000, 140, 150, 40, 12


class Held(NamedTuple):
    """What a stage or phase holds.

    Attributes:
        label: which one it is.
        memory_bytes: by category, the largest of the plan first, the smallest together as "other".
        limit_bytes: what its device has.
        estimated_bytes: in all, by the estimate; None when there was none.
        planned_bytes: what the plan was allowed to fill by the estimate; None when there was none.
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


def held_by_part(measured: Plan | PhasedPlan, estimate: Plan | PhasedPlan | None) -> list[Held]:
    """What every stage, or phase, holds, by the same few categories."""
    name, parts = parts_of(measured)
    estimated: tuple[Stage | Phase, ...] = () if estimate is None else parts_of(estimate)[1]
    shown = _categories(parts)
    rows = []
    for index, part in enumerate(parts):
        of_part = {category: part.memory_bytes.get(category, 0) for category in shown}
        rest = part.total_bytes - sum(of_part.values())
        other = estimated[index] if index < len(estimated) else None
        rows.append(
            Held(
                f"{name} {index} {part.layers}",
                of_part | ({OTHER: rest} if rest else {}),
                part.limit_bytes,
                None if other is None else other.total_bytes,
                None if other is None else other.limit_bytes,
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


def memory_svg(rows: list[Held], origin: str, name: str = "memory") -> str:
    """A bar a stage on the track of its limit; ticks mark what was estimated and what was planned with."""
    most = max(max(row.limit_bytes, row.total_bytes) for row in rows)
    axis = Axis(0.0, most, _LEFT, _WIDTH - _RIGHT)
    height = row_height(len(rows))
    places = [(_TOP + index * (height + _GAP), height) for index in range(len(rows) + 1)]
    bottom = places[-1][0]
    bars = (_row(row, axis, place) for row, place in zip(rows, places, strict=False))
    numbers = Axis(0.0, most / MIB, _LEFT, _WIDTH - _RIGHT)
    axes = bottom_axis(numbers, bottom, f"memory (MiB), {origin}", 8, top=_TOP - 6)
    return svg(
        name, "Memory by stage against the limit", _WIDTH, bottom + 46, axes, *bars, *_limits(rows, axis, places)
    )


def legend(rows: list[Held]) -> list[tuple[str, str]]:
    """The class and the name of every category that the picture has."""
    categories = list(dict.fromkeys(category for row in rows for category in row.memory_bytes))
    return [(_class(index, category), category) for index, category in enumerate(categories)]


def _row(row: Held, axis: Axis, place: tuple[float, float]) -> str:
    (y, height), line = place, place[0] + place[1] / 2 + 4
    track = tag("rect", x=_LEFT, y=y, width=axis.place(row.limit_bytes) - _LEFT, height=height, class_="track")
    share = f"{format_bytes(row.total_bytes)}, {100 * row.total_bytes / max(row.limit_bytes, 1):.0f} %"
    told = tag("text", share, x=axis.stop + 12, y=line, class_="value")
    return "".join(
        [
            tag("text", words(row.label), x=0, y=line, class_="label"),
            track,
            *_bars(row, axis, place),
            _mark(axis, row.estimated_bytes, place, "estimated"),
            told,
        ]
    )


def _bars(row: Held, axis: Axis, place: tuple[float, float]) -> Iterator[str]:
    (y, height), held = place, 0
    for index, (category, n_bytes) in enumerate(row.memory_bytes.items()):
        x, end = axis.place(held), axis.place(held + n_bytes)
        told = tag("title", words(f"{category}: {format_bytes(n_bytes)}"))
        yield tag("rect", told, x=x, y=y, width=end - x, height=height, class_=_class(index, category))
        held += n_bytes


def _mark(axis: Axis, n_bytes: int | None, place: tuple[float, float], class_: str) -> str:
    if n_bytes is None:
        return ""
    y, height = place
    x, told = axis.place(min(n_bytes, axis.high)), tag("title", f"{class_}: {format_bytes(n_bytes)}")
    return tag("line", told, x1=x, x2=x, y1=y - 4, y2=y + height + 4, class_=f"mark {class_}")


def _limits(rows: list[Held], axis: Axis, places: list[tuple[float, float]]) -> Iterator[str]:
    """The limits of a device and of planning; named above where all stages have the same."""
    kinds = (
        ("limit", "device", [row.limit_bytes for row in rows], 0),
        ("planned", "planned", [r.planned_bytes for r in rows], 1),
    )
    for class_, said, limits, line in kinds:
        for index, n_bytes in enumerate(limits):
            yield _mark(axis, n_bytes, places[index], class_)
        first = limits[0]
        if first is not None and set(limits) == {first}:
            text = f"{said}: {format_bytes(first)}"
            yield tag("text", text, x=axis.place(first), y=12 + 14 * line, class_="tick", text_anchor="end")


def _class(index: int, category: str) -> str:
    return "s-other" if category == OTHER else f"s{index}"
