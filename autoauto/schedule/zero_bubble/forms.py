"""Lower bounds of zero bubble orders as linear functions of their times: `zero_bubble_bound`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from autoauto.records.units import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class LargestForm:
    """The largest of some linear functions of times, a `StepFunction`; `forms` (forms, rows) has their slopes."""

    forms: FloatArray

    def ticks(self, times: FloatArray) -> FloatArray:
        """(K,) the largest value at every column of times, (rows, K)."""
        largest: FloatArray = (self.forms @ times).max(axis=0)
        return largest

    def slopes(self, times: FloatArray) -> FloatArray:
        """(rows, K) the function that is largest there."""
        slopes: FloatArray = self.forms[(self.forms @ times).argmax(axis=0)].T
        return slopes


def zero_bubble_bound(devices: Sequence[int], n_micro_batches: int, limit: int) -> LargestForm:
    """Bounds by device and by stage as in `lower_bound`, for all times at once.

    Where several stages share a device, what its limit of activations makes it wait is left out. `devices` has the
    device of every stage, `limit` is the most activations that one holds.
    """
    n_stages = len(devices)
    own_limit = None
    if len(set(devices)) == n_stages:
        own_limit = min(limit, n_micro_batches)
    forms = list(_forms(n_stages, n_micro_batches, own_limit))
    forms += _work_of_devices(devices, n_micro_batches)
    return LargestForm(np.array(forms))


def _work_of_devices(devices: Sequence[int], m: int) -> Iterator[FloatArray]:
    """By device: the first micro-batch must reach its first stage, then it computes all its work."""
    n = len(devices)
    rows = np.eye(7 * n + 1)  # the unit vectors: a sum of rows counts how often a form has every time
    forward, down = rows[:n], rows[3 * n : 4 * n + 1]
    for device in set(devices):
        own = [s for s in range(n) if devices[s] == device]
        head = down[0] + (forward[: own[0]] + down[1 : own[0] + 1]).sum(axis=0)
        compute = np.zeros(len(rows))
        for s in own:
            compute += rows[s] + rows[n + s] + rows[2 * n + s]  # forward, backward and weight
        yield head + m * compute


def _forms(n: int, m: int, limit: int | None) -> Iterator[FloatArray]:
    """The bounds of `lower_bound` by stage, and by device where every stage has its own and `limit` is given."""
    rows = np.eye(7 * n + 1)
    forward, backward, weight = rows[:n], rows[n : 2 * n], rows[2 * n : 3 * n]
    down, up = rows[3 * n : 4 * n + 1], rows[4 * n + 1 : 5 * n + 1]
    for s in range(n):
        head = down[0] + (forward[:s] + down[1 : s + 1]).sum(axis=0)
        # From the start of a forward of the stage to the start of its backward.
        there = forward[s:].sum(axis=0) + down[s + 1 : n].sum(axis=0)
        loop = there + (backward[s + 1 :] + up[s + 1 :]).sum(axis=0)
        for last in range(s + 1):  # the stage where the micro-batch ends
            back = (up[last + 1 : s + 1] + backward[last:s]).sum(axis=0) + weight[last]
            yield head + m * (forward[s] + backward[s]) + back
            if limit is None:
                continue
            # As in `_device_bound`: idle before the first gradient, and after the last forward.
            before = loop - limit * forward[s]
            after = loop - forward[s] + backward[s] + back - limit * (backward[s] + weight[s])
            work = head + m * (forward[s] + backward[s] + weight[s])
            yield work
            yield work + before
            yield work + after
            if limit < m:
                yield work + before + after
