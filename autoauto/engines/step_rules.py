"""How an engine admits requests to its steps, and which it takes back where its KV cache is full: `StepRules`.

    free tokens  >=  those of the prompt, whole or of its first step
                     + own share x tokens of its answer
                     + running share x tokens that those in flight still answer      the request is admitted

Requests are admitted in the order in which they came. A sequence that is taken back computes its prompt and what it has
answered again, before all that wait.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

Release = tuple[int, int, int]
"""The version of an engine."""


class TakesBack(StrEnum):
    """The sequence that loses its keys and values where the cache is full."""

    LAST_ADMITTED = "last_admitted"
    FEWEST_ANSWERED = "fewest_answered"
    """The sequence with the fewest tokens of its answer; of several, the one with the longest prompt."""


class StepRules(NamedTuple):
    """How an engine fills its steps.

    Attributes:
        block_tokens: of a block of the KV cache; a sequence leaves half of its last one empty in the mean.
        own_share: of the tokens of a request's own answer, that must be free when it is admitted.
        running_share: of the tokens that sequences in flight still answer, that must be free besides.
        counts_whole_prompt: True if all of a prompt must be free when it is admitted, else what its first step needs.
        takes_back: which sequence computes again where the cache is full.
        asynchronous_from: the first release that prepares a step while GPUs compute the one before. What its host does
            for sequences is hidden behind kernels, and a request joins the step after the one that is prepared when it
            comes. None where no release does, or times of the host were measured as it does.
        request_s: CPU seconds of a request beside its steps, where requests do not come together; None where it was not
            measured, then `HostCosts.first_token_s` stands for it.
        counts_all_sequences: True if a step needs room for a token of every sequence of all micro-batches, else of one.
    """

    block_tokens: int
    own_share: float = 0.0
    running_share: float = 0.0
    counts_whole_prompt: bool = True
    takes_back: TakesBack = TakesBack.LAST_ADMITTED
    asynchronous_from: Release | None = None
    request_s: float | None = None
    counts_all_sequences: bool = False

    def is_asynchronous(self, release: Release | None) -> bool:
        """True if a release prepares the next step while GPUs compute one; None is the newest."""
        return self.asynchronous_from is not None and (release is None or release >= self.asynchronous_from)

    def n_counted_sequences(self, n_sequences: int, n_stages: int) -> int:
        """The sequences for each of which a step needs room for a token, with `n_sequences` in a micro-batch."""
        return n_sequences * n_stages if self.counts_all_sequences else n_sequences


DEFAULT_RULES = StepRules(block_tokens=16)
"""Step rules of an engine that states none."""
