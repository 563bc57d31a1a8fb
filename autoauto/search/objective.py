"""What a search makes best, as Optuna needs to know it: direction, name and value."""

from __future__ import annotations

from typing import Literal

from autoauto.records.plan import Plan
from autoauto.records.trial import Knobs, Objective


def direction(objective: Objective) -> Literal["maximize", "minimize"]:
    """Whether more or less is better."""
    return "maximize" if objective is Objective.THROUGHPUT else "minimize"


def metric_name(objective: Objective) -> str:
    """The name of the value with its unit, as axes and column heads show it."""
    return "throughput (samples/s)" if objective is Objective.THROUGHPUT else "cost (cycles x n_ipu / sample)"


def objective_value(objective: Objective, knobs: Knobs, measured: Plan, samples_per_s: float) -> float:
    """Samples per second, or the seed's cost: `cycles * n_ipu / batch` (IPU.md section 2, max_throughput).

    The seed truncates its cost to an integer; the fraction is kept here, so that close configurations still differ.
    """
    if objective is Objective.THROUGHPUT:
        return samples_per_s
    return measured.cost_cycles * knobs.n_ipu / knobs.batch_size
