"""When a stream has told its throughput: `Steady`."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic_ns

TOLERANCE = 0.02
LEAST_S = 1.0
MOST_S = 10.0


class Steady:
    """Watches micro-batches leave pipelines, until the pace of each stays what it is.

    A pace is steady when the second and the third quarter of what has left, the part that counts, took the same time up
    to `TOLERANCE`, after at least `LEAST_S` seconds; after `MOST_S` it is what it is.

    Attributes:
        reached: whether there is no need for more.
    """

    def __init__(self, n_pipelines: int, n_stages: int) -> None:
        self.reached = False
        self._left: list[list[int]] = [[] for _ in range(n_pipelines)]
        self._least = n_stages + 3

    def left(self, pipeline: int) -> None:
        """A micro-batch has left a pipeline now."""
        self._left[pipeline].append(monotonic_ns())
        started = min((times[0] for times in self._left if times), default=0)
        seconds = (monotonic_ns() - started) / 1e9
        if seconds >= LEAST_S and min(map(len, self._left)) >= self._least:
            self.reached = seconds >= MOST_S or all(map(is_steady, self._left))


def is_steady(times: Sequence[int]) -> bool:
    """Whether the second and third quarter, of at least two intervals each, took the same time.

    >>> is_steady([0, 9, 12, 13, 14, 15, 16, 17, 18]), is_steady([0, 9, 12, 13, 14, 16, 18, 19, 20])
    (True, False)
    """
    n = (len(times) - 1) // 4
    if n < 2:
        return False
    second, third = times[2 * n] - times[n], times[3 * n] - times[2 * n]
    return abs(third - second) <= TOLERANCE * second
