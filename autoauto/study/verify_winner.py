"""The best of a search measured again, in turns with the next best and on real devices a session: `verify_winner`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf

from optuna import Study

from autoauto.evaluate.flow import Flow
from autoauto.records.plans.plan import Plan
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objective, Objectives, objective_tuple
from autoauto.space.space import SearchSpace
from autoauto.space.study_summary import AutoPipelineAnswer
from autoauto.study.analysis.best import best_of_study
from autoauto.study.analysis.comparisons import estimated_answer
from autoauto.study.analysis.verification import Turns, repeated_of, verify
from autoauto.study.defaults import baseline_of
from autoauto.study.execution.executors import Executor
from autoauto.study.run import SearchResult
from autoauto.study.store.trials import with_plans


def n_verification_measurements(flow: Flow, n_repeats: int) -> int:
    """The maximum number of measurements that `verify_winner` makes."""
    if not flow.traits.noise and n_repeats == 1:
        return 1 if flow.traits.runs_plans else 0
    return (2 + bool(flow.traits.noise) + flow.traits.runs_plans) * n_repeats


def verify_winner(
    flow: Flow,
    study: Study,
    result: SearchResult,
    objectives: Objectives,
    n_repeats: int,
    make_executor: Callable[[], Executor],
    progress: Callable[[int, int], None] | None = None,
    limit: Callable[[Knobs], float] = lambda _: inf,
) -> SearchResult:
    """Measure the best of a search again, in turns with the next best and, on real devices, `baseline_of` the space.

    All measurements of a configuration are equal on a cost model: so with one turn the numbers of the search are used.
    Nothing is measured when nothing fits, with several objectives, by which no configuration is the best, with
    `n_repeats` 0, and where the intervals of all other runs lie below that of the best.

    Args:
        flow, study, objectives: of the search.
        result: of the search.
        n_repeats: number of turns; in each turn every configuration is measured once.
        make_executor: makes the executor that measures.
        progress: called before every measurement with the number of finished ones and of all.
        limit: of the forecasts, as the search asked them (`Predictor`).

    Returns:
        The result; its best is one of the next best or the baseline when the turns show that it is better, or as good
        and simpler, or has the better mean where they scatter too much to tell. A baseline that the search did not
        try, because it is not in the space, cannot win.
    """
    if result.best is None or n_repeats == 0:
        return result
    (objective,), space, best = objective_tuple(objectives), result.space, result.best.knobs
    all_are_equal = not flow.traits.noise and n_repeats == 1
    known = {knobs: trial for knobs, trial in result.trials.items() if trial.fits} if all_are_equal else {}
    session = baseline_of(flow, objectives, space)
    rows = repeated_of(result.trials.values(), best, objective, session, flow.traits.noise)
    if len(rows) == 1 and result.best.result.ends is not None:  # it is known to be the best, and how sure its number is
        return result
    for row in rows if flow.traits.runs_plans else ():  # a cost model's plan follows from the knobs
        trial = with_plans(study, result.trials[row.knobs]) if row.knobs in result.trials else None
        if trial is not None and isinstance(trial.estimate, Plan):
            flow.measure_again(row.knobs, trial.estimate)
    n_candidates = sum(row.knobs in result.trials for row in rows)
    verification = verify(
        study,
        Turns(rows, n_repeats, n_candidates, flow.traits.noise, known),
        objective,
        make_executor(),
        lambda: (
            None
            if flow.setting.begins_whole or flow.forecasts_cells
            else _answer_of_auto_pipeline(flow, space, objective, best, limit)
        ),
        progress,
    )
    winner = best_of_study(study, result.trials) if verification.winner_index else None
    return result if winner is None else replace(result, best=with_plans(study, winner))


def _answer_of_auto_pipeline(
    flow: Flow, space: SearchSpace, objective: Objective, best: Knobs, limit: Callable[[Knobs], float]
) -> AutoPipelineAnswer | None:
    is_bounded_by = flow.is_bounded_by if objective.is_throughput else None
    return estimated_answer(space, flow.forecast, objective, best, limit, is_bounded_by, flow.fits)
