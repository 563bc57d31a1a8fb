"""Memory and variables of all ranges that stop at one layer and may fit: the candidates of the phase planner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from autoauto.plan.blocks import contract
from autoauto.plan.reach import reach
from autoauto.records.cost import CostTable, IntArray
from autoauto.records.profile import PARAMETER


class Ranges(NamedTuple):
    """The ranges of layers `[start, stop)` for several starts and one stop.

    Attributes:
        starts: ascending.
        stop: one for all.
        base_bytes: variables, program and peak of each range, as `CostTable.memory_bytes`.
        variable_bytes: the variables alone.
    """

    starts: IntArray
    stop: int
    base_bytes: IntArray
    variable_bytes: IntArray


def ranges(table: CostTable, limit_bytes: int) -> Iterator[Ranges]:
    """For every stop the ranges whose `base_bytes` are within the limit, in O(n x reach).

    Starts from `reach` on fit, as a range that begins earlier never needs less. A shared key counts for the starts up
    to its last layer, and a layer's peak for all starts before it: both are changed in place as the stop moves on.

    Phases may be cut anywhere: layers that read one variable need not share a phase, as each can load it.
    """
    blocks = contract(replace(table, cut_allowed=np.ones_like(table.cut_allowed)))  # every layer is a block
    earliest, n = reach(blocks, limit_bytes).starts, table.n_layers
    exclusive, not_kept = np.array(blocks.exclusive_prefix_bytes), np.array(blocks.not_kept_bytes)
    variables = table.exclusive_prefix_bytes.get(PARAMETER, np.zeros(n + 1, dtype=np.int64))
    shared, shared_variables, peaks = (np.zeros(n, dtype=np.int64) for _ in range(3))
    last = [-1] * len(table.shared_bytes)
    for layer in range(n):
        first, stop = earliest[layer + 1], layer + 1
        for key in set(table.shared_keys[layer]):
            shared[last[key] + 1 : stop] += table.shared_bytes[key]
            if table.shared_categories[key] == PARAMETER:
                shared_variables[last[key] + 1 : stop] += table.shared_bytes[key]
            last[key] = layer
        np.maximum(peaks[first:stop], blocks.peak_bytes[layer], out=peaks[first:stop])
        at = slice(first, stop)
        yield Ranges(
            starts=np.arange(first, stop),
            stop=stop,
            base_bytes=exclusive[stop] - exclusive[at] + shared[at] + peaks[at] - not_kept[at],
            variable_bytes=variables[stop] - variables[at] + shared_variables[at],
        )


def one_range(table: CostTable, start: int, stop: int) -> Ranges:
    """The range from one start, as the table defines it."""
    memory = table.memory_bytes(start, stop)
    base_bytes, variable_bytes = sum(memory.values()), memory.get(PARAMETER, 0)
    return Ranges(np.array([start]), stop, np.array([base_bytes]), np.array([variable_bytes]))
