"""Running sums: what a range costs is the difference of two entries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoauto.records.cost import IntArray
from autoauto.records.errors import BadInput

EXACT = 2**53  # up to here a float64 and an int64 hold every integer


def prefix_sums(values: Sequence[int], what: str) -> IntArray:
    """Sum everything before each position: (n,) values to (n + 1,) sums.

    Raises:
        BadInput: the values, which `what` names, are too large to be added exactly.

    >>> prefix_sums([3, 1, 2], "cycles").tolist()
    [0, 3, 4, 6]
    """
    if sum(values) > EXACT:
        raise BadInput(f"{what} of all layers must add up to at most 2**53, got {sum(values)}; check the unit")
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(np.array(values, dtype=np.int64))))
