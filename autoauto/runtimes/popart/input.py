"""JSON -> `PipelineGraph`: `read_pipeline`, and `simple_pipeline` for a number of devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from string import ascii_uppercase
from typing import Any

from autoauto.records.errors import BadInput
from autoauto.runtimes.popart.graph import PipelineGraph, PipelineLayer, PipelineTensor, TensorKind

Object = dict[str, Any]

_REQUIRED = object()
_RESERVED = "'@~("
_NAME = f"a printable name without {' '.join(_RESERVED)}, which mark what pipelining adds"


def simple_pipeline(n_devices: int) -> PipelineGraph:
    """One layer on each device, as the example of [popart-pipelining]: a stream, then A to Z, then L26, L27, ...

    Raises:
        BadInput: there is no device.

    >>> [(layer.name, layer.inputs, layer.device) for layer in simple_pipeline(3).layers]
    [('A', ('in',), 0), ('B', ('A:0',), 1), ('C', ('B:0',), 2)]
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
    constant or optimizer. Layers are listed in an order in which each reads outputs of earlier ones.

    Raises:
        BadInput: the document is something else; the message names the field.
    """
    if isinstance(document, list) and len(document) != 1:
        raise BadInput(f"a program holds a single pipeline, got {len(document)}; give each a file of its own")
    top = document[0] if isinstance(document, list) else document
    take = partial(_take, _object(top, "pipeline", "layers tensors forward_only_program"), "pipeline")
    layers = _layers(take("layers", lambda value: _is_list(value) and value != [], "a list with a layer or more"))
    tensors = _default_tensors(layers)
    listed = [
        _tensor(entry, f"pipeline.tensors[{i}]") for i, entry in enumerate(take("tensors", _is_list, "a list", []))
    ]
    _check_unique("pipeline.tensors: every name", (tensor.name for tensor in listed))
    for tensor in listed:
        _check_tensor(tensor, tensors)
    tensors |= {tensor.name: tensor for tensor in listed}
    return PipelineGraph(layers, tensors, take("forward_only_program", _is_flag, "true or false", False))


def _layers(entries: list[object]) -> tuple[PipelineLayer, ...]:
    layers: list[PipelineLayer] = []
    for index, entry in enumerate(entries):
        before = layers[-1].outputs if layers else ("in",)
        layers.append(_layer(entry, f"pipeline.layers[{index}]", before))
    _check_unique("pipeline.layers: every name", (layer.name for layer in layers))
    _check_unique("pipeline.layers: every output", (name for layer in layers for name in layer.outputs))
    _check_order(layers)
    return tuple(layers)


def _layer(entry: object, where: str, before: tuple[str, ...]) -> PipelineLayer:
    take = partial(_take, _object(entry, where, "name inputs outputs device stage gradient_needs recompute"), where)
    name = take("name", _is_name, _NAME)
    inputs = _names(take("inputs", _are_names, f"a list, each {_NAME}", before))
    outputs = _names(take("outputs", _are_names, f"a list, each {_NAME}", [f"{name}:0"]))
    own = (*inputs, *outputs)
    needs = take("gradient_needs", lambda value: _are_names(value) and set(value) <= set(own), _some_of(own), inputs)
    stage = take("stage", _is_whole, "a whole number", None)
    device = take("device", _is_device, "a whole number, 0 or more", None)
    recompute = take("recompute", _is_flag, "true or false", False)
    return PipelineLayer(name, inputs, outputs, stage, device, _names(needs), recompute)


def _default_tensors(layers: tuple[PipelineLayer, ...]) -> dict[str, PipelineTensor]:
    """The tensors that the document does not list: outputs are activations, all others streams."""
    streams = {name: PipelineTensor(name, TensorKind.STREAM) for layer in layers for name in layer.inputs}
    return streams | {name: PipelineTensor(name) for layer in layers for name in layer.outputs}


def _tensor(entry: object, where: str) -> PipelineTensor:
    take = partial(_take, _object(entry, where, "name kind anchored streamed_to"), where)
    return PipelineTensor(
        take("name", _is_name, _NAME),
        TensorKind(take("kind", list(TensorKind).__contains__, f"one of {', '.join(TensorKind)}", "activation")),
        take("anchored", _is_flag, "true or false", False),
        tuple(
            take("streamed_to", lambda value: _is_list(value) and all(map(_is_device, value)), "a list of devices", ())
        ),
    )


def _check_tensor(tensor: PipelineTensor, tensors: dict[str, PipelineTensor]) -> None:
    """The tensor's kind must fit how the layers use it."""
    name, kind = tensor.name, tensor.kind
    if name not in tensors:
        raise BadInput(f"pipeline.tensors must name what layers read or make, got {name}; mend the name or drop it")
    if (kind is TensorKind.ACTIVATION) != (tensors[name].kind is TensorKind.ACTIVATION):
        raise BadInput(f"pipeline.tensors: what a layer makes, and only that, is an activation, got {kind} for {name}")
    if tensor.is_anchor and kind not in {TensorKind.ACTIVATION, TensorKind.STREAM}:
        raise BadInput(f"pipeline.tensors: only an activation or a stream can be anchored, got the {kind} {name}")


def _check_unique(what: str, names: Iterable[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise BadInput(f"{what} must stand there once, got {', '.join(twice)} more often")


def _check_order(layers: list[PipelineLayer]) -> None:
    awaited = {name: layer.name for layer in layers for name in layer.outputs}
    for layer in layers:
        late = [name for name in layer.inputs if name in awaited]
        if late:
            raise BadInput(
                f"pipeline.layers: a layer must read what earlier ones make, but {layer.name} reads {late[0]} of "
                f"{awaited[late[0]]}; reorder the layers"
            )
        for name in layer.outputs:
            del awaited[name]


def _object(value: object, where: str, fields: str) -> Object:
    if not isinstance(value, dict) or not set(value) <= set(fields.split()):
        raise BadInput(f"{where} must be an object with some of the fields {fields}, got {_brief(value)}")
    return value


def _take(
    entry: Object, where: str, key: str, fits: Callable[[Any], bool], what: str, default: object = _REQUIRED
) -> Any:
    value = entry.get(key, default)
    if value is _REQUIRED:
        raise BadInput(f"{where} must have the field {key}, {what}; add it")
    if value is not default and not fits(value):
        raise BadInput(f"{where}.{key} must be {what}, got {_brief(value)}")
    return value


def _names(value: Iterable[str]) -> tuple[str, ...]:
    """Each name once: an op may read a tensor twice."""
    return tuple(dict.fromkeys(value))


def _some_of(names: Iterable[str]) -> str:
    return f"some of {', '.join(names)}"


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_name, value))


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != "" and value.isprintable() and set(value).isdisjoint(_RESERVED)


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_device(value: Any) -> bool:
    return _is_whole(value) and value >= 0


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _brief(value: object) -> str:
    shown = f"an object with {', '.join(map(repr, value)) or 'no field'}" if isinstance(value, dict) else repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
