"""What a model computes in fp32, and by how much outputs differ from it: `reference_outputs`, `output_error`."""

from __future__ import annotations

from collections.abc import Mapping

from autoauto.records.layers import LayerGraph, Source
from autoauto.records.plan import Plan
from autoauto.records.profile import HostPrecision, SessionOptions
from autoauto.records.units import Array, relative_error
from autoauto.targets.host.machine.machine import cores_of
from autoauto.targets.host.memory_budget import machine_bytes
from autoauto.targets.host.run.pipelines import Batch, Pipelines
from autoauto.targets.host.run.run import inputs_of
from autoauto.targets.host.run.stage import StageResources
from autoauto.targets.host.runtimes.registry import installed
from autoauto.targets.host.samples import InputSamples

Outputs = Mapping[str, Array]


def reference_outputs(
    source: Source, graph: LayerGraph, plan: Plan, batch_size: int, samples: InputSamples | None = None
) -> Outputs:
    """The outputs of the inputs of a run, in fp32 by the first runtime that is installed.

    It computes one stage after the other, all on the first core, so that memory suffices where `plan` does.
    """
    session = SessionOptions(1, installed()[0], HostPrecision.FP32)
    resources = [StageResources(cores_of(0, 1), session, machine_bytes()) for _ in plan.stages]
    inputs, outputs = inputs_of(source, graph, batch_size, samples), dict[str, Array]()
    stages, given = [stage.layers for stage in plan.stages], inputs if samples else None
    with Pipelines(graph, source, stages, batch_size, [resources], given=given) as pipelines:
        pipelines.stream(iter([inputs]), lambda _pipeline, _number, batch: outputs.update(copy_of(batch)))
    return outputs


def copy_of(batch: Batch) -> dict[str, Array]:
    """Arrays that stay when the slot of a ring is used again."""
    return {name: array.copy() for name, array in batch.items()}


def output_error(outputs: Outputs, expected: Outputs) -> float:
    """The largest `relative_error` of all outputs."""
    return max((relative_error(outputs[name], array) for name, array in expected.items()), default=0.0)
