"""Where the samples of a batch lie in a tensor (`SampleAxis`), and one node that reads them (`NodeStep`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

import numpy as np
import onnx

from autoauto.graph.onnx_file import attribute_named
from autoauto.graph.shapes import shape_rule
from autoauto.graph.shapes.trace import READS_SHAPE
from autoauto.graph.shapes.values import Value, label
from autoauto.records.errors import BadInput
from autoauto.records.units import Array


class SampleAxis(NamedTuple):
    """The samples lie on `axis`, whose index counts (outer, sample, inner), the last fastest.

    With 2 samples, 3 positions `inner` and 2 outer ones, the samples along the axis are

        0 0 0 1 1 1 0 0 0 1 1 1
    """

    axis: int
    inner: int


@dataclass(frozen=True, slots=True)
class NodeStep:
    """One node that reads samples, and the changes that another batch size makes to it."""

    node: onnx.NodeProto
    version: int  # of its operator set
    n_samples: int  # the batch that the file fixes
    read: list[Value | None]  # values of all inputs, None for an omitted one
    written: list[Value | None]  # and of all outputs
    sample_axes: list[SampleAxis | None]  # where the samples lie in each input, None where there are none
    # The node's rule fills these: constants to read instead of an input, as functions of the batch size, and inputs to
    # repeat for every sample, with the axis.
    literals: dict[int, Callable[[int], Array]] = field(default_factory=dict)
    copies: dict[int, int] = field(default_factory=dict)

    def refuse(self, reason: str) -> BadInput:
        """The error for a batch size that the node makes impossible."""
        return BadInput(f"the file fixes the batch at {self.n_samples} and {label(self.node)} {reason}")

    @property
    def reads_shape(self) -> bool:
        """True if the node reads a shape only, not the samples."""
        return self.node.op_type in READS_SHAPE

    def operand(self, index: int) -> Value | None:
        """The value of an input; None where the node leaves it out."""
        return shape_rule.given(self.read, index)

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """The shape of an input."""
        value = self.read[index]
        assert value is not None
        return value.shape

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of the first output that is not omitted."""
        return next(value.shape for value in self.written if value is not None)

    def only(self, index: int = 0) -> SampleAxis:
        """The position of the samples in input `index`; raises BadInput unless this input alone holds samples."""
        if [position for position, samples in enumerate(self.sample_axes) if samples] != [index]:
            raise self.refuse("reads the samples as an operand that all samples must share")
        samples = self.sample_axes[index]
        assert samples is not None
        return samples

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        return shape_rule.integer(self.node, name, default)

    def integers(self, name: str, index: int | None = None) -> tuple[int, ...] | None:
        """A list of integers: the attribute `name`, or since some operator set the input `index`."""
        attribute = attribute_named(self.node, name)
        if attribute is not None:
            return tuple(attribute.ints)
        value = None if index is None else self.operand(index)
        if value is None:
            return None
        if value.data is None:
            raise self.refuse(f"has {name} that are not constant")
        return tuple(int(number) for number in value.data.reshape(-1))

    def axis(self, default: int) -> int:
        """The attribute `axis`, counted from the first axis of input 0."""
        return self.integer("axis", default) % len(self.shape())

    def grow(self, index: int, shape: Sequence[int], axis: int) -> None:
        """Replace input `index`, a shape, by one whose entry `axis` grows with the batch."""

        def grown(batch_size: int) -> Array:
            lengths = np.array(shape, np.int64)
            lengths[axis] = shape[axis] * batch_size // self.n_samples
            return lengths

        self.literals[index] = grown

    def after_reshape(self, samples: SampleAxis) -> SampleAxis:
        """The position of the samples after a Reshape of input 0.

        Elements keep their order, so samples stay `distance` elements apart. An axis can hold them when that distance
        is a whole number of its positions, and its length a multiple of all samples. Of several such axes, an axis of
        samples alone is preferred (the old one before others), then any but the last, which holds features.

        Raises BadInput where no axis can hold them.
        """
        shape = self.output_shape
        distance = samples.inner * prod(self.shape()[samples.axis + 1 :])
        fits = []
        for axis, length in enumerate(shape):
            # One position of the axis is as many elements as the axes behind it have together.
            inner, rest = divmod(distance, prod(shape[axis + 1 :]))
            if rest == 0 and inner > 0 and length % (inner * self.n_samples) == 0:
                fits.append(SampleAxis(axis, inner))
        if not fits:
            raise self.refuse(f"mixes samples when it turns {list(self.shape())} into {list(shape)}")
        alone = [fit for fit in fits if shape[fit.axis] == self.n_samples]
        if samples in alone:
            return samples
        if alone:
            return alone[0]
        before_last = [fit for fit in fits if fit.axis < len(shape) - 1]
        return before_last[-1] if before_last else fits[0]
