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
