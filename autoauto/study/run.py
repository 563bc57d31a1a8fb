"""The loop of a search, `run_search`: what a method proposes is measured and becomes a trial of the study.

method --- proposal ---> run_search --- configurations ---> WorkerLoop ---> Executor ---> evaluate
   ^                        |  ^                                |
   +----- observation ------+  +------------- trials -----------+---> database
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace

from optuna import Study

from autoauto.records.errors import BadInput, Infeasible
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objectives
from autoauto.space.space import SearchSpace
from autoauto.space.study_summary import StudySummary, cells_of
from autoauto.space.table import flat_value, shown
from autoauto.space.trial import Cell, Counts, SearchActivity, Status, Trial
from autoauto.study.analysis.best import best_of, counts_of, front_of
from autoauto.study.execution.executors import Executor, InlineExecutor
from autoauto.study.execution.pace import TimeLeft
from autoauto.study.execution.process import Evaluate
from autoauto.study.execution.worker_loop import WorkerLoop
from autoauto.study.interrupts import Interrupts
from autoauto.study.methods.grid_bisect import BISECTION
from autoauto.study.methods.protocol import (
    ExpectedScore,
    Observation,
    Proposal,
    Proposer,
    lookahead,
    next_proposal,
    observation_of,
)
from autoauto.study.store.database import attributes_of, set_attribute
from autoauto.study.store.trials import Ranges, ranges_of, stored_trials, with_plans

FINISHED = "finished"
"""The attribute of a study that holds digests of its finished searches; see `Proposer.name`."""


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """The progress of a search.

    Attributes:
        done, total: progress of its method, and the maximum: tries, or closed cells of a guided search.
        knobs: the next configuration; None while configurations are only predicted, and at the end.
        n_measured: number of measured configurations, including those of earlier searches.
        left_s: estimated seconds to the end of the activity (`TimeLeft`); None before its first step is done.
        estimated: while configurations are predicted, one of these; None where it is not known.
    """

    activity: SearchActivity
    done: int
    total: int
    knobs: Knobs | None
    n_measured: int
    best: Trial | None
    left_s: float | None
    estimated: Knobs | None = None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The result of a search.

    Attributes:
        best: the best measured configuration of the space; None when none fits, and with several objectives.
        trials: the finished trials of the space, of this search or another; they have no plans, `best` and `front` do.
            After a verification those that have turns have the mean throughput of these.
        front: the Pareto front: the measured configurations that no other dominates; with one objective only the best.
        others: the trials of the study that lie outside the space.
        summary: the study with the trials that this search has seen, and the verification; None after `run_search`.
        out_of_time: whether the time budget ended it before the method did.
    """

    best: Trial | None
    study_name: str
    trials: Mapping[Knobs, Trial]
    space: SearchSpace
    front: tuple[Trial, ...] = ()
    others: tuple[Trial, ...] = ()
    summary: StudySummary | None = None
    out_of_time: bool = False

    @property
    def counts(self) -> Counts:
        """Numbers of configurations in the space, and of those with a finished trial."""
        return counts_of(self.trials.values(), self.space.n_configurations)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells with at least one trial, in the order of the grid; the best of each by throughput."""
        in_order = (self.trials[knobs] for cell in self.space.cells for knobs in cell if knobs in self.trials)
        return tuple(cells_of(in_order, lambda trial: trial.samples_per_s))


@dataclass(frozen=True, slots=True)
class Observers:
    """Callbacks that follow the course of a search; those that are None are not called.

    Attributes:
        callback: gets every trial as soon as it is in the database, wherever it was measured, in the order in which
            they finish; not trials of earlier searches. An exception that it raises ends the search.
        progress: is called before every try, also of a configuration that has a trial already, and at the end.
        verification_progress: gets the number of finished measurements of the verification, and of all.
        on_space_change: gets a line of text when an earlier search of the study had another space.
        on_measurement: gets a line of text when an engine is started to be measured, and when it was.
        is_stopped: asked while an engine is measured, by another thread; True ends that with a KeyboardInterrupt.

    Raises:
        BadInput: one of them is no function.
    """

    callback: Callable[[Trial], None] | None = None
    progress: Callable[[SearchProgress], None] | None = None
    verification_progress: Callable[[int, int], None] | None = None
    on_space_change: Callable[[str], None] | None = None
    on_measurement: Callable[[str], None] | None = None
    is_stopped: Callable[[], bool] | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            given = getattr(self, each.name)
            if given is not None and not callable(given):
                raise BadInput(f"{each.name} must be a function or None, got {given!r:.60}")


UNOBSERVED = Observers()


@dataclass(frozen=True, slots=True)
class SearchTask:
    """The settings of the loop of a search.

    Attributes:
        method: proposes the configurations; see `MethodChoice`.
        noise: values that differ by at most this share are ties, which go to the simpler configuration.
        strict: whether the highest forecast of engines wins, also where its error is larger than the margin.
        expected_score: predicts what the method proposes next.
        is_over: whether the time is over, asked before every step of the method; then the best so far is the result.
    """

    space: SearchSpace
    objectives: Objectives
    method: Proposer = BISECTION
    noise: float = 0.0
    strict: bool = False
    expected_score: ExpectedScore | None = None
    is_over: Callable[[], bool] = lambda: False


def run_search(
    space: SearchSpace,
    evaluate: Evaluate,
    study: Study,
    objectives: Objectives,
    progress: Callable[[SearchProgress], None] | None = None,
    method: Proposer = BISECTION,
    noise: float = 0.0,
    executor: Executor | None = None,
    callback: Callable[[Trial], None] | None = None,
) -> SearchResult:
    """Search `space` for the best configuration; every configuration that is tried becomes a trial of `study`.

    A configuration with a finished trial is not evaluated again. Ctrl-C and SIGTERM stop the search; the next search
    resumes from its finished trials.

    Args:
        space, objectives, method, noise: as in `SearchTask`.
        evaluate: measures a configuration; raises only when it crashes.
        study: from `open_study`, with the same objectives.
        executor: measures; by default this process does. One with several slots also measures the configurations that
            the method will probably propose next (`lookahead`); this does not change what the method proposes.
        progress, callback: as in `Observers`.

    Raises:
        KeyboardInterrupt: the search was interrupted; the running measurement leaves no trial.
        MeasurementsFailed: measurements in other processes failed several times in a row.
        BadInput: the study's database cannot be used any more.
    """
    task = SearchTask(space, objectives, method, noise)
    return run_task(task, study, executor or InlineExecutor(evaluate), Observers(callback, progress))


def run_task(task: SearchTask, study: Study, executor: Executor, observers: Observers = UNOBSERVED) -> SearchResult:
    """Search as `run_search` does."""
    of_study, space = stored_trials(study).finished, task.space
    in_space = {knobs: trial for knobs, trial in of_study.items() if knobs in space}
    trials = still_beaten(in_space)
    stale = in_space.keys() - trials.keys()

    def best() -> Trial | None:
        return best_of(trials, task.objectives, task.noise, strict=task.strict)

    report = _reporter(observers.progress, trials, best)
    with (
        Interrupts() as interrupts,
        WorkerLoop(study, executor, task.objectives, callback=observers.callback, stale=stale) as loop,
    ):
        last = Proposal(None, 1, 1)
        out_of_time = False
        if not _is_finished(study, task):
            known = _observations(trials, task.objectives)
            measure = _measurer(task, loop, executor.n_slots, known, trials, interrupts)
            start = task.method.start(space, known)
            propose = interrupts.interruptible()(start.send)  # asks the estimate, which takes time
            observation = None
            while not (out_of_time := task.is_over()) and (proposal := next_proposal(propose, observation)) is not None:
                if proposal.knobs is None:
                    report(proposal, SearchActivity.PREDICTING)
                    observation = None
                else:
                    report(proposal, SearchActivity.MEASURING)
                    observation = measure(proposal.knobs)
                last = proposal
            if not out_of_time:
                _note_finished(study, task, trials)
        report(Proposal(None, last.total, last.total), SearchActivity.MEASURING)
    winner = best()
    front = front_of(trials, task.objectives) if winner is None else (winner,)
    with_stages = tuple(with_plans(study, trial) for trial in front)
    return SearchResult(
        None if winner is None else with_stages[0],
        study.study_name,
        trials,
        space,
        with_stages,
        others=tuple(trial for knobs, trial in of_study.items() if knobs not in space),
        out_of_time=out_of_time,
    )


def still_beaten(trials: Mapping[Knobs, Trial]) -> dict[Knobs, Trial]:
    """The trials without those that ended early and are not slower than the best of them.

    They were slower than a best that lies outside the space.
    """
    fitting = [trial.result.ends for trial in trials.values() if trial.fits and trial.result.ends is not None]
    best = max(fitting, default=None)  # by its lower end
    known: dict[Knobs, Trial] = {}
    for knobs, trial in trials.items():
        ends = trial.result.ends
        if not trial.ended_early or (best is not None and ends is not None and ends.is_below(best)):
            known[knobs] = trial
    return known


def _reporter(
    progress: Callable[[SearchProgress], None] | None,
    trials: Mapping[Knobs, Trial],
    best: Callable[[], Trial | None],
) -> Callable[[Proposal, SearchActivity], None]:
    time_left = TimeLeft()

    def report(proposal: Proposal, activity: SearchActivity) -> None:
        if progress is not None:
            knobs, done, total, estimated = proposal
            n_measured = counts_of(trials.values()).n_measured
            left_s = time_left.seconds(activity, done, total, knobs in trials)
            progress(SearchProgress(activity, done, total, knobs, n_measured, best(), left_s, estimated))

    return report


def _observations(trials: Mapping[Knobs, Trial], objectives: Objectives) -> dict[Knobs, Observation]:
    return {knobs: observation_of(trial, objectives) for knobs, trial in trials.items()}


def _measurer(
    task: SearchTask,
    loop: WorkerLoop,
    n_slots: int,
    known: Mapping[Knobs, Observation],
    trials: dict[Knobs, Trial],
    interrupts: Interrupts,
) -> Callable[[Knobs], Observation]:
    """A function that measures a configuration, unless it is in `trials`, and with several slots also the next ones."""
    space, objectives = task.space, task.objectives

    def with_next(knobs: Knobs) -> dict[Knobs, Ranges]:
        wanted = [knobs]
        if n_slots > 1:
            now = _observations(trials, objectives)
            wanted += lookahead(lambda: task.method.start(space, known), now, task.expected_score, n_slots)
        return {each: ranges_of(space, each) for each in wanted}

    choose = interrupts.interruptible()(with_next)

    def measure(knobs: Knobs) -> Observation:
        while knobs not in trials:
            measured = loop.measure(choose(knobs), interrupts.interruptible)
            for each, trial in measured.items():  # without plans, which are large
                trials[each] = replace(trial, estimate=None, measured=None)
        return observation_of(trials[knobs], objectives)

    return measure


def _is_finished(study: Study, task: SearchTask) -> bool:
    return _digest(task) in attributes_of(study).get(FINISHED, ())


def _note_finished(study: Study, task: SearchTask, trials: Mapping[Knobs, Trial]) -> None:
    if any(trial.failed for trial in trials.values()):  # the next search tries the failed ones again
        return
    if task.method.name and not _is_finished(study, task):
        set_attribute(study, FINISHED, [*attributes_of(study).get(FINISHED, ()), _digest(task)])


def _digest(task: SearchTask) -> str:
    return hashlib.sha256(repr((task.method.name, task.space)).encode()).hexdigest()[:16]


def nothing_fits(result: SearchResult) -> Infeasible | BadInput:
    """The error of a search in whose space nothing fits, with the configuration that is nearest to its constraints.

    Where no runtime runs the model, it has the reason of each.
    """
    record = result.summary.engine_measurements if result.summary else None
    if record is not None and record.n_measured:
        rows = [row for row in record.rows if row.is_measured]
        broken = "; ".join(dict.fromkeys(row.reason for row in rows if row.reason))
        return Infeasible(f"none of {len(rows)} measured configurations is known to keep the bounds: {broken}", 0)
    trials = [trial for cell in result.cells for trial in cell.trials]
    if trials and all(trial.status is Status.UNSUPPORTED for trial in trials):
        reasons = list({trial.knobs.session: trial.reason for trial in trials}.values())
        return BadInput(f"no runtime of the search runs the model: {'; '.join(dict.fromkeys(reasons))}")
    running = [trial for trial in trials if trial.runs]
    if result.out_of_time and not running:
        return Infeasible(
            f"the time budget ended before a configuration fitted, {len(trials):,} tried; try a longer one", 0
        )
    if not running:
        firsts = [cell.trials[0] for cell in result.cells[::-1] if cell.trials[0].status is not Status.UNSUPPORTED]
        firsts.sort(key=lambda trial: trial.knobs.is_phased)  # phases are refused where no device lacks memory
        first = next(iter(firsts), None)  # rows of a database that somebody edited may leave none
        reason = (
            "no trial of the study counts; try another --study-name"
            if first is None
            else f"the smallest batch size: {first.reason}"
        )
        return Infeasible(f"no configuration fits; {reason}", 0)
    nearest = min(running, key=lambda trial: trial.violation)
    values = ", ".join(f"{knob.name} {flat_value(nearest.knobs, knob.name)}" for knob in shown(nearest.knobs))
    return Infeasible(f"no configuration fits; the nearest that was tried is {values}: {nearest.reason}", 0)
