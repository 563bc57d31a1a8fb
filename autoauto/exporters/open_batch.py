"""Files of stages that take any number of samples: `opened`, and whether samples may share a batch: `keeps_apart`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from autoauto.graph.batch.rebatch import rebatch
from autoauto.records.errors import BadInput
from autoauto.records.layers import Port
from autoauto.records.units import Array

AXIS = "batch"
"""The name of the open axis in a file."""
N_SAMPLES = "n_samples_of_the_batch"
"""The tensor, of one element, that says how many samples a batch has; names of other new tensors begin with it."""


def is_open(ports: Sequence[Port], others: Sequence[Port], batch_size: int) -> bool:
    """True if samples lie on the first axis of every tensor, and on no other.

    The tensors in `ports` have `batch_size` samples, the same in `others` have one more.
    """
    for port, other in zip(ports, others, strict=True):
        if port.data_dependent or len(port.shape) < 2:
            return False
        if port.shape[0] != batch_size or other.shape != (batch_size + 1, *port.shape[1:]):
            return False
    return True


def opened(path: Path, other: Path, batch_size: int) -> onnx.ModelProto | None:
    """The file of a stage with an open first axis of its inputs and outputs.

    Integers that grow with the batch, as the target of a Reshape, are computed from the length of that axis.
    `path` is the file at `batch_size`, `other` has one sample more. None where they differ in anything else.
    """
    model = onnx.load_model(path, load_external_data=False)
    larger = onnx.load_model(other, load_external_data=False)
    if list(model.graph.node) != list(larger.graph.node) or not model.graph.input:
        return None
    constants, others = list(model.graph.initializer), list(larger.graph.initializer)
    if [tensor.name for tensor in constants] != [tensor.name for tensor in others]:
        return None
    changed = [(tensor, grown) for tensor, grown in zip(constants, others, strict=True) if tensor != grown]
    for tensor, grown in changed:
        types = (onnx.TensorProto.INT64, onnx.TensorProto.INT32)
        if tensor.data_type not in types or (tensor.data_type, tensor.dims) != (grown.data_type, grown.dims):
            return None
    for entry in [*model.graph.input, *model.graph.output]:
        entry.type.tensor_type.shape.dim[0].dim_param = AXIS
    if changed:
        _compute(model.graph, changed, batch_size)
    return model


def keeps_apart(path: Path, batch_size: int) -> bool:
    """True if rules for the operators of a file, at a fixed batch size, say that no sample changes another."""
    try:
        rebatch(onnx.load_model(path), batch_size + 1)
    except BadInput:
        return False
    return True


def _compute(
    graph: onnx.GraphProto, changed: Sequence[tuple[onnx.TensorProto, onnx.TensorProto]], batch_size: int
) -> None:
    """Put nodes in place of constants: base + slope * samples, from their values at two batch sizes."""
    shape, first = f"{N_SAMPLES}_shape", f"{N_SAMPLES}_axis"
    nodes = [
        helper.make_node("Shape", [graph.input[0].name], [shape]),
        helper.make_node("Gather", [shape, first], [N_SAMPLES]),
    ]
    added = [numpy_helper.from_array(np.array([0]), first)]
    for tensor, other in changed:
        value = numpy_helper.to_array(tensor).astype(np.int64)
        slope = numpy_helper.to_array(other).astype(np.int64) - value  # of one sample more
        made, constants = _linear(tensor, value - slope * batch_size, slope)
        nodes += made
        added += constants
    names = {tensor.name for tensor, _ in changed}
    others = [tensor for tensor in graph.initializer if tensor.name not in names]
    rest = list(graph.node)
    del graph.initializer[:], graph.node[:]
    graph.initializer.extend(others + added)
    graph.node.extend(nodes + rest)


def _linear(tensor: onnx.TensorProto, base: Array, slope: Array) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    def named(part: str) -> str:
        return f"{N_SAMPLES}_{part}_{tensor.name}"

    nodes = [
        helper.make_node("Mul", [N_SAMPLES, named("slope")], [named("grown")]),
        helper.make_node("Add", [named("grown"), named("base")], [named("summed")]),
        # The number of samples has one axis, so the sum has one, too, where the constant is a scalar.
        helper.make_node("Reshape", [named("summed"), named("shape")], [named("shaped")]),
        helper.make_node("Cast", [named("shaped")], [tensor.name], to=tensor.data_type),
    ]
    constants = [
        numpy_helper.from_array(np.asarray(slope), named("slope")),
        numpy_helper.from_array(np.asarray(base), named("base")),
        numpy_helper.from_array(np.array(tensor.dims, np.int64), named("shape")),
    ]
    return nodes, constants
