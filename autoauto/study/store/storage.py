"""`Storage`, Optuna's database that writes a finished trial with a statement a table, not three an attribute."""

from __future__ import annotations

import json
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    check_distribution_compatibility,
    distribution_to_json,
    json_to_distribution,
)
from optuna.storages import RDBStorage
from optuna.storages._rdb import models
from optuna.trial import FrozenTrial
from sqlalchemy import insert, select
from sqlalchemy.orm import Session

_PARAMS, _TRIALS = models.TrialParamModel, models.TrialModel


class Storage(RDBStorage):
    """Writes the rows that Optuna writes. Where a later Optuna does not call the method here, its own one runs."""

    def _get_prepared_new_trial(
        self, study_id: int, template_trial: FrozenTrial | None, session: Session
    ) -> models.TrialModel:
        if template_trial is None or template_trial.intermediate_values:
            return super()._get_prepared_new_trial(study_id, template_trial, session)
        trial = models.TrialModel(
            study_id=study_id,
            number=None,
            state=template_trial.state,
            datetime_start=template_trial.datetime_start,
            datetime_complete=template_trial.datetime_complete,
        )
        session.add(trial)
        session.flush()  # gives it an id
        for name, distribution in template_trial.distributions.items():
            _check(session, study_id, name, distribution)
        for model, rows in _rows(template_trial).items():
            if rows:
                session.connection().execute(
                    insert(model.__table__), [{"trial_id": trial.trial_id, **row} for row in rows]
                )
        trial.number = trial.count_past_trials(session)
        return trial


def _check(session: Session, study_id: int, name: str, distribution: BaseDistribution) -> None:
    """Raise Optuna's ValueError for a parameter of another kind than the study has.

    Raises:
        ValueError: another kind, or other categories.
    """
    stored = select(_PARAMS.distribution_json).join(_TRIALS, _TRIALS.trial_id == _PARAMS.trial_id)
    first = stored.where(_TRIALS.study_id == study_id, _PARAMS.param_name == name).limit(1)
    previous = session.connection().execute(first).scalar()
    if previous is not None and previous != distribution_to_json(distribution):
        check_distribution_compatibility(json_to_distribution(previous), distribution)


def _rows(trial: FrozenTrial) -> dict[type[Any], list[dict[str, Any]]]:
    """The rows of every table that hold the trial, without its id."""
    values = [models.TrialValueModel.value_to_stored_repr(value) for value in trial.values or ()]
    return {
        models.TrialValueModel: [
            {"objective": objective, "value": value, "value_type": kind}
            for objective, (value, kind) in enumerate(values)
        ],
        models.TrialParamModel: [
            {
                "param_name": name,
                "param_value": trial.distributions[name].to_internal_repr(value),
                "distribution_json": distribution_to_json(trial.distributions[name]),
            }
            for name, value in trial.params.items()
        ],
        models.TrialUserAttributeModel: _attributes(trial.user_attrs),
        models.TrialSystemAttributeModel: _attributes(trial.system_attrs),
    }


def _attributes(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value_json": json.dumps(value)} for key, value in attributes.items()]
