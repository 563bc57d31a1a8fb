"""A range of layers as a model of its own: `SubModel`, what it reads and writes, and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import NamedTuple, Protocol

import numpy as np

from autoauto.records.layers import LayerGraph, LayerRange


class Port(NamedTuple):
    """A tensor that enters or leaves.

    Attributes:
        name: in the model file.
        shape: at the batch size of the sub-model.
        dtype: of an element, as NumPy names it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def n_bytes(self) -> int:
        """Bytes of the whole tensor.

        >>> Port("x", (4, 3), "float32").n_bytes
        48
        """
        return prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class SubModel:
    """A range of layers that a runtime can load.

    Attributes:
        content: a whole ONNX file, weights inside.
        inputs: what the layers read that is made before them, without repeats.
        outputs: what they make that is read after them; for the last layers the outputs of the whole model, in its
            order, but for those that are there before: they are carried.
    """

    content: bytes
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


class Source(Protocol):
    """A model file that layers can be cut out of."""

    def cut(self, graph: LayerGraph, layers: LayerRange, batch_size: int) -> SubModel:
        """Make a model of `layers`, which are found by what they write, so `graph` may be a part of the whole.

        Raises:
            UnreadableModel: the file has changed, or its weights are missing.
        """

    def carried(self, graph: LayerGraph, cut: int, batch_size: int) -> tuple[Port, ...]:
        """All that is alive between the layers before `cut` and those from it on: inputs of the model that are still
        read and outputs of the model that are already made included, in one fixed order; for `cut` 0 the inputs of the
        whole model, for n_layers its outputs, both in the model's order.
        """
