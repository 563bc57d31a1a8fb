"""The chart of a timeline."""

from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from autoauto.records.schedule import Order
from autoauto.records.timeline import Timeline
from autoauto.report.charts import timeline as picture

Simulated = Callable[..., Timeline]
Elements = Callable[[str, str], list[ElementTree.Element]]


def test_every_action_has_a_bar_of_its_length(simulated: Simulated, elements: Elements) -> None:
    """Two micro-batches on two devices take 1 + 2 + 1 + 2 + 1 + 2 cycles in GPipe."""
    timeline = simulated(Order.GPIPE, 2, 2)
    svg = picture.timeline_svg(timeline, 1000.0)
    whole = float(str(elements(svg, "track")[0].get("width")))
    cycles = [float(str(bar.get("width"))) / whole * timeline.makespan_cycles for bar in elements(svg, "do-backward")]
    assert cycles == pytest.approx([2, 2, 2, 2], abs=0.01)
    assert len(elements(svg, "do-forward")) == 4
    assert [text.text for text in elements(svg, "on-bar")] == ["F0", "F1", "B1", "B0"] * 2
    assert [text.text for text in elements(svg, "name")] == ["time (ms), simulated"]
    assert picture.legend(timeline) == [("do-forward", "forward"), ("do-backward", "backward")]


def test_exchanges_are_shown(simulated: Simulated, elements: Elements) -> None:
    timeline = simulated(Order.POPART, 2, 3, comm="1", barrier=True)
    assert elements(picture.timeline_svg(timeline, 1e9), "do-exchange")
    assert ("do-exchange", "exchange") in picture.legend(timeline)


def test_of_a_long_timeline_the_beginning_is_shown(
    simulated: Simulated, elements: Elements, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1F1B of 1,000 micro-batches on one device has 2,000 bars; 20 of them are the first 1 %."""
    monkeypatch.setattr(picture, "N_BARS", 20)
    timeline = simulated(Order.ONE_F_ONE_B, 1, 1000)
    svg = picture.timeline_svg(timeline, 1000.0)
    assert len(elements(svg, "do-forward")) == len(elements(svg, "do-backward")) == 10
    assert "the first 1 % of it" in picture.timeline_summary(timeline, 1000.0)


def test_the_summary_has_the_period(simulated: Simulated) -> None:
    text = picture.timeline_summary(simulated(Order.ONE_F_ONE_B, 1, 8), 1000.0)
    assert text == "1f1b, 8 micro-batches, simulated; a micro-batch leaves every 3 ms, 3 cycles"


def test_without_a_clock_cycles_are_shown(simulated: Simulated, elements: Elements) -> None:
    timeline = simulated(Order.GPIPE, 2, 2)
    svg = picture.timeline_svg(timeline, None)
    assert [text.text for text in elements(svg, "name")] == ["time (cycles), simulated"]
    assert picture.timeline_summary(timeline, None).endswith("leaves every 2 cycles")
