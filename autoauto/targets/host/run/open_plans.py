"""Plans that stay loaded, because a search soon measures them again: `OpenPlans`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from weakref import finalize

from autoauto.targets.host.memory_budget import machine_bytes
from autoauto.targets.host.run.run import OpenPlan

MAX_OPEN = 8
"""So those that are measured in turns at the end of a search are mostly still open."""


class OpenPlans:
    """The plans that were measured last, loaded; their processes wait, and end with this object or its process.

    What is loaded takes memory, so all are closed where the machine has less free than they hold.
    """

    def __init__(self) -> None:
        self._plans: dict[object, tuple[OpenPlan, ExitStack]] = {}
        finalize(self, _close, self._plans)  # also at the end of this process

    def get(self, key: object, make: Callable[[], OpenPlan]) -> OpenPlan:
        """The plan of a key, loaded now unless it is open; the one that was used longest ago is closed for it.

        Raises:
            OutOfMemory: a stage exceeds its budget.
            Exception: any other exception of a stage.
        """
        if key in self._plans:
            self._plans[key] = self._plans.pop(key)  # the last is the one that was used last
            return self._plans[key][0]
        if sum(plan.private_bytes for plan, _ in self._plans.values()) > machine_bytes():
            self.close()
        while len(self._plans) >= MAX_OPEN:
            self.drop(next(iter(self._plans)))
        stack = ExitStack()
        plan = stack.enter_context(make())
        self._plans[key] = plan, stack
        return plan

    def drop(self, key: object) -> None:
        """Close the plan of a key, if it is open."""
        if key in self._plans:
            self._plans.pop(key)[1].close()

    def close(self) -> None:
        """Close all."""
        _close(self._plans)


def _close(plans: dict[object, tuple[OpenPlan, ExitStack]]) -> None:
    while plans:
        plans.popitem()[1][1].close()
