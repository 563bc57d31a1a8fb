"""The types of NumPy arrays that all rooms use: `IntArray`, `FloatArray`, `BoolArray`, `Array`; and `Amount`."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]
"""An array of any element type, for example a tensor of a model."""
Amount = TypeVar("Amount", int, IntArray)
"""A number, or an array of numbers: a function of it answers for both alike."""


def relative_error(array: Array, expected: Array) -> float:
    """The largest difference, relative to the largest expected value; infinite where only one is a number.

    >>> relative_error(np.array([1.0, 2.0]), np.array([1.0, 4.0])), relative_error(np.array([1]), np.array([1]))
    (0.5, 0.0)
    """
    if array.shape != expected.shape:
        return float("inf")
    if array.dtype.kind != "f":
        return float((array != expected).any())
    if not np.array_equal(np.isfinite(array), np.isfinite(expected)):
        return float("inf")
    finite = np.isfinite(expected)
    difference = np.abs(np.subtract(array[finite], expected[finite], dtype=np.float64)).max(initial=0.0)
    return float(difference / max(np.abs(expected[finite]).max(initial=0.0), np.finfo(np.float32).tiny))
