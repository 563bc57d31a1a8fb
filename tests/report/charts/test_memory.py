"""The chart of memory by stage against the limit."""

from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from autoauto.records.plans.plan import Plan
from autoauto.report.charts import plan as picture
from autoauto.report.charts.chart import Chart
from autoauto.space.knobs import Knobs
from autoauto.space.modes.inference import Inference
from tests.report.made import made

Elements = Callable[..., list[ElementTree.Element]]


def test_every_byte_of_a_stage_is_shown(measured: Plan, estimated: Plan) -> None:
    rows = picture.memory_by_part(measured, estimated, Inference())
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
    large = replace(measured, stages=(replace(measured.stages[0], memory_bytes=sizes),))
    rows = picture.memory_by_part(large, None, Inference())
    assert list(rows[0].memory_bytes) == [f"c{i}" for i in range(11, 4, -1)] + [picture.REST]
    assert rows[0].memory_bytes[picture.REST] == 2**5 - 1


def chart_of(measured: Plan, estimate: Plan | None) -> Chart:
    return picture.memory_chart(
        made(3, Knobs(n_ipu=2, memory_proportion=0.6, batch_size=8), 200.0, measured=measured, estimate=estimate),
        "measured",
    )


def test_the_rest_is_grey_and_last_in_the_legend(measured: Plan) -> None:
    sizes = {f"c{i}": 2**i for i in range(12)}
    chart = chart_of(replace(measured, stages=(replace(measured.stages[0], memory_bytes=sizes),)), None)
    assert chart.legend == [*((f"s{i}", f"c{11 - i}") for i in range(7)), ("s-other", "other")]


def test_bars_are_as_long_as_their_share_of_the_limit(measured: Plan, estimated: Plan, elements: Elements) -> None:
    svg = chart_of(measured, estimated)
    whole = float(str(elements(svg, "track")[0].get("width")))
    code = [float(str(bar.get("width"))) / whole for bar in elements(svg, "s0")]
    assert code == pytest.approx([1024 / 4096, 3072 / 4096], abs=1e-3)
    assert [len(elements(svg, name)) for name in ("limit", "planned", "estimated")] == [2, 2, 2]
    assert [str(text.text).replace("\xa0", " ") for text in elements(svg, "value")] == [
        "2.0 KiB, 50 %",
        "3.0 KiB, 75 %",
    ]
    assert {"device limit 0.00390625", "planned limit 0.00390625"} <= {text.text for text in elements(svg, "tick")}


def test_without_an_estimate_there_are_no_marks_for_estimate_and_planning(measured: Plan, elements: Elements) -> None:
    svg = chart_of(measured, None)
    assert [len(elements(svg, name)) for name in ("limit", "planned", "estimated")] == [2, 0, 0]
