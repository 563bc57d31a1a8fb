"""Optuna's samplers, for spaces too large for a grid: `sampled`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import optuna
from optuna.samplers import BaseSampler
from optuna.trial import Trial, TrialState

from autoauto.records.errors import BadInput
from autoauto.space.knobs import Knobs
from autoauto.space.space import SearchSpace
from autoauto.study.methods.protocol import Proposal, Proposals
from autoauto.study.store.study import without_optuna_log

T = TypeVar("T")

MAX_DRAWS_PER_MEASUREMENT = 20
"""Draws per requested measurement after which a sampler ends: the rest of the space was drawn or does not fit."""


def sampled(space: SearchSpace, sampler: BaseSampler, n_measurements: int, n_objectives: int = 1) -> Proposals:
    """Propose the configurations that `sampler` draws until `n_measurements` different ones were measured.

    A configuration that is drawn again costs nothing, and one that fits no plan does not count. The sampler has its own
    study in memory: it needs a fixed random seed, so that a search that is resumed draws the same configurations again.
    """
    with without_optuna_log():
        study = optuna.create_study(sampler=sampler, directions=["maximize"] * n_objectives)
    measured: set[Knobs] = set()
    for _ in range(MAX_DRAWS_PER_MEASUREMENT * min(n_measurements, space.n_configurations)):
        if len(measured) >= n_measurements:
            return
        trial = study.ask()
        knobs = _draw(trial, space)
        if knobs is None or knobs not in space:
            study.tell(trial, state=TrialState.PRUNED)
            continue
        observation = yield Proposal(knobs, len(measured), n_measurements)
        assert observation is not None
        if observation.measured:
            measured.add(knobs)
        if observation.score is None:
            study.tell(trial, state=TrialState.PRUNED)
        else:
            scores = (observation.score, *observation.others)
            if len(scores) < n_objectives:  # `lookahead` assumes the first score only
                scores = scores[:1] * n_objectives
            study.tell(trial, scores)


def _draw(trial: Trial, space: SearchSpace) -> Knobs | None:
    """A configuration of the space, if its values go together.

    Optuna sees the index of a knob's value, so that adjacent values are close.
    """

    def draw(name: str, values: Sequence[T]) -> T:
        return values[trial.suggest_int(name, 0, len(values) - 1)]

    mode, session = draw("strategy", space.modes), draw("runtime", space.sessions)
    choice = {axis.name: draw(axis.name, space[axis.name]) for axis in space.grid.axes(mode, session)}
    batch_size = draw("batch_size", space["batch_size"])
    try:
        return space.grid.configuration(mode, session, batch_size, choice)
    except BadInput:  # too few or too many micro-batches
        return None
