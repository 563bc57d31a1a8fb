"""A model as a `LayerGraph`, `layers_of`: one layer a node that computes.

Constants and views are folded away (`is_view`). A view has a root, the tensor that lies in memory. `Layer.inputs`,
`outputs` and `weights` name roots, without repeats: the tensors that memory holds. `Layer.operands` name the tensors
that the operator reads, views included, each with its own shape; a view has the producer and the last use of its root.
Operands whose values are compiled into the code (axes, pads, ...) are attributes, not weights. Layers that read one
matrix are tied (`ties`): they must share a stage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import onnx

from autoauto.graph.blocks import blocks_of, scoped_operator
from autoauto.graph.facts import ModelFacts, TensorFact
from autoauto.graph.kinds import attributes, code_operands, digest, kind
from autoauto.graph.onnx_file import has_bodies, reads
from autoauto.graph.plain import assemble
from autoauto.graph.shapes.control_flow import branches, runs_name
from autoauto.graph.shapes.infer import opset
from autoauto.graph.shapes.shape_rule import integers
from autoauto.graph.shapes.values import operator_name
from autoauto.records.errors import UnreadableModel
from autoauto.records.layers import Body, Layer, LayerGraph, Tensor

_ALWAYS_VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
_VIEWS_WHEN_EQUAL = frozenset({"Expand", "Tile"})
_VIEWS_OF_ONE_OPERAND = frozenset({"Concat", "Max", "Mean", "Min", "Sum"})
_WIDE_INTEGERS = frozenset({"int32", "int64", "uint32", "uint64"})  # 32 bits on the device, all of them
MAX_STATE_SHARE = 0.5  # of all layers, which the readers and the writer of a state may lie apart
_MATRIX_READER_NAMES = (
    "Attention Conv ConvTranspose Einsum EmbedLayerNormalization FusedConv FusedGemm FusedMatMul GRU Gather Gemm If "
    "LSTM Loop MatMul RNN Scan"
)
_MATRIX_READERS = frozenset(_MATRIX_READER_NAMES.split())


class _Reading(NamedTuple):
    node: onnx.NodeProto
    version: int
    inputs: tuple[str, ...]
    weights: tuple[str, ...]
    outputs: tuple[str, ...]


def layers_of(name: str, known: ModelFacts) -> LayerGraph:
    """The layers of a model and the tensors between them; raises UnreadableModel where nothing computes."""
    facts, roots = known.facts, _roots(known)
    ends = {roots.get(entry.name, entry.name) for entry in known.model.graph.output}
    readings = _needed(known, roots, ends)
    if not readings:
        raise UnreadableModel("a model needs a node that computes something from its inputs, this one has none")
    states = _local_states(readings, known, roots)
    readings = [_with_states(reading, states) for reading in readings]
    spans = _spans(readings, ends - states.keys())
    indices: dict[str, int] = {}
    tensors: list[Tensor] = []

    def index(tensor: str) -> int:
        """The index of a tensor in the graph; tensors are numbered in the order in which layers name them."""
        if tensor not in indices:
            indices[tensor] = len(tensors)
            fact, root = facts[tensor], roots.get(tensor, tensor)
            producer, last_use = spans.get(root, (-1, -1))
            shape, batch_axis, dtype = fact.shape, fact.batch_axis, fact.dtype
            is_state = root in states
            tensors.append(Tensor(tensor, shape, batch_axis, dtype, producer, last_use, fact.data_dependent, is_state))
        return indices[tensor]

    tied = ties([_shared(reading, facts, states) for reading in readings])
    named = Counter(reading.node.name for reading in readings)
    layers: list[Layer] = []
    for reading, key in zip(readings, tied, strict=True):
        title = reading.node.name
        if not title or named[title] > 1:  # no two layers have one name
            title = reading.outputs[0]
        layers.append(_layer(title, reading, key, known, index))
    content = digest(tuple(layers), tuple(tensors), known.fixed_batch)
    blocks = blocks_of([scoped_operator(reading.node, reading.weights) for reading in readings])
    return LayerGraph(name, tuple(layers), tuple(tensors), known.fixed_batch, content, blocks)


def ties(shared: Sequence[Sequence[str]]) -> list[str | None]:
    """The key of the layers that each layer is tied to; a layer is given as the names of what must stay on its device.

    Layers of one key are connected by names: the first that has `a`, the second `a` and `b`, the third `b`.

    >>> ties([["wte"], ["a"], ["wte"], []])
    ['wte', None, 'wte', None]
    """
    read = [tuple(dict.fromkeys(names)) for names in shared]
    # Union-find over the names: every name leads to a parent, and a root leads to itself.
    parents: dict[str, str] = {}

    def root(name: str) -> str:
        while parents.setdefault(name, name) != name:
            name = parents[name]
        return name

    for names in read:
        for other in names[1:]:
            parents[root(other)] = root(names[0])
    keys: list[str | None] = [None] * len(read)
    for layer, names in enumerate(read):
        if names:
            keys[layer] = root(names[0])
    readers = Counter(keys)
    return [key if readers[key] > 1 else None for key in keys]


def is_matrix(shape: Sequence[int], dtype: str) -> bool:
    """True if a weight ties the layers that read it: vectors, masks and indices do not.

    >>> is_matrix((50257, 768), "float"), is_matrix((1, 768), "float"), is_matrix((2, 3), "int64")
    (True, False, False)
    """
    return dtype == "float" and sum(length > 1 for length in shape) > 1


def is_view(node: onnx.NodeProto, facts: Mapping[str, TensorFact]) -> bool:
    """True if the first output of a node is its first input under another shape."""
    if not node.input or node.input[0] not in facts or node.output[0] not in facts:
        return False
    op, before, after = node.op_type, facts[node.input[0]], facts[node.output[0]]
    if before.constant and not after.constant:  # a condition whose value at other batch sizes is not known
        return False
    copies = op in _ALWAYS_VIEWS
    if op in _VIEWS_WHEN_EQUAL:
        copies = (before.shape, before.batch_axis) == (after.shape, after.batch_axis)
    elif op in _VIEWS_OF_ONE_OPERAND:
        copies = len(node.input) == 1
    elif op == "Cast":
        copies = before.dtype == after.dtype or {before.dtype, after.dtype} <= _WIDE_INTEGERS
    elif op == "Dropout":  # a mask that is read is a tensor of its own
        copies = not any(name in facts for name in node.output[1:])
        if len(node.input) > 2 and node.input[2]:  # since operator set 12: whether it drops anything
            data = facts[node.input[2]].data
            copies = copies and data is not None and not bool(data)
    elif op == "Transpose":  # of axes of length 1 only, the batch axis aside; without a permutation it turns all
        axes = integers(node, "perm") or range(len(before.shape))[::-1]
        long = [axis for axis in axes if before.shape[axis] != 1 or axis == before.batch_axis]
        copies = long == sorted(long)
    return copies


def is_weight_view(node: onnx.NodeProto, facts: Mapping[str, TensorFact]) -> bool:
    """True if a node of constants is folded into the weight that it reads, when the model is compiled."""
    return node.op_type == "Transpose" or is_view(node, facts)


def _layer(title: str, reading: _Reading, tied: str | None, known: ModelFacts, index: Callable[[str], int]) -> Layer:
    node = reading.node
    held = _bodies(node, known)
    given = attributes(node, reading.version, known.facts)
    if held:  # layers with other bodies are of another kind
        texts = []
        for body in held:
            each = " a sample" if body.runs_per_sample else ""
            texts.append(f"{body.n_runs}{each}: {body.graph.content}")
        given = tuple(sorted((*given, ("bodies", tuple(texts)))))
    return Layer(
        name=title,
        # With its domain where the standard has another operator of that name.
        op=operator_name(node) if node.domain and onnx.defs.has(node.op_type) else str(node.op_type),
        attributes=given,
        operands=tuple(index(name) if name else -1 for name in reads(node)),
        inputs=tuple(map(index, reading.inputs)),
        weights=tuple(map(index, reading.weights)),
        outputs=tuple(map(index, reading.outputs)),
        kind=kind(node, given, reading.outputs, known.facts),
        tied=tied,
        bodies=held,
    )


def _bodies(node: onnx.NodeProto, known: ModelFacts) -> tuple[Body, ...]:
    if not has_bodies(node):
        return ()
    n_runs, runs_per_sample = 1, False
    runs = known.facts.get(runs_name(node))
    if runs is not None:
        n_runs, runs_per_sample = runs.shape[0], runs.batch_axis is not None
    held = []
    for body in branches(node, known.facts):
        model = assemble(known.model, list(body.node), list(body.input), list(body.output), [])
        try:
            graph = layers_of(body.name or "body", known._replace(model=model))
        except UnreadableModel:  # nothing in it computes
            continue
        held.append(Body(graph, n_runs, runs_per_sample))
    return tuple(held)


def _roots(known: ModelFacts) -> dict[str, str]:
    roots: dict[str, str] = {}
    for node in known.model.graph.node:
        folded = is_weight_view if _is_constant(node, known.facts) else is_view
        if folded(node, known.facts):
            roots[node.output[0]] = roots.get(node.input[0], node.input[0])
    return roots


def _needed(known: ModelFacts, roots: Mapping[str, str], ends: Iterable[str]) -> list[_Reading]:
    """The nodes that the outputs of the model depend on; a shape or a constant depends on nothing."""
    wanted = set(ends)
    readings = []
    # From the last node to the first, so that all readers of a tensor come before its writer.
    for node in reversed(known.model.graph.node):
        if _is_constant(node, known.facts) or node.output[0] in roots or not wanted.intersection(node.output):
            continue
        reading = _read(node, known, roots)
        wanted.update(reading.inputs)
        readings.append(reading)
    return readings[::-1]


def _read(node: onnx.NodeProto, known: ModelFacts, roots: Mapping[str, str]) -> _Reading:
    facts, version = known.facts, opset(known.model, node.domain)
    code = {position for position, _ in code_operands(node, version, facts)}
    inputs: list[str] = []
    weights: list[str] = []
    for position, name in enumerate(reads(node)):
        if not name:
            continue
        if not facts[name].constant:
            inputs.append(roots.get(name, name))
        elif position not in code:
            weights.append(roots.get(name, name))
    outputs = tuple(name for name in node.output if name in facts)
    return _Reading(node, version, tuple(dict.fromkeys(inputs)), tuple(dict.fromkeys(weights)), outputs)


def _is_constant(node: onnx.NodeProto, facts: Mapping[str, TensorFact]) -> bool:
    return all(facts[name].constant for name in node.output if name in facts)


def _spans(readings: list[_Reading], ends: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Producer and last use of every root: -1 for what no layer writes, n_layers for what the model returns."""
    producer: dict[str, int] = {}
    for layer, reading in enumerate(readings):
        producer.update(dict.fromkeys(reading.outputs, layer))
    last = dict(producer)
    for layer, reading in enumerate(readings):  # a later layer overwrites the use by an earlier one
        last.update(dict.fromkeys(reading.inputs, layer))
        last.update(dict.fromkeys(reading.weights, layer))
    last.update(dict.fromkeys(ends, len(readings)))
    return {name: (producer.get(name, -1), use) for name, use in last.items()}


def _local_states(readings: Sequence[_Reading], known: ModelFacts, roots: Mapping[str, str]) -> dict[str, str]:
    """The states that stay on one device, both tensors of each with its key.

    One that is read at one end of the model and written at the other would tie all layers to one device: so it travels,
    unless the user said that it stays.
    """
    states: dict[str, str] = {}
    for before, after, is_given in known.states:
        names = [roots.get(name, name) for name in (before, after)]
        uses = [i for i, reading in enumerate(readings) if names[0] in reading.inputs or names[1] in reading.outputs]
        if is_given or (uses and uses[-1] - uses[0] < MAX_STATE_SHARE * len(readings)):
            states |= dict.fromkeys(names, f"state {before}")
    return states


def _with_states(reading: _Reading, states: Mapping[str, str]) -> _Reading:
    """A reading whose states are weights: they lie on its device and come from no other layer."""
    inputs: list[str] = []
    weights = list(reading.weights)
    for name in reading.inputs:
        # Both tensors of a state have its key, which is named after the tensor that a call begins with.
        if states.get(name) == f"state {name}" and name not in reading.outputs:
            weights.append(name)
        else:
            inputs.append(name)
    return reading._replace(inputs=tuple(inputs), weights=tuple(weights))


def _shared(reading: _Reading, facts: Mapping[str, TensorFact], states: Mapping[str, str]) -> list[str]:
    """The names of what must be on the device of a layer: matrices, states, and tensors of unknown lengths."""
    shared: list[str] = []
    if reading.node.op_type in _MATRIX_READERS:
        shared += [name for name in reading.weights if is_matrix(facts[name].shape, facts[name].dtype)]
    shared += [states[name] for name in reading.weights + reading.outputs if name in states]
    shared += [name for name in reading.inputs + reading.outputs if facts[name].data_dependent]
    return shared
