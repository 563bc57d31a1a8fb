"""Follow the samples of a batch through a model whose file fixes the batch, and note what has to change with it.

A file that runs n samples says nothing about other batch sizes. What it does to the tensors in which the samples lie
side by side says it: as long as no operator mixes samples, any number of them can lie there. Where the samples lie is a
`Place`: rows of memory keep their order in a Reshape, so the distance between two samples survives it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

import onnx

from autoauto.graph.trace import Value, label, opset
from autoauto.records.errors import BadInput


class Place(NamedTuple):
    """Where the samples lie in a tensor: `axis` counts (outer, sample, inner), the last fastest."""

    axis: int
    inner: int


class Literal(NamedTuple):
    """A shape written into the file, whose entry `axis` grows with the batch."""

    shape: tuple[int, ...]
    axis: int


@dataclass(frozen=True, slots=True)
class Step:
    """One node on the way.

    Attributes:
        node: as in the file.
        version: of its operator set.
        n_samples: the batch that the file fixes.
        read, written: values of all inputs and outputs, None for an omitted one.
        places: where the samples lie in each input, None where there are none.
        literals: inputs to replace by a shape that grows with the batch; filled by the rule.
        copies: inputs to repeat for every sample along an axis of length 1; filled by the rule.
    """

    node: onnx.NodeProto
    version: int
    n_samples: int
    read: list[Value | None]
    written: list[Value | None]
    places: list[Place | None]
    literals: dict[int, Literal] = field(default_factory=dict)
    copies: dict[int, int] = field(default_factory=dict)

    def refuse(self, reason: str) -> BadInput:
        """The error that says why other batch sizes would be wrong."""
        return BadInput(f"the file fixes the batch at {self.n_samples} and {label(self.node)} {reason}")

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """Shape of an input."""
        value = self.read[index]
        assert value is not None
        return value.shape

    def output_shape(self) -> tuple[int, ...]:
        """Shape of the first output that anything reads."""
        return next(value.shape for value in self.written if value is not None)

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        return next((int(entry.i) for entry in self.node.attribute if entry.name == name), default)

    def integers(self, name: str, index: int | None = None) -> tuple[int, ...] | None:
        """A list of integers: an attribute, or from some operator set on the input `index`."""
        for entry in self.node.attribute:
            if entry.name == name:
                return tuple(int(number) for number in entry.ints)
        value = self.read[index] if index is not None and index < len(self.read) else None
        if value is None:
            return None
        if value.data is None:
            raise self.refuse(f"has {name} that are not constant")
        return tuple(int(number) for number in value.data.reshape(-1))

    def axes(self, name: str, index: int | None = None) -> set[int] | None:
        """Like `integers`, counted from the first axis of input 0."""
        rank = len(self.shape())
        found = self.integers(name, index)
        return None if found is None else {axis % rank for axis in found}

    def axis(self, default: int) -> int:
        """The attribute `axis`, counted from the first axis of input 0."""
        return self.integer("axis", default) % len(self.shape())


def follow(model: onnx.ModelProto, values: Mapping[str, Value], inputs: set[str], n_samples: int) -> dict[int, Step]:
    """Follow the samples from the first axis of `inputs`; the steps of all nodes that they reach, by node index.

    Raises:
        BadInput: an operator mixes samples, or is not known to keep them apart.
    """
    from autoauto.graph.rules import RULES  # noqa: PLC0415
    places = {name: Place(0, values[name].shape[0] // n_samples) for name in inputs}
    ...
