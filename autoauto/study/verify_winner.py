"""The best of a search measured again, in turns with the runner-up and the default configuration: `verify_winner`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from optuna import Study

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.undivided import can_run_undivided, evaluate_undivided
from autoauto.records.knobs import Objective, Objectives, SearchSpace, objective_tuple
from autoauto.study.analysis.best import best_trial
from autoauto.study.analysis.grid_bisect_answer import estimated_answer
from autoauto.study.analysis.verification import DEFAULT, Rerun, reruns_of, verify
from autoauto.study.defaults import default_knobs
from autoauto.study.execution.executors import Executor, InlineExecutor
from autoauto.study.run import SearchResult
from autoauto.study.store.trials import complete_trials


def n_verification_measurements(flow: Flow, n_repeats: int) -> int:
    """The maximum number of measurements that `verify_winner` makes."""
    return 1 if flow.runner is None and n_repeats == 1 else 3 * n_repeats


def verify_winner(
    flow: Flow,
    study: Study,
    result: SearchResult,
    objectives: Objectives,
    n_repeats: int,
    make_executor: Callable[[], Executor],
    progress: Callable[[int, int], None] | None = None,
) -> SearchResult:
    """Measure the best of a search again, in turns with the runner-up and the default configuration.

    All measurements of a configuration are equal on a cost model: so with one turn the numbers of the search are used,
    and only the default configuration is measured. Nothing is measured when nothing fits, with several objectives, by
    which no configuration is the best, and with `n_repeats` 0.

    Args:
        flow, study, objectives: of the search.
        result: of the search.
        n_repeats: number of turns; in each turn every configuration is measured once.
        make_executor: makes the executor that measures.
        progress: called before every measurement with the number of finished ones and of all.

    Returns:
        The result; its best is the runner-up when the turns show that it is better, or as good and simpler.
    """
    if result.best is None or n_repeats == 0:
        return result
    (objective,), space, best = objective_tuple(objectives), result.space, result.best.knobs
    executor = make_executor()
    default = default_rerun(flow, space, objective, executor)
    verification = verify(
        study,
        reruns_of(study, space, best, objective, executor, default),
        n_repeats,
        objective,
        lambda: estimated_answer(space, flow.expect, objective, best),
        complete_trials(study) if flow.runner is None and n_repeats == 1 else {},
        progress,
    )
    return replace(result, best=best_trial(study, space)) if verification.winner_index else result


def default_rerun(flow: Flow, space: SearchSpace, objective: Objective, executor: Executor) -> Rerun:
    """What one would run without a search: `default_knobs`, on a host as one session that uses all cores.

    When the objective counts devices, a session that uses all of them would not compare: there it is one device.
    """
    knobs = default_knobs(space, flow.runner is not None)
    if objective is Objective.PER_IPU or not can_run_undivided(flow):
        return Rerun(DEFAULT, knobs, "", executor)
    undivided = InlineExecutor(lambda knobs: evaluate_undivided(flow, knobs))
    return Rerun(DEFAULT, knobs, "one session, all cores", undivided)
