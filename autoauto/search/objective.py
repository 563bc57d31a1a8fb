"""What a search makes best, as Optuna needs to know it: direction, name and value."""

from __future__ import annotations

from typing import Literal

from autoauto.records.trial import Objective, Outcome


def direction(objective: Objective) -> Literal["maximize", "minimize"]:
    """Whether more or less is better."""
    return "maximize" if objective is Objective.THROUGHPUT else "minimize"


def metric_name(objective: Objective) -> str:
    """The name of the value with its unit, as axes and column heads show it."""
    return "throughput (samples/s)" if objective is Objective.THROUGHPUT else "cost (cycles x n_ipu / sample)"


def objective_value(objective: Objective, outcome: Outcome) -> float:
    """Samples per second, or the seed's cost: `cycles * n_ipu / batch` (IPU.md section 2, max_throughput).

    The seed truncates its cost to an integer; the fraction is kept here, so that close configurations still differ. A
    step of training takes its makespan and trains all its micro-batches.
    """
    knobs, timeline, measured = outcome.knobs, outcome.timeline, outcome.measured
    assert measured is not None
    if objective is Objective.THROUGHPUT:
        return outcome.samples_per_s
    cycles = timeline.makespan_cycles if knobs.training and timeline else measured.cost_cycles
    return cycles * knobs.n_ipu / knobs.n_samples
