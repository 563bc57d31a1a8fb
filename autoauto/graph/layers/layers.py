"""Put what is known about a model into a `LayerGraph`: one layer a node that computes.

Constants and views are folded away. Every tensor that is another under a new shape has one root, the tensor that lies
in memory. `Layer.inputs`, `outputs` and `weights` name roots, without repeats: that is what lives and what is stored.
`Layer.operands` name what the operator sees, each with the shape it sees, views included; the entry of a view has the
producer and the last use of its root. Operands whose values are compiled into the code (axes, pads, ...) are
attributes, not weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import onnx

from autoauto.graph.layers.facts import Fact, Known
from autoauto.graph.layers.kinds import (
    attributes,
    code_operands,
    digest,
    is_matrix,
    is_view,
    is_weight_view,
    kind,
    ties,
)
from autoauto.graph.read.trace import opset
from autoauto.records.errors import UnreadableModel
from autoauto.records.layers import Layer, LayerGraph, Tensor


class _Reading(NamedTuple):
    """A node that computes, with the roots it reads and the tensors it writes."""

    node: onnx.NodeProto
    version: int
    inputs: tuple[str, ...]
    weights: tuple[str, ...]
    outputs: tuple[str, ...]


def layers_of(name: str, known: Known) -> LayerGraph:
    """The layers of a model and the tensors between them.

    Raises:
        UnreadableModel: nothing in the model computes.
    """
    facts, roots = known.facts, _roots(known)
    ends = {roots.get(entry.name, entry.name) for entry in known.model.graph.output}
    readings = _needed(known, roots, ends)
    if not readings:
        raise UnreadableModel("a model needs a node that computes something from its inputs, this one has none")
    spans = _spans(readings, ends)
    tensors: dict[str, tuple[int, Tensor]] = {}

    def index(tensor: str) -> int:
        fact, span = facts[tensor], spans.get(roots.get(tensor, tensor), (-1, -1))
        return tensors.setdefault(tensor, (len(tensors), Tensor(tensor, *fact[:3], *span)))[0]

    tied = ties([(reading.node.op_type, _matrices(reading, facts)) for reading in readings])
    layers = tuple(
        _layer(title, reading, key, facts, index)
        for title, reading, key in zip(_titles(readings), readings, tied, strict=True)
    )
    entries = tuple(tensor for _, tensor in tensors.values())
    return LayerGraph(name, layers, entries, known.fixed_batch, digest(layers, entries, known.fixed_batch))


def _layer(
    title: str, reading: _Reading, tied: str | None, facts: Mapping[str, Fact], index: Callable[[str], int]
) -> Layer:
    node, outputs = reading.node, list(reading.outputs)
    settings = attributes(node, reading.version, facts)
    return Layer(
        name=title,
        op=node.op_type,
        attributes=settings,
        operands=tuple(index(name) if name else -1 for name in node.input),
        inputs=tuple(map(index, reading.inputs)),
        weights=tuple(map(index, reading.weights)),
        outputs=tuple(map(index, outputs)),
        kind=kind(node, settings, outputs, facts),
        tied=tied,
    )


def _roots(known: Known) -> dict[str, str]:
    """The root of every view and of every transposed weight."""
    roots: dict[str, str] = {}
    for node in known.model.graph.node:
        folded = is_weight_view if _is_constant(node, known.facts) else is_view
        if folded(node, known.facts):
            roots[node.output[0]] = roots.get(node.input[0], node.input[0])
    return roots


def _needed(known: Known, roots: Mapping[str, str], ends: Iterable[str]) -> list[_Reading]:
    """The nodes that compute what the outputs of the model need; a shape or a constant needs nothing."""
    wanted = set(ends)
    found = []
    for node in reversed(known.model.graph.node):
        if _is_constant(node, known.facts) or node.output[0] in roots or not wanted.intersection(node.output):
            continue
        reading = _read(node, known, roots)
        wanted.update(reading.inputs)
        found.append(reading)
    return found[::-1]


def _read(node: onnx.NodeProto, known: Known, roots: Mapping[str, str]) -> _Reading:
    facts, version = known.facts, opset(known.model, node.domain)
    code = {position for position, _ in code_operands(node, version, facts)}
    seen = [(position, name) for position, name in enumerate(node.input) if name]
    inputs = dict.fromkeys(roots.get(name, name) for _, name in seen if not facts[name].constant)
    weights = dict.fromkeys(
        roots.get(name, name) for position, name in seen if facts[name].constant and position not in code
    )
    return _Reading(node, version, tuple(inputs), tuple(weights), tuple(name for name in node.output if name in facts))


def _is_constant(node: onnx.NodeProto, facts: Mapping[str, Fact]) -> bool:
    return all(facts[name].constant for name in node.output if name in facts)


def _spans(readings: list[_Reading], ends: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Producer and last use of every root: -1 for what no layer writes, n_layers for what the model returns."""
    producer = {name: layer for layer, reading in enumerate(readings) for name in reading.outputs}
    last = dict(producer)
    for layer, reading in enumerate(readings):
        last |= dict.fromkeys((*reading.inputs, *reading.weights), layer)
    last |= dict.fromkeys(ends, len(readings))
    return {name: (producer.get(name, -1), use) for name, use in last.items()}


def _titles(readings: list[_Reading]) -> list[str]:
    """A name for every layer, no two equal: the node's, or that of the tensor it writes."""
    named = Counter(reading.node.name for reading in readings)
    return [
        reading.node.name if named[reading.node.name] == 1 and reading.node.name else reading.outputs[0]
        for reading in readings
    ]


def _matrices(reading: _Reading, facts: Mapping[str, Fact]) -> list[str]:
    return [name for name in reading.weights if is_matrix(facts[name].shape, facts[name].dtype)]
