"""Optuna's storage as we use it, and the one file with private names of Optuna: `TrialStorage`, `storage_of`.

Tables, rows, locks and numbers are Optuna's, so every program reads them. Four things are quicker, or safer:

    opening     Optuna asks Alembic which revision its tables have. To import it and to run the scripts of all revisions
                takes a third of a second; what it reads and writes is one row of one table.
    mapping     Optuna reads and writes by SQLAlchemy's object mapper, whose import and set-up take a tenth of a search.
                What a search asks is asked here by SQLAlchemy's core (`optuna_tables.py`); only what is inherited, as
                for samplers, imports the mapper.
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property, wraps
from importlib.metadata import version
from math import inf
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from optuna import Study
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    check_distribution_compatibility,
    distribution_to_json,
    json_to_distribution,
)
from optuna.exceptions import DuplicatedStudyError
from optuna.storages import RDBStorage
from optuna.storages._rdb.storage import _VersionManager
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Row,
    Table,
    create_engine,
    delete,
    func,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError, IntegrityError
from typing_extensions import override

from autoauto.database.registry import backend_of
from autoauto.database.retries import retried
from autoauto.records.errors import BadInput
from autoauto.study.interrupts import Interrupts
from autoauto.study.store.optuna_tables import (
    DIRECTIONS,
    FINITE,
    INTERMEDIATE_VALUES,
    NAN,
    NEGATIVE,
    PARAMS,
    POSITIVE,
    REVISION,
    REVISIONS,
    SCHEMA_VERSION,
    STUDIES,
    STUDY_SYSTEM_ATTRIBUTES,
    STUDY_USER_ATTRIBUTES,
    TABLES,
    TRIAL_SYSTEM_ATTRIBUTES,
    TRIAL_USER_ATTRIBUTES,
    TRIALS,
    VALUES,
    VERSIONS,
)

if TYPE_CHECKING:
    from sqlalchemy.orm import Session, scoped_session

P = ParamSpec("P")
T = TypeVar("T")
Distributions = Mapping[str, BaseDistribution]
"""Parameters of a trial and the values that they may take."""
Then = Callable[[Connection, int], object]
"""Is called with the id of a new trial, in the transaction that writes it."""

_MAX_CREATION_TRIES = 20  # more than there are tables: another process creates at least one between two tries
_INFINITE = {POSITIVE: inf, NEGATIVE: -inf, NAN: float("nan")}


def _repeats(storage: type[RDBStorage]) -> type[RDBStorage]:
    """Repeat those methods that may be done twice while the server is away; a second trial is another."""
    for name in dir(storage):
        if name.startswith(("get_", "_get_trials", "set_study_", "create_new_study")):
            setattr(storage, name, _repeated(getattr(storage, name)))
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

    Raises:
        RuntimeError: another version of Optuna made the tables; the message says how to upgrade them.
    """

    def __init__(self, url: str, engine_kwargs: Mapping[str, Any]) -> None:
        # Optuna's own method would ask Alembic. These are the attributes that it sets.
        self.url, self.engine_kwargs, self.skip_compatibility_check = url, dict(engine_kwargs), False
        self.heartbeat_interval = self.grace_period = None
        self.heartbeat_stale_trial_callback = self.failed_trial_callback = None
        self.engine = create_engine(url, **engine_kwargs)
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
    def scoped_session(self) -> scoped_session[Session]:  # type: ignore[override]  # in place of the attribute
        """Sessions of SQLAlchemy's object mapper, for the methods that are inherited."""
        from sqlalchemy.orm import scoped_session, sessionmaker

        return scoped_session(sessionmaker(bind=self.engine))

    @cached_property
    def _version_manager(self) -> _VersionManager:  # type: ignore[override]  # in place of the attribute
        """Optuna's own, which imports Alembic: for tables of another revision, and for questions about revisions."""
        return _VersionManager(self.url, self.engine, self.scoped_session)

    def _make_tables(self) -> None:
        """Make the tables, and note the revision last, unless a version of Optuna from before Alembic made them."""
        backend = backend_of(self.engine)
        for n_left in reversed(range(_MAX_CREATION_TRIES)):
            try:
                TABLES.create_all(self.engine)
                REVISIONS.create(self.engine, checkfirst=True)
                break
            except DBAPIError as error:  # another process may have just created one
                if not (n_left and backend.is_made_already(error)):
                    raise
        row = {"version_info_id": 1, "schema_version": SCHEMA_VERSION, "library_version": version("optuna")}
        with self.engine.begin() as connection:
            connection.execute(backend.insert_if_new(VERSIONS), row)
            if connection.scalar(select(VERSIONS.c.schema_version)) == SCHEMA_VERSION:
                connection.execute(backend.insert_if_new(REVISIONS), {"version_num": REVISION})

    @override
    def create_new_study(self, directions: Sequence[StudyDirection], study_name: str | None = None) -> int:
        if study_name is None:  # Optuna draws one
            return super().create_new_study(directions, study_name)
        try:
            with self.engine.begin() as connection:
                study_id = _inserted(connection, STUDIES, {"study_name": study_name})
                rows = [{"objective": objective, "direction": each} for objective, each in enumerate(directions)]
                connection.execute(insert(DIRECTIONS), [{"study_id": study_id, **row} for row in rows])
        except IntegrityError as error:
            raise DuplicatedStudyError(f"there is a study {study_name!r} already") from error
        return study_id

    @override
    def get_study_id_from_name(self, study_name: str) -> int:
        return int(self._single(STUDIES.c.study_id, STUDIES.c.study_name == study_name))

    @override
    def get_study_name_from_id(self, study_id: int) -> str:
        return str(self._single(STUDIES.c.study_name, STUDIES.c.study_id == study_id))

    @override
    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        of_study = select(DIRECTIONS.c.direction).where(DIRECTIONS.c.study_id == study_id)
        with self.engine.connect() as connection:
            directions = list(connection.scalars(of_study.order_by(DIRECTIONS.c.objective)))
        if not directions:  # a study has one or more
            raise KeyError(f"there is no study with the number {study_id}")
        return directions

    @override
    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        return self._study_attributes(STUDY_USER_ATTRIBUTES, study_id)

    @override
    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        return self._study_attributes(STUDY_SYSTEM_ATTRIBUTES, study_id)

    @override
    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        self.set_study_attrs(study_id, {key: value})

    @override
    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        self.set_study_attrs(study_id, {key: value}, STUDY_SYSTEM_ATTRIBUTES)

    def set_study_attrs(
        self,
        study_id: int,
        attributes: Mapping[str, Any],
        table: Table = STUDY_USER_ATTRIBUTES,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Write attributes in one transaction, which may be done twice; a KeyError where there is no such study.

        `check` is called when nobody else can write to the study any more; where it raises, nothing is written.
        """
        rows = [{"study_id": study_id, **row} for row in _attributes(attributes)]
        with self.engine.begin() as connection:
            _lock(connection, study_id)  # nobody else inserts a key
            check()
            connection.execute(delete(table).where(table.c.study_id == study_id, table.c.key.in_(attributes)))
            connection.execute(insert(table), rows)

    def _study_attributes(self, table: Table, study_id: int) -> dict[str, Any]:
        """The attributes of a study; one without any is a row without a key."""
        of_study = select(table.c.key, table.c.value_json).select_from(STUDIES.outerjoin(table))
        with self.engine.connect() as connection:
            rows = connection.execute(of_study.where(STUDIES.c.study_id == study_id)).all()
        if not rows:
            raise KeyError(f"there is no study with the number {study_id}")
        return {key: json.loads(value) for key, value in rows if key is not None}

    def _single(self, column: ColumnElement[Any], *where: ColumnElement[bool]) -> Any:
        """The value in the one row of a table that `where` holds for."""
        with self.engine.connect() as connection:
            row = connection.execute(select(column).where(*where)).one_or_none()
        if row is None:
            raise KeyError(f"there is no row with {column}")
        return row[0]

    @override
    def get_trial_id_from_study_id_trial_number(self, study_id: int, trial_number: int) -> int:
        return int(self._single(TRIALS.c.trial_id, TRIALS.c.study_id == study_id, TRIALS.c.number == trial_number))

    @override
    def get_n_trials(self, study_id: int, state: tuple[TrialState, ...] | TrialState | None = None) -> int:
        where: list[ColumnElement[bool]] = []
        if isinstance(state, TrialState):
            where.append(TRIALS.c.state == state)
        elif state is not None:
            where.append(TRIALS.c.state.in_(state))
        with self.engine.connect() as connection:
            n_trials = _n_trials(connection, study_id, *where)
        if not n_trials:
            self.get_study_name_from_id(study_id)  # a KeyError where there is no such study
        return n_trials

    @override
    def get_trial(self, trial_id: int) -> FrozenTrial:
        with self.engine.connect() as connection:
            trial = connection.execute(select(TRIALS).where(TRIALS.c.trial_id == trial_id)).one_or_none()
            if trial is None:
                raise KeyError(f"there is no trial with the id {trial_id}")
            belongings = {
                table: connection.execute(select(table).where(table.c.trial_id == trial_id).order_by(key)).all()
                for table, key in _BELONGINGS.items()
            }
        return _frozen(trial, belongings)

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """Write a trial; one that has ended by `add_trial`."""
        is_ended = template_trial is not None and template_trial.state.is_finished()
        if template_trial is None or not is_ended or template_trial.intermediate_values:
            return super().create_new_trial(study_id, template_trial)
        return self.add_trial(study_id, template_trial)

    def add_trial(self, study_id: int, trial: FrozenTrial, then: Then = lambda connection, trial_id: None) -> int:
        """Write a trial that has ended, without intermediate values, in one transaction; returns its id.

        Args:
            then: writes what belongs to the trial; where it raises, nothing is written.

        Raises:
            KeyError: there is no such study.
            ValueError: an earlier trial has a parameter of another kind.
        """
        with self.engine.begin() as connection:
            _lock(connection, study_id)
            row = {
                "study_id": study_id,
                "number": _n_trials(connection, study_id),
                "state": trial.state,
                "datetime_start": _utc(trial.datetime_start),
                "datetime_complete": _utc(trial.datetime_complete),
            }
            trial_id = _inserted(connection, TRIALS, row)
            for table, rows in _rows(trial, _in_study(connection, study_id, trial)).items():
                if rows:
                    connection.execute(insert(table), [{"trial_id": trial_id, **row} for row in rows])
            then(connection, trial_id)
        return trial_id

    def delete_study(self, study_id: int) -> None:
        """Delete a study table by table, since Optuna would load every row first; a KeyError if there is none."""
        trials = select(TRIALS.c.trial_id).where(TRIALS.c.study_id == study_id)
        with self.engine.begin() as connection:
            _lock(connection, study_id)
            for table in reversed(TABLES.sorted_tables):  # those that refer to others first
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
    same = update(STUDIES).where(STUDIES.c.study_id == study_id).values(study_name=STUDIES.c.study_name)
    if connection.execute(same).rowcount != 1:
        raise KeyError(f"there is no study with the number {study_id}")


def _n_trials(connection: Connection, study_id: int, *where: ColumnElement[bool]) -> int:
    return connection.scalar(select(func.count()).where(TRIALS.c.study_id == study_id, *where)) or 0


def _revisions(engine: Engine) -> list[str]:
    """One, or none where the database is new."""
    with engine.connect() as connection:
        if not inspect(connection).has_table(REVISIONS.name):
            return []
        return list(connection.scalars(select(REVISIONS.c.version_num)))


def _close(engine: Engine, process_id: int) -> None:
    """Close the connections of a storage that is no longer used; a forked process leaves them to the one it is of."""
    if os.getpid() == process_id:
        engine.dispose()


def _inserted(connection: Connection, table: Table, row: Mapping[str, Any]) -> int:
    new = connection.execute(insert(table).values(row)).inserted_primary_key
    assert new is not None  # one row was inserted
    return int(new[0])


def _utc(local: datetime | None) -> datetime | None:
    return None if local is None else local.astimezone(UTC).replace(tzinfo=None)


def _local(utc: datetime | None) -> datetime | None:
    return None if utc is None else utc.replace(tzinfo=UTC).astimezone().replace(tzinfo=None)


def _rows(trial: FrozenTrial, distributions: Distributions) -> dict[Table, list[dict[str, Any]]]:
    """The rows of what belongs to a trial by their table, without the id of the trial."""
    kinds = {value: kind for kind, value in _INFINITE.items()}
    values: list[dict[str, Any]] = []
    for objective, value in enumerate(trial.values or ()):
        kind = kinds.get(value, FINITE)
        stored = value if kind == FINITE else None
        values.append({"objective": objective, "value": stored, "value_type": kind})
    params: list[dict[str, Any]] = []
    for name, distribution in distributions.items():
        param = distribution.to_internal_repr(trial.params[name])
        text = distribution_to_json(distribution)
        params.append({"param_name": name, "param_value": param, "distribution_json": text})
    return {
        VALUES: values,
        PARAMS: params,
        TRIAL_USER_ATTRIBUTES: _attributes(trial.user_attrs),
        TRIAL_SYSTEM_ATTRIBUTES: _attributes(trial.system_attrs),
    }


_BELONGINGS: Mapping[Table, ColumnElement[Any]] = {
    VALUES: VALUES.c.objective,
    PARAMS: PARAMS.c.param_id,
    TRIAL_USER_ATTRIBUTES: TRIAL_USER_ATTRIBUTES.c.trial_user_attribute_id,
    TRIAL_SYSTEM_ATTRIBUTES: TRIAL_SYSTEM_ATTRIBUTES.c.trial_system_attribute_id,
    INTERMEDIATE_VALUES: INTERMEDIATE_VALUES.c.step,
}
"""The tables of what belongs to a trial, each with the column that orders its rows."""


def _frozen(trial: Row[Any], belongings: Mapping[Table, Sequence[Row[Any]]]) -> FrozenTrial:
    params, distributions = {}, {}
    for row in belongings[PARAMS]:
        distribution = json_to_distribution(row.distribution_json)
        distributions[row.param_name] = distribution
        params[row.param_name] = distribution.to_external_repr(row.param_value)
    return FrozenTrial(
        number=trial.number,
        state=trial.state,
        value=None,
        values=[_INFINITE.get(row.value_type, row.value) for row in belongings[VALUES]] or None,
        datetime_start=_local(trial.datetime_start),
        datetime_complete=_local(trial.datetime_complete),
        params=params,
        distributions=distributions,
        user_attrs=_read_attributes(belongings[TRIAL_USER_ATTRIBUTES]),
        system_attrs=_read_attributes(belongings[TRIAL_SYSTEM_ATTRIBUTES]),
        intermediate_values={
            row.step: _INFINITE.get(row.intermediate_value_type, row.intermediate_value)
            for row in belongings[INTERMEDIATE_VALUES]
        },
        trial_id=trial.trial_id,
    )


def _attributes(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value_json": json.dumps(value)} for key, value in attributes.items()]


def _read_attributes(rows: Iterable[Row[Any]]) -> dict[str, Any]:
    return {row.key: json.loads(row.value_json) for row in rows}


def _in_study(connection: Connection, study_id: int, trial: FrozenTrial) -> Distributions:
    """The distributions of a trial, with the categories that its study has, and those that are new behind them.

    A package that adds a runtime knows more words than the study was made with. Optuna refuses them; here earlier rows
    take the longer list, in which a category keeps its number. A number may also be a category of a study that has
    texts beside numbers.
    """
    distributions, widened = trial.distributions, dict[str, BaseDistribution]()
    for name, known in _known(connection, study_id, distributions).items():
        distribution = distributions[name]
        if isinstance(known, CategoricalDistribution) and isinstance(distribution, FloatDistribution):
            distribution = CategoricalDistribution((trial.params[name],))
        if isinstance(known, FloatDistribution) and isinstance(distribution, CategoricalDistribution):
            raise BadInput(f"the study has numbers of {name} so far, got texts, too; give another --study-name")
        if isinstance(known, CategoricalDistribution) and isinstance(distribution, CategoricalDistribution):
            new = [choice for choice in distribution.choices if choice not in known.choices]
            widened[name] = CategoricalDistribution((*known.choices, *new))
            if new:
                of_study = select(TRIALS.c.trial_id).where(TRIALS.c.study_id == study_id)
                rows = update(PARAMS).where(PARAMS.c.param_name == name, PARAMS.c.trial_id.in_(of_study))
                connection.execute(rows.values(distribution_json=distribution_to_json(widened[name])))
        else:
            check_distribution_compatibility(known, distribution)
    return {**distributions, **widened}


def _known(connection: Connection, study_id: int, names: Iterable[str]) -> Distributions:
    """The distributions of those parameters that an earlier trial of the study has."""
    names = tuple(names)
    if not names:
        return {}
    earlier = select(PARAMS.c.distribution_json).select_from(PARAMS.join(TRIALS)).limit(1)
    of_study = earlier.where(TRIALS.c.study_id == study_id)
    of_names = (of_study.where(PARAMS.c.param_name == name).scalar_subquery() for name in names)
    texts = connection.execute(select(*of_names)).one()
    return {name: json_to_distribution(text) for name, text in zip(names, texts, strict=True) if text is not None}
