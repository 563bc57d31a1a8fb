"""Schedules of every order, in several sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from autoauto.records.schedule import Order, Schedule, StageTimes
from autoauto.schedule.orders.registry import make_schedule, spec_of, stage_devices_of

collect_ignore = ["torch_pipeline.py"]
"""A program, which imports torch."""


class Case(NamedTuple):
    """An order and its size."""

    order: Order
    n_devices: int
    n_micro_batches: int
    n_chunks: int = 1
    training: bool = True

    def __str__(self) -> str:
        return f"{self.order}-{self.n_devices}-{self.n_micro_batches}-{self.n_chunks}-{self.training}"


SIZES = [(1, 4), (2, 4), (3, 6), (4, 8)]
"""Those that every order accepts, but for a device alone, which is too few for those of Poplar and for a ring, which
needs more micro-batches, too."""

CASES = [
    Case(order, p, max(m, spec_of(order).min_micro_batches(p)), n_chunks, training)
    for order in Order
    for p, m in SIZES
    for n_chunks in ((1, 2, 3) if spec_of(order).takes_chunks else (1,))
    for training in ((True, False) if spec_of(order).runs_inference else (True,))
    if p > 1 or not (spec_of(order).takes_stage_devices or order is Order.POPART_RING)
]


def times_of(case: Case) -> StageTimes:
    """Unequal times of actions and messages, in which no two kinds agree."""
    n_stages = len(stage_devices_of(case.order, case.n_devices, case.n_chunks))
    forward, links = 10 + np.arange(n_stages), 2 + np.arange(n_stages + 1) % 2
    return StageTimes(forward, forward + 3, forward - 3, links, links[:-1], links[:-1], links[:-1])


@pytest.fixture(scope="session")
def made() -> Callable[[Case], Schedule]:
    """Make the schedule of a case, once."""
    schedules: dict[Case, Schedule] = {}

    def make(case: Case) -> Schedule:
        if case not in schedules:
            order, n_devices, n_micro_batches, n_chunks, training = case
            schedules[case] = make_schedule(
                order, n_devices, n_micro_batches, n_chunks=n_chunks, times=times_of(case), training=training
            )
        return schedules[case]

    return make
