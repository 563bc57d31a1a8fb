"""What really running a plan told: `Run`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from autoauto.records.hardware import Cluster
from autoauto.records.layers import LayerGraph
from autoauto.records.plan import Plan
from autoauto.records.profile import CompileOptions
from autoauto.records.timeline import Timeline

QUIET = 0.95
"""A stage that had its cores, at their full speed, for less of its computing time was disturbed."""


@dataclass(frozen=True, slots=True)
class Run:
    """A plan that ran, in one or more pipelines side by side.

    Attributes:
        plan: the same stages with what they took; those of the first pipeline.
        timelines: what happened in every pipeline.
        core_fraction: the part of its computing time that the stage which was disturbed most had its cores, all to
            itself.
    """

    plan: Plan
    timelines: tuple[Timeline, ...]
    core_fraction: float = 1.0

    @property
    def quiet(self) -> bool:
        """Whether the stages were left alone, so that their times are their own."""
        return self.core_fraction >= QUIET

    @property
    def latency_cycles(self) -> float:
        """From the start of the first stage to the end of the last: the median when it was measured, else the first."""
        if self.timelines[0].source == "simulated":
            return self.timelines[0].latency_cycles
        return float(np.median(np.concatenate([t.stops[-1] - t.starts[0] for t in self.timelines])))

    @property
    def period_cycles(self) -> float:
        """Cycles between two finished micro-batches in the steady state, whichever pipeline they leave."""
        return 1 / sum(1 / timeline.period_cycles for timeline in self.timelines)


@runtime_checkable
class Runner(Protocol):
    """A target whose devices are there to run plans."""

    def run(self, graph: LayerGraph, plan: Plan, cluster: Cluster, options: CompileOptions, replicas: int) -> Run:
        """Run `plan` on the first devices of `cluster`, `replicas` times side by side, until it is steady.

        Raises:
            OutOfMemory: a stage needs more than its device may use.
        """
