"""Units and their conversions: `Precision`, `reference_cycles`, `samples_per_s`, `format_bytes`, `format_number`.

The types of NumPy arrays that all rooms use: `IntArray`, `FloatArray`, `BoolArray`, `Array`; and `Amount`. How far two
arrays differ: `relative_error`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

MIB = 1024**2
GIB = 1024**3
MAX_MIB = 2**42  # so many are as many bytes as the operating system can limit
MAX_EXACT = 2**53  # up to here a float64 and an int64 hold every integer
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Float32Array = npt.NDArray[np.float32]
BoolArray = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]
"""An array of any element type, for example a tensor of a model."""
Amount = TypeVar("Amount", int, IntArray)
"""A number, or an array of numbers: a function of it answers for both alike."""


class Precision(StrEnum):
    """A floating-point format: of weights and activations on a device, or of the products of a runtime."""

    FP16 = "fp16"
    FP32 = "fp32"
    FP8 = "fp8"
    """Of the products that `autoauto.graph.kinds.quantise` marks; all else is fp16."""
    BF16 = "bf16"
    TF32 = "tf32"
    """On GPUs: products of fp32 round their factors to 10 bits, and add in fp32."""

    n_bytes: int
    """Bytes of one floating-point element."""

    def __init__(self, value: str) -> None:
        # An attribute: it is read millions of times in a search, and a property with a table takes ten times as long.
        self.n_bytes = {"fp8": 1, "fp16": 2, "bf16": 2}.get(value, 4)


def bytes_per_s(gbps: float) -> float:
    """Turn `GBps` of Graphcore's auto_pipeline into bytes per second; its "GB" is 1024**3 bytes [auto-pipeline]."""
    return gbps * GIB


def gbps(rate_bytes_per_s: float) -> float:
    """Turn bytes per second into `GBps` of Graphcore's auto_pipeline, the inverse of `bytes_per_s`."""
    return rate_bytes_per_s / GIB


def reference_cycles(own_cycles: int, speed: Fraction) -> int:
    """Cycles of the reference clock that pass while a device at `speed` times that clock counts `own_cycles`.

    Rounded up: a whole number of reference cycles is enough exactly when it is at least this.

    >>> reference_cycles(900, Fraction(3, 2)), reference_cycles(901, Fraction(3, 2))
    (600, 601)
    """
    return -(-own_cycles * speed.denominator // speed.numerator)


def samples_per_s(batch_size: int, period_cycles: float, clock_hz: float) -> float:
    """Throughput of a pipeline that finishes one batch every `period_cycles`, at most one a cycle."""
    return batch_size * clock_hz / max(period_cycles, 1)


_GIB_FROM = 2 * GIB
"""Sizes of an IPU and what exceeds it are compared in one unit."""


def format_bytes(n_bytes: float) -> str:
    """Write bytes for people."""
    if abs(n_bytes) < 1024:
        return f"{n_bytes:.0f} B"
    if abs(n_bytes) < MIB:
        return f"{n_bytes / 1024:.1f} KiB"
    if abs(n_bytes) < _GIB_FROM:
        return f"{n_bytes / MIB:.1f} MiB"
    return f"{n_bytes / GIB:.1f} GiB"


def format_number(value: float, decimals: int = 1) -> str:
    """Write a number with so many decimals, or with three digits where these decimals would show fewer than two.

    >>> format_number(1234.56), format_number(0.0), format_number(0.04567), format_number(0.25), format_number(3.2, 0)
    ('1,234.6', '0.0', '0.0457', '0.25', '3.2')
    """
    if 0 < abs(value) < 10 ** (1 - decimals):
        return f"{value:.3g}"
    return f"{value:,.{decimals}f}"


def three_digits(value: float) -> str:
    """A number that is not known better.

    >>> three_digits(22.94), three_digits(1166.3)
    ('22.9', '1,170')
    """
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"


def fixed_and_per_sample(amount: Callable[[int], Amount]) -> tuple[Amount, Amount]:
    """An amount of any batch size n, as its two parts: `fixed` + n x `per_sample`, by its values at 1 and 2 samples.

    >>> fixed_and_per_sample(lambda n: 5 + 3 * n)
    (5, 3)
    """
    single, double = amount(1), amount(2)
    return 2 * single - double, double - single


def relative_error(array: Array, expected: Array) -> float:
    """The largest difference, relative to the largest expected value; infinite where only one is a number."""
    if array.shape != expected.shape:
        return float("inf")
    if array.dtype.kind != "f":
        return float((array != expected).any())
    if not np.array_equal(np.isfinite(array), np.isfinite(expected)):
        return float("inf")
    finite = np.isfinite(expected)
    difference = np.abs(np.subtract(array[finite], expected[finite], dtype=np.float64)).max(initial=0.0)
    return float(difference / max(np.abs(expected[finite]).max(initial=0.0), np.finfo(np.float32).tiny))
