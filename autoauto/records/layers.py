"""A model as a sequence of layers, its sub-models and its backward pass.

`LayerRange`, `Block`, `Tensor`, `Layer` and `LayerGraph` describe the model, `SubModel` is a range of layers that a
runtime can load, cut out of a model file by a `Source`, and `Derivative` is the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from math import prod
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from autoauto.records.units import Precision

AttributeValue = int | float | str | tuple[int | float | str, ...]
# Bytes of element types other than "float". Any other type has 4: the device has no wider integers.
_FIXED_BYTES = {"bool": 1, "int8": 1, "uint8": 1, "float16": 2}


def _operators(names: str) -> frozenset[str]:
    return frozenset(names.split())


# What the derivative of an operator reads besides the gradients of its outputs; all others read their inputs.
_READS_NOTHING = _operators(
    "Add Sub Sum Mean Neg Identity Cast Dropout Ceil Floor Round Concat Slice Split Pad Expand Tile Reshape Flatten "
    "Squeeze Unsqueeze Transpose DepthToSpace SpaceToDepth ReduceSum ReduceMean GlobalAveragePool AveragePool CumSum "
    "Resize Upsample Trilu"
)
_READS_OUTPUTS = _operators("Relu Sigmoid Tanh Softmax LogSoftmax Exp Sqrt Reciprocal Rsqrt")
_READS_BOTH = _operators("MaxPool GlobalMaxPool LRN ReduceMax ReduceMin LSTM GRU RNN")
_READS_THE_OTHER_FACTOR = _operators("Mul MatMul Gemm Conv ConvTranspose Einsum")
_READS_AN_OPERAND = {"Gather": 1, "GatherElements": 1, "GatherND": 1, "Where": 0}  # the indices, the condition
_STATISTICS = {"BatchNormalization": (3, 4)}  # operands that no gradient changes


Lengths = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelInputs:
    """Facts on the inputs of a model that the user gives and the file lacks.

    Attributes:
        shapes: lengths by the name of an axis (one), of an input (all but its batch axis), of another tensor whose
            shape depends on data, or of a loop (how often its body runs).
        batch_axes: the axis of an input along which samples lie; None where it has none.
        states: inputs that an output of the model feeds in the next call, with that output.
    """

    shapes: tuple[tuple[str, Lengths], ...] = ()
    batch_axes: tuple[tuple[str, int | None], ...] = ()
    states: tuple[tuple[str, str], ...] = ()


AS_IN_FILE = ModelInputs()
"""Nothing is said; the file says all."""


class LayerRange(NamedTuple):
    """A half-open range of layer indices `[start, stop)`, never empty."""

    start: int
    stop: int

    def __str__(self) -> str:
        return f"[{self.start}, {self.stop})"


class Block(NamedTuple):
    """A repeated module of a model, for example a decoder layer.

    Attributes:
        module: its path in the exported module, for example "encoder.layer.3".
        layers: the layers of the block; the first block also has all layers before it, the last all layers behind it.
        others: the outermost modules beside the blocks that lie in `layers`, for example "embeddings".
        n_before, n_behind: how many of `layers` come before the first operator of the block, and after its last one.
    """

    module: str
    layers: LayerRange
    others: tuple[str, ...] = ()
    n_before: int = 0
    n_behind: int = 0


class Tensor(NamedTuple):
    """A tensor of one model, described for one sample.

    Attributes:
        shape: at batch size 1.
        batch_axis: the axis whose length is multiplied by the batch size, None when the shape does not depend on it.
        dtype: "float" for any floating-point type (the device's precision decides its width), "float16" for one that
            fp8 does not change, else NumPy's name.
        producer: the layer that writes it, -1 for an input of the model or a weight.
        last_use: the last layer that reads it; n_layers for an output of the model; equal to `producer` when unused.
        data_dependent: whether lengths depend on data, as of detections; `shape` is then an upper bound.
        is_state: whether it is the same in the next call: an input, which then counts as a weight of the layers that
            read it, or the output that feeds it.
    """

    name: str
    shape: tuple[int, ...]
    batch_axis: int | None
    dtype: str
    producer: int
    last_use: int
    data_dependent: bool = False
    is_state: bool = False

    @property
    def is_float(self) -> bool:
        """True if the device's precision decides the width of an element."""
        return self.dtype == "float"

    def shape_at(self, batch_size: int) -> tuple[int, ...]:
        """The shape at `batch_size` samples."""
        shape, axis = self.shape, self.batch_axis
        if axis is None:
            return shape
        return (*shape[:axis], shape[axis] * batch_size, *shape[axis + 1 :])

    def n_elements(self, batch_size: int) -> int:
        """Number of elements of the tensor at `batch_size` samples."""
        return prod(self.shape) * (1 if self.batch_axis is None else batch_size)

    def n_bytes(self, batch_size: int, precision: Precision) -> int:
        """Bytes on the device at `batch_size` samples."""
        width = precision.n_bytes if self.is_float else _FIXED_BYTES.get(self.dtype, 4)
        return self.n_elements(batch_size) * width

    def stored_bytes(self, batch_size: int, precision: Precision) -> int:
        """Bytes on the device where it stays there: a weight is there once, a state for every sample."""
        return self.n_bytes(batch_size if self.is_state else 1, precision)


class Body(NamedTuple):
    """A graph that a layer of control flow runs.

    Attributes:
        graph: what it captures are inputs of the graph.
        n_runs: how often it runs, at batch size 1.
        runs_per_sample: whether it runs so often for every sample.
    """

    graph: LayerGraph
    n_runs: int
    runs_per_sample: bool


@dataclass(frozen=True, slots=True)
class Layer:
    """One compute node of a model.

    Attributes:
        op: the ONNX operator, for example "Conv".
        attributes: the operator's attributes that change its code, sorted by name.
        inputs: the activations it reads, as tensor indices in operator order without repeats.
        outputs: the activations it writes, as tensor indices; never empty.
        weights: the constants and states it reads, as tensor indices in operator order.
        operands: every operand in operator order as a tensor index, -1 for an omitted optional one; behind them what
            its bodies capture.
        kind: layers of equal kind have the same operator, configuration and shapes, hence the same code.
        tied: layers of equal `tied` share a variable, or a tensor whose lengths depend on data, and so a stage; None
            when nothing is shared.
        bodies: of control flow: the one of a loop, or those of the branches that may be taken.
    """

    name: str
    op: str
    attributes: tuple[tuple[str, AttributeValue], ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    weights: tuple[int, ...]
    operands: tuple[int, ...]
    kind: str
    tied: str | None
    bodies: tuple[Body, ...] = ()

    def attribute(self, name: str) -> AttributeValue | None:
        """The attribute called `name`, None when the layer does not have it."""
        return next((value for key, value in self.attributes if key == name), None)


@dataclass(frozen=True, slots=True)
class LayerGraph:
    """A model as layers in execution order and the tensors between them.

    Attributes:
        name: the built-in name, or the file's name without its ending.
        layers: in an order in which every layer reads only earlier layers' outputs.
        tensors: weights and activations; `Layer` refers to them by index.
        fixed_batch: why the model runs at batch size 1 only, None when any batch size works.
        content: a digest of all that the layers and tensors say; equal digests mean equal models.
        blocks: the repeated modules that the layers come from, as far as their names say; empty where none repeats.
        inputs: what was said of the model's inputs when its file was read.
        notes: what was assumed then, a sentence each.
        formats: the element types of its weights in the file as NumPy names them, that of the most bytes first.
    """

    name: str
    layers: tuple[Layer, ...]
    tensors: tuple[Tensor, ...]
    fixed_batch: str | None
    content: str
    blocks: tuple[Block, ...] = ()
    inputs: ModelInputs = AS_IN_FILE
    notes: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.layers)

    def __hash__(self) -> int:
        return hash(self.content)  # of all fields takes as long as many a function of the graph that is kept

    def all_layers(self) -> Iterator[Layer]:
        """All layers, including the layers of bodies of control flow."""
        for layer in self.layers:
            yield layer
            for body in layer.bodies:
                yield from body.graph.all_layers()

    def n_weight_bytes(self, precision: Precision) -> int:
        """Bytes of all weights, each counted once."""
        used: set[int] = set()
        for layer in self.layers:
            used.update(layer.weights)
        weights = [self.tensors[index] for index in used]
        return sum(tensor.n_bytes(1, precision) for tensor in weights if not tensor.is_state)


class Port(NamedTuple):
    """An input or output of a sub-model.

    Attributes:
        shape: at the batch size of the sub-model.
        dtype: of an element, as NumPy names it.
        data_dependent: whether lengths depend on data, as of detections; `shape` is then an upper bound.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    data_dependent: bool = False

    @property
    def n_bytes(self) -> int:
        """Bytes of the whole tensor."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class SubModel:
    """A range of layers that a runtime can load.

    Attributes:
        content: a whole ONNX file, weights inside.
        inputs: tensors that the layers read and do not write, without repeats.
        outputs: tensors that they write and later layers read. The last layers have the outputs of the whole model in
            its order, except those that earlier layers write: these are carried.
    """

    content: bytes
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


@runtime_checkable
class OnnxModel(Protocol):
    """A `ModelProto` of the package onnx, which takes long to import for those who give a name or a path."""

    def SerializeToString(self) -> bytes:  # noqa: N802 (the name that all messages of protobuf have)
        """The bytes of its file."""


class Source(Protocol):
    """A model file out of which sub-models can be cut."""

    def cut(self, graph: LayerGraph, layers: LayerRange, batch_size: int) -> SubModel:
        """Cut out `layers`. They are identified by the tensors that they write, so `graph` may be a part of the model.

        Raises UnreadableModel if the file has changed, or its weights are missing.
        """

    def carried(self, graph: LayerGraph, cut: int, batch_size: int) -> tuple[Port, ...]:
        """All tensors that are alive between the layers before `cut` and the layers from it on, in one fixed order.

        They include inputs of the model that are read later and outputs of the model that are written already. For
        `cut` 0 they are the inputs of the whole model, for n_layers its outputs, both in the model's order.
        """


@dataclass(frozen=True, slots=True)
class Derivative:
    """The backward pass of a model.

    A constant of several floats is a parameter; one of a single element is a constant of the formula, and the moments
    of a BatchNormalization are statistics. A tensor needs a gradient when it depends on a parameter, so no input of the
    model does. No gradient passes through operators on rounded numbers.

    Attributes:
        trained: the layers whose outputs depend on a parameter; no other has a backward pass.
    """

    graph: LayerGraph
    trained: Set[int]

    def is_parameter(self, layer: Layer, operand: int) -> bool:
        """True if an operand is a constant that training changes."""
        tensor = self.graph.tensors[operand]
        if not tensor.is_float or tensor.batch_axis is not None or tensor.is_state or tensor.n_elements(1) <= 1:
            return False
        for i in _STATISTICS.get(layer.op, ()):
            if i < len(layer.operands) and layer.operands[i] == operand:
                return False
        return any(self._is_view(operand, root) for root in layer.weights)

    def parameters(self, layer: Layer) -> Iterator[int]:
        """The weights of a layer that training changes, as they are stored."""
        return (index for index in layer.weights if self.is_parameter(layer, index))

    def needs_gradient(self, tensor: int) -> bool:
        """True if the backward pass computes the gradient of an activation."""
        entry = self.graph.tensors[tensor]
        return entry.is_float and entry.producer in self.trained

    def has_gradient(self, layer: Layer, operand: int) -> bool:
        """True if an operand has a gradient, as a parameter or as an activation; False if it is omitted."""
        return operand >= 0 and (self.needs_gradient(operand) or self.is_parameter(layer, operand))

    def stashed(self, index: int) -> frozenset[int]:
        """The activations that the backward pass of a layer reads, so that they are stashed in the forward pass."""
        layer = self.graph.layers[index]
        if index not in self.trained or layer.op in _READS_NOTHING:
            return frozenset()
        if layer.op in _READS_THE_OTHER_FACTOR:
            # The factors of a product that are multiplied with a factor that has a gradient.
            factors = layer.operands if layer.op in ("Mul", "Einsum") else layer.operands[:2]
            with_gradient = {i for i, factor in enumerate(factors) if self.has_gradient(layer, factor)}
            others = [factor for i, factor in enumerate(factors) if with_gradient - {i}]
            return self._inputs_behind(layer, others)
        if layer.op in _READS_AN_OPERAND:
            return self._inputs_behind(layer, layer.operands[_READS_AN_OPERAND[layer.op] :][:1])
        if layer.op in _READS_OUTPUTS:
            return frozenset(layer.outputs)
        if layer.op in _READS_BOTH:
            return frozenset(layer.inputs + layer.outputs)
        return frozenset(layer.inputs)

    def _inputs_behind(self, layer: Layer, operands: Iterable[int]) -> frozenset[int]:
        """The inputs of a layer that its operands are, or are views of."""
        inputs: set[int] = set()
        for operand in operands:
            inputs.update(root for root in layer.inputs if self._is_view(operand, root))
        return frozenset(inputs)

    def _is_view(self, operand: int, root: int) -> bool:
        """True if an operand may lie in memory as `root`: a view has its producer, last use and size."""
        if operand == root:
            return True
        view, tensor = self.graph.tensors[operand], self.graph.tensors[root]
        return (
            view.producer == tensor.producer
            and view.last_use == tensor.last_use
            and view.is_float == tensor.is_float
            and view.n_elements(1) == tensor.n_elements(1)
        )


def derivative(graph: LayerGraph) -> Derivative:
    """The backward pass of a model: follow its parameters forward to every layer that depends on them."""
    trained: set[int] = set()
    partial = Derivative(graph, trained)  # sees the layers that are added to `trained` below
    for index, layer in enumerate(graph.layers):
        depends = any(partial.has_gradient(layer, operand) for operand in layer.operands)
        rounded = layer.op.startswith("QLinear") or layer.op.endswith("Integer")
        if depends and not rounded and any(graph.tensors[output].is_float for output in layer.outputs):
            trained.add(index)
    return Derivative(graph, frozenset(trained))
