"""A study read as a whole for its reports: `study_findings`."""

from __future__ import annotations

from dataclasses import replace

from optuna import Study
from optuna.trial import FrozenTrial, TrialState

from autoauto.records.findings import Contender, Failure, Findings, Tried
from autoauto.records.trial import Knobs, objectives_of
from autoauto.search.best import aim_of_study, best_trial, pareto_front
from autoauto.search.plans import plan_of
from autoauto.search.storage import reads, shown_storage, storage_errors
from autoauto.search.trials import finished_trials, was_measured
from autoauto.search.verify import VERIFIED, verifications

N_CONTENDERS = 10
"""So many of the best configurations have their stages read; of thousands that would take long."""


@reads
@storage_errors()
def study_findings(study: Study, storage: str, n_contenders: int = N_CONTENDERS) -> Findings:
    """All that the trials of a study tell.

    Args:
        study: from `load_study`.
        storage: the URL that it was loaded from.
        n_contenders: of how many of the best configurations to read the stages.
    """
    trials = finished_trials(study)
    tried = {trial.number: _tried(knobs, trial) for knobs, trial in trials.items()}
    found = Findings(
        study_name=study.study_name,
        storage=shown_storage(storage),
        objective=objectives_of(aim_of_study(study))[0],
        attributes={name: str(value) for name, value in study.user_attrs.items() if name != VERIFIED},
        tried=tuple(tried[number] for number in sorted(tried)),
        failures=tuple(map(_failure, study.get_trials(deepcopy=False, states=(TrialState.FAIL,)))),
    )
    best = best_trial(study) or next(iter(pareto_front(study)), None)  # of several objectives the first decides
    if best is None:
        return found
    verification = next((told for told in verifications(study) if told.winner.knobs == best.knobs), None)
    first = sorted(found.ranked, key=lambda one: one.number != best.number)[:n_contenders]
    contenders = tuple(_contender(one, trials[one.knobs]) for one in first)
    return replace(found, contenders=contenders, verification=verification)


def _tried(knobs: Knobs, trial: FrozenTrial) -> Tried:
    told = trial.user_attrs
    names = [name for name in Tried._fields if name in told]
    return Tried(trial.number, knobs, compiled=was_measured(trial), **{name: told[name] for name in names})


def _contender(tried: Tried, trial: FrozenTrial) -> Contender:
    told = trial.user_attrs
    estimated = told.get("estimated_stages")
    estimate = None if estimated is None else plan_of(told, estimated)
    return Contender(tried, plan_of(told, told["stages"]), estimate)


def _failure(trial: FrozenTrial) -> Failure:
    return Failure(trial.number, trial.params, str(trial.user_attrs.get("reason", "")))
