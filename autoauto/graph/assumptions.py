"""The assumptions about a model, made while its file is read, one sentence each: `assumptions`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from math import prod

import onnx

from autoauto.graph.facts import ModelFacts
from autoauto.graph.inputs.axes import Input, dims_of
from autoauto.graph.inputs.batch_axes import batch_name, says_batch
from autoauto.graph.inputs.lengths import length_kind
from autoauto.graph.onnx_file import all_nodes, first_output
from autoauto.graph.plain import CONTROL_FLOW
from autoauto.graph.shapes.control_flow import branches, runs_name
from autoauto.graph.shapes.values import is_float, label
from autoauto.records.layers import LayerGraph

N_NAMED = 3
MIN_SHARE = 0.05  # of the bytes of all matrices, below which a format is not named


def assumptions(model: onnx.ModelProto, known: ModelFacts, graph: LayerGraph) -> tuple[str, ...]:
    """Sentences on what is assumed of a model besides what its file states: of inputs first, of outputs last."""
    texts = [f"{name} {'x'.join(map(str, lengths))}" for name, lengths in graph.inputs.shapes]
    given = [f"lengths that were given: {', '.join(texts)}"] if texts else []
    every = (
        given,
        _batch_axes(model, known),
        _states(known, graph),
        _control_flow(known),
        _unusual_shapes(known),
        _ends(model, known),
    )
    return tuple(chain.from_iterable(every))


def weight_formats(known: ModelFacts) -> tuple[str, ...]:
    """The element types of a model's matrices, that of the most bytes first; small ones do not count."""
    n_bytes: Counter[str] = Counter()
    for tensor in known.model.graph.initializer:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        if len(tensor.dims) > 1 and (is_float(tensor.data_type) or dtype.itemsize == 1):  # wide integers are indices
            n_bytes[str(dtype)] += prod(tensor.dims) * dtype.itemsize
    return tuple(name for name, n in n_bytes.most_common() if n >= MIN_SHARE * n_bytes.total())


def _batch_axes(model: onnx.ModelProto, known: ModelFacts) -> Iterator[str]:
    """Batch axes that a reader of the file might not expect, and inputs that have none."""
    axes = dict(known.batch.axes)
    inputs = [Input(entry.name, dims_of(entry), axes[entry.name]) for entry in model.graph.input if entry.name in axes]
    names = dict.fromkeys(filter(None, map(batch_name, inputs)))
    others = [name for name in names if length_kind(name) and not says_batch(name) and name != "samples"]
    if len(names) > 1 or others:
        yield f"samples lie along {' and '.join(names)}"
    without: list[str] = []
    for entry in known.model.graph.input:
        if axes.get(entry.name):
            yield f"the samples of input {entry.name!r} lie along its axis {axes[entry.name]}"
        if entry.name not in axes and entry.type.tensor_type.shape.dim:
            without.append(repr(entry.name))
    if without and axes:
        yield f"all samples share {_some(without)}, which have no batch axis"
    n_fixed = known.batch.fixed or 1
    if known.fixed_batch is not None and n_fixed > 1:
        name, axis = known.batch.axes[0]
        yield f"a sample is all that the inputs hold, as {n_fixed} along axis {axis} of {name!r}: the file fixes them"


def _states(known: ModelFacts, graph: LayerGraph) -> Iterator[str]:
    local = {tensor.name for tensor in graph.tensors if tensor.is_state}
    stay: list[str] = []
    travel: list[str] = []
    for state in known.states:
        names = stay if state.before in local else travel
        names.append(f"{state.before!r} from {state.after!r}")
    if stay:
        yield f"states that stay on their device, no transfer in the model of IPUs: {_some(stay)}"
    if travel:
        yield f"states that travel, as they span many layers: {_some(travel)}"


def _control_flow(known: ModelFacts) -> Iterator[str]:
    if known.only_branches:
        yield f"branches that run, as others do not fit the lengths: {_some(list(known.only_branches))}"
    for node in all_nodes(known.model.graph):
        if node.domain or node.op_type not in CONTROL_FLOW or not any(name in known.facts for name in node.output):
            continue
        name = repr(node.name or first_output(node))
        if node.op_type != "If":
            runs = known.facts[runs_name(node)]
            each = " for every sample" if runs.batch_axis is not None else ""
            yield f"the body of {node.op_type} {name} runs {runs.shape[0]} times{each}"
        elif len(branches(node, known.facts)) > 1:
            yield f"If {name} takes its dearer branch"


def _ends(model: onnx.ModelProto, known: ModelFacts) -> Iterator[str]:
    """Dictionaries and sequences of the file, which are no outputs here."""
    own = [entry.name for entry in model.graph.output]
    plain = [entry.name for entry in known.model.graph.output]
    gone = [repr(name) for name in own if name not in plain]
    if gone:
        instead = _some([repr(name) for name in plain if name not in own] or ["the other outputs"])
        yield f"{_some(gone)} is no tensor and is left to the caller, who gets {instead}"


def _unusual_shapes(known: ModelFacts) -> Iterator[str]:
    bounds = {name for name, fact in known.facts.items() if fact.data_dependent}
    empty = {name for name, fact in known.facts.items() if 0 in fact.shape and not fact.constant}
    first_bounds: list[str] = []
    first_empty: list[str] = []
    for node in all_nodes(known.model.graph):
        # Tensors that follow from others of this kind are not named.
        for name in node.output:
            if name in bounds and bounds.isdisjoint(node.input):
                first_bounds.append(f"{name!r} {list(known.facts[name].shape)}")
            if name in empty and empty.isdisjoint(node.input):
                first_empty.append(f"{name!r} {list(known.facts[name].shape)} of {label(node)}")
    if first_bounds:
        yield f"upper bounds of lengths that depend on data, of one sample: {_some(first_bounds)}"
    if first_empty:
        yield f"tensors without elements: {_some(first_empty)}"


def _some(names: list[str]) -> str:
    text = ", ".join(names[:N_NAMED])
    if len(names) > N_NAMED:
        text += f" and {len(names) - N_NAMED} more"
    return text
