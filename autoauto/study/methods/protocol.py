"""How a method of search and its caller communicate: `Proposal`, `Observation`, `Predictor`, `Proposer`, `lookahead`.

A method is a generator. It yields proposals and is sent the observation of every configuration that it proposes:

    caller                                method
      | <----- Proposal(None, 0, 9) ------- |   it asks the estimate only, and is sent None
      | ------ None ----------------------> |
      | <----- Proposal(knobs, 3, 9) ------ |   it wants this configuration measured
      | ------ Observation(score, ...) ---> |
      | <----- StopIteration -------------- |   it needs no further observation

A method depends on its observations alone, not on databases, processes or clocks. So the same code runs on the trials
of a study (`run_search`), on the estimate (`dry_run`), and with assumed observations (`lookahead`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Mapping, Sequence
from math import inf
from typing import NamedTuple, Protocol

from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objectives, scores_of, values_of
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Trial


class Proposal(NamedTuple):
    """The next step of a method.

    Attributes:
        knobs: the configuration to measure; None while the method only asks the estimate.
        done, total: progress in the method's own unit, cells or tries.
        estimated: a configuration of those that it asks the estimate of, where that is known.
    """

    knobs: Knobs | None
    done: int
    total: int
    estimated: Knobs | None = None


class Observation(NamedTuple):
    """The result of a configuration that was proposed.

    Attributes:
        score: of the first objective, above 0, more is better; None when it does not fit or violates a constraint.
        measured: whether stages were compiled whole or run; otherwise the estimate ruled the configuration out.
        others: the scores of further objectives.
        violation: how far the constraints were from holding (`Trial.violation`); -inf without constraints, or when
            nothing ran.
    """

    score: float | None
    measured: bool
    others: tuple[float, ...] = ()
    violation: float = -inf


def observation_of(trial: Trial, objectives: Objectives) -> Observation:
    """A trial as a method sees it."""
    violation = trial.violation if trial.runs else -inf
    if not (trial.fits or trial.ended_early):
        return Observation(None, trial.was_measured, violation=violation)
    score, *others = scores_of(objectives, trial.values or values_of(objectives, trial))
    return Observation(score, trial.was_measured, tuple(others), violation)


def constraint_ratio(violation: float) -> float:
    """The constrained quantity as a share of its limit; above 1 the constraint is violated (`Constraint.violation`).

    >>> constraint_ratio(0.25), constraint_ratio(0.0), constraint_ratio(-0.25)  # latency 5 of 4 allowed, 4 of 4, 4 of 5
    (1.25, 1.0, 0.8)
    """
    return 1.0 + violation if violation > 0 else 1.0 / (1.0 - violation)


class Forecast(NamedTuple):
    """The estimate of a configuration.

    Attributes:
        score: as in `Observation`, but also given when a constraint is violated; None when no plan fits.
        excess: the missing memory of the tightest device as a share of what a device holds; below 0 the share that is
            free. 0 when the configuration does not fit for another reason.
        violation: as in `Observation`.
        is_bound: whether the estimate only says that the configuration is no better than this (`Predictor`).
        unsupported: whether its runtime does not run the model, at any batch size or on any number of devices.
    """

    score: float | None
    excess: float
    violation: float = -inf
    is_bound: bool = False
    unsupported: bool = False

    @property
    def works(self) -> bool:
        """True if the configuration fits and all constraints hold."""
        return self.score is not None and self.violation <= 0.0

    @property
    def lacks_memory(self) -> bool:
        """True if the tightest device has too little memory."""
        return self.score is None and self.excess > 0.0

    @property
    def shortfall(self) -> float:
        """The share of memory that is missing or the violation of the constraints, the larger of the two."""
        return max(self.excess, self.violation)


class Predict(Protocol):
    """The forecasts of a search."""

    def __call__(self, knobs: Knobs, worth: float = 0.0) -> Forecast:
        """The forecast of a configuration; one that scores no more than `worth` may be `is_bound`."""


class Predictor(NamedTuple):
    """The estimate as a search asks it: first what costs little to know, and the rest where it matters.

    Attributes:
        forecast: the forecast of a configuration, only as exact as it must be.
        limit: what no forecast's score exceeds, much sooner than a forecast; 0 where none will work, infinite if
            unknown.
        refine: makes a forecast that is `is_bound` tighter, at a cost: a lower one of the kind, or in the end an exact
            one. None where all are exact.
        survey: the forecasts of a whole cell, where they are made at once and a measurement gives the same numbers.
        memory_never_falls: whether no batch fits above one that lacks memory (`TargetTraits`).
    """

    forecast: Predict
    limit: Callable[[Knobs], float] = lambda _: inf
    refine: Callable[[Knobs], Forecast] | None = None
    survey: Callable[[Sequence[Knobs]], Sequence[Forecast]] | None = None
    memory_never_falls: bool = False

    def expected_score(self, knobs: Knobs) -> float | None:
        """The score that is expected of a configuration; None when it is expected not to work."""
        forecast = self.forecast(knobs)
        return forecast.score if forecast.works else None


Proposals = Generator[Proposal, Observation | None, None]
"""A method that runs: see the top of this file."""


def next_proposal(
    send: Callable[[Observation | None], Proposal], observation: Observation | None = None
) -> Proposal | None:
    """The next proposal of a method; None at its end.

    The `observation` is that of its last proposal; None before the first, and for one without a configuration.
    """
    try:
        return send(observation)
    except StopIteration:
        return None


class Proposer(NamedTuple):
    """A method that has not started.

    Attributes:
        start: starts it on a space, with the observations that exist already, oldest first.
        name: identifies a finished search of a space, so that it never starts again; empty for a method that proposes
            the same configurations again when it is restarted. A method that asks the estimate may not, because the
            estimate is fitted to new measurements.
    """

    start: Callable[[SearchSpace, Mapping[Knobs, Observation]], Proposals]
    name: str = ""


def followed_by(method: Proposer, last: Knobs) -> Proposer:
    """The method, and after it one more configuration, unless that is known by then or not part of the space."""

    def start(space: SearchSpace, known: Mapping[Knobs, Observation]) -> Proposals:
        proposals = method.start(space, known)
        proposed = set(known)
        observation: Observation | None = None
        total = 1
        while (proposal := next_proposal(proposals.send, observation)) is not None:
            total = proposal.total
            if proposal.knobs is not None:
                proposed.add(proposal.knobs)
            observation = yield proposal
        if last in space and last not in proposed:
            yield Proposal(last, total, total)

    return Proposer(start, method.name)


def preceded_by(method: Proposer, first: Sequence[Knobs]) -> Proposer:
    """Some configurations of the space, unless they are known by then, and after them the method."""
    if not first:
        return method

    def start(space: SearchSpace, known: Mapping[Knobs, Observation]) -> Proposals:
        observed = dict(known)
        for done, knobs in enumerate(first):
            if knobs not in observed:
                observation = yield Proposal(knobs, done, len(first))
                assert observation is not None
                observed[knobs] = observation
        yield from method.start(space, observed)

    digest = hashlib.sha256(repr(first).encode()).hexdigest()[:16]
    return Proposer(start, f"{method.name} after {digest}" if method.name else "")


def limited(method: Proposer, most: int | None) -> Proposer:
    """A method that ends after `most` measured configurations, earlier ones included; None: where it ends by itself."""
    if most is None:
        return method

    def start(space: SearchSpace, known: Mapping[Knobs, Observation]) -> Proposals:
        proposals = method.start(space, known)
        n_measured = sum(each.measured for each in known.values())
        observation: Observation | None = None
        while n_measured < most and (proposal := next_proposal(proposals.send, observation)) is not None:
            observation = yield proposal
            n_measured += observation is not None and observation.measured

    return Proposer(start, method.name)


def drive(proposals: Proposals, observe: Callable[[Knobs], Observation]) -> None:
    """Run a method to its end; `observe` gives the observation of a configuration."""
    observation: Observation | None = None
    while (proposal := next_proposal(proposals.send, observation)) is not None:
        observation = None if proposal.knobs is None else observe(proposal.knobs)


ExpectedScore = Callable[[Knobs], float | None]
"""The score that the estimate expects of a configuration; None when it expects that the configuration does not work."""


def lookahead(
    start: Callable[[], Proposals],
    known: Mapping[Knobs, Observation],
    expected_score: ExpectedScore | None,
    n_configurations: int,
) -> list[Knobs]:
    """The next configurations that a method will propose: the first for certain, the others if all scores are expected.

    A method depends on its observations alone. So it is started anew and sent the known observations; from the first
    unknown configuration on it is sent expected scores:

        proposals     A       B       C           D           E
        sent          known   known   expected    expected    ...
        returned                     [C,          D,          E]

    Several processes can then measure C, D and E at once. A wrong expected score costs a measurement that was not
    needed and changes no answer, because the search itself is only sent measured scores.

    Args:
        start: starts the method anew.
        known: all observations so far.
        expected_score: by default every configuration is expected to work.
        n_configurations: how many to return; fewer when the method ends before.
    """
    proposals = start()
    coming: dict[Knobs, Observation] = {}
    observation: Observation | None = None
    while len(coming) < n_configurations and (proposal := next_proposal(proposals.send, observation)) is not None:
        knobs = proposal.knobs
        if knobs is None:
            observation = None
        elif knobs in known:
            observation = known[knobs]
        else:
            if knobs not in coming:
                score = 1.0 if expected_score is None else expected_score(knobs)
                coming[knobs] = Observation(score, measured=True)
            observation = coming[knobs]
    return list(coming)
