"""The step of training as a function of the costs of a plan's stages: `PlanStep`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoauto.records.arrays import FloatArray
from autoauto.records.hardware import Period
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
