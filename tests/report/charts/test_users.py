"""Throughput of a GPU against the speed of a user: which configurations are on the line."""

from __future__ import annotations

from dataclasses import replace

from autoauto.report.charts.users import pareto_front
from autoauto.space.knobs import Knobs
from autoauto.space.trial import Status, Trial


def trial(number: int, tokens_per_s: float, tpot_s: float) -> Trial:
    made = Trial(Knobs(1, 1, engine="vllm", input_tokens=8, output_tokens=8), Status.OK, samples_per_s=tokens_per_s)
    return replace(made, number=number, tpot_s=tpot_s)


def test_the_line_has_what_none_beats_in_both_by_ascending_speed_for_a_user() -> None:
    slow, middle, fast = trial(0, 900.0, 0.1), trial(1, 500.0, 0.05), trial(2, 100.0, 0.01)
    beaten, equal = trial(3, 400.0, 0.06), trial(4, 500.0, 0.05)
    front = pareto_front([beaten, fast, slow, middle, equal])
    assert [each.samples_per_s for each in front] == [900.0, 500.0, 100.0]
    assert pareto_front([slow]) == [slow]
    assert pareto_front([]) == []
