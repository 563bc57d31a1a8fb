"""What a notebook shows of plans, trials, timelines and studies."""

import re
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from autoauto.records import display
from autoauto.records.hardware import Device
from autoauto.records.plans.plan import Plan
from autoauto.records.plans.timeline import Timeline
from autoauto.records.schedule import Order
from autoauto.records.target import Origin
from autoauto.report.notebook import record_html
from autoauto.space.knobs import Knobs
from autoauto.space.numbers import Result
from autoauto.space.study_summary import StudySummary
from autoauto.space.trial import Status, Trial, measured_trial

HOSTILE = "<script>alert(1)</script>\"'&"


def parsed(record: Any) -> ElementTree.Element:
    """The HTML that a notebook asks for, which is well-formed XML, too."""
    return ElementTree.fromstring(record._repr_html_())


def texts(record: Any) -> list[str]:
    _, *elements = parsed(record)  # the first is the style
    return [text.strip() for element in elements for text in element.itertext() if text.strip()]


@pytest.fixture
def trial(measured: Plan, estimated: Plan) -> Trial:
    return measured_trial(
        Knobs(n_ipu=2, memory_proportion=0.6, batch_size=8),
        estimated,
        measured,
        Result(samples_per_s=200.0, estimated_samples_per_s=190.0, latency_s=0.004),
        device=Device("bow", 1e9, 4096, 1, 1),
        origin=Origin.MODELLED,
    )


def test_a_plan_is_shown_stage_by_stage(measured: Plan) -> None:
    shown = texts(measured)
    assert "Stages; period: 2,300 cycles, the slowest compute + the longest transfer" in shown
    assert {"[0, 2)", "[2, 5)", "slowest", "longest"} <= set(shown)


def test_a_trial_is_shown_with_its_origin_what_binds_it_and_its_stages(trial: Trial) -> None:
    shown = [text.replace("\xa0", " ") for text in texts(trial)]
    assert f"200.0 samples/s on 2 devices (one pipeline of 2 devices; 100.0 a device), {Origin.MODELLED}" in shown
    assert {"Configuration", f"What binds, {Origin.MODELLED}", "190.0 samples/s"} <= set(shown)
    assert any(text.startswith(f"Stages, {Origin.MODELLED}") for text in shown)


def test_a_trial_without_plans_is_shown_in_two_lines(trial: Trial) -> None:
    listed = replace(trial, estimate=None, measured=None, origin=None)
    assert texts(listed) == [
        "200.0\xa0samples/s on 2 devices (one pipeline of 2 devices; 100.0 a device)",
        "n_ipu 2, memory_proportion 0.6, batch_size 8",
    ]


def test_a_trial_that_does_not_fit_is_shown_with_its_reason() -> None:
    trial = Trial(Knobs(n_ipu=2, memory_proportion=0.6, batch_size=8), Status.INFEASIBLE, "no stage fits")
    assert texts(trial) == ["infeasible", "no stage fits", "n_ipu 2, memory_proportion 0.6, batch_size 8"]


def test_a_timeline_is_an_image_with_a_bar_for_every_action(simulated: Callable[..., Timeline]) -> None:
    timeline = simulated(Order.GPIPE, 2, 2)
    assert texts(timeline)[0].startswith("Timeline: gpipe, 2 micro-batches, simulated; a micro-batch leaves every ")
    image = parsed(timeline).find("img")
    assert image is not None
    kind, _, data = image.attrib["src"].partition(",")
    assert kind == "data:image/svg+xml;base64"
    groups = ElementTree.fromstring(b64decode(data)).iter("{http://www.w3.org/2000/svg}g")
    bars = {group.get("class"): len(group) for group in groups if str(group.get("class")).startswith("do-")}
    assert bars == {"do-forward": 4, "do-backward": 4}


def test_a_study_is_shown_with_what_came_of_every_cell(summary: StudySummary, nothing_fits: StudySummary) -> None:
    title = f"Tried combinations of knobs at their best batch, {Origin.MODELLED}"
    assert {"the winner", f"{title}; the largest batch is of those that were tried and fit"} <= set(texts(summary))
    assert texts(nothing_fits)[0] == "Nothing fits"


def test_every_text_is_escaped(measured: Plan, trial: Trial, summary: StudySummary) -> None:
    stages = tuple(replace(stage, device_kind=HOSTILE) for stage in measured.stages)
    unfit = tuple(replace(each, reason=HOSTILE) if each.reason else each for each in summary.trials)
    for record in (
        Plan(stages),
        replace(trial, measured=Plan(stages)),
        Trial(Knobs(n_ipu=2, memory_proportion=0.6, batch_size=8), Status.BUG, HOSTILE),
        replace(summary, trials=unfit),
    ):
        assert "alert(1)" in record_html(record)
        assert [element.tag for element in parsed(record).iter() if element.tag == "script"] == []


def test_the_style_stays_in_its_box(measured: Plan) -> None:
    style = parsed(measured).findtext("style")
    assert style
    selectors = [name for rule in re.findall(r"([^{}]+){", style) for name in rule.split(",")]
    assert [name for name in selectors if not name.strip().startswith(".autoauto ")] == []


def test_without_the_package_a_record_has_no_html(measured: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "_drawers", [])
    assert measured._repr_html_() is None
