"""What a configuration gives over the rate of arrivals, with fewer and fewer of its replicas: `rate_curves`.

    p99   |        1     2         4     for n replicas: shares of a rate that is near the highest, ascending, until
    bound |-------o-----o---------o--    one is too high; then halves between it and the one before
          |  ____/  ___/   ______/
          +--------------------------- requests/s

All is of the end of the interval of forecasts at which bounds must hold, so the highest rate is that of the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from autoauto.evaluate.serving.traffic.goodput import RATE_STEP
from autoauto.evaluate.serving.traffic.trials import SIMULATED, OpenWay
from autoauto.records.costs.rate_curve import RateBound, RateCurves, RateLine
from autoauto.space.constraint import Constraint
from autoauto.space.numbers import REQUEST_LATENCY
from autoauto.space.trial import Trial

_SHARES = (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.3, 1.6, 2.0, 3.0, 4.0)
_STEP = 1.03
"""Between the highest rate and the lowest that is too high."""
_N_LINES, _N_POINTS = 4, 8
MAX_REQUESTS = 320_000
"""Most requests of all simulations together: with more there are fewer lines, or none."""


def rate_curves(
    loaded: Callable[[int], OpenWay],
    n_replicas: int,
    rate_per_s: float,
    bounds: Sequence[Constraint],
    *,
    is_given: bool,
) -> RateCurves | None:
    """The times of requests over the rate, up to beyond the highest; None where the load has too many requests.

    `loaded` is the configuration with so many of its replicas. A rate that is not given is the highest that holds.
    """
    every = loaded(n_replicas)
    about, sure = every.about_per_s, [rate_per_s]
    if not is_given:
        about, sure = rate_per_s, [rate_per_s * RATE_STEP]  # which is too high
    n_requests = _N_POINTS * every.n_requests(about)
    if n_requests > MAX_REQUESTS:
        return None
    line = _line(every, n_replicas, [*(share * about for share in _SHARES), *sure], bounds)
    lines, about = [line], line.highest or about
    for n in _counts(n_replicas)[:-1]:
        fewer, share = loaded(n), about * n / n_replicas
        n_requests += _N_POINTS * fewer.n_requests(share)
        if n_requests > MAX_REQUESTS:
            break
        lines.insert(-1, _line(fewer, n, [each * share for each in _SHARES], bounds))
    return RateCurves(tuple(lines), tuple(_on_times(bounds)), every.knobs.values)


def _counts(n_replicas: int) -> list[int]:
    """Numbers of replicas that are drawn, each about as many times the one before.

    >>> _counts(3), _counts(8), _counts(64)
    ([1, 2, 3], [1, 2, 4, 8], [1, 4, 16, 64])
    """
    if n_replicas <= _N_LINES:
        return list(range(1, n_replicas + 1))
    return [round(n_replicas ** (i / (_N_LINES - 1))) for i in range(_N_LINES)]


def _line(loaded: OpenWay, n: int, rates: Sequence[float], bounds: Sequence[Constraint]) -> RateLine:
    """Some replicas at these rates up to one that is too high, and between it and the one before."""
    trials: dict[float, Trial] = {}

    def keeps(rate: float) -> bool:
        trials[rate] = loaded.checked(rate)
        return trials[rate].violation <= 0

    low, high = 0.0, inf
    for rate in sorted(set(rates)):
        if not keeps(rate):
            high = rate
            break
        low = rate
    while low and high < inf and high > low * _STEP:
        middle = (low * high) ** 0.5
        if keeps(middle):
            low = middle
        else:
            high = middle
    tried = sorted(trials)
    results = [trials[rate].result.values for rate in tried]
    columns: dict[str, tuple[float, ...]] = {}
    for name in _NAMES:
        if all(values.get(name) is not None for values in results):  # answers of one token have no TPOT
            columns[name] = tuple(values[name] for values in results)
    broken: list[str] = []  # times in bounds that do not hold
    if high < inf:
        values = {**trials[high].knobs.values, **trials[high].result.values, **trials[high].result.derived}
        for bound in bounds:
            if set(bound.names) <= values.keys() and bound.violation(values) > 0:
                broken += [_name(each) for each in bound.names if each in SIMULATED]
    holds = tuple(trials[rate].violation <= 0 for rate in tried)
    return RateLine(n, tuple(tried), holds, columns, tuple(broken))


_NAMES = sorted(
    SIMULATED.difference((REQUEST_LATENCY,)).union(
        ("busy_share", "kv_share", "n_waiting", "n_waiting_kv", "n_waiting_tokens", "n_waiting_sequences"),
        ("n_preempted", "queue_growth_per_s"),
    )
)


def _on_times(bounds: Sequence[Constraint]) -> list[RateBound]:
    made: list[RateBound] = []
    for bound in bounds:
        for name in bound.names:
            if name in SIMULATED:
                made += [RateBound(_name(name), limit) for limit in bound.bounds(name)]
    return made


def _name(name: str) -> str:
    return "latency_s" if name == REQUEST_LATENCY else name
