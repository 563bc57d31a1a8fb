"""JSON -> `PipelineGraph`: `read_pipeline`, and `simple_pipeline` for a number of devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from string import ascii_uppercase
from typing import Annotated

from msgspec import Meta, Struct, field

from autoauto.programs.popart.graph import PipelineGraph, PipelineLayer, PipelineTensor, TensorKind
from autoauto.records.errors import BadInput
from autoauto.records.files.fields import Whole, brief
from autoauto.records.files.json import from_plain

_RESERVED = "'@~("


class _LayerInput(Struct, forbid_unknown_fields=True):
    name: str
    inputs: list[str] | None = None
    outputs: list[str] | None = None
    device: Whole | None = None
    stage: int | None = None
    gradient_needs: list[str] | None = None
    recompute: bool = False

    def __post_init__(self) -> None:
        _check_names("name", [self.name])
        _check_names("inputs", self.inputs or [])
        _check_names("outputs", self.outputs or [])


class _TensorInput(Struct, forbid_unknown_fields=True):
    name: str
    kind: TensorKind = TensorKind.ACTIVATION
    is_anchor: bool = field(default=False, name="anchored")
    streamed_to: list[Whole] = []

    def __post_init__(self) -> None:
        _check_names("name", [self.name])


class _PipelineInput(Struct, forbid_unknown_fields=True):
    layers: Annotated[list[_LayerInput], Meta(min_length=1)]
    tensors: list[_TensorInput] = []
    forward_only_program: bool = False


def simple_pipeline(n_devices: int) -> PipelineGraph:
    """One layer on each device, as the example of [popart-pipelining]: a stream, then A to Z, then L26, L27, ...

    Raises BadInput if there is no device.
    """
    if n_devices < 1:
        raise BadInput(f"a pipeline needs at least 1 device, got {n_devices}")
    names = [ascii_uppercase[i] if i < 26 else f"L{i}" for i in range(n_devices)]
    return read_pipeline({"layers": [{"name": name, "device": device} for device, name in enumerate(names)]})


def read_pipeline(document: object) -> PipelineGraph:
    """Read a forward graph of layers.

    The document is a JSON object, or a list that holds one:

        {"layers": [{"name": "A", "inputs": ["in", "w"], "outputs": ["a"], "device": 0, "stage": 0,
                     "gradient_needs": ["in", "w"], "recompute": false}],
         "tensors": [{"name": "w", "kind": "variable", "anchored": false, "streamed_to": []}],
         "forward_only_program": false}

    Only `layers` and their names are required. By default a layer reads the outputs of the layer before it, the first
    one the stream "in"; it makes one tensor, "A:0" for layer A; and its gradient needs its inputs. When no layer has a
    stage, a layer's stage is its device's number. A tensor that no layer makes is a stream unless its kind is variable,
    constant or optimizer. Layers are listed in an order in which each reads outputs of earlier ones. Raises BadInput if
    the document is something else; the message names the field.
    """
    if isinstance(document, list):
        if len(document) != 1:
            raise BadInput(f"a program holds a single pipeline, got {len(document)}; give each a file of its own")
        document = document[0]
    pipeline = from_plain(_PipelineInput, document, "pipeline")
    layers = _layers(pipeline.layers)
    # As if the document listed none: outputs of layers are activations, all others streams.
    defaults: dict[str, PipelineTensor] = {}
    for layer in layers:
        defaults.update((name, PipelineTensor(name, TensorKind.STREAM)) for name in layer.inputs)
    for layer in layers:
        defaults.update((name, PipelineTensor(name)) for name in layer.outputs)
    _check_unique("pipeline.tensors: every name", [entry.name for entry in pipeline.tensors])
    tensors = dict(defaults)
    for entry in pipeline.tensors:
        name, kind = entry.name, entry.kind
        if name not in defaults:
            raise BadInput(f"pipeline.tensors must name what layers read or make, got {name}; mend the name or drop it")
        if (kind is TensorKind.ACTIVATION) != (defaults[name].kind is TensorKind.ACTIVATION):
            raise BadInput(
                f"pipeline.tensors: what a layer makes, and only that, is an activation, got {kind} for {name}"
            )
        if entry.is_anchor and kind not in {TensorKind.ACTIVATION, TensorKind.STREAM}:
            raise BadInput(f"pipeline.tensors: only an activation or a stream can be anchored, got the {kind} {name}")
        tensors[name] = PipelineTensor(name, kind, entry.is_anchor, tuple(entry.streamed_to))
    return PipelineGraph(layers, tensors, pipeline.forward_only_program)


def _layers(entries: list[_LayerInput]) -> tuple[PipelineLayer, ...]:
    layers: list[PipelineLayer] = []
    for index, entry in enumerate(entries):
        before = layers[-1].outputs if layers else ("in",)
        layers.append(_layer(entry, f"pipeline: layers[{index}]", before))
    _check_unique("pipeline.layers: every name", [layer.name for layer in layers])
    _check_unique("pipeline.layers: every output", chain.from_iterable(layer.outputs for layer in layers))
    _check_order(layers)
    return tuple(layers)


def _layer(entry: _LayerInput, where: str, before: tuple[str, ...]) -> PipelineLayer:
    inputs = _names(entry.inputs, before)
    outputs = _names(entry.outputs, [f"{entry.name}:0"])
    needs = _names(entry.gradient_needs, inputs)
    if not set(inputs + outputs).issuperset(needs):
        own = ", ".join(inputs + outputs)
        raise BadInput(f"{where}.gradient_needs must be some of {own}, got {brief(entry.gradient_needs)}")
    return PipelineLayer(entry.name, inputs, outputs, entry.stage, entry.device, needs, entry.recompute)


def _check_unique(what: str, names: Iterable[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise BadInput(f"{what} must stand there once, got {', '.join(twice)} more often")


def _check_order(layers: list[PipelineLayer]) -> None:
    awaited: dict[str, str] = {}  # by output that is not yet made, its layer
    for layer in layers:
        awaited.update(dict.fromkeys(layer.outputs, layer.name))
    for layer in layers:
        for name in layer.inputs:
            if name in awaited:
                raise BadInput(
                    f"pipeline.layers: a layer must read what earlier ones make, but {layer.name} reads {name} of "
                    f"{awaited[name]}; reorder the layers"
                )
        for name in layer.outputs:
            del awaited[name]


def _check_names(where: str, names: Iterable[str]) -> None:
    for name in names:
        if name == "" or not name.isprintable() or not set(name).isdisjoint(_RESERVED):
            marks = " ".join(_RESERVED)
            raise BadInput(
                f"{where} must be printable, without {marks}, which mark what pipelining adds, got {brief(name)}"
            )


def _names(given: Sequence[str] | None, default: Sequence[str]) -> tuple[str, ...]:
    """The given names, or the default ones without any given. Each is there once: an op may read a tensor twice."""
    return tuple(dict.fromkeys(default if given is None else given))
