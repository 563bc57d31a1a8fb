"""The values of the outputs of If, Loop and Scan, and how often their bodies run.

A body reads tensors of the model by name, so its own tensors stand among the tensors of the model
(`plain.with_plain_bodies` gives them names of their own). How often a body runs stands there as well, as the length of
a tensor that nothing reads: the number may differ at other batch sizes.

    Loop  n, condition, state   -> state, and what every run adds          n runs, or fewer where a run may end it
    Scan  state, sequences      -> state, and sequences of what runs add   a run for every entry of the sequences
    If    condition             -> what the branch returns                 the branch that a constant decides, or both
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from autoauto.graph.onnx_file import bodies, first_output
from autoauto.graph.shapes.shape_rule import integer, integers
from autoauto.graph.shapes.values import Value, label
from autoauto.graph.shapes.windows import WindowTooLong
from autoauto.records.errors import UnreadableModel

Values = dict[str, Value]
Walk = Callable[[Sequence[onnx.NodeProto], Values], None]
"""Adds the values of the tensors that nodes write."""
Lengths = Mapping[str, tuple[int, ...]]

N_WALKS = 4  # of a body whose state has another shape after a run, until it keeps its shape
MAX_RUNS = 2**31 - 1


def control_flow_outputs(node: onnx.NodeProto, values: Values, walk: Walk, lengths: Lengths) -> Values:
    """The values of the outputs of an If, Loop or Scan; those of tensors within are added to `values`.

    `lengths` say how often the body of a loop runs, by its name, where the model does not. Where nothing says it, or
    shapes do not fit, `UnreadableModel` is raised.
    """
    if node.op_type == "If":
        results = _if(node, values, walk)
    elif node.op_type == "Loop":
        results = _loop(node, values, walk, lengths)
    else:
        results = _scan(node, values, walk)
    return {name: value for name, value in zip(node.output, results, strict=True) if name}


def runs_name(node: onnx.NodeProto) -> str:
    """The name of the tensor whose only axis is as long as the body of a Loop or Scan runs often."""
    return f"{first_output(node)}/runs"


def branches(node: onnx.NodeProto, values: Mapping[str, object]) -> list[onnx.GraphProto]:
    """The bodies of a node that may run: their tensors have values."""
    return [body for body in bodies(node) if all(entry.name in values for entry in body.output)]


def _if(node: onnx.NodeProto, values: Values, walk: Walk) -> list[Value]:
    named = {attribute.name: attribute.g for attribute in node.attribute}
    condition = values[node.input[0]]
    taken = ["then_branch", "else_branch"]
    if condition.data is not None and condition.constant:
        taken = ["then_branch"] if bool(condition.data.reshape(-1)[0]) else ["else_branch"]
    results = []
    for name in taken:
        try:
            walk(named[name].node, values)
            results.append([values[entry.name] for entry in named[name].output])
        except WindowTooLong:  # data may choose this branch, which then stops the model
            raise
        except UnreadableModel:  # a branch for other shapes than these; the other one must fit
            if len(taken) == 1 or (name == "else_branch" and not results):
                raise
    if len(results) == 1:
        return [value._replace(constant=value.constant and len(taken) == 1) for value in results[0]]
    # Data choose the branch when the model runs: the larger one stands for both.
    then, otherwise = results
    largest = max(results, key=lambda branch: sum(prod(value.shape) for value in branch))
    returned = []
    for value, first, second in zip(largest, then, otherwise, strict=True):
        differs = value.data_dependent or first.shape != second.shape
        returned.append(value._replace(data=None, constant=False, data_dependent=differs))
    return returned


def _loop(node: onnx.NodeProto, values: Values, walk: Walk, lengths: Lengths) -> list[Value]:
    [body] = bodies(node)
    states = [values[name] for name in node.input[2:]]
    scalars = [Value(TensorProto.INT64, (), None, False), Value(TensorProto.BOOL, (), None, False)]
    results, added = _until_stable(body, scalars, states, values, walk)
    may_end = values[body.output[0].name].data is None and not _passes_on(body)
    n_runs = None
    count, condition = _first_element(node, 0, values), _first_element(node, 1, values)
    if count is not None:
        n_runs = max(int(count), 0)
    if condition is not None and not bool(condition):
        n_runs = 0
    for name in (node.name, *node.output):
        if name in lengths:  # what a user says comes first
            n_runs = lengths[name][0]
            break
    if n_runs is None or n_runs > MAX_RUNS:
        name = node.name or first_output(node)
        raise UnreadableModel(
            f"how often the body of {label(node)} runs depends on data; give it, try --shape {name}=10"
        )
    values[runs_name(node)] = _runs(n_runs)
    for value in added:
        shape = (n_runs, *value.shape)
        results.append(value._replace(shape=shape, data=None, constant=False, data_dependent=may_end))
    return results


def _first_element(node: onnx.NodeProto, index: int, values: Values) -> Any:
    if index >= len(node.input) or not node.input[index]:
        return None
    data = values[node.input[index]].data
    return None if data is None else data.reshape(-1)[0]


def _passes_on(body: onnx.GraphProto) -> bool:
    writer: dict[str, onnx.NodeProto] = {}
    for node in body.node:
        writer.update(dict.fromkeys(node.output, node))
    name = body.output[0].name
    while name in writer and writer[name].op_type in ("Identity", "Cast"):
        name = writer[name].input[0]
    return len(body.input) > 1 and name == body.input[1].name


def _scan(node: onnx.NodeProto, values: Values, walk: Walk) -> list[Value]:
    [body] = bodies(node)
    if not all(node.input) or any(entry.name == "directions" for entry in node.attribute):
        raise UnreadableModel(
            f"{label(node)} is as operator set 8 defines it, with a batch of its own; try to export with set 9 or newer"
        )
    n_sequences = integer(node, "num_scan_inputs")
    inputs = [values[name] for name in node.input]
    states, sequences = inputs[:-n_sequences], inputs[-n_sequences:]
    counts: set[int] = set()
    entries = []  # what one run reads of every sequence
    axes = integers(node, "scan_input_axes") or (0,) * n_sequences
    for given, each in zip(axes, sequences, strict=True):
        axis = given % len(each.shape)
        counts.add(each.shape[axis])
        entries.append(Value(each.dtype, each.shape[:axis] + each.shape[axis + 1 :], None, False))
    if len(counts) != 1:
        raise UnreadableModel(f"the sequences of {label(node)} must be equally long, got {sorted(counts)}")
    (n_runs,) = counts
    results, added = _until_stable(body, entries, states, values, walk, behind=True)
    values[runs_name(node)] = _runs(n_runs)
    out_axes = integers(node, "scan_output_axes") or (0,) * len(added)
    for axis, value in zip(out_axes, added, strict=True):
        index = axis % (len(value.shape) + 1)
        shape = (*value.shape[:index], n_runs, *value.shape[index:])
        results.append(value._replace(shape=shape, data=None, constant=False))
    return results


def _until_stable(
    body: onnx.GraphProto, others: list[Value], states: list[Value], values: Values, walk: Walk, behind: bool = False
) -> tuple[list[Value], list[Value]]:
    """The states that a body returns once they keep their shapes, and what its last run adds.

    `others` are the inputs of the body in front of its states, or `behind` them.
    """
    n_first = 0 if behind else 1  # a Loop returns its condition first
    for _ in range(N_WALKS):
        # After the first run a state has other values, so only its type and shape may decide what the body makes.
        given = [state._replace(data=None, constant=False) for state in states]
        inputs = given + others if behind else others + given
        values.update((entry.name, value) for entry, value in zip(body.input, inputs, strict=True))
        walk(body.node, values)
        results = [values[entry.name]._replace(data=None, constant=False) for entry in body.output][n_first:]
        after, added = results[: len(states)], results[len(states) :]
        if [value.shape for value in after] == [state.shape for state in states]:
            return after, added
        states = after
    raise UnreadableModel(
        f"a state must keep its shape from run to run, in body {body.name!r} it grows; try to export without the loop"
    )


def _runs(n: int) -> Value:
    return Value(TensorProto.INT64, (n,), np.zeros(0), True)
