"""How far measured values lie from predictions: `band`."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, exp, floor, log, sqrt
from statistics import mean, stdev

from autoauto.records.correction import Band

LEVEL = 0.95
WIDEST = 4.0  # a band beyond this factor says nothing; it keeps two wild examples from ruling out every plan


def band(ratios: Sequence[float]) -> Band:
    """Factors on a prediction that a measured value stays above, and below, 95 times in 100 each.

    `ratios` are measured over predicted, each predicted without it. From 19 on the edges are conformal quantiles: of n
    ratios, the k-th smallest is not exceeded by the next one with a probability of k / (n + 1), whatever their
    distribution, when all come alike (Vovk et al., "Algorithmic Learning in a Random World"; cross-conformal, so that
    holds nearly). Fewer cannot tell 95 in 100 apart, so their logarithms are taken to be normal: Student's prediction
    interval. The band never leaves out a perfect prediction.

    >>> band([1.0] * 38 + [1.1])
    Band(low=1.0, high=1.0)
    """
    if len(ratios) < 2:
        return Band(1.0, 1.0)
    rank = ceil((len(ratios) + 1) * LEVEL)
    if rank <= len(ratios):
        ordered = sorted(ratios)
        low, high = ordered[floor((len(ratios) + 1) * (1 - LEVEL)) - 1], ordered[rank - 1]
    else:
        low, high = _student([log(ratio) for ratio in ratios])
    return Band(max(min(low, 1.0), 1 / WIDEST), min(max(high, 1.0), WIDEST))


def _student(logs: Sequence[float]) -> tuple[float, float]:
    from scipy.special import stdtrit

    n = len(logs)
    reach = float(stdtrit(n - 1, LEVEL)) * stdev(logs) * sqrt(1 + 1 / n)
    return exp(mean(logs) - reach), exp(mean(logs) + reach)
