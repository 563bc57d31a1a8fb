"""The chart of estimated against measured throughput."""

from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from autoauto.report.charts import study as picture
from autoauto.space.study_summary import StudySummary

Elements = Callable[..., list[ElementTree.Element]]


def test_every_measured_trial_has_a_dot(summary: StudySummary, elements: Elements) -> None:
    chart = picture.parity_chart(summary)
    dots = elements(chart, "dot")
    titles = [str(dot.find("title").text) for dot in dots]  # type: ignore[union-attr]
    assert [title.partition(":")[0] for title in titles] == ["trial 0", "trial 2", "trial 3"]
    assert [len(elements(chart, style)) for style in ("s0", "s1")] == [1, 2]
    assert chart.legend == [("s0", "n_ipu 1"), ("s1", "n_ipu 2")]


def test_an_exact_estimate_is_on_the_diagonal(summary: StudySummary, elements: Elements) -> None:
    """Trial 2 was estimated exactly, trial 0 too high and so below the line, trial 3 too low and above."""
    svg = picture.parity_chart(summary)
    (line,) = elements(svg, "diagonal")
    x1, y1, x2, y2 = map(float, str(line.get("points")).replace(",", " ").split())
    above = []
    for dot in elements(svg, "dot"):
        x, y = float(str(dot.get("cx"))), float(str(dot.get("cy")))
        above.append(y1 + (x - x1) / (x2 - x1) * (y2 - y1) - y)
    assert above[0] < -1
    assert above[1] == pytest.approx(0, abs=0.2)
    assert above[2] > 1


def test_the_summary_has_mean_and_largest_error(summary: StudySummary) -> None:
    """+4 %, 0 % and -5 %."""
    assert (
        picture.parity_summary(picture.compared_trials(summary)) == "3 configurations: mean error 3.0 %, largest -5.0 %"
    )
    assert picture.parity_summary([]) == "no configuration has both"


def test_dots_that_would_cover_each_other_are_drawn_once(summary: StudySummary, elements: Elements) -> None:
    many = replace(summary, trials=tuple(replace(summary.trials[0], number=i) for i in range(1000)))
    assert len(elements(picture.parity_chart(many), "dot")) == 1
