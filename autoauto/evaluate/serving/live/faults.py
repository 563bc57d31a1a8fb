"""What servers that failed say of configurations that were not tried: `Faults`.

* Out of memory: what needs as much memory or more is not tried.
* Any other fault: the values are to blame that no server had which worked, say q8_0 of the cache. What has all of these
  is not tried. Before any server works nothing further is tried after two faults with the same reason, which is that of
  the model or of the machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Set
from typing import Any, NamedTuple

from autoauto.records.errors import DoesNotFit, Infeasible, OutOfMemory, Unsupported
from autoauto.space.knobs import Knobs

N_ALIKE = 2
"""Servers that fail for the same reason, without one that works, until nothing further is tried."""


class Fault(NamedTuple):
    """A configuration whose server failed."""

    knobs: Knobs
    reason: str  # in the words of the engine's log
    needed_bytes: int | None  # by the estimate, if it ran out of memory; else None


class Faults:
    """The rules that a search has learned; `needed_bytes` estimates what all servers of a configuration need."""

    def __init__(self, needed_bytes: Callable[[Knobs], int]) -> None:
        self._needed_bytes = needed_bytes
        self._faults: dict[Knobs, Fault] = {}
        self._working: set[tuple[str, Any]] = set()

    def add(self, knobs: Knobs, failure: DoesNotFit) -> None:
        """A server has failed."""
        out_of_memory = isinstance(failure, OutOfMemory)
        self._faults[knobs] = Fault(knobs, str(failure), self._needed_bytes(knobs) if out_of_memory else None)

    def add_working(self, knobs: Knobs) -> None:
        """A server has answered all requests."""
        self._working |= knobs.values.items()

    def check(self, knobs: Knobs) -> None:
        """Refuse, as Infeasible or Unsupported, what will fail by a rule."""
        for fault in self._faults.values():
            if fault.knobs == knobs:
                continue  # one that is asked for again is tried again
            if fault.needed_bytes is None:
                self._check_blamed(fault, knobs)
            elif (excess_bytes := self._needed_bytes(knobs) - fault.needed_bytes) >= 0:
                values = fault.knobs.values.items() - knobs.values.items()
                reason = f"it needs no less memory than a server with {_text(fault, values)}: {fault.reason}"
                raise Infeasible(reason, excess_bytes)

    def _check_blamed(self, fault: Fault, knobs: Knobs) -> None:
        if not self._working:
            alike = [each for each in self._faults.values() if _words(each.reason) == _words(fault.reason)]
            if len(alike) >= N_ALIKE:
                raise Unsupported(f"not tried, since {len(alike)} servers failed and none works: {fault.reason}")
            return
        blamed = fault.knobs.values.items() - self._working
        if blamed and blamed <= knobs.values.items():
            raise Unsupported(f"not tried, since a server with {_text(fault, blamed)} failed: {fault.reason}")


def _text(fault: Fault, values: Set[tuple[str, Any]]) -> str:
    return ", ".join(f"{name} {value}" for name, value in fault.knobs.values.items() if (name, value) in values)


def _words(reason: str) -> str:
    """A reason without its numbers: a log has times and addresses."""
    return re.sub(r"\d+", "", reason)
