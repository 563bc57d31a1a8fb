"""The search itself: what a method asks for is measured and becomes a trial."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from optuna import Study
from optuna.trial import FrozenTrial, TrialState

from autoauto.records.knobs import Aim, Knobs, SearchSpace
from autoauto.records.trial import Cell, Counts, FinishedTrial, Phase
from autoauto.study.analysis.best import BestTrial, best_of, front_of
from autoauto.study.analysis.summary import cells_of
from autoauto.study.execution.executors import Hands, Own
from autoauto.study.execution.pace import TimeLeft
from autoauto.study.execution.process import Evaluate
from autoauto.study.execution.worker_loop import Crew
from autoauto.study.interrupts import Interrupts
from autoauto.study.methods.grid_bisect import grid_bisect
from autoauto.study.methods.protocol import Guess, Propose, Step, Tried, look_ahead
from autoauto.study.objectives import scores_of
from autoauto.study.store.database import through_restarts
from autoauto.study.store.trials import Ranges, finished_trials, miss_of, ranges_of, was_measured

BISECTION = Propose(lambda space, _: grid_bisect(space))
FINISHED = "finished"
"""The attribute of a study that holds digests of the searches that came to their end; see `Propose`."""


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """Where a search stands.

    Attributes:
        phase: what it is at.
        done, total: how far its method is, and the most there can be: tries, or closed cells of a guided search.
        knobs: the configuration that is tried next; None while configurations are only predicted, and at the end.
        n_measured: configurations measured so far, by earlier searches too.
        best: the best so far.
        left_s: seconds that the rest of the phase takes, if it goes on as it has; None before anything is done.
    """

    phase: Phase
    done: int
    total: int
    knobs: Knobs | None
    n_measured: int
    best: BestTrial | None
    left_s: float | None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What came of a search.

    Attributes:
        best: the best measured configuration of the space; None when none fits, and with several objectives.
        counts: configurations of the space, and those with a finished trial of this run or an earlier one.
        study_name: the study that holds the trials.
        cells: those that something was tried of, in the order of the grid.
        space: what was searched.
        front: the measured configurations that no other beats in one objective without losing in another; with one
            objective the best alone.
    """

    best: BestTrial | None
    counts: Counts
    study_name: str
    cells: tuple[Cell, ...]
    space: SearchSpace
    front: tuple[BestTrial, ...] = ()


def run_search(
    space: SearchSpace,
    evaluate: Evaluate,
    study: Study,
    aim: Aim,
    progress: Callable[[SearchProgress], None] | None = None,
    method: Propose = BISECTION,
    noise: float = 0.0,
    hands: Hands | None = None,
    guess: Guess | None = None,
    callback: Callable[[FinishedTrial], None] | None = None,
) -> SearchResult:
    """Search `space` for the best configuration, every one that is tried a trial of `study`.

    A configuration with a finished trial is not evaluated again. Ctrl-C and SIGTERM stop the search; what is finished
    stays and the next search goes on.

    Args:
        space: what is searched.
        evaluate: measures a configuration; raises only when it crashes.
        study: from `open_study`, with the same objectives.
        aim: what the trials' values are.
        progress: called before every try, recalled from the study or not, and at the end.
        method: chooses what is tried; see `method_of`.
        noise: values that differ by no more than this share are ties, which go to the simpler configuration.
        hands: who measures, when it is not this process by `evaluate`. Several measure besides what the method asks for
            what it would ask for next (`look_ahead`); it finds what it would find with one.
        guess: what those are chosen by.
        callback: called with every trial as soon as it is finished and in the database, whoever measured it, in the
            order in which they end; not with those of earlier searches. What it raises ends the search.

    Raises:
        KeyboardInterrupt: the search was interrupted; the measurement that ran leaves no trial.
        MeasurementsFailed: measurements in other processes do nothing but fail.
        BadInput: the study's database cannot be used any more.
    """
    trials = finished_trials(study, space)

    def best() -> BestTrial | None:
        return best_of(trials, aim, noise)

    report = _reporter(progress, trials, best)
    hands = hands or Own(evaluate)
    with Interrupts() as interrupts, Crew(study, hands, aim, callback=callback) as crew:
        last = Step(None, 1, 1)
        if not _is_finished(study, space, method):
            measure = _measurer(space, aim, method, crew, hands.n_hands, guess, trials, interrupts)
            known = {knobs: _tried(trial, aim) for knobs, trial in trials.items()}
            choose = interrupts.heard()(method.begin(space, known).send)  # predicts, which may take its time
            tried = None
            while (step := _next(choose, tried)) is not None:
                report(step, Phase.PREDICTING if step.knobs is None else Phase.MEASURING)
                tried, last = None if step.knobs is None else measure(step.knobs), step
            _finish(study, space, method, trials)
        report(Step(None, last.total, last.total), Phase.MEASURING)
    counts = Counts(len(trials), _n_measured(trials), space.n_configurations)
    found, cells = best(), cells_of(trials, space)
    front = front_of(trials, aim) if found is None else (found,)
    return SearchResult(found, counts, study.study_name, cells, space, front)


def _reporter(
    progress: Callable[[SearchProgress], None] | None,
    trials: Mapping[Knobs, FrozenTrial],
    best: Callable[[], BestTrial | None],
) -> Callable[[Step, Phase], None]:
    """Calls `progress`, if there is one."""
    time_left = TimeLeft()

    def report(step: Step, phase: Phase) -> None:
        if progress is not None:
            left_s = time_left.seconds(phase, step.done, step.total, step.knobs in trials)
            progress(SearchProgress(phase, step.done, step.total, step.knobs, _n_measured(trials), best(), left_s))

    return report


def _measurer(
    space: SearchSpace,
    aim: Aim,
    method: Propose,
    crew: Crew,
    n_hands: int,
    guess: Guess | None,
    trials: dict[Knobs, FrozenTrial],
    interrupts: Interrupts,
) -> Callable[[Knobs], Tried]:
    """Measures a configuration, unless it is among `trials`; several hands also what would be asked for next."""
    known = {knobs: _tried(trial, aim) for knobs, trial in trials.items()}

    def wanted(knobs: Knobs) -> dict[Knobs, Ranges]:
        now = {one: _tried(trial, aim) for one, trial in trials.items()}
        coming = look_ahead(lambda: method.begin(space, known), now, guess, n_hands) if n_hands > 1 else []
        return {one: ranges_of(space, one) for one in (knobs, *coming)}

    choose_several = interrupts.heard()(wanted)

    def measure(knobs: Knobs) -> Tried:
        while knobs not in trials:
            trials.update(crew.measure(choose_several(knobs), interrupts.heard))
        return _tried(trials[knobs], aim)

    return measure


def _n_measured(trials: Mapping[Knobs, FrozenTrial]) -> int:
    return sum(map(was_measured, trials.values()))


def _is_finished(study: Study, space: SearchSpace, method: Propose) -> bool:
    return _digest(space, method) in study.user_attrs.get(FINISHED, ())


@through_restarts
def _finish(study: Study, space: SearchSpace, method: Propose, trials: Mapping[Knobs, FrozenTrial]) -> None:
    if any(trial.state is TrialState.FAIL for trial in trials.values()):  # the next search tries those again
        return
    if method.name and not _is_finished(study, space, method):
        study.set_user_attr(FINISHED, [*study.user_attrs.get(FINISHED, ()), _digest(space, method)])


def _digest(space: SearchSpace, method: Propose) -> str:
    return hashlib.sha256(repr((method.name, space)).encode()).hexdigest()[:16]


def _next(choose: Callable[[Tried | None], Step], tried: Tried | None) -> Step | None:
    """What the method does next; None when it is done."""
    try:
        return choose(tried)
    except StopIteration:
        return None


def _tried(trial: FrozenTrial, aim: Aim) -> Tried:
    score, *others = scores_of(aim, trial.values) if trial.values else (None,)
    return Tried(score, was_measured(trial), tuple(others), miss_of(trial))
