"""Servers under requests that arrive at any rate, `OpenLoad`, and the highest that keeps bounds: `highest_rate`.

A long load is taken by equal windows of time, `windows_of`, of which the worst counts, `worst_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf

import numpy as np

from autoauto.evaluate.serving.rates import End
from autoauto.evaluate.serving.traffic.forecast import result_of
from autoauto.evaluate.serving.traffic.servers import Servers
from autoauto.records.costs.decoder import Workload
from autoauto.records.costs.traffic.load import TrafficLoad, cached_tokens
from autoauto.records.costs.traffic.requests import Percentiles, Requests, Served, TrafficResult
from autoauto.records.units import BoolArray, IntArray

RATE_STEP = 1.01
"""Between the highest rate that keeps bounds and the lowest that was seen to break one."""
_LOWEST_SHARE = 1 / 256
"""Lowest rate that is tried, as a share of that of the closed loop."""
_N_DOUBLINGS = 6


class OpenLoad:
    """One way of a configuration on GPUs, under the requests of a traffic at any rate."""

    def __init__(
        self,
        traffic: TrafficLoad,
        alike: Workload,
        make_servers: Callable[[Requests, End], Servers],
        latency_s: float,
    ) -> None:
        """Take what arrives, what makes servers, and the `latency_s` of a request in a closed loop.

        A load lasts many times as long as that. The lengths of `alike` count where the traffic has none.
        """
        self._traffic, self._alike, self._make, self._latency_s = traffic, alike, make_servers, latency_s
        self._cached: dict[End, IntArray] = {}

    def at(self, rate_per_s: float, end: End) -> TrafficResult:
        """Percentiles, throughput and queues at a rate, at an end of the intervals.

        Raises:
            Infeasible: a replica's KV cache does not hold the longest request, or nothing fits.
            Unsupported: there are no times, or steps have no room for prompts.
        """
        servers, requests = self._arriving(rate_per_s, end)
        served, n_windows = servers.serve(requests), self._traffic.n_windows
        return result_of(requests, served) if n_windows is None else worst_of(requests, served, n_windows)

    def largest_rate(self, about: float, end: End) -> float:
        """Requests a second above which the queue certainly grows for ever; infinite if that is not known.

        With windows it is that of the window with the most requests. Raises as `at`.
        """
        servers, requests = self._arriving(about, end)
        n_windows = self._traffic.n_windows
        if n_windows is None:
            return servers.largest_rate(lambda rate: self._arriving(rate, end)[1], about)
        busiest = requests.chosen(max(windows_of(requests, n_windows), key=len))
        lasts_s = float(busiest.arrival_s[-1] - busiest.arrival_s[0])
        if not lasts_s:
            return inf
        of_window = len(busiest.arrival_s) / lasts_s
        largest = servers.largest_rate(lambda rate: busiest.faster(rate / of_window), of_window)
        return about * largest / of_window

    def by_window(self, rate_per_s: float, end: End, among: BoolArray | None) -> Iterator[TrafficResult | None]:
        """The results of each window of a trace; None if it has no requests or is not in `among`; raises as `at`."""
        servers, requests = self._arriving(rate_per_s, end)
        n_windows = self._traffic.n_windows
        assert n_windows is not None
        for number, window in enumerate(windows_of(requests, n_windows)):
            is_asked = len(window) and (among is None or among[number])
            chosen = requests.chosen(window)
            yield result_of(chosen, servers.serve(chosen)) if is_asked else None

    def n_requests(self, rate_per_s: float) -> int:
        """How many arrive at a rate."""
        return len(self._requests(rate_per_s).arrival_s)

    def _arriving(self, rate_per_s: float, end: End) -> tuple[Servers, Requests]:
        """The servers, and the requests with what the prefix caches of these have of them."""
        requests, trace = self._requests(rate_per_s), self._traffic.trace
        servers = self._make(requests, end)
        if trace is None or not trace.knows_cached:
            return servers, requests
        if end not in self._cached:  # the same at every rate
            self._cached[end] = cached_tokens(trace.blocks, requests.input_tokens, servers.caches())
        return servers, requests._replace(cached_tokens=self._cached[end])

    def _requests(self, rate_per_s: float) -> Requests:
        return self._traffic.requests(rate_per_s, self._alike, self._latency_s)


def highest_rate(holds: Callable[[float], bool], about: float) -> float:
    """The highest rate that keeps bounds, within `RATE_STEP`; 0 where none does.

    The search begins near `about`. Longer queues are taken to break bounds that shorter ones break, so what holds at a
    rate holds below it.

    >>> round(highest_rate(lambda rate: rate <= 7.3, 10.0), 1), highest_rate(lambda rate: False, 10.0)
    (7.3, 0.0)
    """
    low, high = about, about
    # First a rate that holds and a higher one that does not, then halves of what is between them.
    if holds(about):
        for _ in range(_N_DOUBLINGS):
            high *= 2
            if not holds(high):
                break
            low = high
        else:
            return low
    else:
        while not holds(low := low / 2):
            high = low
            if low < about * _LOWEST_SHARE:
                return 0.0
    while high > low * RATE_STEP:
        middle = (low * high) ** 0.5
        if holds(middle):
            low = middle
        else:
            high = middle
    return low


def windows_of(requests: Requests, n_windows: int) -> list[IntArray]:
    """The numbers of the requests that arrive in each of so many windows of equal length; some may have none.

    >>> requests = Requests(np.array([0.0, 1.0, 9.0, 20.0]), *[np.ones(4, dtype=np.int64)] * 3)
    >>> [window.tolist() for window in windows_of(requests, 3)]
    [[0, 1], [2], [3]]
    """
    first_s, last_s = float(requests.arrival_s[0]), float(requests.arrival_s[-1])
    ends = np.linspace(first_s, last_s, n_windows + 1)[1:-1]
    cuts = np.searchsorted(requests.arrival_s, ends)
    return np.split(np.arange(len(requests.arrival_s)), cuts)


def worst_of(requests: Requests, served: Served, n_windows: int) -> TrafficResult:
    """The result of a load, with each percentile that of its worst window, and the fastest growth of a queue."""
    whole = result_of(requests, served)
    chosen = [window for window in windows_of(requests, n_windows) if len(window)]
    results = [result_of(requests.chosen(window), served.chosen(window)) for window in chosen]
    return whole._replace(
        ttft_s=_longest([each.ttft_s for each in results]),
        tpot_s=_longest([each.tpot_s for each in results]),
        latency_s=_longest([each.latency_s for each in results]),
        queue_growth_per_s=max(result.queue_growth_per_s for result in results),
    )


def _longest(of_windows: Sequence[Percentiles]) -> Percentiles:
    """Each percentile the longest of several windows; NaN, of a window without one, does not count."""
    return Percentiles(*np.fmax.reduce(of_windows).tolist())
