"""The same model for another batch size: `rebatch`.

A file with a symbolic batch only needs the number. In a file that fixes the batch, `_follow` tracks on which axis the
samples of every tensor lie, node by node with the rules of `batch.rules`, and `_rewrite` changes the shapes that are
written into the nodes. A file whose samples cannot be tracked is refused.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from autoauto.graph.batch.rules import RULES
from autoauto.graph.batch.sample_axes import NodeStep, SampleAxis
from autoauto.graph.onnx_file import assemble, flatten
from autoauto.graph.shapes.trace import opset, trace
from autoauto.graph.shapes.values import Value
from autoauto.records.errors import BadInput, UnreadableModel
from autoauto.records.units import Array

N_TRACED = 3
"""How many batch sizes of a model stay in memory: those that tell how its tensors grow with the batch."""


class Batch(NamedTuple):
    """How a file says what the batch is.

    Attributes:
        inputs: the inputs whose first axis counts samples.
        fixed: how many samples the file fixes, None when it leaves them open.
    """

    inputs: frozenset[str]
    fixed: int | None


class TracedModel(NamedTuple):
    """A plain model with fixed shapes, and what is known of its tensors, by name."""

    model: onnx.ModelProto
    values: dict[str, Value]


class PlainModel:
    """A plain model that has any batch size; the last `N_TRACED` that were asked for stay in memory.

    Args:
        model: in plain form.
        batch: how it says what the batch is.

    Attributes:
        batch: as given.
        at: makes the model at a batch size, once (`_at`).
    """

    def __init__(self, model: onnx.ModelProto, batch: Batch) -> None:
        self._model, self.batch = model, batch
        self.at = lru_cache(maxsize=N_TRACED)(self._at)

    @cached_property
    def own(self) -> TracedModel:
        """As it is: at the batch that it fixes, at one sample when it leaves the batch open."""
        return self.at(1) if self.batch.fixed is None else _with_batch(self._model, self.batch, self.batch.fixed)

    def _at(self, batch_size: int) -> TracedModel:
        """The model at any batch size; the nodes are the same at each.

        Raises:
            BadInput: other batch sizes than the file's own cannot be proven right.
        """
        fixed = self.batch.fixed is not None
        plain = _rewrite(self._model, self._steps, batch_size) if fixed else self._model
        return _with_batch(plain, self.batch, batch_size)

    @cached_property
    def _steps(self) -> list[NodeStep]:
        return _follow(self.own, self.batch)


def rebatch(model: onnx.ModelProto, batch_size: int) -> onnx.ModelProto:
    """Make a runnable model for `batch_size` samples, laid side by side on the first axis of its inputs.

    Raises:
        BadInput: the file fixes the batch and mixes samples, or an operator is not known to keep them apart.
        UnreadableModel: the model cannot be read.
    """
    if batch_size < 1:
        raise BadInput(f"batch_size must be at least 1, got {batch_size}")
    plain = resolve_batch(model)
    return (plain.own if batch_size == plain.batch.fixed else plain.at(batch_size)).model


def resolve_batch(model: onnx.ModelProto) -> PlainModel:
    """Bring a model to plain form and find its batch; open inputs of a file that is fixed behind them count as fixed.

    Raises:
        BadInput: an input has an open axis besides the first.
        UnreadableModel: the model cannot be read.
    """
    proto = flatten(model)
    plain = PlainModel(proto, find_batch(proto))
    if plain.batch.fixed is None:
        try:
            plain.at(2)
        except UnreadableModel:
            return PlainModel(plain.at(1).model, plain.batch._replace(fixed=1))
    return plain


def find_batch(model: onnx.ModelProto) -> Batch:
    """Find which inputs of a plain model hold samples: those whose first axis is open, else those of equal first axis.

    Raises:
        BadInput: another axis is open.
        UnreadableModel: an input has no rank.
    """
    open_inputs, first = set(), {}
    for entry in model.graph.input:
        if not entry.type.tensor_type.HasField("shape"):
            raise UnreadableModel(f"every input needs a known number of axes, {entry.name!r} has none")
        for axis, dim in enumerate(entry.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value") or dim.dim_value < 1:
                if axis:
                    raise BadInput(
                        f"only the first axis of an input may be open, axis {axis} of {entry.name!r} is"
                        f" {dim.dim_param or 'unknown'!r}; try to export with that length fixed"
                    )
                open_inputs.add(entry.name)
            elif axis == 0:
                first[entry.name] = dim.dim_value
    if open_inputs:
        return Batch(frozenset(open_inputs), None)
    n_samples = next(iter(first.values()), 1)
    return Batch(frozenset(name for name, length in first.items() if length == n_samples), n_samples)


def _with_batch(model: onnx.ModelProto, batch: Batch, batch_size: int) -> TracedModel:
    """Copy a plain model with `batch_size` on the first axis of the batch's inputs, and the shapes that follow."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for entry in copy.graph.input:
        if entry.name in batch.inputs:
            entry.type.tensor_type.shape.dim[0].dim_value = batch_size
    values = trace(copy)
    for entry in copy.graph.output:
        value = values[entry.name]
        entry.type.CopyFrom(helper.make_tensor_type_proto(value.dtype, value.shape))
    return TracedModel(copy, values)


def _follow(own: TracedModel, batch: Batch) -> list[NodeStep]:
    """Follow the samples through all nodes of a plain model at its own batch; a step for each node, in order."""
    assert batch.fixed is not None
    model, values = own
    sample_axes: dict[str, SampleAxis | None] = dict.fromkeys(batch.inputs, SampleAxis(0, 1))
    steps = []
    for node in model.graph.node:
        step = NodeStep(
            node=node,
            version=opset(model, node.domain),
            n_samples=batch.fixed,
            read=[values.get(name) for name in node.input],
            written=[values.get(name) for name in node.output],
            sample_axes=[sample_axes.get(name) for name in node.input],
        )
        steps.append(step)
        if any(step.sample_axes) and not step.reads_shape:
            sample_axes.update(zip(node.output, _apply(step), strict=False))
    for entry in model.graph.output:
        samples, value = sample_axes.get(entry.name), values[entry.name]
        if samples and value and value.shape[samples.axis] != batch.fixed * samples.inner:
            raise BadInput(f"the file fixes the batch at {batch.fixed} and output {entry.name!r} interleaves samples")
    return steps


def _apply(step: NodeStep) -> tuple[SampleAxis, ...]:
    """Where the samples lie in the outputs of one node."""
    rule = RULES.get(step.node.op_type) if not step.node.domain else None
    if rule is None:
        raise step.refuse("is not known to keep samples apart")
    after = rule(step)
    return (after,) * len(step.node.output) if isinstance(after, SampleAxis) else after


def _rewrite(model: onnx.ModelProto, steps: list[NodeStep], batch_size: int) -> onnx.ModelProto:
    """Write the shapes for `batch_size` samples into the nodes of a plain model."""
    nodes: list[onnx.NodeProto] = []
    constants = {tensor.name: tensor for tensor in model.graph.initializer}

    def store(name: str, values: Array) -> str:
        constants[name] = numpy_helper.from_array(values.astype(np.int64), name)
        return name

    for step in steps:
        if (
            any(step.sample_axes) and step.reads_shape
        ):  # computed from the shape of one batch, it stays that of one batch
            store(step.node.output[0], step.known_output)
            continue
        node = onnx.NodeProto()
        node.CopyFrom(step.node)
        for index, write in step.literals.items():
            node.input[index] = store(f"{node.output[0]}__batched_{index}", write(batch_size))
        for index, axis in step.copies.items():
            name = f"{node.input[index]}__copied_{index}_for_{node.output[0]}"
            repeats = np.where(np.arange(len(step.shape(index))) == axis, batch_size, 1)
            read = [node.input[index], store(f"{name}_repeats", repeats)]
            nodes.append(helper.make_node("Tile", read, [name], name))
            node.input[index] = name
        nodes.append(node)
    return assemble(model, nodes, list(model.graph.input), list(model.graph.output), list(constants.values()))
