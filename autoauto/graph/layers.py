"""A model as a `LayerGraph`, `layers_of`: one layer a node that computes.

Constants and views are folded away (`is_view`). A view has a root, the tensor that lies in memory. `Layer.inputs`,
`outputs` and `weights` name roots, without repeats: the tensors that memory holds. `Layer.operands` name the tensors
that the operator reads, views included, each with its own shape; a view has the producer and the last use of its root.
Operands whose values are compiled into the code (axes, pads, ...) are
attributes, not weights. Layers that read one matrix are tied (`ties`): they must share a stage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import onnx

from autoauto.graph.blocks import blocks_of, scoped_operator
from autoauto.graph.facts import ModelFacts, TensorFact
from autoauto.graph.kinds import Attributes, attributes, code_operands, digest, kind, layer_operator
from autoauto.graph.onnx_file import bodies, reads
from autoauto.graph.plain import assemble
from autoauto.graph.shapes.control_flow import runs_name
from autoauto.graph.shapes.infer import opset
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
    """A node that computes, with the roots it reads and the tensors it writes."""

    node: onnx.NodeProto
    version: int
    inputs: tuple[str, ...]
    weights: tuple[str, ...]
    outputs: tuple[str, ...]


def layers_of(name: str, known: ModelFacts) -> LayerGraph:
    """The layers of a model and the tensors between them.

    Raises:
        UnreadableModel: nothing in the model computes.
    """
    facts, roots = known.facts, _roots(known)
    ends = {roots.get(entry.name, entry.name) for entry in known.model.graph.output}
    readings = _needed(known, roots, ends)
    if not readings:
        raise UnreadableModel("a model needs a node that computes something from its inputs, this one has none")
    states = _local_states(readings, known, roots)
    readings = [_with_states(reading, states) for reading in readings]
    spans = _spans(readings, ends - states.keys())
    tensors: dict[str, tuple[int, Tensor]] = {}

    def index(tensor: str) -> int:
        fact, span = facts[tensor], spans.get(roots.get(tensor, tensor), (-1, -1))
        is_state = roots.get(tensor, tensor) in states
        entry = Tensor(tensor, *fact[:3], *span, fact.data_dependent, is_state)
        return tensors.setdefault(tensor, (len(tensors), entry))[0]

    tied = ties([_shared(reading, facts, states) for reading in readings])
    layers = tuple(
        _layer(title, reading, key, known, index)
        for title, reading, key in zip(_titles(readings), readings, tied, strict=True)
    )
    entries = tuple(tensor for _, tensor in tensors.values())
    content = digest(layers, entries, known.fixed_batch)
    blocks = blocks_of([scoped_operator(reading.node, reading.weights) for reading in readings])
    return LayerGraph(name, layers, entries, known.fixed_batch, content, blocks)


def ties(shared: Sequence[Sequence[str]]) -> list[str | None]:
    """The key of the layers that each layer is tied to; a layer is given as the names of what must stay on its device.

    Layers of one key are connected by names: the first that has `a`, the second `a` and `b`, the third `b`.

    >>> ties([["wte"], ["a"], ["wte"], []])
    ['wte', None, 'wte', None]
    """
    read = [tuple(dict.fromkeys(names)) for names in shared]
    parents: dict[str, str] = {}  # union-find over the matrices

    def root(name: str) -> str:
        while parents.setdefault(name, name) != name:
            name = parents[name]
        return name

    for names in read:
        for other in names[1:]:
            parents[root(other)] = root(names[0])
    keys = [root(names[0]) if names else None for names in read]
    readers = Counter(keys)
    return [key if readers[key] > 1 else None for key in keys]


def is_matrix(shape: Sequence[int], dtype: str) -> bool:
    """Whether a weight ties the layers that read it: vectors, masks and indices do not.

    >>> is_matrix((50257, 768), "float"), is_matrix((1, 768), "float"), is_matrix((2, 3), "int64")
    (True, False, False)
    """
    return dtype == "float" and sum(length > 1 for length in shape) > 1


def is_view(node: onnx.NodeProto, facts: Mapping[str, TensorFact]) -> bool:
    """Whether the first output of a node is its first input under another shape."""
    if not node.input or node.input[0] not in facts or node.output[0] not in facts:
        return False
    op, before, after = node.op_type, facts[node.input[0]], facts[node.output[0]]
    return (
        op in _ALWAYS_VIEWS
        or (op in _VIEWS_WHEN_EQUAL and before[:2] == after[:2])
        or (op in _VIEWS_OF_ONE_OPERAND and len(node.input) == 1)
        or (op == "Cast" and (before.dtype == after.dtype or {before.dtype, after.dtype} <= _WIDE_INTEGERS))
        or (op == "Dropout" and not _is_training(node, facts) and not any(name in facts for name in node.output[1:]))
        or (op == "Transpose" and _moves_ones(before, _permutation(node, len(before.shape))))
    )


def is_weight_view(node: onnx.NodeProto, facts: Mapping[str, TensorFact]) -> bool:
    """Whether a node of constants is folded into the weight that it reads, when the model is compiled."""
    return node.op_type == "Transpose" or is_view(node, facts)


def _permutation(node: onnx.NodeProto, rank: int) -> tuple[int, ...]:
    """The permutation of a Transpose."""
    given = next((tuple(entry.ints) for entry in node.attribute if entry.name == "perm"), ())
    return given or tuple(range(rank))[::-1]


def _moves_ones(before: TensorFact, permutation: tuple[int, ...]) -> bool:
    """Whether a permutation moves axes of length 1 only, the batch axis aside."""
    long = [axis for axis in permutation if before.shape[axis] != 1 or axis == before.batch_axis]
    return long == sorted(long)


def _is_training(node: onnx.NodeProto, facts: Mapping[str, TensorFact]) -> bool:
    """Whether a Dropout drops anything: its third operand, since operator set 12, is true or not known."""
    if len(node.input) < 3 or not node.input[2]:
        return False
    data = facts[node.input[2]].data
    return data is None or bool(data)


def _layer(title: str, reading: _Reading, tied: str | None, known: ModelFacts, index: Callable[[str], int]) -> Layer:
    node, outputs = reading.node, list(reading.outputs)
    held = _bodies(node, known)
    given = _with_bodies(attributes(node, reading.version, known.facts), held)
    return Layer(
        name=title,
        op=layer_operator(node),
        attributes=given,
        operands=tuple(index(name) if name else -1 for name in reads(node)),
        inputs=tuple(map(index, reading.inputs)),
        weights=tuple(map(index, reading.weights)),
        outputs=tuple(map(index, outputs)),
        kind=kind(node, given, outputs, known.facts),
        tied=tied,
        bodies=held,
    )


def _bodies(node: onnx.NodeProto, known: ModelFacts) -> tuple[Body, ...]:
    """The bodies of a node that may run and compute something, as graphs of their own."""
    runs = known.facts.get(runs_name(node)) if any(True for _ in bodies(node)) else None
    held = []
    for body in bodies(node):
        if not all(entry.name in known.facts for entry in body.output):
            continue  # a constant decides against this branch
        model = assemble(known.model, list(body.node), list(body.input), list(body.output), [])
        try:
            graph = layers_of(body.name or "body", known._replace(model=model))
        except UnreadableModel:  # nothing in it computes
            continue
        held.append(Body(graph, runs.shape[0] if runs else 1, runs is not None and runs.batch_axis is not None))
    return tuple(held)


def _with_bodies(given: Attributes, held: Sequence[Body]) -> Attributes:
    """Attributes that tell layers with other bodies apart."""
    if not held:
        return given
    texts = tuple(f"{body.n_runs}{' a sample' * body.runs_per_sample}: {body.graph.content}" for body in held)
    return tuple(sorted((*given, ("bodies", texts))))


def _roots(known: ModelFacts) -> dict[str, str]:
    """The root of every view and of every transposed weight."""
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
    operands = [(position, name) for position, name in enumerate(reads(node)) if name]
    inputs = dict.fromkeys(roots.get(name, name) for _, name in operands if not facts[name].constant)
    weights = dict.fromkeys(
        roots.get(name, name) for position, name in operands if facts[name].constant and position not in code
    )
    return _Reading(node, version, tuple(inputs), tuple(weights), tuple(name for name in node.output if name in facts))


def _is_constant(node: onnx.NodeProto, facts: Mapping[str, TensorFact]) -> bool:
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


def _local_states(readings: Sequence[_Reading], known: ModelFacts, roots: Mapping[str, str]) -> dict[str, str]:
    """The states that stay on one device, both tensors of each with its key.

    One that is read at one end of the model and written at the other would tie all layers to one device: so it travels,
    unless the user said that it stays.
    """
    states: dict[str, str] = {}
    for before, after, is_given in known.states:
        names = [roots.get(name, name) for name in (before, after)]
        uses = [i for i, each in enumerate(readings) if names[0] in each.inputs or names[1] in each.outputs]
        if is_given or (uses and uses[-1] - uses[0] < MAX_STATE_SHARE * len(readings)):
            states |= dict.fromkeys(names, f"state {before}")
    return states


def _with_states(reading: _Reading, states: Mapping[str, str]) -> _Reading:
    """A reading whose states are weights: they lie on its device and come from no other layer."""
    before = tuple(name for name in reading.inputs if name in states and name not in reading.outputs)
    held = [name for name in before if states[name] == f"state {name}"]
    inputs = tuple(name for name in reading.inputs if name not in held)
    return reading._replace(inputs=inputs, weights=(*reading.weights, *held))


def _shared(reading: _Reading, facts: Mapping[str, TensorFact], states: Mapping[str, str]) -> list[str]:
    """What a layer must have on its own device: matrices and states, which others may read, and unknown lengths."""
    matrices = [name for name in reading.weights if is_matrix(facts[name].shape, facts[name].dtype)]
    tensors = (*reading.inputs, *reading.outputs)
    return [
        *(matrices if reading.node.op_type in _MATRIX_READERS else ()),
        *(states[name] for name in (*reading.weights, *reading.outputs) if name in states),
        *(name for name in tensors if facts[name].data_dependent),
    ]
