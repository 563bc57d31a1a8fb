"""Throughput of a GPU against the speed of a user: the line is the front of the whole space."""

from __future__ import annotations

from autoauto.report.charts.users import users_chart
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objective
from autoauto.space.study_summary import USERS_FRONT, StudySummary, users_front_text
from autoauto.space.trial import Status, Trial


def trial(number: int, tokens_per_s: float, tpot_s: float) -> Trial:
    made = Trial(Knobs(1, 1, engine="vllm", input_tokens=8, output_tokens=8), Status.OK, samples_per_s=tokens_per_s)
    return made.with_values(number=number, tpot_s=tpot_s, values=(tokens_per_s,))


def test_the_line_joins_configurations_of_the_front_that_were_not_tried() -> None:
    tried, front = trial(0, 400.0, 0.05), [trial(-1, 100.0, 0.01), trial(-1, 500.0, 0.05)]
    summary = StudySummary("s", "", Objective.THROUGHPUT, {USERS_FRONT: users_front_text(front)}, (tried,), ())
    chart = users_chart(summary)
    assert chart is not None
    (panel,) = chart.panels
    line = next(series for series in panel.series if series.style == "front")
    assert [(mark.x, mark.y) for mark in line.marks] == [(100.0, 100.0), (20.0, 500.0)]
    assert panel.y.high > 500
    assert "the 2 configurations of the space" in chart.text


def test_a_study_without_a_front_has_dots_alone() -> None:
    chart = users_chart(StudySummary("s", "", Objective.THROUGHPUT, {}, (trial(0, 400.0, 0.05),), ()))
    assert chart is not None
    assert "line" not in chart.text
    assert users_chart(StudySummary("s", "", Objective.THROUGHPUT, {}, (), ())) is None
