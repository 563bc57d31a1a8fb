"""Zero bubble: weight gradients wait until a device has nothing better to do."""

from __future__ import annotations

import numpy as np

from autoauto.records.errors import BadInput
from autoauto.records.schedule import Codes, Order, Schedule, StageTimes
from autoauto.schedule.split_order import Pipeline
from autoauto.schedule.split_search import best_order


def zero_bubble(times: StageTimes, n_micro_batches: int, max_in_flight: int | None) -> Schedule:
    """The shortest order found with at most `max_in_flight` activations on every device."""
    n = times.n_stages
    if n_micro_batches < 1 or (max_in_flight is not None and max_in_flight < 1):
        raise BadInput("x")
    pipeline = Pipeline.of(times, range(n), n_micro_batches, max_in_flight)
    order = Order.ZB1P if max_in_flight is not None and max_in_flight <= n else Order.ZB2P
    return to_schedule(order, pipeline)


def to_schedule(order: Order, pipeline: Pipeline) -> Schedule:
    sketch = best_order(pipeline)
    codes = Codes(pipeline.n_stages, pipeline.n_micro_batches)
    programs = []
    for program in sketch.programs:
        jobs = np.array(program, dtype=np.int64)
        numbers = np.zeros_like(jobs)
        for job in np.unique(jobs):
            numbers[jobs == job] = np.arange(pipeline.n_micro_batches)
        programs.append(jobs * codes.n_numbers + numbers)
    return Schedule(order, pipeline.devices, pipeline.n_micro_batches, tuple(programs))
