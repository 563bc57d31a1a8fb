"""A model in plain form, `flatten`: sorted nodes without functions, with all constants as initializers of the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from math import prod
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import inliner

from autoauto.graph.functions import check_size
from autoauto.graph.onnx_file import all_nodes, attribute_named, bodies, first_line, first_output, has_bodies, reads
from autoauto.records.errors import UnreadableModel

_CONSTANTS = {
    "value_float": onnx.TensorProto.FLOAT,
    "value_int": onnx.TensorProto.INT64,
    "value_string": onnx.TensorProto.STRING,
}
MAX_AXES = 32
MAX_ELEMENTS = 2**50  # of a tensor, so that the bytes of a few are exact numbers
_MAX_VERSION = 2**31 - 1  # of the format and of operators: onnx holds it in 32 bits
CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})


def flatten(model: onnx.ModelProto) -> onnx.ModelProto:
    """Copy a model into plain form: functions inlined, constants as initializers, sorted, without unused nodes.

    Bodies of control flow are plain as well: no name is used twice, and their constants are moved to the model.
    Raises `UnreadableModel` for cycles, tensors that not one node produces, and functions that make too large a model.
    """
    check_size(model)
    try:
        plain = _one_domain(inliner.inline_local_functions(model) if model.functions else model)
    except (RuntimeError, DecodeError, onnx.checker.ValidationError) as error:
        raise UnreadableModel(f"the functions of the model cannot be inlined: {first_line(error)}") from error
    _check_head(plain)
    _check_operator_sets(plain)
    context = type(onnx.checker.DEFAULT_CONTEXT)()
    context.ir_version = plain.ir_version
    context.opset_imports = {entry.domain: entry.version for entry in plain.opset_import}
    for node in all_nodes(plain.graph):  # before any inference: on some faults onnx ends the process there
        _check(node, context)
    nodes, constants = _without_constants(plain.graph)
    nodes = [with_plain_bodies(node, constants) for node in nodes]
    # Names are known only now: bodies have added their constants to those of the model.
    known = {tensor.name for tensor in constants}
    inputs = [value for value in plain.graph.input if value.name not in known]
    nodes, outputs = with_tensors_at_ends(nodes, plain.graph.output)
    nodes = _sorted(nodes, known | {value.name for value in inputs}, {value.name for value in outputs})
    return assemble(plain, used(nodes, outputs), inputs, outputs, constants)


def assemble(
    model: onnx.ModelProto,
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    constants: list[onnx.TensorProto],
) -> onnx.ModelProto:
    """Make a model of these parts with the operator sets of `model`."""
    graph = onnx.helper.make_graph(nodes, model.graph.name or "graph", inputs, outputs, constants)
    return onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=max(model.ir_version, 4))


def _one_domain(model: onnx.ModelProto) -> onnx.ModelProto:
    if not any(entry.domain == "ai.onnx" for entry in chain(model.opset_import, all_nodes(model.graph))):
        return model
    copy = deepcopy(model)
    for entry in chain(copy.opset_import, all_nodes(copy.graph)):
        if entry.domain == "ai.onnx":
            entry.domain = ""
    return copy


def check_shape(shape: Sequence[int], what: str) -> None:
    """Raise UnreadableModel for a tensor whose size would not be an exact number; `what` begins the message."""
    if len(shape) > MAX_AXES:
        raise UnreadableModel(f"{what} must have at most {MAX_AXES} axes, got {len(shape):,}; is the file damaged?")
    if (n_elements := prod(map(abs, shape))) > MAX_ELEMENTS:
        raise UnreadableModel(
            f"{what} must have at most 2**{MAX_ELEMENTS.bit_length() - 1} elements, got {n_elements:.3g}; "
            "is the file damaged?"
        )


def _check_head(model: onnx.ModelProto) -> None:
    versions = [model.ir_version]
    versions += [entry.version for entry in model.opset_import]
    for version in versions:
        if not 0 <= version <= _MAX_VERSION:
            raise UnreadableModel(f"the versions in a model must be from 0 to {_MAX_VERSION}, got {version}")
    ends = [*model.graph.input, *model.graph.output]
    _check_names(entry.name for entry in ends)
    _check_names(tensor.name for tensor in model.graph.initializer)
    _check_names([model.graph.name])
    _check_names(entry.domain for entry in model.opset_import)
    for end in ends:
        _check_names(dim.dim_param for dim in end.type.tensor_type.shape.dim)
    if any(not end.name for end in ends):
        raise UnreadableModel("the inputs and outputs of a model must have names, one has none")
    for tensor in model.graph.initializer:
        check_shape(tensor.dims, f"constant {tensor.name!r}")


def _check_operator_sets(model: onnx.ModelProto) -> None:
    """Refuse operator sets that the onnx package does not know: it would read their operators by older definitions."""
    used_domains = {node.domain for node in all_nodes(model.graph)}
    for entry in model.opset_import:
        domain = entry.domain or "ai.onnx"
        newest = max((version for name, version in onnx.helper.OP_SET_ID_VERSION_MAP if name == domain), default=None)
        if newest is not None and entry.domain in used_domains and entry.version > newest:
            raise UnreadableModel(
                f"operator sets of {domain} must be at most {newest}, which the installed onnx knows, got "
                f"{entry.version}; try to export at {newest}, or pip install -U onnx"
            )


def _check_names(names: Iterable[object]) -> None:
    for name in names:
        if not isinstance(name, str):  # protobuf returns bytes for a name that is not valid text
            raise UnreadableModel(f"every name in a model must be text, got {name!r}; try to copy the file again")


def _check(node: onnx.NodeProto, context: Any) -> None:
    _check_names((node.name, node.op_type, node.domain, *node.input, *node.output))
    for attribute in node.attribute:  # onnx lets these faults pass
        _check_names([attribute.name])
        if attribute.ref_attr_name:
            raise UnreadableModel(
                f"only the body of a function has parameters, {attribute.name!r} of node {node.name!r} is one"
            )
        try:
            b"".join((attribute.s, *attribute.strings)).decode()
        except UnicodeDecodeError:
            raise UnreadableModel(
                f"attribute {attribute.name!r} of node {node.name!r} must be UTF-8 text, got {attribute.s!r:.80}"
            ) from None
    n_outputs = attribute_named(node, "num_outputs") if node.op_type == "Split" else None
    if n_outputs is not None and n_outputs.i != len(node.output):  # the inference of onnx ends the process there
        raise UnreadableModel(
            f"a Split must have num_outputs outputs, node {node.name!r} has {len(node.output)} instead of {n_outputs.i}"
        )
    if has_bodies(node):
        if node.domain or node.op_type not in CONTROL_FLOW:
            raise UnreadableModel(
                f"only {', '.join(sorted(CONTROL_FLOW))} may hold graphs, {node.op_type} {node.name!r} does; try to "
                "export without it"
            )
        _check_bodies(node)
        return
    try:
        if not node.domain and node.op_type != "Constant":  # the value of a Constant may have been dropped
            onnx.checker.check_node(node, context)
    except onnx.checker.ValidationError as error:
        raise UnreadableModel(f"node {node.name!r} is not as ONNX defines it: {first_line(error)}") from error


def _check_bodies(node: onnx.NodeProto) -> None:
    held = {entry.name: entry.g for entry in node.attribute if entry.type == onnx.AttributeProto.GRAPH}
    n_sequences = 1
    if node.op_type == "Scan":
        sequences = attribute_named(node, "num_scan_inputs")
        n_sequences = 0 if sequences is None else int(sequences.i)
    min_inputs = {"If": 1, "Loop": 2, "Scan": max(n_sequences, 1)}[node.op_type]
    names, n_inputs, n_outputs = {"body"}, len(node.input), len(node.output)
    if node.op_type == "If":  # its branches read tensors by name only
        names, n_inputs = {"then_branch", "else_branch"}, 0
    if node.op_type == "Loop":  # its body returns the condition first
        n_outputs += 1
    fits = held.keys() == names and len(node.input) >= min_inputs and n_sequences > 0 and any(node.output)
    for body in held.values():
        fits = fits and len(body.input) == n_inputs and len(body.output) == n_outputs
        fits = fits and all(entry.name for entry in chain(body.input, body.output))
    if not fits:
        raise UnreadableModel(f"the bodies of {node.op_type} {node.name!r} lack the ends that ONNX asks for")


def _without_constants(graph: onnx.GraphProto) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    nodes = []
    constants = list(graph.initializer)
    for node in graph.node:
        if node.op_type == "Constant" and not node.domain:
            constants.append(_constant(node))
        else:
            nodes.append(node)
    return nodes, constants


def with_plain_bodies(node: onnx.NodeProto, constants: list[onnx.TensorProto]) -> onnx.NodeProto:
    """A node whose bodies are plain; their constants are added to `constants`. Without bodies it comes back as it is.

    A tensor `t` in the body `then_branch` of the node that writes `y` is called "y/then_branch/t".
    """
    if not has_bodies(node):
        return node
    copy = deepcopy(node)
    prefix = first_output(node) or node.name
    for attribute in copy.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            attribute.g.CopyFrom(_plain_body(attribute.g, f"{prefix}/{attribute.name}", constants))
    return copy


def _plain_body(body: onnx.GraphProto, prefix: str, constants: list[onnx.TensorProto]) -> onnx.GraphProto:
    nodes, own = _without_constants(body)
    written = set(chain.from_iterable(node.output for node in nodes)) - {""}
    local = written.union((entry.name for entry in body.input), (tensor.name for tensor in own))
    names = {name: f"{prefix}/{name}" for name in local}
    for tensor in own:  # a constant of the body becomes one of the model
        lifted = deepcopy(tensor)
        lifted.name = names[tensor.name]
        constants.append(lifted)
    nodes = [with_plain_bodies(_renamed(node, names), constants) for node in nodes]
    outputs: list[onnx.ValueInfoProto] = []
    for index, entry in enumerate(body.output):
        name = names.get(entry.name, entry.name)
        # A plain body returns only what its own nodes write, and each tensor once; an Identity writes any other output.
        if entry.name not in written or any(name == other.name for other in outputs):
            read, name = name, f"{prefix}/{entry.name}/output {index}"
            nodes.append(onnx.helper.make_node("Identity", [read], [name], name))
        outputs.append(_renamed_entry(entry, name))
    inputs = [_renamed_entry(entry, names[entry.name]) for entry in body.input]
    known = {entry.name for entry in inputs} | {tensor.name for tensor in constants}
    # All other names are taken for tensors of the graph outside, where the sorting of that graph checks them.
    outer = set(chain.from_iterable(map(reads, nodes))) - {names[name] for name in written}
    nodes = used(_sorted(nodes, known | outer, {entry.name for entry in outputs}), outputs)
    return onnx.helper.make_graph(nodes, body.name or "body", inputs, outputs)


def inline_branches(model: onnx.ModelProto, decided: Mapping[str, str]) -> onnx.ModelProto:
    """A plain model in which the nodes of a branch replace an If: `decided` has the branch by the first output."""
    graph = model.graph
    nodes = used(_inlined(graph.node, decided), graph.output)
    return assemble(model, nodes, list(graph.input), list(graph.output), list(graph.initializer))


def _inlined(nodes: Iterable[onnx.NodeProto], decided: Mapping[str, str]) -> list[onnx.NodeProto]:
    inlined: list[onnx.NodeProto] = []
    for node in nodes:
        taken = decided.get(first_output(node))
        if taken is None and has_bodies(node):
            copy = deepcopy(node)
            for body in bodies(copy):
                left = used(_inlined(body.node, decided), body.output)
                del body.node[:]
                body.node.extend(left)
            inlined.append(copy)
            continue
        if taken is None:
            inlined.append(node)
            continue
        branch = attribute_named(node, taken)
        assert branch is not None
        inlined += _inlined(branch.g.node, decided)
        # The names of tensors in bodies are unique, so the nodes of the branch need no new ones.
        for end, name in zip(branch.g.output, node.output, strict=True):
            if name:
                inlined.append(onnx.helper.make_node("Identity", [end.name], [name], name))
    return inlined


def _renamed(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    copy = deepcopy(node)
    copy.input[:] = [names.get(name, name) for name in node.input]
    copy.output[:] = [names.get(name, name) for name in node.output]
    for body in bodies(copy):
        # A name that the body defines itself hides the tensor of that name outside.
        hidden = {entry.name for entry in chain(body.input, body.initializer)}
        hidden.update(chain.from_iterable(inner.output for inner in body.node))
        visible = {name: new for name, new in names.items() if name not in hidden}
        inner_nodes = [_renamed(inner, visible) for inner in body.node]
        del body.node[:]
        body.node.extend(inner_nodes)
        for entry in body.output:
            entry.name = visible.get(entry.name, entry.name)
    return copy


def _renamed_entry(entry: onnx.ValueInfoProto, name: str) -> onnx.ValueInfoProto:
    copy = deepcopy(entry)
    copy.name = name
    return copy


def _constant(node: onnx.NodeProto) -> onnx.TensorProto:
    if len(node.attribute) != 1 or len(node.output) != 1:
        given = f"{len(node.attribute)} and {len(node.output)}"
        raise UnreadableModel(f"a constant needs one value and one output, node {node.name!r} has {given}")
    (attribute,) = node.attribute
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        tensor = deepcopy(value)
        tensor.name = node.output[0]
        return tensor
    kind = _CONSTANTS.get(attribute.name.removesuffix("s"))
    if kind is None:
        raise UnreadableModel(f"a constant must be a dense tensor, {node.output[0]!r} is a {attribute.name}")
    values: Sequence[Any] = [value]
    dims: list[int] = []
    if isinstance(value, Sequence):
        values, dims = value, [len(value)]
    try:
        return onnx.helper.make_tensor(node.output[0], kind, dims, values)
    except (TypeError, ValueError) as error:
        raise UnreadableModel(f"constant {node.output[0]!r} is no {attribute.name}: {first_line(error)}") from error


def _sorted(nodes: list[onnx.NodeProto], known: set[str], wanted: set[str]) -> list[onnx.NodeProto]:
    """Order nodes so that each reads only tensors that are known or written earlier; a sorted file keeps its order."""
    writer: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in filter(None, node.output):
            if name in writer or name in known:
                raise UnreadableModel(f"a tensor must be written once, {name!r} is written by two nodes")
            writer[name] = index
    read = [set(reads(node)) for node in nodes]
    missing = wanted.union(*read) - known - writer.keys() - {""}
    if missing:
        raise UnreadableModel(f"every tensor must come from somewhere, nothing writes {min(map(str, missing))!r}")
    before: dict[int, set[int]] = {}  # by node those that write what it reads
    for index, names in enumerate(read):
        before[index] = {writer[name] for name in names if name in writer}
    # The sorter would choose another order of its own, so a sorted file is returned as it is.
    if all(max(writers, default=-1) < index for index, writers in before.items()):
        return nodes
    try:
        return [nodes[index] for index in TopologicalSorter(before).static_order()]
    except CycleError as error:
        name = nodes[error.args[1][0]].name
        raise UnreadableModel(f"a model must not have a cycle, node {name!r} waits for itself") from error


def with_tensors_at_ends(
    nodes: list[onnx.NodeProto], outputs: Iterable[onnx.ValueInfoProto]
) -> tuple[list[onnx.NodeProto], list[onnx.ValueInfoProto]]:
    """Drop the nodes that put outputs into dictionaries or sequences; the tensors inside become the outputs.

    A ZipMap turns a row of scores into a dictionary by class, which only the calling program needs.
    """
    makers = {node.output[0]: node for node in nodes if node.op_type in _MAKERS_OF_ENDS and node.output}
    dropped: set[str] = set()
    left: dict[str, onnx.ValueInfoProto] = {}
    for entry in outputs:
        maker = makers.get(entry.name)
        if maker is None:
            left[entry.name] = entry
            continue
        dropped.add(entry.name)
        for name in maker.input[: _MAKERS_OF_ENDS[maker.op_type]]:
            if name not in left:
                left[name] = onnx.helper.make_empty_tensor_value_info(name)
    return [node for node in nodes if not dropped.intersection(node.output)], list(left.values())


_MAKERS_OF_ENDS = {"ZipMap": 1, "SplitToSequence": 1, "SequenceConstruct": None}
"""Operators whose output is no tensor, and how many of their operands are tensors inside it; None is all of them."""


def used(nodes: Sequence[onnx.NodeProto], outputs: Iterable[onnx.ValueInfoProto]) -> list[onnx.NodeProto]:
    """The nodes, in order, that some output depends on."""
    wanted = {value.name for value in outputs}
    left = []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            wanted.update(reads(node))
            left.append(node)
    return left[::-1]
