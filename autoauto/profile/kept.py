"""What the backward pass needs around every layer: which operands have gradients, and what is kept for them."""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

from autoauto.records.derivative import Derivative
from autoauto.records.layers import Layer
from autoauto.records.units import Precision


class Kept(NamedTuple):
    """Bytes of activations kept for the backward pass, by layer; both lists have n entries.

    Attributes:
        first_bytes: what layer i is the first to keep.
        input_bytes: what layers before i keep and layers from i on keep too.
    """

    first_bytes: list[int]
    input_bytes: list[int]


def kept(derivative: Derivative, batch_size: int, precision: Precision) -> Kept:
    """Add up what all layers keep, by the first and the last that keeps each tensor.

    So `[start, stop)` keeps at most the sum of its `first_bytes` and `input_bytes[start]`, and just that when no later
    layer keeps what earlier ones do. The bound never shrinks when the range grows: what an earlier start adds to the
    sum is at least what it takes from the rest.
    """
    n_layers = len(derivative.graph)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for index in range(n_layers):
        for tensor in derivative.kept(index):
            first.setdefault(tensor, index)
            last[tensor] = index
    first_bytes, change = [0] * n_layers, [0] * (n_layers + 1)
    for tensor, index in first.items():
        n_bytes = derivative.graph.tensors[tensor].n_bytes(batch_size, precision)
        first_bytes[index] += n_bytes
        change[index + 1] += n_bytes
        change[last[tensor] + 1] -= n_bytes
    return Kept(first_bytes, list(accumulate(change[:-1])))


def gradient_pattern(derivative: Derivative, layer: Layer) -> str:
    """Which operands of a layer have a gradient as activations, a digit each: part of what its backward pass is.

    What is a parameter, layers of one kind agree about.
    """
    return "".join(str(int(operand >= 0 and derivative.needs_gradient(operand))) for operand in layer.operands)
