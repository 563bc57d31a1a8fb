"""The step of training: as a function of the costs of a plan, `PlanStep`, and with its end, `with_step_end`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoauto.records.arrays import FloatArray
from autoauto.records.hardware import Period
from autoauto.records.timeline import StepEnd, Timeline
from autoauto.schedule.simulate.step import StepFunction, time_rows
from autoauto.schedule.times import times_of_costs


@dataclass(frozen=True, slots=True)
class PlanStep:
    """A `StepFunction` of the times that plans have, in half cycles, as a function of their stages' costs.

    Costs are forward, backward, weight, receive and send cycles of every stage (`plan_times`).
    """

    function: StepFunction
    period: Period
    split_backward: bool

    def cycles(self, costs: FloatArray) -> FloatArray:
        """(K,) cycles of the steps of K plans with costs (K, S, 5)."""
        return self.function.ticks(self._times(costs)) / 2

    def slopes(self, costs: FloatArray) -> FloatArray:
        """(K, S, 5) slopes of the step at K plans: how much it grows with every cost."""
        rows = np.moveaxis(self.function.slopes(self._times(costs)), -1, 0) / 2
        n = costs.shape[1]
        forward, backward, weight = (rows[:, i * n : (i + 1) * n] for i in range(3))
        links, exchange = rows[:, 3 * n : 4 * n + 1].copy(), rows[:, 5 * n + 1 : 6 * n + 1] + rows[:, 6 * n + 1 :]
        links[:, :-1] += rows[:, 4 * n + 1 : 5 * n + 1]
        slopes = np.zeros_like(costs)
        slopes[..., 0], slopes[..., 1] = 2 * forward, 2 * backward
        if self.split_backward:
            slopes[..., 2] = 2 * (weight - backward)
        if self.period is Period.SERIAL:
            slopes[..., 3] = slopes[..., 4] = forward + backward
            return slopes
        # A message takes the longer of its two ends.
        receives = costs[:, 1:, 3] > costs[:, :-1, 4]
        slopes[..., 3] = slopes[..., 4] = exchange
        slopes[:, 0, 3] += links[:, 0]
        slopes[:, -1, 4] += links[:, -1]
        slopes[:, 1:, 3] += links[:, 1:-1] * receives
        slopes[:, :-1, 4] += links[:, 1:-1] * ~receives
        return slopes

    def _times(self, costs: FloatArray) -> FloatArray:
        columns = np.moveaxis(costs, (0, 1, 2), (2, 1, 0))
        return time_rows(times_of_costs(columns, self.period, training=True, split_backward=self.split_backward))


def with_step_end(
    timeline: Timeline, all_reduce_cycles: Sequence[int], update_cycles: Sequence[int], *, barrier: bool
) -> Timeline:
    """A timeline that goes on until every device has summed its gradients over the replicas and updated its weights.

    The gradients of a stage are final when its last backward has stopped. Where transfers overlap with compute, its
    all-reduce begins then, while other stages still compute; where all devices exchange at once, it begins when the
    pipeline is empty, and no device updates before it has ended everywhere:

        overlap    0  F F F B B B ......... B R R U          barrier    0  F F F B B B ......... B R R U
                   1    F B F B F B R R U                               1    F B F B F B           R R U

    Args:
        timeline: of the pipeline.
        all_reduce_cycles, update_cycles: of every device.
        barrier: whether all devices exchange at once.
    """
    ready = np.array([timeline.stop_tick if barrier else int(stops[-1]) for stops in timeline.stops])
    reduced = ready + np.array(all_reduce_cycles) * timeline.ticks_per_cycle
    begins = np.full_like(reduced, reduced.max()) if barrier else reduced
    updated = begins + np.array(update_cycles) * timeline.ticks_per_cycle
    end = StepEnd(timeline.stop_tick, np.stack((ready, reduced), axis=1), np.stack((begins, updated), axis=1))
    return replace(timeline, stop_tick=max(timeline.stop_tick, int(updated.max())), step_end=end)
