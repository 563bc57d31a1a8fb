"""The chart of memory by stage against the limit."""

from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from autoauto.records.plan import Plan
from autoauto.report.charts import memory as picture

Elements = Callable[[str, str], list[ElementTree.Element]]


def test_every_byte_of_a_stage_is_shown(measured: Plan, estimated: Plan) -> None:
    rows = picture.memory_by_part(measured, estimated)
    assert [row.label for row in rows] == ["stage 0 [0, 2)", "stage 1 [2, 5)"]
    assert [row.memory_bytes for row in rows] == [
        {"vertexCode": 1024, "temporary": 1024},
        {"vertexCode": 3072, "temporary": 0},
    ]
    assert [(row.total_bytes, row.estimated_bytes, row.planned_bytes) for row in rows] == [
        (2048, 1536, 4096),
        (3072, 1536, 4096),
    ]


def test_the_smallest_categories_are_summed_up(measured: Plan) -> None:
    sizes = {f"c{i}": 2**i for i in range(12)}
    rows = picture.memory_by_part(replace(measured, stages=(replace(measured.stages[0], memory_bytes=sizes),)), None)
    assert list(rows[0].memory_bytes) == [f"c{i}" for i in range(11, 4, -1)] + [picture.OTHER]
    assert rows[0].memory_bytes[picture.OTHER] == 2**5 - 1
    assert picture.legend(rows)[-1] == ("s-other", "other")


def test_bars_are_as_long_as_their_share_of_the_limit(measured: Plan, estimated: Plan, elements: Elements) -> None:
    svg = picture.memory_svg(picture.memory_by_part(measured, estimated), "measured")
    whole = float(str(elements(svg, "track")[0].get("width")))
    code = [float(str(bar.get("width"))) / whole for bar in elements(svg, "s0")]
    assert code == pytest.approx([1024 / 4096, 3072 / 4096], abs=1e-3)
    assert [len(elements(svg, name)) for name in ("limit", "planned", "estimated")] == [2, 2, 2]
    assert [text.text for text in elements(svg, "value")] == ["2.0 KiB, 50 %", "3.0 KiB, 75 %"]


def test_without_an_estimate_there_are_no_marks_for_estimate_and_planning(measured: Plan, elements: Elements) -> None:
    svg = picture.memory_svg(picture.memory_by_part(measured, None), "measured")
    assert [len(elements(svg, name)) for name in ("limit", "planned", "estimated")] == [2, 0, 0]
