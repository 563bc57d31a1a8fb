"""Optuna's storage, which writes a finished trial, and attributes of a study, in a few statements: `TrialStorage`.

By Optuna each parameter, value and attribute is written by two or three statements of its own, which takes more time
than many an estimated trial. Tables, rows, locks and numbers are Optuna's, so every program reads them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    check_distribution_compatibility,
    distribution_to_json,
    json_to_distribution,
)
from optuna.storages import RDBStorage
from optuna.storages._rdb import models
from optuna.trial import FrozenTrial
from sqlalchemy import Update, delete, insert, select, update
from sqlalchemy.orm import Session

from autoauto.records.errors import BadInput
from autoauto.study.store.schema_revision import SchemaRevision

Distributions = Mapping[str, BaseDistribution]
"""Parameters of a trial and the values that they may take."""


class TrialStorage(RDBStorage):
    """The `RDBStorage` that writes the rows of a finished trial together, and the attributes of a study."""

    _version_manager: SchemaRevision

    def set_study_user_attrs(self, study_id: int, attributes: Mapping[str, Any]) -> None:
        """Write attributes in one transaction; `set_study_user_attr` writes one."""
        table = models.StudyUserAttributeModel
        rows = [{"study_id": study_id, **row} for row in _attributes(attributes)]
        with self.scoped_session() as session, session.begin():
            models.StudyModel.find_or_raise_by_id(study_id, session, for_update=True)  # nobody else inserts a key
            session.execute(delete(table).where(table.study_id == study_id, table.key.in_(attributes)))
            session.execute(insert(table), rows)

    def _get_prepared_new_trial(
        self, study_id: int, template_trial: FrozenTrial | None, session: Session
    ) -> models.TrialModel:
        """See `RDBStorage`, which has locked the study, and commits or rolls back."""
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
        session.flush()  # gives it its id
        distributions = _in_study(session, study_id, template_trial)
        for name, rows in _rows(template_trial, distributions).items():
            if rows:
                table = models.BaseModel.metadata.tables[name]
                session.execute(insert(table), [{"trial_id": trial.trial_id, **row} for row in rows])
        trial.number = trial.count_past_trials(session)
        session.add(trial)
        return trial


def _rows(trial: FrozenTrial, distributions: Distributions) -> dict[str, list[dict[str, Any]]]:
    """The rows of what belongs to a trial by their table, without the id of the trial."""
    values = map(models.TrialValueModel.value_to_stored_repr, trial.values or ())
    return {
        "trial_values": [
            {"objective": objective, "value": value, "value_type": kind}
            for objective, (value, kind) in enumerate(values)
        ],
        "trial_params": [
            {
                "param_name": name,
                "param_value": distribution.to_internal_repr(trial.params[name]),
                "distribution_json": distribution_to_json(distribution),
            }
            for name, distribution in distributions.items()
        ],
        "trial_user_attributes": _attributes(trial.user_attrs),
        "trial_system_attributes": _attributes(trial.system_attrs),
    }


def _attributes(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value_json": json.dumps(value)} for key, value in attributes.items()]


def _in_study(session: Session, study_id: int, trial: FrozenTrial) -> Distributions:
    """The distributions of a trial, with the categories that its study has, and those that are new behind them.

    A later version, or a package that adds a runtime, knows more words than the study was made with. Optuna refuses
    them; here earlier rows take the longer list, in which a category keeps its number. A number may also be a category
    of a study that has texts beside numbers.

    Raises:
        BadInput: a text is new in a study of numbers.
        ValueError: an earlier trial has a parameter of another kind, as Optuna.
    """
    distributions, widened = trial.distributions, dict[str, BaseDistribution]()
    for name, known in _known(session, study_id, distributions).items():
        distribution = distributions[name]
        if isinstance(known, CategoricalDistribution) and isinstance(distribution, FloatDistribution):
            distribution = CategoricalDistribution((trial.params[name],))
        if isinstance(known, FloatDistribution) and isinstance(distribution, CategoricalDistribution):
            raise BadInput(f"the study has numbers of {name} so far, got texts, too; give another --study-name")
        if isinstance(known, CategoricalDistribution) and isinstance(distribution, CategoricalDistribution):
            widened[name] = _joined(known, distribution)
            if widened[name] != known:
                session.execute(_rewrite(study_id, name, widened[name]))
        else:
            check_distribution_compatibility(known, distribution)
    return {**distributions, **widened}


def _known(session: Session, study_id: int, names: Iterable[str]) -> Distributions:
    """The distributions of those parameters that an earlier trial of the study has."""
    names = tuple(names)
    if not names:
        return {}
    earlier = select(models.TrialParamModel.distribution_json).join(models.TrialModel).limit(1)
    of_study = earlier.where(models.TrialModel.study_id == study_id)
    of_names = (of_study.where(models.TrialParamModel.param_name == name).scalar_subquery() for name in names)
    texts = session.execute(select(*of_names)).one()
    return {name: json_to_distribution(text) for name, text in zip(names, texts, strict=True) if text is not None}


def _joined(known: CategoricalDistribution, other: CategoricalDistribution) -> CategoricalDistribution:
    """The categories of the first, then those that only the other has."""
    return CategoricalDistribution((*known.choices, *(each for each in other.choices if each not in known.choices)))


def _rewrite(study_id: int, name: str, distribution: BaseDistribution) -> Update:
    """Give a parameter of all trials of a study another distribution."""
    of_study = select(models.TrialModel.trial_id).where(models.TrialModel.study_id == study_id)
    rows = update(models.TrialParamModel).where(models.TrialParamModel.param_name == name)
    return rows.where(models.TrialParamModel.trial_id.in_(of_study)).values(
        distribution_json=distribution_to_json(distribution)
    )
