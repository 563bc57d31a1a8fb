"""An input of a model with its axes: `Input`, `dims_of`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import onnx

Dim = int | str
"""A length that the file fixes, or the name of an open axis, "" for one without a name."""

_NO_NAME = re.compile(r"-?\d*|\?|None|unk__\d+|dynamic_axes_\d+|(p2o\.)?DynamicDimension\.\d+")


class Input(NamedTuple):
    """An input with its axes: lengths that the file fixes, or names of open axes."""

    name: str
    dims: tuple[Dim, ...]  # lengths, and names of open axes
    batch_axis: int | None = None  # None where it has none
    is_given: bool = False  # whether the user said which axis is the batch
    first_is_given: bool = False  # whether the user gave the length of the first axis

    @property
    def open_axes(self) -> list[int]:
        """Axes without a length, the batch axis aside."""
        return [axis for axis, dim in enumerate(self.dims) if isinstance(dim, str) and axis != self.batch_axis]


def describe(dims: Iterable[Dim]) -> str:
    """A shape with the names of its open axes.

    >>> describe(("rows", 3, ""))
    '[rows, 3, ?]'
    """
    return f"[{', '.join(str(dim) or '?' for dim in dims)}]"


def dims_of(entry: onnx.ValueInfoProto) -> tuple[Dim, ...]:
    """The axes of an input or output."""
    dims: list[Dim] = []
    for dim in entry.type.tensor_type.shape.dim:
        if dim.HasField("dim_value") and dim.dim_value >= 1:
            dims.append(int(dim.dim_value))
        elif _NO_NAME.fullmatch(dim.dim_param):
            dims.append("")
        else:
            dims.append(dim.dim_param)
    return tuple(dims)
