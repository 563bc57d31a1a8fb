"""Changes to a finished cost table: `with_entry_overhead`, `with_cuts_at`, `calibrated`.

The first adds the entry overhead, the second allows fewer cuts, the third scales compute to measured stages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from autoauto.records.arrays import IntArray
from autoauto.records.correction import MOVED_BYTES_PER_CYCLE, Correction, RangeFeature
from autoauto.records.cost import CostTable
from autoauto.records.plan import Stage
from autoauto.records.profile import ModelProfile


def with_entry_overhead(table: CostTable, profile: ModelProfile, correction: Correction) -> CostTable:
    """The same costs plus the entry overhead of ranges: cycles to read their inputs, by the factor of
    `RangeFeature.ENTRY`.

    `table` is that of the corrected profile. A range from layer 0 has no entry overhead, since
    there is no cut before it.
    """
    if RangeFeature.ENTRY not in correction.features:
        return table
    assert profile.options is not None
    factor = correction.features[RangeFeature.ENTRY] * correction.at_batch_size(profile.options.batch_size)
    n_bytes = np.array([0, *(layer.input_bytes for layer in profile.layers[1:])])
    entry_cycles = np.rint(n_bytes * factor / MOVED_BYTES_PER_CYCLE).astype(np.int64)
    return replace(table, entry_cycles=monotone_entry_cycles(entry_cycles, table.compute_prefix_cycles))


def monotone_entry_cycles(entry_cycles: IntArray, prefix_cycles: IntArray) -> IntArray:
    """Lower entry cycles (n,) until a range costs no less than one that starts later inside it, as planning requires.

    With the running sum of cycles `prefix`, (n + 1,), the cost of `[i, stop)` is `prefix[stop] - prefix[i] + entry[i]`.
    It does not rise with i exactly when `entry - prefix` does not, so the result is the running minimum of that.

    >>> monotone_entry_cycles(np.array([0, 7, 9]), np.array([0, 4, 5, 8])).tolist()
    [0, 4, 5]
    """
    prefix = prefix_cycles[:-1]
    lowered: IntArray = prefix + np.minimum.accumulate(entry_cycles - prefix)
    return lowered


def with_cuts_at(table: CostTable, cuts: Sequence[int]) -> CostTable:
    """The same costs with the cuts of `table` before these layers only; both ends remain."""
    chosen = np.isin(np.arange(table.n_layers + 1), [0, *cuts, table.n_layers])
    allowed = table.cut_allowed & chosen
    memory = replace(table.memory, input_bytes=table.memory.input_bytes * allowed[:-1])
    return replace(table, cut_allowed=allowed, memory=memory)


def calibrated(table: CostTable, stages: Iterable[Stage]) -> CostTable:
    """The same costs, except that the compute of every measured stage is what was measured; for inference only.

    All layers of a stage, and their entry overhead, are scaled by measured over estimated cycles. Plans whose cuts lie
    near those of the measured plan are then predicted better than by a `Correction`, which has the same factors for
    the whole model. Memory and transfers do not change.
    """
    cycles = np.diff(table.compute_prefix_cycles).astype(np.float64)
    entry = table.entry_cycles.astype(np.float64)
    for stage in stages:
        factor = stage.compute_cycles / max(table.compute_cycles(*stage.layers, stage.device), 1)
        cycles[slice(*stage.layers)] *= factor
        entry[slice(*stage.layers)] *= factor
    prefix = np.concatenate(([0], np.rint(np.cumsum(cycles)))).astype(np.int64)
    entry_cycles = monotone_entry_cycles(np.rint(entry).astype(np.int64), prefix)
    return replace(table, compute_prefix_cycles=prefix, entry_cycles=entry_cycles)
