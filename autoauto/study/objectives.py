"""Direction, name and values of the objectives, as Optuna needs them, and `score`, as methods compare them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from autoauto.space.objectives import Objective, Objectives, objective_tuple
from autoauto.space.trial import Trial


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
    """A value as a number that is larger when it is better, in proportion: half the cost is twice the score.

    >>> score(Objective.THROUGHPUT, 50.0), score(Objective.PER_IPU, 50.0)
    (50.0, 0.02)
    """
    return value if objective is Objective.THROUGHPUT else 1.0 / value


def objective_value(objective: Objective, trial: Trial) -> float:
    """Samples per second, seconds, or `cycles * n_ipu / batch`, the cost of [auto-pipeline, max_throughput].

    Auto-pipeline truncates its cost to an integer; here it stays a fraction, so that close configurations still differ.
    A step of training takes its makespan and trains all its micro-batches.
    """
    if objective is Objective.THROUGHPUT:
        return trial.samples_per_s
    if objective is Objective.LATENCY:
        return trial.latency_s
    cycles = trial.makespan_cycles or trial.plan.mean_cost_cycles
    return cycles * trial.knobs.n_devices / trial.knobs.n_samples


def values_of(objectives: Objectives, trial: Trial) -> tuple[float, ...]:
    """The value of every objective."""
    return tuple(objective_value(objective, trial) for objective in objective_tuple(objectives))


def scores_of(objectives: Objectives, values: Sequence[float]) -> tuple[float, ...]:
    """The score of every objective."""
    return tuple(map(score, objective_tuple(objectives), values))
