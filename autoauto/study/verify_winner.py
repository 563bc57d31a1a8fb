"""The best of a search measured again, in turns with the next best and on real devices a session: `verify_winner`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from optuna import Study

from autoauto.evaluate.flow import Flow
from autoauto.records.errors import BadInput
from autoauto.records.plans.plan import Plan
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objectives, objective_tuple
from autoauto.space.study_summary import StudySummary
from autoauto.space.trial import Trial
from autoauto.study.analysis.best import best_of_study
from autoauto.study.analysis.comparisons import asks_auto_pipeline, estimated_answer
from autoauto.study.analysis.verification import Turns, repeated_of, store_verification, verify
from autoauto.study.defaults import baseline_of
from autoauto.study.execution.executors import Executor
from autoauto.study.methods.registry import predictor
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
) -> SearchResult:
    """Measure the best of a search again, in turns with the next best and, on real devices, `baseline_of` the space.

    All measurements of a configuration are equal on a cost model: so with one turn the numbers of the search are used.
    Nothing is measured when nothing fits, with several objectives, by which no configuration is the best, with
    `n_repeats` 0, and where the intervals of all other runs lie below that of the best.

    Args:
        n_repeats: number of turns; in each turn every configuration is measured once.
        progress: called before every measurement with the number of finished ones and of all.

    Returns:
        The result; its best is one of the next best or the baseline when the turns show that it is better, or as good
        and simpler, or has the better mean where they scatter too much to tell. A baseline that the search did not
        try, because it is not in the space, cannot win.
    """
    if result.best is None or n_repeats == 0:
        return result
    (objective,) = objective_tuple(objectives)
    known: dict[Knobs, Trial] = {}
    if not flow.traits.noise and n_repeats == 1:  # another measurement would give the same numbers
        known = {knobs: trial for knobs, trial in result.trials.items() if trial.fits}
    session = baseline_of(flow, objectives, result.space)
    rows = repeated_of(result.trials.values(), result.best.knobs, objective, session, flow.traits.noise)
    if len(rows) == 1 and result.best.result.ends is not None:  # it is known to be the best, and how sure its number is
        return result
    tried = [row.knobs for row in rows if row.knobs in result.trials]
    if flow.traits.runs_plans:  # the plan that was measured; a cost model's follows from the knobs
        for knobs in tried:
            trial = with_plans(study, result.trials[knobs])
            if isinstance(trial.estimate, Plan):
                flow.pipelines.measure_again(knobs, trial.estimate)
    verification = verify(
        study,
        Turns(rows, n_repeats, len(tried), flow.traits.noise, known),
        objective,
        make_executor(),
        progress,
    )
    winner = best_of_study(study, result.trials) if verification.winner_index else None
    return result if winner is None else replace(result, best=with_plans(study, winner))


def with_auto_pipeline(flow: Flow, study: Study, summary: StudySummary) -> StudySummary:
    """The summary with what auto_pipeline would choose by the estimate; found once, and stored if that is possible."""
    verification, space, objective = summary.verification, summary.space, summary.objective
    if not asks_auto_pipeline(summary) or flow.setting.begins_whole or flow.first_mode.forecasts_cells:
        return summary
    assert verification is not None
    assert space is not None
    answer = estimated_answer(
        space,
        flow.forecast,
        objective,
        verification.repeated[0].knobs,
        predictor(flow.forecast, objective, step_bounds=flow.step_bounds).limit,
        flow.is_bounded_by if objective.is_throughput else None,
        flow.fits,
    )
    verification = replace(verification, auto_pipeline=answer)
    with suppress(BadInput):
        store_verification(study, verification)
    return replace(summary, verification=verification)
