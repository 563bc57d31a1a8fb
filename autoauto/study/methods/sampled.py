"""Optuna's samplers, for spaces too large for a grid: `sampled`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import optuna
from optuna.samplers import BaseSampler
from optuna.trial import Trial, TrialState

from autoauto.records.knobs import Knobs, SearchSpace, Strategy
from autoauto.records.schedule import Order
from autoauto.study.methods.protocol import Step, Steps

T = TypeVar("T")

DRAWS_A_MEASUREMENT = 20
"""A sampler ends when it drew so many times the measurements wanted: the rest of the space is known or fits nothing."""


def sampled(space: SearchSpace, sampler: BaseSampler, n_measurements: int, n_objectives: int = 1) -> Steps:
    """Let `sampler` choose configurations until `n_measurements` different ones were measured.

    What was drawn before is known and costs nothing; what fits no plan is no measurement. The sampler's own study is in
    memory: it must have a fixed seed, so that a search that was stopped draws the same again.
    """
    study = _own_study(sampler, n_objectives)
    measured: set[Knobs] = set()
    for _ in range(DRAWS_A_MEASUREMENT * n_measurements):
        if len(measured) >= n_measurements:
            return
        trial = study.ask()
        knobs = _draw(trial, space)
        if space.constraints and knobs not in space:
            study.tell(trial, state=TrialState.PRUNED)
            continue
        tried = yield Step(knobs, len(measured), n_measurements)
        assert tried is not None
        if tried.measured:
            measured.add(knobs)
        if tried.score is None:
            study.tell(trial, state=TrialState.PRUNED)
        else:
            scores = (tried.score, *tried.others)
            study.tell(trial, scores if len(scores) == n_objectives else scores[:1] * n_objectives)  # a guess is one


def _own_study(sampler: BaseSampler, n_objectives: int) -> optuna.Study:
    """A study in memory, begun without a word on stderr."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        return optuna.create_study(sampler=sampler, directions=["maximize"] * n_objectives)
    finally:
        optuna.logging.set_verbosity(verbosity)


def _draw(trial: Trial, space: SearchSpace) -> Knobs:
    """A configuration of the space; knobs are drawn by their place in the grid, so that neighbours are neighbours."""

    def draw(name: str, values: Sequence[T]) -> T:
        return values[trial.suggest_int(name, 0, len(values) - 1)]

    strategy = draw("strategy", space.strategy)
    n_ipu = draw("n_ipu", space.n_ipu)
    proportion = draw("memory_proportion", space.memory_proportion)
    batch_size = draw("batch_size", space.batch_size)
    recompute = draw("recompute", space.recompute)
    if strategy is Strategy.PHASED:
        order = Order.SEQUENTIAL if space.training else Order.INFERENCE
        return Knobs(n_ipu, proportion, batch_size, order, recompute, draw("steps", space.steps), strategy)
    schedule = draw("schedule", space.schedule)
    n_micro_batches = draw("n_micro_batches", space.n_micro_batches)
    replicas = draw("replicas", space.replicas)
    return Knobs(n_ipu, proportion, batch_size, schedule, recompute, n_micro_batches, replicas=replicas)
