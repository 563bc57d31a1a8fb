"""How requests arrive that clients send without waiting for answers: `ArrivalProcess`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Self

import numpy as np

from autoauto.records.errors import BadInput
from autoauto.records.units import FloatArray

MAX_VARIATION = 20.0
_NAMED = {"poisson": 1.0, "constant": 0.0}


class ArrivalProcess(NamedTuple):
    """A renewal process: the times between two requests are independent of each other, by a gamma distribution.

    A load that is simulated and one that is sent to a server draw their times here.

    Attributes:
        variation: standard deviation of the times between requests over their mean: 1 is Poisson, 0 even, above 1 in
            bursts. A benchmark's burstiness, the shape of the distribution, is variation**-2.
    """

    variation: float = 1.0

    @classmethod
    def of(cls, text: str) -> Self:
        """Read one as options have it, "poisson" or "gamma:2". Raises BadInput if it is written otherwise."""
        if text in _NAMED:
            return cls(_NAMED[text])
        kind, _, number = text.partition(":")
        try:
            variation = float(number) if kind == "gamma" else 0.0
        except ValueError:
            variation = 0.0
        if not 0 < variation <= MAX_VARIATION:
            raise BadInput(
                f"--arrival must be poisson, constant, or gamma:CV with CV above 0 and at most {MAX_VARIATION:g}, got "
                f"{text!r:.40}"
            )
        return cls(variation)

    def gaps(self, random: np.random.Generator, n: int) -> FloatArray:
        """Times between requests, shape (n,), with a mean of 1."""
        if not self.variation:
            return np.ones(n)
        shape = self.variation**-2
        return random.gamma(shape, 1 / shape, n)

    def sending_s(self, random: np.random.Generator, requests_per_s: float) -> Iterator[float]:
        """The seconds from one request to the next, without an end."""
        while True:
            yield float(self.gaps(random, 1)[0]) / requests_per_s

    @property
    def text(self) -> str:
        """How requests arrive, in words that follow "requests"."""
        if self.variation == 1:
            return "arrive at random (Poisson)"
        if self.variation == 0:
            return "arrive evenly"
        return f"arrive in bursts, times between them vary by {self.variation:g} of the mean"


POISSON = ArrivalProcess()
