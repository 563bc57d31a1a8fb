"""What Poplar's TensorFlow plugin refuses to pipeline (tests/vectors/pipeline_errors.json, "tf_poplar").

The rules of its orders, on stages, devices and multiples of micro-batches, stand in `poplar.py`.
"""

from __future__ import annotations

from autoauto.records.errors import BadInput
from autoauto.records.pipeline import PipelineGraph, TensorKind
from autoauto.schedule.autodiff import backward_ops
from autoauto.schedule.pipeline_rules import LAYOUT_RULES, device_of, stage_of, variables_stay


def poplar_devices(graph: PipelineGraph, *, training: bool) -> tuple[int, ...]:
    """The device of every stage of a graph, in training those of the backward stages too, as `poplar` takes them.

    Raises:
        BadInput: the plugin refuses the graph.

    >>> from autoauto.schedule.pipeline_input import simple_pipeline
    >>> poplar_devices(simple_pipeline(3), training=True)
    (0, 1, 2, 2, 1, 0)
    """
    for rule in (*LAYOUT_RULES, variables_stay, _streams_to_one_stage, _data_goes_to_the_next_stage):
        rule(graph)
    devices = {stage_of(layer): device_of(layer) for layer in graph.layers}
    forward = tuple(devices[stage] for stage in range(len(devices)))
    if training:
        backward_ops(graph)  # refuses a stage without a gradient
    return forward + forward[::-1] if training else forward


def check_accumulation(n_micro_batches: int | None, n_serial: int = 1, reduction: str = "sum") -> None:
    """Check how gradients are accumulated: over micro-batches, of which a stage runs `n_serial` at a time.

    Raises:
        BadInput: the plugin does not accumulate so.
    """
    if n_micro_batches is None:
        raise BadInput("the gradient accumulation count, the number of micro-batches, must be given, got none")
    if n_micro_batches < 0:
        raise BadInput(f"the gradient accumulation count must be 0 or more micro-batches, got {n_micro_batches}")
    if n_serial != 1 and reduction != "sum":
        raise BadInput(f"batch serialisation needs gradients to be reduced by sum, got {reduction}; try sum")


def _streams_to_one_stage(graph: PipelineGraph) -> None:
    readers = {name: layer for layer in reversed(graph.layers) for name in layer.inputs}
    for layer in graph.layers:
        for name in layer.inputs:
            first = readers[name]
            if graph.tensors[name].kind is TensorKind.STREAM and stage_of(first) != stage_of(layer):
                raise BadInput(
                    f"a stream (infeed) must be read by a single stage, but {name} is read by {first.name} in stage "
                    f"{stage_of(first)} and by {layer.name} in stage {stage_of(layer)}; try to pass it on as an output"
                )


def _data_goes_to_the_next_stage(graph: PipelineGraph) -> None:
    makers = {name: layer for layer in graph.layers for name in layer.outputs}
    for layer in graph.layers:
        for name in layer.inputs:
            maker = makers.get(name, layer)
            if stage_of(layer) - stage_of(maker) not in (0, 1):
                raise BadInput(
                    f"an output must be read by its own stage, the next, or its gradient, but {name} of {maker.name} "
                    f"in stage {stage_of(maker)} is read by {layer.name} in stage {stage_of(layer)}; try to pass it on"
                )
