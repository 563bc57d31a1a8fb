"""Optuna's storage as we use it, and the one file with private names of Optuna: `TrialStorage`, `storage_of`.

Tables, rows, locks and numbers are Optuna's, so every program reads them. Three things are quicker, or safer:

    opening     Optuna asks Alembic which revision its tables have. To import it and to run the scripts of all revisions
                takes a third of a second; what it reads and writes is one row of one table.
    writing     Optuna writes each parameter, value and attribute by two or three statements of its own, which takes
                more time than many an estimated trial. Here a finished trial is written by one statement a table.
    restarts    What may be done twice is repeated while the server of the database is away.

`pyproject.toml` bounds the versions of Optuna to those with which its own suite for storages passes here
(`tests/study/store/test_storage_conformance.py`).
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, wraps
from importlib.metadata import version
from typing import Any, ParamSpec, TypeVar

from optuna import Study
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
from optuna.storages._rdb.storage import _VersionManager
from optuna.trial import FrozenTrial
from sqlalchemy import (
    Column,
    Connection,
    Engine,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Update,
    create_engine,
    delete,
    func,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import scoped_session, sessionmaker

from autoauto.database.registry import backend_of
from autoauto.database.retries import retried
from autoauto.records.errors import BadInput
from autoauto.study.interrupts import Interrupts

P = ParamSpec("P")
T = TypeVar("T")
Distributions = Mapping[str, BaseDistribution]
"""Parameters of a trial and the values that they may take."""
Then = Callable[[Connection, int], object]
"""Is called with the id of a new trial, in the transaction that writes it."""

REVISION = "v3.2.0.a"
"""The revision of Optuna's tables that the versions of Optuna in `pyproject.toml` make."""
_MAX_CREATION_TRIES = 20  # more than there are tables: another process creates at least one between two tries
_REVISIONS = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
"""As Alembic makes it."""
_STUDIES, _TRIALS, _VERSIONS = (
    model.__table__ for model in (models.StudyModel, models.TrialModel, models.VersionInfoModel)
)


def _repeats(storage: type[RDBStorage]) -> type[RDBStorage]:
    """Repeat those methods of Optuna's that may be done twice while the server is away; a second trial is another."""
    for name in dir(RDBStorage):
        if name.startswith(("get_", "_get_trials", "set_study_", "create_new_study")):
            setattr(storage, name, _repeated(getattr(RDBStorage, name)))
    return storage


def _repeated(method: Callable[P, T]) -> Callable[P, T]:
    @wraps(method)
    def repeated(*args: P.args, **kwargs: P.kwargs) -> T:
        return retried(lambda: method(*args, **kwargs), Interrupts.check)

    return repeated


@_repeats
class TrialStorage(RDBStorage):
    """Optuna's storage, opened without Alembic, with few statements for a finished trial; see the top of this file.

    A row that is not there is a KeyError, as in Optuna's. The tables are made where they are missing.

    Args:
        url: of the database.
        engine_kwargs: for SQLAlchemy's engine.

    Raises:
        RuntimeError: another version of Optuna made the tables; the message says how to upgrade them.
    """

    def __init__(self, url: str, engine_kwargs: Mapping[str, Any]) -> None:
        # Optuna's own method would ask Alembic. These are the attributes that it sets.
        self.url, self.engine_kwargs, self.skip_compatibility_check = url, dict(engine_kwargs), False
        self.heartbeat_interval = self.grace_period = None
        self.heartbeat_stale_trial_callback = self.failed_trial_callback = None
        self.engine = create_engine(url, **engine_kwargs)
        self.scoped_session = scoped_session(sessionmaker(bind=self.engine))
        weakref.finalize(self, _close, self.engine, os.getpid())
        revisions = _revisions(self.engine)
        if not revisions:
            self._make_tables()
            revisions = _revisions(self.engine)
        if revisions != [REVISION]:
            self._version_manager.check_table_schema_compatibility()

    def __reduce__(self) -> tuple[type[TrialStorage], tuple[object, ...]]:
        """A process that reads a pickled storage has connections of its own."""
        return type(self), (self.url, self.engine_kwargs)

    @cached_property
    def _version_manager(self) -> _VersionManager:  # type: ignore[override]  # in place of the attribute
        """Optuna's own, which imports Alembic: for tables of another revision, and for questions about revisions."""
        return _VersionManager(self.url, self.engine, self.scoped_session)

    def _make_tables(self) -> None:
        """Make the tables, and note the revision last, unless a version of Optuna from before Alembic made them."""
        backend = backend_of(self.engine)
        for n_left in reversed(range(_MAX_CREATION_TRIES)):
            try:
                models.BaseModel.metadata.create_all(self.engine)
                _REVISIONS.create(self.engine, checkfirst=True)
                break
            except DBAPIError as error:  # another process may have just created one
                if not (n_left and backend.is_made_already(error)):
                    raise
        row = {"version_info_id": 1, "schema_version": models.SCHEMA_VERSION, "library_version": version("optuna")}
        with self.engine.begin() as connection:
            connection.execute(backend.insert_if_new(_VERSIONS), row)
            if connection.scalar(select(_VERSIONS.c.schema_version)) == models.SCHEMA_VERSION:
                connection.execute(backend.insert_if_new(_REVISIONS), {"version_num": REVISION})

    def set_study_user_attrs(self, study_id: int, attributes: Mapping[str, Any]) -> None:
        """Write attributes in one transaction, which may be done twice; `set_study_user_attr` writes one.

        Raises:
            KeyError: there is no such study.
        """
        table = models.StudyUserAttributeModel.__table__
        rows = [{"study_id": study_id, **row} for row in _attributes(attributes)]
        with self.engine.begin() as connection:
            _lock(connection, study_id)  # nobody else inserts a key
            connection.execute(delete(table).where(table.c.study_id == study_id, table.c.key.in_(attributes)))
            connection.execute(insert(table), rows)

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """Write a trial; one that has ended by `add_trial`."""
        is_ended = template_trial is not None and template_trial.state.is_finished()
        if template_trial is None or not is_ended or template_trial.intermediate_values:
            return super().create_new_trial(study_id, template_trial)
        return self.add_trial(study_id, template_trial)

    def add_trial(self, study_id: int, trial: FrozenTrial, then: Then = lambda connection, trial_id: None) -> int:
        """Write a trial that has ended, without intermediate values, in one transaction; returns its id.

        Args:
            study_id: of a study, which is locked meanwhile.
            trial: with any number: it gets the next one.
            then: writes what belongs to the trial; where it raises, nothing is written.

        Raises:
            KeyError: there is no such study.
            ValueError: an earlier trial has a parameter of another kind.
        """
        with self.engine.begin() as connection:
            _lock(connection, study_id)
            row = {
                "study_id": study_id,
                "number": connection.scalar(select(func.count()).where(_TRIALS.c.study_id == study_id)),
                "state": trial.state,
                "datetime_start": trial.datetime_start,
                "datetime_complete": trial.datetime_complete,
            }
            new = connection.execute(insert(_TRIALS).values(row)).inserted_primary_key
            assert new is not None  # one row was inserted
            trial_id = int(new[0])
            for name, rows in _rows(trial, _in_study(connection, study_id, trial)).items():
                if rows:
                    table = models.BaseModel.metadata.tables[name]
                    connection.execute(insert(table), [{"trial_id": trial_id, **row} for row in rows])
            then(connection, trial_id)
        return trial_id

    def delete_study(self, study_id: int) -> None:
        """Delete a study table by table; Optuna would load every row first.

        Raises:
            KeyError: there is no such study.
        """
        trials = select(_TRIALS.c.trial_id).where(_TRIALS.c.study_id == study_id)
        with self.engine.begin() as connection:
            _lock(connection, study_id)
            for table in reversed(models.BaseModel.metadata.sorted_tables):  # those that refer to others first
                if "study_id" in table.c:
                    connection.execute(delete(table).where(table.c.study_id == study_id))
                elif "trial_id" in table.c:
                    connection.execute(delete(table).where(table.c.trial_id.in_(trials)))


def storage_of(study: Study) -> RDBStorage:
    """The database of a study that is in one, which no public attribute holds."""
    storage = getattr(study._storage, "_backend", study._storage)  # Optuna wraps the storage that it was given
    assert isinstance(storage, RDBStorage)
    return storage


def _lock(connection: Connection, study_id: int) -> None:
    """Let no other process write to a study until the transaction ends, by an update that changes nothing."""
    same = update(_STUDIES).where(_STUDIES.c.study_id == study_id).values(study_name=_STUDIES.c.study_name)
    if connection.execute(same).rowcount != 1:
        raise KeyError(f"there is no study with the number {study_id}")


def _revisions(engine: Engine) -> list[str]:
    """One, or none where the database is new."""
    with engine.connect() as connection:
        if not inspect(connection).has_table(_REVISIONS.name):
            return []
        return list(connection.scalars(select(_REVISIONS.c.version_num)))


def _close(engine: Engine, process_id: int) -> None:
    """Close the connections of a storage that is no longer used; a forked process leaves them to the one it is of."""
    if os.getpid() == process_id:
        engine.dispose()


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


def _in_study(connection: Connection, study_id: int, trial: FrozenTrial) -> Distributions:
    """The distributions of a trial, with the categories that its study has, and those that are new behind them.

    A package that adds a runtime knows more words than the study was made with. Optuna refuses them; here earlier rows
    take the longer list, in which a category keeps its number. A number may also be a category of a study that has
    texts beside numbers.

    Raises:
        BadInput: a text is new in a study of numbers.
        ValueError: an earlier trial has a parameter of another kind, as Optuna.
    """
    distributions, widened = trial.distributions, dict[str, BaseDistribution]()
    for name, known in _known(connection, study_id, distributions).items():
        distribution = distributions[name]
        if isinstance(known, CategoricalDistribution) and isinstance(distribution, FloatDistribution):
            distribution = CategoricalDistribution((trial.params[name],))
        if isinstance(known, FloatDistribution) and isinstance(distribution, CategoricalDistribution):
            raise BadInput(f"the study has numbers of {name} so far, got texts, too; give another --study-name")
        if isinstance(known, CategoricalDistribution) and isinstance(distribution, CategoricalDistribution):
            widened[name] = _joined(known, distribution)
            if widened[name] != known:
                connection.execute(_rewrite(study_id, name, widened[name]))
        else:
            check_distribution_compatibility(known, distribution)
    return {**distributions, **widened}


def _known(connection: Connection, study_id: int, names: Iterable[str]) -> Distributions:
    """The distributions of those parameters that an earlier trial of the study has."""
    names = tuple(names)
    if not names:
        return {}
    earlier = select(models.TrialParamModel.distribution_json).join(models.TrialModel).limit(1)
    of_study = earlier.where(models.TrialModel.study_id == study_id)
    of_names = (of_study.where(models.TrialParamModel.param_name == name).scalar_subquery() for name in names)
    texts = connection.execute(select(*of_names)).one()
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
