"""The graphs that PopART refuses to pipeline (tests/vectors/pipeline_errors.json, "popart")."""

from __future__ import annotations

from collections.abc import Iterable

from autoauto.programs.popart.graph import PipelineGraph, PipelineLayer, TensorKind
from autoauto.records.errors import BadInput


def check_graph(graph: PipelineGraph) -> None:
    """Refuse a graph that PopART would not pipeline with any number of micro-batches.

    Raises BadInput if the graph breaks a rule; the message is that of the first one.
    """
    devices = {layer.device for layer in graph.layers} - {None}
    if len(devices) < 2:
        raise BadInput(
            f"pipelining needs layers on 2 or more devices (virtual graphs), got {len(devices)}; set `device`"
        )
    check_layout(graph)
    asked = [layer.name for layer in graph.layers if layer.recompute]
    if asked:
        raise BadInput(
            f"a pipeline does not take single layers to recompute, got {_list(asked)}; try --recompute for all"
        )
    if graph.forward_only_program:
        raise BadInput(
            "a forward-only program beside the training is not supported, got forward_only_program: true; "
            "try the same graph for inference"
        )
    _check_data_flows_on(graph)
    check_variables_stay(graph)
    _check_streams(graph)


def check_layout(graph: PipelineGraph) -> None:
    """Refuse stages and devices that break a rule on these alone; the other rules rely on them.

    Raises BadInput as `check_graph`.
    """
    without = [layer.name for layer in graph.layers if layer.device is None]
    if without:
        raise BadInput(f"every layer needs a device where some have one, got none for {_list(without)}; set `device`")
    without = [layer.name for layer in graph.layers if layer.stage is None]
    if 0 < len(without) < len(graph.layers):
        raise BadInput(
            f"all layers or none must have a stage, got none for {_list(without)}; set `stage` for these too"
        )
    layers: dict[int, list[PipelineLayer]] = {}
    for layer in graph.layers:
        if stage_of(layer) < 0:
            raise BadInput(f"a stage must be 0 or more, got {layer.stage} for {layer.name}; number stages from 0")
        layers.setdefault(stage_of(layer), []).append(layer)
    for stage, members in layers.items():
        devices = sorted({device_of(layer) for layer in members})
        if len(devices) > 1:
            names = _list(layer.name for layer in members)
            raise BadInput(f"a stage must be on one device, but {names} of stage {stage} are on {_list(devices)}")
    missing = sorted(set(range(max(layers))) - layers.keys())
    if missing:
        raise BadInput(
            f"stages must be numbered from 0 without a gap, got {len(layers)} stages, but no stage {_list(missing)}; "
            "renumber them"
        )


def check_depth(n_stages: int, n_micro_batches: int, *, training: bool) -> None:
    """Refuse fewer micro-batches than stages, with BadInput."""
    name = "gradient accumulation factor" if training else "batches per step"
    if n_micro_batches < n_stages:
        raise BadInput(
            f"a pipeline needs as many micro-batches ({name}) as stages, {n_stages} or more, got {n_micro_batches}; "
            "try more micro-batches or fewer stages"
        )


def stage_of(layer: PipelineLayer) -> int:
    """The stage of a layer in a graph that `check_graph` accepts: its own, or its device's number."""
    stage = layer.device if layer.stage is None else layer.stage
    assert stage is not None
    return stage


def device_of(layer: PipelineLayer) -> int:
    """The device of a layer in a graph that `check_graph` accepts."""
    assert layer.device is not None
    return layer.device


def _check_data_flows_on(graph: PipelineGraph) -> None:
    """A tensor is read in the stage that makes it or later; between devices it is copied to a later stage."""
    makers = graph.makers
    for reader in graph.layers:
        for name in reader.inputs:
            maker = makers.get(name, reader)
            made, read = stage_of(maker), stage_of(reader)
            if made <= read:
                continue
            if maker.stage is None or maker.device == reader.device:
                raise BadInput(
                    f"a tensor must be read in the stage that makes it or later, but {name} is made by {maker.name} in "
                    f"stage {made} and read by {reader.name} in stage {read}; try stages in the order of the data"
                )
            raise BadInput(
                f"a copy must go to a later stage, but that of {name} from {maker.name} to {reader.name} goes from "
                f"stage {made} to stage {read}; try stages in the order of the data"
            )


def check_variables_stay(graph: PipelineGraph) -> None:
    """Refuse a variable that several devices read, with BadInput."""
    for name, devices in _readers_devices(graph, TensorKind.VARIABLE).items():
        if len(devices) > 1:
            raise BadInput(
                f"a variable cannot be copied between devices, but {name} is read on {_list(devices)}; "
                "put all its stages on one device"
            )


def _check_streams(graph: PipelineGraph) -> None:
    """A stream goes to the device of its first reader; other readers get copies from there."""
    for name, devices in _readers_devices(graph, TensorKind.STREAM).items():
        streamed_to = graph.tensors[name].streamed_to
        if streamed_to and streamed_to != devices[:1]:
            raise BadInput(
                f"a stream must go to one device, that of its first reader, {devices[0]} for {name}, "
                f"got {_list(streamed_to)}; other devices get copies"
            )


def _readers_devices(graph: PipelineGraph, kind: TensorKind) -> dict[str, tuple[int, ...]]:
    """The devices that read each tensor of a kind, in the order of their stages."""
    devices: dict[str, dict[int, None]] = {}
    for layer in sorted(graph.layers, key=stage_of):
        for name in layer.inputs:
            if graph.tensors[name].kind is kind:
                devices.setdefault(name, {})[device_of(layer)] = None
    return {name: tuple(order) for name, order in devices.items()}


def _list(values: Iterable[object]) -> str:
    """The first few values, and how many more there are."""
    texts = list(map(str, values))
    if len(texts) > 5:
        texts[5:] = [f"and {len(texts) - 5} more"]
    return ", ".join(texts)
