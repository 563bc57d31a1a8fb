"""The chart of a timeline."""

from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from autoauto.records.plans.timeline import Timeline
from autoauto.records.schedule import ActionKind, Order
from autoauto.report.charts import plan as picture
from autoauto.report.charts.chart import Chart

Simulated = Callable[..., Timeline]
Elements = Callable[..., list[ElementTree.Element]]
NAMES = {ActionKind.FORWARD: "forward", ActionKind.BACKWARD: "backward"}


def test_every_action_has_a_bar_of_its_length(simulated: Simulated, elements: Elements) -> None:
    """Two micro-batches on two devices take 1 + 2 + 1 + 2 + 1 + 2 cycles in GPipe."""
    timeline = simulated(Order.GPIPE, 2, 2)
    chart = picture.timeline_chart(timeline, 1000.0)
    whole = float(str(elements(chart, "track")[0].get("width")))
    cycles = [float(str(bar.get("width"))) / whole * timeline.makespan_cycles for bar in elements(chart, "do-backward")]
    assert cycles == pytest.approx([2, 2, 2, 2], abs=0.01)
    assert len(elements(chart, "do-forward")) == 4
    assert [text.text for text in elements(chart, "on-bar")] == ["F0", "F1"] * 2 + ["B1", "B0"] * 2
    assert [text.text for text in elements(chart, "name")] == ["time (ms), simulated"]
    assert chart.legend == [("do-forward", "forward"), ("do-backward", "backward")]


def spans_of(chart: Chart, panel: int = 0) -> list[tuple[float, str, float, float]]:
    """Device, name, start and stop of all bars of a panel."""
    return sorted(
        (float(mark.y or 0), mark.hover.partition(",")[0], mark.x, mark.stop)
        for series in chart.panels[panel].series
        for mark in series.marks
        if mark.hover
    )


def spans(timeline: Timeline) -> list[tuple[float, str, float, float]]:
    """Device, name, start and stop of all actions and exchanges of a timeline with a length."""
    devices = range(timeline.schedule.n_devices)
    actions = [
        (float(device), f"{action} {NAMES[action.kind]}", start, stop)
        for device in devices
        for action, start, stop in timeline.spans(device)
    ]
    exchanges = [
        (float(device), "exchange", timeline.cycles(start), timeline.cycles(stop))
        for device in devices
        for start, stop in timeline.exchanges[device].tolist()
    ]
    return sorted(span for span in actions + exchanges if span[3] > span[2])


def test_bars_are_named_after_their_actions_and_have_their_times(simulated: Simulated) -> None:
    """Two devices that compute and exchange in half cycles."""
    timeline = simulated(Order.POPART, 2, 3, "1/2", "1", "3/2", barrier=True)
    chart = picture.timeline_chart(timeline, None)
    assert spans_of(chart) == spans(timeline)
    assert ("do-exchange", "exchange") in chart.legend
    first = next(series for series in chart.panels[0].series if series.name == "forward").marks[1]
    assert first.hover == f"0F1 forward, 0.5 cycles from {first.x:g} to {first.stop:g}"


def test_bars_have_their_stage_where_devices_have_several(simulated: Simulated) -> None:
    plain, with_stage = (
        picture.timeline_chart(simulated(order, 2, 2), None).panels[0].series[1].marks[0].text
        for order in (Order.GPIPE, Order.INTERLEAVED)
    )
    assert (plain, with_stage) == ("F0", "0F0")


def test_of_a_long_timeline_both_ends_are_shown(simulated: Simulated) -> None:
    """1F1B on one device: each micro-batch is two bars of 1 + 2 cycles, and ten bars are five micro-batches."""
    timeline = simulated(Order.ONE_F_ONE_B, 1, 1000)
    chart = picture.timeline_chart(timeline, None, 20)
    everything = spans(timeline)
    assert spans_of(chart, 0) == [span for span in everything if span[2] < 15]
    assert spans_of(chart, 1) == [span for span in everything if span[3] > 2985]
    assert chart.text.endswith("; first and last 10 of 2,000 bars, micro-batches 0 to 4 and 995 to 999")
    assert [(panel.name, panel.x.low, panel.x.high) for panel in chart.panels] == [
        ("first", 0, 15),
        ("last", 2985, 3000),
    ]


def test_the_text_has_the_period(simulated: Simulated) -> None:
    text = picture.timeline_chart(simulated(Order.ONE_F_ONE_B, 1, 8), 1000.0).text
    assert text == "1f1b, 8 micro-batches, simulated; a micro-batch leaves every 3 ms, 3 cycles"


def test_without_a_clock_cycles_are_shown(simulated: Simulated, elements: Elements) -> None:
    chart = picture.timeline_chart(simulated(Order.GPIPE, 2, 2), None)
    assert [text.text for text in elements(chart, "name")] == ["time (cycles), simulated"]
    assert chart.text.endswith("leaves every 2 cycles")


def test_every_device_has_a_row_of_its_height(simulated: Simulated) -> None:
    """Rows of up to 8 devices are higher."""
    heights = [picture.timeline_chart(simulated(Order.GPIPE, p, 2), None).panels[0].height for p in (2, 8, 9)]
    assert heights == [75.0, 300.0, 247.5]
