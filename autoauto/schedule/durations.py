"""What every single action of a schedule takes, from what those of a stage take."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from autoauto.records.schedule import BACKWARD, CHECK, FORWARD, KINDS, WEIGHT, IntArray, Schedule, StageTimes


def compute_ticks(schedule: Schedule, times: StageTimes) -> list[IntArray]:
    """Ticks of every action, for every device in the order of its program."""
    table = _table(schedule, {FORWARD: times.forward, BACKWARD: times.backward, WEIGHT: times.weight})
    for stage, ticks in enumerate(times.checks):
        table[CHECK, stage, : len(ticks)] = ticks
    return [table.ravel()[program] for program in schedule.programs]


def exchange_ticks(schedule: Schedule, times: StageTimes) -> list[IntArray]:
    """Ticks of the exchange that follows every action, for every device in the order of its program."""
    table = _table(schedule, {FORWARD: times.forward_exchange, BACKWARD: times.backward_exchange})
    return [table.ravel()[program] for program in schedule.programs]


def _table(schedule: Schedule, columns: Mapping[int, IntArray]) -> IntArray:
    """One column, (S,), for every kind as the entries of all codes, (kinds, S, numbers)."""
    table = np.zeros((len(KINDS), schedule.n_stages, schedule.codes.n_numbers), dtype=np.int64)
    for kind, column in columns.items():
        table[kind] = column[:, None]
    return table
