"""How long prompts and answers are where they differ: `Lengths`."""

from __future__ import annotations

import re
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from autoauto.records.errors import BadInput
from autoauto.records.units import FloatArray, IntArray

MAX_TOKENS = 2**24
_RARE = 0.001
"""Of the shortest and of the longest requests so many are alike."""
_NORMAL = NormalDist()
_MEAN_POINTS = 4096
_PERCENTILE = re.compile(r"p(\d{1,2}(?:\.\d+)?)=(\d+)")
_FORMS = "lengths are written 512, 512:2048 for all between evenly, or p50=512,p90=2048"


class Lengths(NamedTuple):
    """A distribution of tokens: all lengths of a range alike often, or by percentiles.

    Between and beyond percentiles the logarithm of the length is linear in the standard normal quantile: two
    percentiles are a log-normal distribution. What lies beyond p0.1 and p99.9 is as long as these.

    Attributes:
        ends: of a range, both included; None by percentiles.
        z: standard normal quantiles of percentiles, ascending.
        logs: logarithms of the tokens there.
    """

    text: str
    ends: tuple[int, int] | None
    z: tuple[float, ...] = ()
    logs: tuple[float, ...] = ()

    @staticmethod
    def of(text: str) -> Lengths:
        """Read a distribution from text. Raises BadInput if it has another form, or lengths do not ascend."""
        first, colon, last = text.partition(":")
        if first.isdecimal() and (last.isdecimal() or not colon):
            ends = int(first), int(last or first)
            if not 1 <= ends[0] <= ends[1] <= MAX_TOKENS:
                raise BadInput(f"lengths must be from 1 to {MAX_TOKENS:,} tokens, the shorter first, got {text!r:.60}")
            return Lengths(text, ends)
        pairs = [_PERCENTILE.fullmatch(part) for part in text.split(",")]
        known = [(float(pair[1]), int(pair[2])) for pair in pairs if pair]
        if len(known) < max(len(pairs), 2):
            raise BadInput(f"{_FORMS}, got {text!r:.60}")
        percents, tokens = zip(*known, strict=True)
        if not percents[0] > 0 or list(percents) != sorted(set(percents)) or list(tokens) != sorted(tokens):
            raise BadInput(f"percentiles of lengths must lie between 0 and 100 and ascend, got {text!r:.60}")
        if not 1 <= tokens[0] <= tokens[-1] <= MAX_TOKENS:
            raise BadInput(f"lengths must be from 1 to {MAX_TOKENS:,} tokens, got {text!r:.60}")
        z = tuple(_NORMAL.inv_cdf(percent / 100) for percent in percents)
        return Lengths(text, None, z, tuple(float(log) for log in np.log(tokens)))

    @property
    def mean(self) -> int:
        """The mean number of tokens, rounded."""
        middles = (np.arange(_MEAN_POINTS) + 0.5) / _MEAN_POINTS
        return max(1, round(float(self.at(middles).mean())))

    def at(self, shares: FloatArray) -> IntArray:
        """The quantiles of the distribution at `shares`, each from 0 to below 1, in tokens."""
        if self.ends is not None:
            first, last = self.ends
            return np.asarray(first + np.floor(shares * (last - first + 1))).astype(np.int64)
        z = np.array([_NORMAL.inv_cdf(float(share)) for share in np.clip(shares, _RARE, 1 - _RARE)])
        # The segment between two percentiles that holds z; the outermost segments go on beyond their ends.
        right = np.clip(np.searchsorted(self.z, z), 1, len(self.z) - 1)
        known_z, logs = np.array(self.z), np.array(self.logs)
        slopes = (logs[right] - logs[right - 1]) / (known_z[right] - known_z[right - 1])
        tokens = np.exp(logs[right - 1] + slopes * (z - known_z[right - 1]))
        return np.asarray(np.clip(np.round(tokens), 1, MAX_TOKENS)).astype(np.int64)
