"""Directions, names and values of the objectives."""

from __future__ import annotations

from collections.abc import Callable

from autoauto.records.plan import Plan
from autoauto.records.trial import Knobs, Objective
from autoauto.search.objective import direction, metric_name, objective_value

KNOBS = Knobs(4, 0.6, 16)


def test_throughput_is_maximised(plan: Callable[[Knobs], Plan]) -> None:
    assert direction(Objective.THROUGHPUT) == "maximize"
    assert metric_name(Objective.THROUGHPUT) == "throughput (samples/s)"
    assert objective_value(Objective.THROUGHPUT, KNOBS, plan(KNOBS), 123.5) == 123.5


def test_per_ipu_is_the_seeds_cost_and_is_minimised(plan: Callable[[Knobs], Plan]) -> None:
    assert direction(Objective.PER_IPU) == "minimize"
    assert plan(KNOBS).cost_cycles == 18_000 // 4 + 100
    assert objective_value(Objective.PER_IPU, KNOBS, plan(KNOBS), 123.5) == 4600 * 4 / 16
