"""Models at another batch size than their file's: `PlainModel`, `rebatch`.

A file with a symbolic batch only needs the number. In a file that fixes the batch, `_follow` tracks on which axis the
samples of every tensor lie, node by node with the rules of `batch.rules`, and `_rewrite` changes the shapes that are
written into the nodes. A file whose samples cannot be tracked is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from autoauto.graph.batch.rules import RULES
from autoauto.graph.batch.sample_axes import NodeStep, SampleAxis
from autoauto.graph.inputs.batch_axes import Batch
from autoauto.graph.inputs.lengths import OpenAxes
from autoauto.graph.inputs.readings import readings
from autoauto.graph.onnx_file import all_nodes, first_output
from autoauto.graph.plain import assemble, flatten, inline_branches
from autoauto.graph.shapes.infer import opset
from autoauto.graph.shapes.trace import trace
from autoauto.graph.shapes.values import Value
from autoauto.records.errors import BadInput, UnreadableModel
from autoauto.records.layers import AS_IN_FILE, ModelInputs
from autoauto.records.model_inputs import read_model_inputs
from autoauto.records.units import Array

N_TRACED = 3
"""How many batch sizes of a model stay in memory: those that tell how its tensors grow with the batch."""
_PICK = frozenset({"Gather", "GatherElements", "GatherND", "Shape", "Slice", "Split"})


class TracedModel(NamedTuple):
    """A plain model with fixed shapes, and what is known of its tensors, by name."""

    model: onnx.ModelProto
    values: dict[str, Value]


class PlainModel:
    """A plain model that has any batch size; the last `N_TRACED` that were asked for stay in memory.

    All lengths but those of open batch axes are fixed. `only_branches` stand in place of an If whose other branch does
    not fit the lengths. In `batch` are the axes along which samples lie in its inputs. `undecided` are conditions of
    Ifs that follow from the batch size: either branch may run at a size that was not tried.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        batch: Batch,
        given: ModelInputs,
        only_branches: tuple[str, ...] = (),
        undecided: frozenset[str] = frozenset(),
    ) -> None:
        self.model, self.batch, self.given, self.only_branches = model, batch, given, only_branches
        self.undecided = undecided
        self.at = lru_cache(maxsize=N_TRACED)(self._at)

    @cached_property
    def own(self) -> TracedModel:
        """The model at its own batch size: the one that its file fixes, or 1 where the file leaves it open."""
        if self.batch.fixed is None:
            return self.at(1)
        return self._traced(self.model, self.batch.fixed)

    def _at(self, batch_size: int) -> TracedModel:
        """The model at any batch size; the nodes are the same at each."""
        if not self.batch.axes and batch_size != self.batch.fixed:
            raise BadInput("no input has a batch axis, try --batch-axis INPUT=AXIS")
        model = self.model
        if self.batch.fixed is not None:  # shapes of one batch are written into the nodes
            model = _rewrite(model, self._steps, batch_size)
        return self._traced(model, batch_size)

    def _traced(self, model: onnx.ModelProto, batch_size: int) -> TracedModel:
        """Copy a plain model with `batch_size` samples on the batch axes, and the shapes that follow."""
        copy = deepcopy(model)
        axes = dict(self.batch.axes)
        for entry in copy.graph.input:
            if entry.name in axes:
                entry.type.tensor_type.shape.dim[axes[entry.name]].dim_value = batch_size
        values = trace(copy, dict(self.given.shapes), self.undecided)
        for entry in copy.graph.output:
            value = values[entry.name]
            entry.type.CopyFrom(helper.make_tensor_type_proto(value.dtype, value.shape))
        return TracedModel(copy, values)

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
    if batch_size == plain.batch.fixed:
        return plain.own.model
    return plain.at(batch_size).model


def resolve_batch(model: onnx.ModelProto, given: ModelInputs = AS_IN_FILE) -> PlainModel:
    """Bring a model to plain form, give open axes their lengths, and find its batch.

    Of several ways to read the inputs it is the first in which other batch sizes are possible. Open inputs of a file
    that is fixed behind them count as fixed.

    Raises:
        BadInput: an axis besides the batch stays open.
        UnreadableModel: the model cannot be read.
    """
    proto = flatten(model)
    try:
        first, *others = readings(proto, given)
    except OpenAxes as error:
        raise _with_lengths_that_fit(proto, given, error) from None
    plain = _folded(PlainModel(*first, given))
    if _takes_two(plain):
        return plain
    for other in others:
        try:
            candidate = _folded(PlainModel(*other, given))
        except UnreadableModel:
            continue
        if _takes_two(candidate):
            return candidate
    # Shapes of one batch lie behind the open inputs, so the rules for operators must say what another batch changes.
    if plain.batch.fixed is None:
        return PlainModel(plain.at(1).model, plain.batch._replace(fixed=1), given, plain.only_branches)
    return plain


def _with_lengths_that_fit(model: onnx.ModelProto, given: ModelInputs, error: OpenAxes) -> OpenAxes:
    reason = ""
    for offer, texts in enumerate(error.offers):
        with_offer = replace(given, shapes=(*given.shapes, *read_model_inputs(texts).shapes))
        try:
            first, *_ = readings(model, with_offer)
            PlainModel(*first, with_offer).own  # noqa: B018 it raises where shapes do not follow
        except BadInput as failure:
            reason = reason or str(failure)
            continue
        return OpenAxes(error.message, error.offers, error.counts, offer)
    return OpenAxes(error.message, error.offers, error.counts, None, reason)


def _takes_two(plain: PlainModel) -> bool:
    try:
        plain.at(2)
    except BadInput:
        return False
    return True


def _folded(plain: PlainModel) -> PlainModel:
    """The model with the nodes of a branch in place of every If of which only that branch runs, at any batch size."""
    while True:  # a branch that is taken may have Ifs of its own
        own = plain.own
        is_open = plain.batch.fixed is None and _takes_two(plain)
        if is_open:
            undecided = plain.undecided | _conditions_of_batch(plain)
            if undecided != plain.undecided:
                plain = PlainModel(plain.model, plain.batch, plain.given, plain.only_branches, undecided)
                continue
        decided = _decided(plain.model, own.values)
        if decided and is_open:
            # Lengths of one sample may fit one branch only where those of two fit both: both must decide alike.
            of_two = _decided(plain.model, plain.at(2).values)
            decided = {name: taken for name, taken in decided.items() if of_two.get(name) == taken}
        if not decided:
            return plain
        only = tuple(f"{branch} of {name!r}" for name, (branch, by_constant) in decided.items() if not by_constant)
        model = inline_branches(plain.model, {name: branch for name, (branch, _) in decided.items()})
        plain = PlainModel(model, plain.batch, plain.given, plain.only_branches + only, plain.undecided)


def _conditions_of_batch(plain: PlainModel) -> frozenset[str]:
    """The conditions of Ifs that follow from the batch size, also where they are the same for one sample and two."""
    of_one, of_two = plain.at(1).values, plain.at(2).values

    def differ(name: str) -> bool:
        """Whether elements of a tensor are known, and others for two samples than for one."""
        if name not in of_one or name not in of_two:
            return False
        before, after = of_one[name].data, of_two[name].data
        return before is not None and after is not None and not np.array_equal(before, after)

    follows: set[str] = set()  # from the batch size
    conditions: set[str] = set()
    for node in all_nodes(plain.model.graph):
        read = follows.intersection(node.input)
        if node.op_type == "If" and not node.domain:
            conditions.update(read)
        # What is picked from a shape may leave the batch size out, which equal elements show.
        may_leave_out = node.op_type in _PICK and (node.op_type == "Shape" or any(map(differ, read)))
        for name in node.output:
            if differ(name) or (read and not may_leave_out):
                follows.add(name)
    return frozenset(conditions)


def _decided(model: onnx.ModelProto, values: Mapping[str, Value]) -> dict[str, tuple[str, bool]]:
    """By the first outputs of Ifs the only branch that runs, and whether a constant says so; else no other fits."""
    decided = {}
    for node in all_nodes(model.graph):
        if node.op_type != "If" or node.domain or node.input[0] not in values:
            continue
        condition, name = values[node.input[0]], first_output(node)
        if condition.data is not None and condition.constant:
            branch = "then_branch" if condition.data.reshape(-1)[0] else "else_branch"
            decided[name] = (branch, True)
            continue
        # Tensors of a branch that does not fit the lengths have no values.
        fitting = [entry.name for entry in node.attribute if all(end.name in values for end in entry.g.output)]
        if len(fitting) == 1:
            decided[name] = (fitting[0], False)
    return decided


def _follow(own: TracedModel, batch: Batch) -> list[NodeStep]:
    """Follow the samples through all nodes of a plain model at its own batch; a step for each node, in order."""
    assert batch.fixed is not None
    model, values = own
    sample_axes: dict[str, SampleAxis | None] = {name: SampleAxis(axis, 1) for name, axis in batch.axes}
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
            rule = RULES.get((node.domain, node.op_type))
            if rule is None:
                raise step.refuse("is not known to keep samples apart")
            after = rule(step)
            if isinstance(after, SampleAxis):
                after = (after,) * len(node.output)
            sample_axes.update(zip(node.output, after, strict=False))
    for entry in model.graph.output:
        samples, value = sample_axes.get(entry.name), values[entry.name]
        if samples and value and value.shape[samples.axis] != batch.fixed * samples.inner:
            raise BadInput(f"the file fixes the batch at {batch.fixed} and output {entry.name!r} interleaves samples")
    return steps


def _rewrite(model: onnx.ModelProto, steps: list[NodeStep], batch_size: int) -> onnx.ModelProto:
    nodes: list[onnx.NodeProto] = []
    constants = {tensor.name: tensor for tensor in model.graph.initializer}

    def store(name: str, values: Array) -> str:
        constants[name] = numpy_helper.from_array(values.astype(np.int64), name)
        return name

    for step in steps:
        if step.reads_shape and any(step.sample_axes):
            # Shapes that follow from it are rewritten as literals, so it stays the shape of one batch.
            shape = step.written[0]
            assert shape is not None
            assert shape.data is not None
            store(step.node.output[0], shape.data)
            continue
        node = deepcopy(step.node)
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
