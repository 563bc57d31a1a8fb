"""Memory and variables of all ranges that end at one cut and may fit: the candidates of the phase planner."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from autoauto.plan.blocks import Blocks
from autoauto.plan.reach import reach
from autoauto.records.cost import CostTable, IntArray
from autoauto.records.profile import PARAMETER


class Ranges(NamedTuple):
    """The ranges of blocks `[start, stop)` for several starts and one stop.

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


def ranges(table: CostTable, blocks: Blocks, limit_bytes: int) -> Iterator[Ranges]:
    """For every stop the ranges whose `base_bytes` are within the limit, in O(B x reach).

    Starts from `reach` on fit, as a range that begins earlier never needs less. A shared key counts for the starts up
    to its last block, and a block's peak for all starts before it: both are changed in place as the stop moves on.
    """
    earliest = reach(blocks, limit_bytes).starts
    n = len(blocks)
    exclusive, not_kept = np.array(blocks.exclusive_prefix_bytes), np.array(blocks.not_kept_bytes)
    variables = _parameters(table, blocks)
    shared, shared_variables, peaks = (np.zeros(n, dtype=np.int64) for _ in range(3))
    last = [-1] * len(blocks.shared_bytes)
    for block in range(n):
        first, stop = earliest[block + 1], block + 1
        for key in set(blocks.shared_keys[block]):
            shared[last[key] + 1 : stop] += blocks.shared_bytes[key]
            if table.shared_categories[key] == PARAMETER:
                shared_variables[last[key] + 1 : stop] += blocks.shared_bytes[key]
            last[key] = block
        np.maximum(peaks[first:stop], blocks.peak_bytes[block], out=peaks[first:stop])
        at = slice(first, stop)
        yield Ranges(
            starts=np.arange(first, stop),
            stop=stop,
            base_bytes=exclusive[stop] - exclusive[at] + shared[at] + peaks[at] - not_kept[at],
            variable_bytes=variables[stop] - variables[at] + shared_variables[at],
        )


def one_range(table: CostTable, blocks: Blocks, start: int, stop: int) -> Ranges:
    """The range from one start, as the table defines it."""
    memory = table.memory_bytes(blocks.cuts[start], blocks.cuts[stop])
    base_bytes, variable_bytes = sum(memory.values()), memory.get(PARAMETER, 0)
    return Ranges(np.array([start]), stop, np.array([base_bytes]), np.array([variable_bytes]))


def _parameters(table: CostTable, blocks: Blocks) -> IntArray:
    """(B + 1,) running sum of the variables that no other layer reads."""
    none = np.zeros(table.n_layers + 1, dtype=np.int64)
    return table.exclusive_prefix_bytes.get(PARAMETER, none)[blocks.cuts]
