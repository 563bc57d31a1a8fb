"""The baseline without a pipeline: the whole model in one session with all devices, `evaluate_undivided`."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from autoauto.evaluate.flow import Flow
from autoauto.records.errors import DoesNotFit
from autoauto.records.hardware import Cluster
from autoauto.records.knobs import Knobs
from autoauto.records.layers import LayerGraph
from autoauto.records.profile import CompileOptions
from autoauto.records.timeline import Run
from autoauto.records.trial import Outcome
from autoauto.records.units import samples_per_s


@runtime_checkable
class UndividedRunner(Protocol):
    """A target that also runs a whole model on all devices together."""

    def run_undivided(self, graph: LayerGraph, cluster: Cluster, options: CompileOptions) -> Run:
        """Run the model in one session that has the cores and the memory of all devices."""


def can_run_undivided(flow: Flow) -> bool:
    """Whether the target can run one session on all devices, and there are at least two of them."""
    return len(flow.cluster) > 1 and isinstance(flow.target, UndividedRunner)


def evaluate_undivided(flow: Flow, knobs: Knobs) -> Outcome:
    """Run the whole model in one session on all devices; if it does not fit, the outcome says so."""
    assert isinstance(flow.target, UndividedRunner)
    memory_bytes = int(sum(device.memory_bytes for device in flow.cluster.devices))
    try:
        run = flow.target.run_undivided(flow.graph, flow.cluster, flow.options(knobs))
    except DoesNotFit as failure:
        return Outcome(knobs, None, None, 0.0, 0.0, failure.excess_bytes, memory_bytes, str(failure))
    throughput = samples_per_s(knobs.batch_size, run.period_cycles, flow.cluster.devices[0].clock_hz)
    return Outcome(knobs, None, run.plan, throughput, 0.0, 0, memory_bytes, "", run.timelines[0])
