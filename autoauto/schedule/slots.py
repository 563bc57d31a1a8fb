"""The pipeline cycles of a schedule: in which of them every action runs when all devices advance together."""

from __future__ import annotations

import numpy as np

from autoauto.records.schedule import IntArray, Schedule, StageTimes
from autoauto.schedule.earliest import earliest_starts


def slots(schedule: Schedule) -> tuple[IntArray, ...]:
    """The slot of every action, for every device in the order of its program.

    Those of the schedule where it has its own, else the earliest: one more than that of the device's previous action
    and than those of its inputs from other devices.

    Raises:
        BadInput: the schedule cannot run to its end; the message says who waits for whom.

    >>> from autoauto.schedule.one_f_one_b import one_f_one_b
    >>> [row.tolist() for row in slots(one_f_one_b(2, 2))]  # 0F0 0F1 0B0 0B1, and 1F0 1B0 1F1 1B1
    [[0, 1, 3, 5], [1, 2, 3, 4]]
    """
    if schedule.slots is not None:
        return schedule.slots
    n_stages = schedule.n_stages
    one, none = np.ones(n_stages, dtype=np.int64), np.zeros(n_stages + 1, dtype=np.int64)
    checks = (np.ones(schedule.codes.n_numbers, dtype=np.int64),) * n_stages
    return earliest_starts(schedule, StageTimes(one, one, one, none, none[1:], none[1:], none[1:], checks=checks))
