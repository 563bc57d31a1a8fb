"""Latencies of requests over the rate at which they arrive, by the number of replicas: `RateCurves`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple


class RateBound(NamedTuple):
    """A bound on a time of requests, named as constraints have it: "ttft_p99_s", or "ttft_s" for the mean."""

    name: str
    limit_s: float


class RateLine(NamedTuple):
    """Results of a number of replicas at several request rates.

    Attributes:
        requests_per_s: the rates, ascending.
        keeps: one a rate: whether replicas keep up with it, and keep all bounds.
        values: results by their names, one a rate: times in seconds, and how busy replicas are.
        broken: the names of the times whose bounds do not hold at the lowest rate that is too high.
    """

    n_replicas: int
    requests_per_s: tuple[float, ...]
    keeps: tuple[bool, ...]
    values: Mapping[str, tuple[float, ...]]
    broken: tuple[str, ...] = ()

    @property
    def beyond(self) -> int | None:
        """The index of the lowest rate that is too high; None if no rate is."""
        if False not in self.keeps:
            return None
        return self.keeps.index(False)

    @property
    def highest(self) -> float | None:
        """The highest rate with which replicas keep up and keep all bounds, of rates below one that is too high.

        None if the lowest rate is too high, or none is.
        """
        return self.requests_per_s[self.beyond - 1] if self.beyond else None


class RateCurves(NamedTuple):
    """Times of requests over the rate, of a configuration with fewer and fewer of its replicas."""

    lines: tuple[RateLine, ...]  # one a number of replicas, ascending; the last has all
    bounds: tuple[RateBound, ...] = ()
    knobs: Mapping[str, object] = {}  # of the configuration, by their names

    @property
    def text(self) -> str:
        """As a study stores it: JSON."""
        lines = [line._asdict() for line in self.lines]
        return json.dumps({"lines": lines, "bounds": self.bounds, "knobs": dict(self.knobs)})

    @staticmethod
    def read(text: str) -> RateCurves:
        """Read what `text` wrote."""
        plain = json.loads(text)
        lines = []
        for line in plain["lines"]:
            lines.append(
                RateLine(
                    n_replicas=line["n_replicas"],
                    requests_per_s=tuple(line["requests_per_s"]),
                    keeps=tuple(line["keeps"]),
                    values={name: tuple(column) for name, column in line["values"].items()},
                    broken=tuple(line["broken"]),
                )
            )
        bounds = tuple(RateBound(*bound) for bound in plain["bounds"])
        return RateCurves(tuple(lines), bounds, plain["knobs"])
