"""A model as a sequence of layers: `LayerRange`, `Tensor`, `Layer`, `LayerGraph`."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from autoauto.records.units import Precision

AttributeValue = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]

# What is not "float": halves that fp8 leaves as they are, and integers, of which wider ones are 32 bits on the device.
_FIXED_BYTES = {"bool": 1, "int8": 1, "uint8": 1, "float16": 2}


class LayerRange(NamedTuple):
    """A half-open range of layer indices `[start, stop)`, never empty."""

    start: int
    stop: int

    def __str__(self) -> str:
        return f"[{self.start}, {self.stop})"


class Tensor(NamedTuple):
    """A tensor of one model, described for one sample.

    Attributes:
        name: its name in the model file.
        shape: the shape at batch size 1.
        batch_axis: the axis whose length is multiplied by the batch size, None when the shape does not depend on it.
        dtype: "float" for any floating-point type (the device's precision decides its width), "float16" for one that
            fp8 leaves alone, else NumPy's name.
        producer: the layer that writes it, -1 for an input of the model or a weight.
        last_use: the last layer that reads it; n_layers for an output of the model; equal to `producer` when unused.
    """

    name: str
    shape: tuple[int, ...]
    batch_axis: int | None
    dtype: str
    producer: int
    last_use: int

    @property
    def is_float(self) -> bool:
        """Whether the device's precision decides the width of an element."""
        return self.dtype == "float"

    def shape_at(self, batch_size: int) -> tuple[int, ...]:
        """The shape at `batch_size` samples.

        >>> Tensor("x", (12, 128, 64), 0, "float", 0, 1).shape_at(4)
        (48, 128, 64)
        """
        if self.batch_axis is None:
            return self.shape
        return tuple(n * batch_size if axis == self.batch_axis else n for axis, n in enumerate(self.shape))

    def n_elements(self, batch_size: int) -> int:
        """How many elements the tensor has at `batch_size` samples."""
        return prod(self.shape) * (1 if self.batch_axis is None else batch_size)

    def n_bytes(self, batch_size: int, precision: Precision) -> int:
        """Bytes on the device at `batch_size` samples."""
        width = precision.n_bytes if self.is_float else _FIXED_BYTES.get(self.dtype, 4)
        return self.n_elements(batch_size) * width


@dataclass(frozen=True, slots=True)
class Layer:
    """One compute node of a model.

    Attributes:
        name: its name in the model file.
        op: the ONNX operator, for example "Conv".
        attributes: the operator's attributes that change its code, sorted by name.
        inputs: the activations it reads, as tensor indices in operator order without repeats.
        outputs: the activations it writes, as tensor indices; never empty.
        weights: the constants it reads, as tensor indices in operator order.
        operands: every operand in operator order as a tensor index, -1 for an omitted optional one.
        kind: layers of equal kind have the same operator, configuration and shapes, hence the same code.
        tied: layers of equal `tied` read one variable and must share a stage; None when nothing is shared.
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

    def attribute(self, name: str) -> AttributeValue | None:
        """The attribute called `name`, None when the layer does not have it."""
        return dict(self.attributes).get(name)


@dataclass(frozen=True, slots=True)
class LayerGraph:
    """A model as layers in execution order and the tensors between them.

    Attributes:
        name: the built-in name, or the file's name without its ending.
        layers: in an order in which every layer reads only earlier layers' outputs.
        tensors: weights and activations; `Layer` refers to them by index.
        fixed_batch: why the model runs at batch size 1 only, None when any batch size works.
        content: a digest of all that the layers and tensors say; equal digests mean equal models.
    """

    name: str
    layers: tuple[Layer, ...]
    tensors: tuple[Tensor, ...]
    fixed_batch: str | None
    content: str

    def __len__(self) -> int:
        return len(self.layers)

    def n_weight_bytes(self, precision: Precision) -> int:
        """Bytes of all weights, each counted once."""
        used = {index for layer in self.layers for index in layer.weights}
        return sum(self.tensors[index].n_bytes(1, precision) for index in used)
