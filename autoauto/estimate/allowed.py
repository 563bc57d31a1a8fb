"""Where a pipeline may be cut: never between layers that read the same variable."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoauto.records.cost import BoolArray


def cut_allowed(tied: Sequence[str | None]) -> BoolArray:
    """Whether a stage may end and the next begin before layer i, (n + 1,); layers of equal key share a stage.

    A stage holds all layers of a key, or none, unless one of its ends lies after the key's first layer and not after
    its last. Two flags a key and a running sum count the keys that forbid each cut.

    >>> cut_allowed(["w", None, "w", None]).tolist()
    [True, False, False, True, True]
    """
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for index, key in enumerate(tied):
        if key is not None:
            first.setdefault(key, index)
            last[key] = index
    flags = np.zeros(len(tied) + 2, dtype=np.int64)
    np.add.at(flags, np.array(list(first.values()), dtype=np.int64) + 1, 1)
    np.subtract.at(flags, np.array(list(last.values()), dtype=np.int64) + 1, 1)
    allowed: BoolArray = np.cumsum(flags)[:-1] == 0
    return allowed
