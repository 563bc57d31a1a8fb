"""A long load by equal windows of time: `windows_of`; what it gives where the worst of them counts: `worst_of`."""

from __future__ import annotations

import numpy as np

from autoauto.evaluate.serving.traffic.forecast import result_of
from autoauto.records.costs.percentiles import Percentiles
from autoauto.records.costs.traffic import Requests, Served, TrafficResult
from autoauto.records.units import IntArray


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
    """What was served, with the longest of each percentile over windows, and the queue that grows fastest in one."""
    whole = result_of(requests, served)
    chosen = [window for window in windows_of(requests, n_windows) if len(window)]
    results = [result_of(requests.chosen(window), served.chosen(window)) for window in chosen]
    ttft_s, tpot_s, latency_s = (
        Percentiles(*np.fmax.reduce(column).tolist())
        for column in zip(*((each.ttft_s, each.tpot_s, each.latency_s) for each in results), strict=True)
    )
    growth = max(result.queue_growth_per_s for result in results)
    return whole._replace(ttft_s=ttft_s, tpot_s=tpot_s, latency_s=latency_s, queue_growth_per_s=growth)
