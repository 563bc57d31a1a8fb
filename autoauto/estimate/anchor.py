"""An estimate that agrees with stages that were measured: `anchored`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from autoauto.estimate.entry import no_longer
from autoauto.records.cost import CostTable
from autoauto.records.plan import Stage


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
