"""How requests arrive, and how a load driver that measured published rows had them arrive: `Arrivals`, `LoadDriver`.

Every client asks again as soon as it has its answer, so many times. The first requests of all clients arrive at once:

    client 0   |first|  ...answer...  |again|  ...
    client 1   |  first|  ...answer...  |again|  ...       |again| alone: lengths vary
    client 2   |    first|  ...answer...    |again|  ...

Where all lengths are the same, requests whose prompts one step computed end in one step, and their clients ask again
together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from autoauto.records.costs.decoder import Workload


class Arrivals(NamedTuple):
    """How requests arrive in a closed loop.

    Attributes:
        n_waves: the requests of every client; one of so many arrives with those of all others.
        are_alike: True if all prompts and all answers have one length.
        wait_steps: decode steps that the engine is told to wait for more prompts before it computes one.
        warm_up_s: that the first wave waits for kernels that are compiled when they are first used.
    """

    n_waves: int = 10
    are_alike: bool = True
    wait_steps: int = 0
    warm_up_s: float = 0.0

    def share_together(self, share_of_alike: float) -> float:
        """The share of requests that arrive with those of all other clients.

        Of requests of one length that are not of the first wave it is `share_of_alike`.
        """
        return (1 + (self.n_waves - 1) * share_of_alike * self.are_alike) / self.n_waves


class LoadDriver(NamedTuple):
    """How published rows of an engine were measured, as far as the rows themselves do not say it.

    Attributes:
        mean_length: of prompts and of answers, over the longest, which is what the rows say.
        n_beyond: clients that ask beyond those that the engine answers at a time.
    """

    arrivals: Arrivals = Arrivals()
    mean_length: float = 1.0
    n_max_batched_tokens: int = 8192
    n_beyond: int = 0

    def requests(self, longest: Workload) -> Workload:
        """Requests of mean lengths."""
        prompt, answer = (max(1, round(self.mean_length * n_tokens)) for n_tokens in longest[:2])
        return longest._replace(input_tokens=prompt, output_tokens=answer)


VARYING = Arrivals(are_alike=False)
INFERENCEMAX = LoadDriver(VARYING, mean_length=0.9)
"""Lengths are uniform between 0.8 and 1 of the longest, 10 requests a client [inferencemax]."""
INFERENCEMAX_ROWS = "source_file=2026-04-06.csv"
"""How the package's rows name the file that has them."""

DriverOf = Callable[[str, int, Workload], LoadDriver]
"""The load driver of a row: from what it says of its source, its tensor-parallel size, and the longest request."""


def driver_of(source: str, tensor_parallel: int, longest: Workload) -> LoadDriver:
    """The load driver of a row where the engine was told nothing else."""
    del tensor_parallel, longest
    return INFERENCEMAX if source.startswith(INFERENCEMAX_ROWS) else LoadDriver()
