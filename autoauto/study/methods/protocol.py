"""What a method of search asks for and is told: the seam between methods and `run_search`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from math import inf
from typing import NamedTuple

from autoauto.records.knobs import Knobs, SearchSpace


class Step(NamedTuple):
    """What a method does next.

    Attributes:
        knobs: the configuration that it wants tried; None while it only predicts.
        done, total: how far it is, in its own unit, cells or tries.
    """

    knobs: Knobs | None
    done: int
    total: int


class Tried(NamedTuple):
    """What came of a configuration that was tried.

    Attributes:
        score: of the first objective, above 0, more is better; None when it does not fit or breaks a constraint.
        measured: whether stages were compiled whole or run, or only the estimate asked.
        others: the scores of further objectives.
        miss: how far the constraints were from holding (`Outcome.miss`); -inf where there are none, or nothing ran.
    """

    score: float | None
    measured: bool
    others: tuple[float, ...] = ()
    miss: float = -inf


def strain(miss: float) -> float:
    """What is compared as a share of what the constraint allows; above 1 it breaks (`Constraint.miss`).

    >>> strain(0.25), strain(0.0), strain(-0.25)  # a latency of 5 where 4 are allowed, of 4 and of 4, of 4 and of 5
    (1.25, 1.0, 0.8)
    """
    return 1.0 + miss if miss > 0 else 1.0 / (1.0 - miss)


class Forecast(NamedTuple):
    """What the estimate says of a configuration.

    Attributes:
        score: as in `Tried`, but of what breaks a constraint, too; None when it fits no plan.
        excess: what is missing on the tightest device, as a share of what one holds; below 0 what is left. 0 when it
            does not fit for another reason.
        miss: as in `Tried`.
    """

    score: float | None
    excess: float
    miss: float = -inf

    @property
    def works(self) -> bool:
        """Whether it fits and all constraints hold."""
        return self.score is not None and self.miss <= 0.0

    @property
    def lack(self) -> float:
        """What keeps it from working: of memory or of a constraint, whichever lacks more."""
        return max(self.excess, self.miss)


Predict = Callable[[Knobs], Forecast]
Steps = Generator[Step, Tried | None, None]
"""A method at work: yields steps, is sent what came of those with knobs, and ends when it knows enough.
"""


class Propose(NamedTuple):
    """A method, ready to begin.

    Attributes:
        begin: starts it on a space, of which some configurations are known, oldest first.
        name: what a search of a space is known by once it is finished, so that it never begins again; empty for a
            method that would ask for the same configurations again. One that asks an estimate may not: estimates learn.
    """

    begin: Callable[[SearchSpace, Mapping[Knobs, Tried]], Steps]
    name: str = ""


def drive(steps: Steps, answer: Callable[[Knobs], Tried]) -> None:
    """Let a method ask until it knows enough; `answer` tells what comes of a configuration."""
    told: Tried | None = None
    while True:
        try:
            knobs = steps.send(told).knobs
        except StopIteration:
            return
        told = None if knobs is None else answer(knobs)


Guess = Callable[[Knobs], float | None]
"""The score that a configuration is expected to have; None when it is not expected to fit."""


def look_ahead(begin: Callable[[], Steps], known: Mapping[Knobs, Tried], guess: Guess | None, n: int) -> list[Knobs]:
    """The next `n` configurations that a method asks for, the first for sure, the others if the guesses hold.

    A method chooses by what it is sent alone, so it is begun anew, sent what is known, and where nothing is known what
    is guessed; without a guess, that it fits. Where a guess errs a measurement is made that need not have been: the
    method itself is only ever sent what was measured.
    """
    steps, coming = begin(), dict[Knobs, Tried]()
    tried: Tried | None = None
    while len(coming) < n:
        try:
            step = steps.send(tried)
        except StopIteration:
            break
        if step.knobs is None:
            tried = None
            continue
        if step.knobs not in known and step.knobs not in coming:
            coming[step.knobs] = Tried(1.0 if guess is None else guess(step.knobs), measured=True)
        tried = known[step.knobs] if step.knobs in known else coming[step.knobs]
    return list(coming)
