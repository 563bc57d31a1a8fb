"""What it takes to enter a range, besides what its layers take: `entered`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from autoauto.records.correction import ENTERED, MOVED_SCALE, Correction
from autoauto.records.cost import CostTable, IntArray
from autoauto.records.plan import Stage
from autoauto.records.profile import ModelProfile


def entered(table: CostTable, profile: ModelProfile, correction: Correction) -> CostTable:
    """The same costs, and what ranges take to read what they receive; `table` is that of the corrected profile."""
    if ENTERED not in correction.forward:
        return table
    assert profile.options is not None
    factor = correction.forward[ENTERED] * correction.at_batch_size(profile.options.batch_size)
    n_bytes = np.array([0, *(layer.input_bytes for layer in profile.layers[1:])])
    entry_cycles = np.rint(n_bytes * factor / MOVED_SCALE).astype(np.int64)
    return replace(table, entry_cycles=no_longer(entry_cycles, table.compute_prefix_cycles))


def no_longer(entry_cycles: IntArray, prefix_cycles: IntArray) -> IntArray:
    """Lowered to where a range costs no less than one that starts later inside it, as the planner needs it.

    (n,) and the running sum of cycles, (n + 1,), to (n,).

    >>> no_longer(np.array([0, 7, 9]), np.array([0, 4, 5, 8])).tolist()
    [0, 4, 5]
    """
    before = prefix_cycles[:-1]
    lowered: IntArray = before + np.minimum.accumulate(entry_cycles - before)
    return lowered


def anchored(table: CostTable, stages: Iterable[Stage]) -> CostTable:
    """The same costs of inference, but every stage takes the cycles that it was measured to take.

    Its layers keep their proportions, so that a plan near the measured one is predicted better than by any correction
    that holds for the whole model. Memory and transfers stay as they are.
    """
    cycles = np.diff(table.compute_prefix_cycles).astype(np.float64)
    entry = table.entry_cycles.astype(np.float64)
    for stage in stages:
        factor = stage.compute_cycles / max(table.compute_cycles(*stage.layers, stage.device), 1)
        cycles[slice(*stage.layers)] *= factor
        entry[slice(*stage.layers)] *= factor
    prefix = np.concatenate(([0], np.rint(np.cumsum(cycles)))).astype(np.int64)
    entry_cycles = no_longer(np.rint(entry).astype(np.int64), prefix) if len(entry) else table.entry_cycles
    return replace(table, compute_prefix_cycles=prefix, entry_cycles=entry_cycles)
