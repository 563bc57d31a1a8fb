"""What a search makes best, as Optuna needs to know it: direction, name and value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from autoauto.records.knobs import Aim, Objective, objectives_of
from autoauto.records.trial import Outcome


def direction(objective: Objective) -> Literal["maximize", "minimize"]:
    """Whether more or less is better."""
    return "maximize" if objective is Objective.THROUGHPUT else "minimize"


def metric_name(objective: Objective) -> str:
    """The name of the value with its unit, as axes and column heads show it."""
    return {
        Objective.THROUGHPUT: "throughput (samples/s)",
        Objective.PER_IPU: "cost (cycles x n_ipu / sample)",
        Objective.LATENCY: "latency (s)",
    }[objective]


def score(objective: Objective, value: float) -> float:
    """A value as a number that is more when it is better, in proportion: half the cost is twice the score.

    >>> score(Objective.THROUGHPUT, 50.0), score(Objective.PER_IPU, 50.0)
    (50.0, 0.02)
    """
    return value if objective is Objective.THROUGHPUT else 1.0 / value


def objective_value(objective: Objective, outcome: Outcome) -> float:
    """Samples per second, seconds, or the seed's cost: `cycles * n_ipu / batch` (IPU.md section 2, max_throughput).

    The seed truncates its cost to an integer; the fraction is kept here, so that close configurations still differ. A
    step of training takes its makespan and trains all its micro-batches.
    """
    knobs, timeline, measured = outcome.knobs, outcome.timeline, outcome.measured
    assert measured is not None
    if objective is Objective.THROUGHPUT:
        return outcome.samples_per_s
    if objective is Objective.LATENCY:
        return outcome.latency_s
    cycles = timeline.makespan_cycles if knobs.training and timeline else measured.cost_cycles
    return cycles * knobs.n_devices / knobs.n_samples


def values_of(aim: Aim, outcome: Outcome) -> tuple[float, ...]:
    """The value of every objective."""
    return tuple(objective_value(objective, outcome) for objective in objectives_of(aim))


def scores_of(aim: Aim, values: Sequence[float]) -> tuple[float, ...]:
    """The values of the objectives, each as more when it is better."""
    return tuple(map(score, objectives_of(aim), values))
