"""What a search optimises, and how it chooses what it measures: `Objective`, `Method`."""

from __future__ import annotations

from enum import StrEnum

from autoauto.records.errors import BadInput


class Method(StrEnum):
    """How a search chooses the configurations that it measures."""

    EXHAUSTIVE = "exhaustive"
    """Every configuration."""
    GRID_BISECT = "grid-bisect"
    """Every cell of the grid, bisected over the batch size [auto-pipeline]."""
    GUIDED = "guided"
    """The best configuration by the estimate, until no other could be better."""
    TPE = "tpe"
    """Optuna's tree-structured Parzen estimator."""
    RANDOM = "random"
    """Configurations at random."""


class Objective(StrEnum):
    """What a search optimises."""

    THROUGHPUT = "throughput"
    """Samples per second."""
    PER_IPU = "per-ipu"
    """Device cycles of one sample, idle ones included: cycles x n_ipu / batch [auto-pipeline].

    It is also a proxy for energy: proportional to it when a device draws as much power idle as busy.
    """
    LATENCY = "latency"
    """Seconds from a micro-batch's entry to its result."""


Objectives = Objective | tuple[Objective, ...]
"""One objective of a search, or several of equal rank."""


def objective_tuple(objectives: Objectives) -> tuple[Objective, ...]:
    """The objectives, at least one.

    >>> objective_tuple(Objective.LATENCY)
    (<Objective.LATENCY: 'latency'>,)
    """
    return (objectives,) if isinstance(objectives, Objective) else objectives


def objectives_text(objectives: Objectives) -> str:
    """The objectives as a text that `parse_objectives` reads.

    >>> objectives_text((Objective.THROUGHPUT, Objective.LATENCY))
    'throughput,latency'
    """
    return ",".join(objective_tuple(objectives))


def parse_objectives(name: str) -> Objectives:
    """Read the names of objectives, separated by commas.

    Raises:
        BadInput: there is no such objective, or one is named twice.

    >>> parse_objectives("latency"), len(parse_objectives("throughput,per-ipu"))
    (<Objective.LATENCY: 'latency'>, 2)
    """
    words = name.split(",") if isinstance(name, str) else []
    if not words or not set(words) <= set(Objective) or len(set(words)) < len(words):
        raise BadInput(f"objectives are one or more of {', '.join(Objective)} with commas, got {name!r}")
    return Objective(words[0]) if len(words) == 1 else tuple(map(Objective, words))
