"""A model in plain form, `flatten`: sorted nodes without functions, whose constants are those of the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from math import prod
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import inliner

from autoauto.graph.functions import check_size
from autoauto.graph.onnx_file import all_nodes, bodies, first_line, reads
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

    Bodies of control flow are plain, too: no name is used twice, and their constants are those of the model.

    Raises:
        UnreadableModel: a cycle, a tensor that nothing or more than one node produces, or functions or bodies that
            would make too large a model.
    """
    check_size(model)
    try:
        plain = _one_domain(inliner.inline_local_functions(model) if model.functions else model)
    except (RuntimeError, DecodeError, onnx.checker.ValidationError) as error:
        raise UnreadableModel(f"the functions of the model cannot be inlined: {first_line(error)}") from error
    _check_head(plain)
    context = type(onnx.checker.DEFAULT_CONTEXT)()
    context.ir_version = plain.ir_version
    context.opset_imports = {entry.domain: entry.version for entry in plain.opset_import}
    for node in all_nodes(plain.graph):
        _check(node, context)
    nodes, constants = _without_constants(plain.graph)
    nodes = [with_plain_bodies(node, constants) for node in nodes]
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
    """Call the standard operators' domain by its short name, the empty one."""
    if not any(entry.domain == "ai.onnx" for entry in (*model.opset_import, *all_nodes(model.graph))):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for entry in (*copy.opset_import, *all_nodes(copy.graph)):
        entry.domain = entry.domain if entry.domain != "ai.onnx" else ""
    return copy


def check_shape(shape: Sequence[int], what: str) -> None:
    """Refuse a tensor that no device holds, whose size would not be an exact number.

    Raises:
        UnreadableModel: it has too many axes or elements; the message begins with `what` it is.
    """
    if len(shape) > MAX_AXES:
        raise UnreadableModel(f"{what} must have at most {MAX_AXES} axes, got {len(shape):,}; is the file damaged?")
    if (n_elements := prod(map(abs, shape))) > MAX_ELEMENTS:
        raise UnreadableModel(
            f"{what} must have at most 2**{MAX_ELEMENTS.bit_length() - 1} elements, got {n_elements:.3g}; "
            "is the file damaged?"
        )


def _check_head(model: onnx.ModelProto) -> None:
    """Refuse versions that onnx cannot hold, and names of the ends of a model that are none."""
    for version in (model.ir_version, *(entry.version for entry in model.opset_import)):
        if not 0 <= version <= _MAX_VERSION:
            raise UnreadableModel(f"the versions in a model must be from 0 to {_MAX_VERSION}, got {version}")
    ends = [*(value.name for value in model.graph.input), *(value.name for value in model.graph.output)]
    _check_names([*ends, *(tensor.name for tensor in model.graph.initializer)])
    _check_names([model.graph.name, *(entry.domain for entry in model.opset_import)])
    for entry in (*model.graph.input, *model.graph.output):
        _check_names(dim.dim_param for dim in entry.type.tensor_type.shape.dim)
    if "" in ends:
        raise UnreadableModel("the inputs and outputs of a model must have names, one has none")
    for tensor in model.graph.initializer:
        check_shape(tensor.dims, f"constant {tensor.name!r}")


def _check_names(names: Iterable[object]) -> None:
    for name in names:
        if not isinstance(name, str):  # protobuf returns bytes for a name that is not valid text
            raise UnreadableModel(f"every name in a model must be text, got {name!r}; try to copy the file again")


def _check(node: onnx.NodeProto, context: Any) -> None:
    """Refuse a node that contradicts the definition of its operator."""
    _check_names((node.name, node.op_type, node.domain, *node.input, *node.output))
    for attribute in node.attribute:
        _check_attribute(node, attribute)
    if node.op_type == "Split":
        _check_split(node)
    if any(True for _ in bodies(node)):
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
    """Refuse control flow whose bodies have not the ends that ONNX asks for."""
    held = {entry.name: entry.g for entry in node.attribute if entry.type == onnx.AttributeProto.GRAPH}
    expected = {"then_branch", "else_branch"} if node.op_type == "If" else {"body"}
    n_sequences = next((int(entry.i) for entry in node.attribute if entry.name == "num_scan_inputs"), 1)
    n_inputs = 0 if node.op_type == "If" else len(node.input)
    n_outputs = len(node.output) + (node.op_type == "Loop")
    fits = (
        held.keys() == expected
        and len(node.input) >= {"If": 1, "Loop": 2, "Scan": max(n_sequences, 1)}[node.op_type]
        and n_sequences > 0
        and any(node.output)
        and all(len(body.input) == n_inputs and len(body.output) == n_outputs for body in held.values())
        and all(entry.name for body in held.values() for entry in (*body.input, *body.output))
    )
    if not fits:
        raise UnreadableModel(f"the bodies of {node.op_type} {node.name!r} lack the ends that ONNX asks for")


def _check_split(node: onnx.NodeProto) -> None:
    """Refuse a Split that writes more than it makes: the inference of onnx ends the process there."""
    for attribute in node.attribute:
        if attribute.name == "num_outputs" and attribute.i != len(node.output):
            raise UnreadableModel(
                f"a Split must have num_outputs outputs, node {node.name!r} has {len(node.output)} instead of "
                f"{attribute.i}"
            )


def _check_attribute(node: onnx.NodeProto, attribute: onnx.AttributeProto) -> None:
    """Refuse what onnx does not: texts that are none, and parameters of functions outside of them."""
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


def _without_constants(graph: onnx.GraphProto) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """The nodes of a graph but its constants, and these with its initializers."""
    is_constant = [node.op_type == "Constant" and not node.domain for node in graph.node]
    nodes = list(zip(graph.node, is_constant, strict=True))
    constants = [_constant(node) for node, constant in nodes if constant]
    return [node for node, constant in nodes if not constant], [*graph.initializer, *constants]


def with_plain_bodies(node: onnx.NodeProto, constants: list[onnx.TensorProto]) -> onnx.NodeProto:
    """A node whose bodies are plain; their constants are added to `constants`. Without bodies it comes back as it is.

    A tensor `t` in the body `then_branch` of the node that writes `y` is called "y/then_branch/t".
    """
    if not any(True for _ in bodies(node)):
        return node
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    prefix = next(filter(None, node.output), node.name)
    for attribute in copy.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            attribute.g.CopyFrom(_plain_body(attribute.g, f"{prefix}/{attribute.name}", constants))
    return copy


def _plain_body(body: onnx.GraphProto, prefix: str, constants: list[onnx.TensorProto]) -> onnx.GraphProto:
    nodes, own = _without_constants(body)
    written = {name for node in nodes for name in node.output if name}
    local = {*written, *(entry.name for entry in body.input), *(tensor.name for tensor in own)}
    names = {name: f"{prefix}/{name}" for name in local}
    for tensor in own:
        lifted = onnx.TensorProto()
        lifted.CopyFrom(tensor)
        lifted.name = names[tensor.name]
        constants.append(lifted)
    nodes = [with_plain_bodies(_renamed(node, names), constants) for node in nodes]
    outputs: list[onnx.ValueInfoProto] = []
    for index, entry in enumerate(body.output):  # a body may return only what its own nodes write
        name = names.get(entry.name, entry.name)
        if entry.name not in written or any(name == other.name for other in outputs):
            read, name = name, f"{prefix}/{entry.name}/output {index}"
            nodes.append(onnx.helper.make_node("Identity", [read], [name], name))
        outputs.append(_renamed_entry(entry, name))
    inputs = [_renamed_entry(entry, names[entry.name]) for entry in body.input]
    known = {entry.name for entry in inputs} | {tensor.name for tensor in constants}
    outer = {name for node in nodes for name in reads(node)} - {names[name] for name in written}
    nodes = used(_sorted(nodes, known | outer, {entry.name for entry in outputs}), outputs)
    return onnx.helper.make_graph(nodes, body.name or "body", inputs, outputs)


def inline_branches(model: onnx.ModelProto, decided: Mapping[str, str]) -> onnx.ModelProto:
    """A plain model with the nodes of a branch in place of every If whose first output `decided` names, with it."""
    graph = model.graph
    nodes = used(_inlined(graph.node, decided), graph.output)
    return assemble(model, nodes, list(graph.input), list(graph.output), list(graph.initializer))


def _inlined(nodes: Iterable[onnx.NodeProto], decided: Mapping[str, str]) -> list[onnx.NodeProto]:
    """The nodes without decided Ifs, also in bodies."""
    inlined: list[onnx.NodeProto] = []
    for node in nodes:
        taken = decided.get(next(filter(None, node.output), ""))
        if taken is not None:
            [branch] = (attribute.g for attribute in node.attribute if attribute.name == taken)
            inlined += _inlined(branch.node, decided)
            ends = zip(branch.output, node.output, strict=True)
            inlined += [onnx.helper.make_node("Identity", [end.name], [name], name) for end, name in ends if name]
        else:
            inlined.append(_with_inlined_bodies(node, decided))
    return inlined


def _with_inlined_bodies(node: onnx.NodeProto, decided: Mapping[str, str]) -> onnx.NodeProto:
    if not any(True for _ in bodies(node)):
        return node
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for body in bodies(copy):
        left = used(_inlined(body.node, decided), body.output)
        del body.node[:]
        body.node.extend(left)
    return copy


def _renamed(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    """A copy of a node that reads and writes tensors by new names, in its bodies as well."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = [names.get(name, name) for name in node.input]
    copy.output[:] = [names.get(name, name) for name in node.output]
    for body in bodies(copy):
        hidden = {*(entry.name for entry in body.input), *(tensor.name for tensor in body.initializer)}
        hidden.update(name for inner in body.node for name in inner.output)
        visible = {name: new for name, new in names.items() if name not in hidden}
        inner_nodes = [_renamed(inner, visible) for inner in body.node]
        del body.node[:]
        body.node.extend(inner_nodes)
        for entry in body.output:
            entry.name = visible.get(entry.name, entry.name)
    return copy


def _renamed_entry(entry: onnx.ValueInfoProto, name: str) -> onnx.ValueInfoProto:
    copy = onnx.ValueInfoProto()
    copy.CopyFrom(entry)
    copy.name = name
    return copy


def _constant(node: onnx.NodeProto) -> onnx.TensorProto:
    """Turn a Constant node into an initializer."""
    if len(node.attribute) != 1 or len(node.output) != 1:
        given = f"{len(node.attribute)} and {len(node.output)}"
        raise UnreadableModel(f"a constant needs one value and one output, node {node.name!r} has {given}")
    (attribute,) = node.attribute
    value = onnx.helper.get_attribute_value(attribute)
    tensor = onnx.TensorProto()
    if isinstance(value, onnx.TensorProto):
        tensor.CopyFrom(value)
        tensor.name = node.output[0]
        return tensor
    kind = _CONSTANTS.get(attribute.name.removesuffix("s"))
    if kind is None:
        raise UnreadableModel(f"a constant must be a dense tensor, {node.output[0]!r} is a {attribute.name}")
    values, dims = (value, [len(value)]) if isinstance(value, Sequence) else ([value], [])
    try:
        return onnx.helper.make_tensor(node.output[0], kind, dims, values)
    except (TypeError, ValueError) as error:
        raise UnreadableModel(f"constant {node.output[0]!r} is no {attribute.name}: {first_line(error)}") from error


def _sorted(nodes: list[onnx.NodeProto], known: set[str], wanted: set[str]) -> list[onnx.NodeProto]:
    """Order nodes so that each reads only tensors known or written earlier; the file's order stays if it does that."""
    writer: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in filter(None, node.output):
            if name in writer or name in known:
                raise UnreadableModel(f"a tensor must be written once, {name!r} is written by two nodes")
            writer[name] = index
    read = [{*reads(node)} for node in nodes]
    missing = wanted.union(*read) - known - writer.keys() - {""}
    if missing:
        raise UnreadableModel(f"every tensor must come from somewhere, nothing writes {min(map(str, missing))!r}")
    needs = [{writer[name] for name in names if name in writer} for names in read]
    if all(max(before, default=-1) < index for index, before in enumerate(needs)):
        return nodes
    try:
        return [nodes[index] for index in TopologicalSorter(dict(enumerate(needs))).static_order()]
    except CycleError as error:
        name = nodes[error.args[1][0]].name
        raise UnreadableModel(f"a model must not have a cycle, node {name!r} waits for itself") from error


def with_tensors_at_ends(
    nodes: list[onnx.NodeProto], outputs: Iterable[onnx.ValueInfoProto]
) -> tuple[list[onnx.NodeProto], list[onnx.ValueInfoProto]]:
    """The nodes but those that put outputs into dictionaries or sequences, and the outputs with the tensors in these.

    A ZipMap turns a row of scores into a dictionary by class, which is for the program that asked.
    """
    makers = {node.output[0]: node for node in nodes if node.op_type in _MAKERS_OF_ENDS and node.output}
    dropped = {entry.name for entry in outputs} & makers.keys()
    left: dict[str, onnx.ValueInfoProto] = {}
    for entry in outputs:
        if entry.name in dropped:
            names = list(makers[entry.name].input)[: _MAKERS_OF_ENDS[makers[entry.name].op_type]]
            left |= {name: onnx.helper.make_empty_tensor_value_info(name) for name in names if name not in left}
        else:
            left[entry.name] = entry
    return [node for node in nodes if not dropped.intersection(node.output)], list(left.values())


_MAKERS_OF_ENDS = {"ZipMap": 1, "SplitToSequence": 1, "SequenceConstruct": None}
"""Operators that make no tensor, with how many of their operands are what they are made of; None is all."""


def used(nodes: Sequence[onnx.NodeProto], outputs: Iterable[onnx.ValueInfoProto]) -> list[onnx.NodeProto]:
    """The nodes, in order, that some output depends on."""
    wanted = {value.name for value in outputs}
    left = []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            wanted.update(reads(node))
            left.append(node)
    return left[::-1]
