"""The figures of one load in a file of another program, `LoadFigures`, and the reader of its numbers, `Fields`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from autoauto.records.errors import BadInput

MAX_SPREAD = 0.1
"""How far lengths may lie apart, relative to the largest, before it is said."""


@dataclass(frozen=True)
class LoadFigures:
    """The numbers of one load; times are those of `statistic`, None where they were not measured.

    Attributes:
        statistic: "mean" or "median", of requests.
        tpot_s: time per output token after the first, where the program has the definition of [serve-bench].
        concurrency: requests in flight at most, where the load had a limit.
    """

    program: str
    statistic: str
    input_tokens: float
    output_tokens: float
    tokens_per_s: float | None
    requests_per_s: float | None
    ttft_s: float | None
    latency_s: float | None
    tpot_s: float | None = None
    model: str | None = None
    concurrency: float | None = None
    notes: tuple[str, ...] = ()


class Fields:
    """Numbers of a JSON object by their path."""

    def __init__(self, content: Mapping[str, Any], where: str) -> None:
        self._content, self._where = content, where

    def value(self, *path: str) -> Any:
        """The value at a path of keys; None where the object has no such path."""
        value: Any = self._content
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        return value

    def number(self, *path: str, unit_s: float = 1.0) -> float | None:
        """A number above 0, times the seconds of its unit; None where there is none, or 0.

        Raises:
            BadInput: something else is there.
        """
        value = self.value(*path)
        if value is None or value == 0:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not (isfinite(value) and value > 0):
            raise BadInput(f"{self._where}, {'.'.join(path)}: must be a number above 0, got {value!r:.40}")
        return float(value) * unit_s

    def length(self, what: str, *path: str) -> float:
        """The tokens of a prompt or an answer.

        Raises:
            BadInput: they are not there.
        """
        value = self.number(*path)
        if value is None:
            raise BadInput(f"{self._where} must have the length of {what}, got no {'.'.join(path)}; try another file")
        return value

    def spread(self, what: str, *path: str) -> tuple[str, ...]:
        """A note that lengths are unequal, or none; `min` and `max` of the object at `path` are the ends."""
        low, high = self.number(*path, "min") or 0.0, self.number(*path, "max") or 0.0
        if high - low <= MAX_SPREAD * high:
            return ()
        return (f"{what} have {low:.0f} to {high:.0f} tokens, so means of requests and of tokens differ",)


def failed_note(n_failed: float | None) -> tuple[str, ...]:
    """A note about failed requests; none where all were answered."""
    return (f"{n_failed:.0f} requests failed",) if n_failed else ()
