"""What replicas of a decoder give together, and the ends of its interval: `ReplicaRates`, `rates_at`.

All numbers are arrays over batch sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from autoauto.records.units import FloatArray, IntArray
from autoauto.space.numbers import TokenResult
from autoauto.targets.gpu.calibration import Factor, Factors
from autoauto.targets.gpu.steps import Rates

End = Callable[[Factor], float]
"""A number of a factor: its middle, or one of its ends."""
MIDDLE: End = attrgetter("factor")
LOW: End = attrgetter("low")
HIGH: End = attrgetter("high")
AT_BOUND: End = attrgetter("held")


class ReplicaRates(NamedTuple):
    """What like replicas give.

    Attributes:
        n_replicas: how many there are.
        rates: of one, by the tables.
        factors: of every kind of GPUs, by what its times are multiplied.
        slowest: the kind whose stage takes the longest: its factors are those of the pipeline.
    """

    n_replicas: int
    rates: Rates
    factors: Sequence[Factors]
    slowest: IntArray

    def tpot_s(self, end: End) -> FloatArray:
        """Between two words of a sequence."""
        return self.rates.tpot_s * self._times([end(factors.tpot) for factors in self.factors])

    def ttft_s(self, end: End) -> FloatArray:
        """From a request to its first word."""
        return self.rates.ttft_s * self._times([end(factors.ttft) for factors in self.factors])

    def tokens_per_s(self, end: End) -> FloatArray:
        """Of all of them."""
        return self.n_replicas * self.rates.tokens_per_s / self._times([end(factors.tpot) for factors in self.factors])

    def _times(self, of_kinds: Sequence[float]) -> FloatArray:
        return np.asarray(of_kinds, dtype=np.float64)[self.slowest]


class RatesAt(NamedTuple):
    """What all replicas give together at one end of the interval: numbers of a `TokenResult` as arrays."""

    tokens_per_s: FloatArray
    tpot_s: FloatArray
    ttft_s: FloatArray
    kv_cache_bytes: FloatArray

    def of(self, index: int) -> TokenResult:
        """At one batch size."""
        return TokenResult(
            tokens_per_s=self.tokens_per_s[index].item(),
            tpot_s=self.tpot_s[index].item(),
            ttft_s=self.ttft_s[index].item(),
            kv_cache_bytes=int(self.kv_cache_bytes[index]),
        )


def rates_at(replicas: Sequence[ReplicaRates], kv_cache_bytes: FloatArray, end: End = MIDDLE) -> RatesAt:
    """What all replicas give together; times are those of the slowest."""
    return RatesAt(
        tokens_per_s=np.sum([each.tokens_per_s(end) for each in replicas], axis=0),
        tpot_s=np.max([each.tpot_s(end) for each in replicas], axis=0),
        ttft_s=np.max([each.ttft_s(end) for each in replicas], axis=0),
        kv_cache_bytes=kv_cache_bytes,
    )
