"""The search itself: every cell of the grid, bisected over the batch size, one trial a configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from optuna import Study
from optuna.trial import FrozenTrial, TrialState

from autoauto.records.trial import Cell, Counts, Knobs, Objective, Outcome, SearchSpace
from autoauto.search.best import BestTrial, best_of
from autoauto.search.bisect import largest_feasible, max_tries
from autoauto.search.cells import cell_of
from autoauto.search.interrupts import Interrupts
from autoauto.search.trials import ask, finished_trials, tell_failure, tell_outcome, was_measured

Evaluate = Callable[[Knobs], Outcome]


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """Where a search stands.

    Attributes:
        done, total: tries decided and the most there can be; a cell that needs fewer jumps ahead.
        knobs: the configuration that is tried next; None at the end.
        best: the best so far.
    """

    done: int
    total: int
    knobs: Knobs | None
    best: BestTrial | None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What came of a search.

    Attributes:
        best: the best measured configuration of the space; None when none fits.
        counts: configurations of the space, and those with a finished trial of this run or an earlier one.
        study_name: the study that holds the trials.
        cells: in the order of the search.
    """

    best: BestTrial | None
    counts: Counts
    study_name: str
    cells: tuple[Cell, ...]


def run_search(
    space: SearchSpace,
    evaluate: Evaluate,
    study: Study,
    objective: Objective,
    progress: Callable[[SearchProgress], None] | None = None,
) -> SearchResult:
    """Search `space` for the best configuration, every one that is tried a trial of `study`.

    In each cell of the grid the batch size is bisected, which assumes that a batch that fits lets
    smaller ones fit and nothing of throughput: the best is the best measured. A configuration with a finished trial is
    not evaluated again. Ctrl-C and SIGTERM stop the search; what is finished stays and the next search goes on.

    Args:
        space: what is searched.
        evaluate: measures a configuration; raises only when it crashes.
        study: from `open_study`, with the same objective.
        objective: what the trials' value is.
        progress: called before every try, recalled from the study or not, and at the end.

    Raises:
        KeyboardInterrupt: the search was interrupted; the trial that ran is a FAIL.
        BadInput: the study's database cannot be used any more.
    """
    trials = finished_trials(study, space)
    grid = space.cells
    most_tries = max_tries(len(space.batch_size))
    cells: list[Cell] = []

    def report(n_tried: int, knobs: Knobs | None) -> None:
        if progress is not None:
            done, total = len(cells) * most_tries + n_tried, len(grid) * most_tries
            progress(SearchProgress(done, total, knobs, best_of(trials, study.direction)))

    with Interrupts() as interrupts:
        heard_evaluate = interrupts.heard()(evaluate)  # `evaluate`, every call of it inside `heard()`

        def trial_of(n_tried: int, knobs: Knobs) -> FrozenTrial:
            report(n_tried, knobs)
            if knobs not in trials:
                trials[knobs] = _measure(study, space, objective, knobs, heard_evaluate)
            return trials[knobs]

        for configurations in grid:
            cells.append(_search_cell(configurations, trial_of))
        report(0, None)
    best = best_of(trials, study.direction)
    counts = Counts(len(trials), sum(map(was_measured, trials.values())), space.n_configurations)
    return SearchResult(best, counts, study.study_name, tuple(cells))


def _search_cell(configurations: Sequence[Knobs], trial_of: Callable[[int, Knobs], FrozenTrial]) -> Cell:
    tried: dict[Knobs, FrozenTrial] = {}

    def fits(knobs: Knobs) -> bool:
        tried[knobs] = trial_of(len(tried), knobs)
        return tried[knobs].state is TrialState.COMPLETE

    largest_feasible(configurations, fits)
    return cell_of(tried)


def _measure(study: Study, space: SearchSpace, objective: Objective, knobs: Knobs, evaluate: Evaluate) -> FrozenTrial:
    trial = ask(study, space, knobs)
    try:
        outcome = evaluate(knobs)
        assert outcome.knobs == knobs
    except BaseException as error:
        tell_failure(study, trial, error)
        raise
    return tell_outcome(study, trial, outcome, objective)
