"""Units and their conversions: `Precision`, `reference_cycles`, `samples_per_s`, `format_bytes`."""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction

MIB = 1024**2
GIB = 1024**3
MAX_MIB = 2**42  # so many are as many bytes as the operating system can limit
MAX_EXACT = 2**53  # up to here a float64 and an int64 hold every integer


class Precision(StrEnum):
    """The floating-point format that weights and activations have on the device.

    With FP8 only the products that `autoauto.graph.layers.kinds.quantise` marks are in FP8; all else is fp16.
    """

    FP16 = "fp16"
    FP32 = "fp32"
    FP8 = "fp8"

    @property
    def n_bytes(self) -> int:
        """Bytes of one floating-point element.

        >>> Precision.FP16.n_bytes, Precision.FP32.n_bytes, Precision.FP8.n_bytes
        (2, 4, 1)
        """
        return {Precision.FP8: 1, Precision.FP16: 2, Precision.FP32: 4}[self]


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
    """Throughput of a pipeline that finishes one batch every `period_cycles`, at most one a cycle.

    >>> samples_per_s(16, 1_000_000, 1.85e9)
    29600.0
    """
    return batch_size * clock_hz / max(period_cycles, 1)


def format_bytes(n_bytes: float) -> str:
    """Write bytes for people.

    >>> format_bytes(894 * MIB), format_bytes(512)
    ('894.0 MiB', '512 B')
    """
    if abs(n_bytes) < 1024:
        return f"{n_bytes:.0f} B"
    if abs(n_bytes) < MIB:
        return f"{n_bytes / 1024:.1f} KiB"
    return f"{n_bytes / MIB:.1f} MiB"
