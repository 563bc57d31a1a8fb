"""Worker cycles of the inner loops of elementwise codelets: `LOOPS`, figures of popops' cycle estimators [poplibs].

In-place variants, assembly codelets. A row is (cycles, elements) of one inner loop for half and for float; "natural
vector" rows of the source are written as (cycles + 2, vector width), the others as (cycles, unroll).
"""

from __future__ import annotations

from typing import NamedTuple

from autoauto.records.units import Precision


class InnerLoop(NamedTuple):
    """Cycles of one inner loop of a worker, and the elements that it finishes."""

    cycles: int
    elements: int


LOOPS: dict[str, tuple[InnerLoop, InnerLoop]] = {
    "absolute": (InnerLoop(3, 4), InnerLoop(3, 2)),
    "add": (InnerLoop(3, 4), InnerLoop(3, 2)),
    "cast": (InnerLoop(3, 4), InnerLoop(3, 2)),  # not in the table: as fast as an addition
    "compare": (InnerLoop(9, 4), InnerLoop(14, 4)),
    "dropout": (InnerLoop(2, 4), InnerLoop(2, 2)),  # Dropout.S: a random mask beside the load and the store [poplibs]
    # Between halves and floats. Not in the table: castFpDemoteLoop and castFpPromoteLoop of popops take two bundles for
    # four elements, and its cycle estimator says so, too [poplibs].
    "convert": (InnerLoop(2, 4), InnerLoop(2, 4)),
    "divide": (InnerLoop(21, 4), InnerLoop(10, 2)),
    "erf": (InnerLoop(13, 1), InnerLoop(41, 1)),
    "exponent": (InnerLoop(4, 4), InnerLoop(6, 2)),
    # half: 462 cycles for 96 elements [ipu21-kernels]; float: popnn's factor of two [poplibs]
    "gelu": (InnerLoop(77, 16), InnerLoop(154, 16)),
    "gelu_erf": (InnerLoop(16, 1), InnerLoop(22, 1)),
    "inverse": (InnerLoop(15, 4), InnerLoop(6, 2)),
    "logarithm": (InnerLoop(6, 4), InnerLoop(14, 2)),
    "maximum": (InnerLoop(4, 4), InnerLoop(4, 2)),
    "negate": (InnerLoop(3, 4), InnerLoop(3, 2)),
    "power": (InnerLoop(325, 1), InnerLoop(312, 1)),
    "relu": (InnerLoop(2, 4), InnerLoop(2, 2)),
    "round": (InnerLoop(4, 4), InnerLoop(4, 2)),
    "rsqrt": (InnerLoop(19, 4), InnerLoop(8, 2)),
    "select": (InnerLoop(9, 4), InnerLoop(14, 4)),  # not in the table: as slow as a comparison
    "sigmoid": (InnerLoop(4, 4), InnerLoop(10, 2)),
    "sine": (InnerLoop(25, 1), InnerLoop(2300, 1)),
    "sqrt": (InnerLoop(23, 4), InnerLoop(10, 2)),
    "square": (InnerLoop(2, 4), InnerLoop(2, 2)),
    "tanh": (InnerLoop(2, 4), InnerLoop(10, 2)),
}


def loop(name: str, precision: Precision) -> InnerLoop:
    """The inner loop called `name` at a precision.

    >>> loop("relu", Precision.FP16), loop("relu", Precision.FP32)
    (InnerLoop(cycles=2, elements=4), InnerLoop(cycles=2, elements=2))
    """
    half, single = LOOPS[name]
    return single if precision is Precision.FP32 else half
