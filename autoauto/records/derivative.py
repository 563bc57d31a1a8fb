"""What a backward pass differentiates and what it reads again: facts of a model, whatever compiles it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass

from autoauto.records.layers import Layer, LayerGraph

_STATISTICS = {"BatchNormalization": (3, 4)}  # operands that no gradient changes


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


@dataclass(frozen=True, slots=True)
class Derivative:
    """The backward pass of a model.

    A constant of several floats is a parameter; one of a single element is a constant of the formula, and the moments
    of a BatchNormalization are statistics. Whatever depends on a parameter needs a gradient, and so no input of the
    model does. Nothing flows back through operators on rounded numbers.

    Attributes:
        graph: the model.
        trained: the layers whose outputs depend on a parameter; no other has a backward pass.
    """

    graph: LayerGraph
    trained: Set[int]

    def is_parameter(self, layer: Layer, operand: int) -> bool:
        """Whether an operand is a constant that training changes."""
        tensor = self.graph.tensors[operand]
        statistics = (layer.operands[i] for i in _STATISTICS.get(layer.op, ()) if i < len(layer.operands))
        learns = tensor.is_float and tensor.batch_axis is None and tensor.n_elements(1) > 1
        return learns and operand not in statistics and any(self._is_view(operand, root) for root in layer.weights)

    def parameters(self, layer: Layer) -> Iterator[int]:
        """The weights of a layer that training changes, as they are stored."""
        return (index for index in layer.weights if self.is_parameter(layer, index))

    def needs_gradient(self, tensor: int) -> bool:
        """Whether the gradient of an activation is asked for."""
        entry = self.graph.tensors[tensor]
        return entry.is_float and entry.producer in self.trained

    def has_gradient(self, layer: Layer, operand: int) -> bool:
        """Whether an operand, which may be omitted, has a gradient: as a parameter or as an activation."""
        return operand >= 0 and (self.needs_gradient(operand) or self.is_parameter(layer, operand))

    def kept(self, index: int) -> frozenset[int]:
        """The activations that the backward pass of a layer reads: they are kept from its forward pass on."""
        layer = self.graph.layers[index]
        if index not in self.trained or layer.op in _READS_NOTHING:
            return frozenset()
        if layer.op in _READS_THE_OTHER_FACTOR:
            return self._inputs_behind(layer, self._other_factors(layer))
        if layer.op in _READS_AN_OPERAND:
            return self._inputs_behind(layer, layer.operands[_READS_AN_OPERAND[layer.op] :][:1])
        inputs = () if layer.op in _READS_OUTPUTS else layer.inputs
        outputs = layer.outputs if layer.op in _READS_OUTPUTS | _READS_BOTH else ()
        return frozenset((*inputs, *outputs))

    def _other_factors(self, layer: Layer) -> list[int]:
        """The factors of a product that are multiplied with one that has a gradient."""
        factors = layer.operands if layer.op in ("Mul", "Einsum") else layer.operands[:2]
        has = [self.has_gradient(layer, factor) for factor in factors]
        return [factor for i, factor in enumerate(factors) if any(has[:i]) or any(has[i + 1 :])]

    def _inputs_behind(self, layer: Layer, operands: Iterable[int]) -> frozenset[int]:
        """The inputs of a layer that its operands are, or are views of."""
        return frozenset(root for operand in operands for root in layer.inputs if self._is_view(operand, root))

    def _is_view(self, operand: int, root: int) -> bool:
        """Whether an operand may lie in memory as `root`: a view has its producer, last use and size."""
        view, tensor = self.graph.tensors[operand], self.graph.tensors[root]
        alike = view.is_float == tensor.is_float and view.n_elements(1) == tensor.n_elements(1)
        return operand == root or (alike and view.producer == tensor.producer and view.last_use == tensor.last_use)


def derivative(graph: LayerGraph) -> Derivative:
    """Follow the parameters of a model forward to all that depends on them."""
    trained: set[int] = set()
    found = Derivative(graph, trained)
    for index, layer in enumerate(graph.layers):
        depends = any(found.has_gradient(layer, operand) for operand in layer.operands)
        rounded = layer.op.startswith("QLinear") or layer.op.endswith("Integer")
        if depends and not rounded and any(graph.tensors[output].is_float for output in layer.outputs):
            trained.add(index)
    return Derivative(graph, frozenset(trained))
