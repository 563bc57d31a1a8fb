"""Databases that Alembic reads; trials and attributes of studies, row by row as Optuna writes them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import DuplicatedStudyError
from optuna.storages import RDBStorage
from optuna.storages._rdb import models
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy import Engine, Enum, MetaData, create_engine, event, inspect, select
from sqlalchemy.engine import make_url
from sqlalchemy.schema import CreateIndex, CreateTable

from autoauto.database.registry import driver_url
from autoauto.records.errors import BadInput
from autoauto.study.store.database import open_storage
from autoauto.study.store.optuna_tables import REVISION, SCHEMA_VERSION, TABLES
from autoauto.study.store.trial_storage import TrialStorage

RANGES = {"n_ipu": IntDistribution(1, 4), "share": FloatDistribution(0.0, 1.0), "mode": CategoricalDistribution("ab")}
BELONGINGS = (
    models.TrialValueModel,
    models.TrialParamModel,
    models.TrialUserAttributeModel,
    models.TrialSystemAttributeModel,
)


def a_trial(values: list[float] | None, mode: str = "b") -> FrozenTrial:
    trial = create_trial(
        state=TrialState.COMPLETE if values else TrialState.PRUNED,
        values=values,
        params={"n_ipu": 2, "share": 0.5, "mode": mode},
        distributions=RANGES,
        user_attrs={"status": "ok", "note": "ä"},
        system_attrs={"constraints": [0.5], "stages": [{"start": 1}]},
    )
    trial.datetime_start = trial.datetime_complete = datetime(2026, 1, 2, 3, 4, 5)
    return trial


TRIALS = [a_trial([1.0, inf]), a_trial([-inf, 2.0], mode="a"), a_trial(None)]


class Written(NamedTuple):
    """A study, and the storage through which its trials are written."""

    storage: RDBStorage
    study_id: int

    @classmethod
    def by(cls, storage: RDBStorage, name: str) -> Written:
        return cls(storage, storage.create_new_study([StudyDirection.MAXIMIZE, StudyDirection.MINIMIZE], name))

    def add(self, *trials: FrozenTrial) -> None:
        for trial in trials:
            self.storage.create_new_trial(self.study_id, trial)

    def rows(self) -> list[list[Any]]:
        """The rows of all tables, without the ids that are those of the study alone."""
        queries = [select(models.TrialModel.__table__).where(models.TrialModel.study_id == self.study_id)]
        of_study = select(models.TrialModel.trial_id).where(models.TrialModel.study_id == self.study_id)
        queries += [select(table.__table__).where(table.trial_id.in_(of_study)) for table in BELONGINGS]
        with self.storage.engine.connect() as connection:
            # Other tests write to the same server meanwhile, so that numbers of a study have gaps.
            order = sorted(connection.execute(of_study).scalars())
            return [
                sorted(
                    str({**{k: v for k, v in row.items() if k[-3:] != "_id"}, "trial": order.index(row["trial_id"])})
                    for row in connection.execute(query).mappings()
                )
                for query in queries
            ]


@pytest.fixture
def ours(any_storage: str, study_name: str) -> Written:
    return Written.by(open_storage(any_storage), study_name)


@pytest.fixture
def theirs(any_storage: str, other_study_name: str) -> Iterator[Written]:
    storage = RDBStorage(driver_url(make_url(any_storage)).render_as_string(hide_password=False))
    yield Written.by(storage, other_study_name)
    storage.engine.dispose()


@pytest.fixture(params=["UTC", "Asia/Tokyo"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A time zone of this machine."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("url", ["sqlite://", "postgresql+psycopg://"])
def test_the_tables_are_those_that_optuna_makes(url: str) -> None:
    dialect = make_url(url).get_dialect()()

    def statements(tables: MetaData) -> list[str]:
        made: list[CreateTable | CreateIndex] = []
        for table in tables.sorted_tables:
            made += [CreateTable(table), *map(CreateIndex, table.indexes)]
        return [str(each.compile(dialect=dialect)) for each in made]

    def words(tables: MetaData) -> dict[str, list[str]]:
        columns = [column for table in tables.sorted_tables for column in table.c]
        return {str(column): column.type.enums for column in columns if isinstance(column.type, Enum)}

    assert statements(TABLES) == statements(models.BaseModel.metadata)
    assert words(TABLES) == words(models.BaseModel.metadata)
    assert models.SCHEMA_VERSION == SCHEMA_VERSION


@pytest.mark.usefixtures("zone")
def test_a_trial_is_read_as_optuna_reads_it(ours: Written, theirs: Written) -> None:
    running = create_trial(state=TrialState.RUNNING, intermediate_values={3: 0.5, 1: -inf})
    for trial in (*TRIALS, running):
        trial_id = ours.storage.create_new_trial(ours.study_id, trial)
        read = ours.storage.get_trial(trial_id)
        assert read == theirs.storage.get_trial(trial_id)
        assert read.datetime_start == trial.datetime_start
        numbered = (ours.study_id, read.number)
        assert ours.storage.get_trial_id_from_study_id_trial_number(*numbered) == trial_id


def test_a_study_is_read_as_optuna_reads_it(ours: Written, theirs: Written) -> None:
    ours.storage.set_study_system_attr(ours.study_id, "names", ["a", "b"])
    ours.add(*TRIALS)
    for study in (ours, theirs):
        name = theirs.storage.get_study_name_from_id(study.study_id)
        assert ours.storage.get_study_name_from_id(study.study_id) == name
        assert ours.storage.get_study_id_from_name(name) == study.study_id
        for read in ("get_study_directions", "get_study_user_attrs", "get_study_system_attrs", "get_n_trials"):
            assert getattr(ours.storage, read)(study.study_id) == getattr(theirs.storage, read)(study.study_id)
    pruned = TrialState.PRUNED
    assert ours.storage.get_n_trials(ours.study_id, pruned) == ours.storage.get_n_trials(ours.study_id, (pruned,)) == 1
    for read in ("get_study_directions", "get_study_user_attrs", "get_n_trials"):
        with pytest.raises(KeyError):
            getattr(ours.storage, read)(10**9)
    with pytest.raises(DuplicatedStudyError):
        Written.by(ours.storage, name)


@pytest.mark.usefixtures("zone")
def test_the_rows_are_those_that_optuna_writes(ours: Written, theirs: Written) -> None:
    for study in (ours, theirs):
        study.add(*TRIALS, create_trial(state=TrialState.FAIL, user_attrs={"status": "failed"}))
    assert any("failed" in row for row in ours.rows()[3])
    # Of the last trial Optuna sets the time itself.
    assert [rows[:-1] for rows in ours.rows()] == [rows[:-1] for rows in theirs.rows()]


def test_a_table_takes_one_statement_however_many_rows_a_trial_has(ours: Written) -> None:
    statements: list[str] = []
    event.listen(ours.storage.engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    ours.add(TRIALS[0])
    assert sum(text.startswith("INSERT INTO trial") for text in statements) == 1 + len(BELONGINGS)


def test_attributes_of_a_study_are_those_that_optuna_writes(ours: Written, theirs: Written) -> None:
    attributes = {"status": "ok", "note": "ä", "sizes": [1, 2]}
    for study in (ours, theirs):
        study.storage.set_study_user_attr(study.study_id, "note", "old")
        study.storage.set_study_user_attr(study.study_id, "other", 1)
    statements: list[str] = []
    event.listen(ours.storage.engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    assert isinstance(ours.storage, TrialStorage)
    ours.storage.set_study_attrs(ours.study_id, attributes)
    assert sum(text.startswith("INSERT INTO study_user_attributes") for text in statements) == 1
    for name, value in attributes.items():
        theirs.storage.set_study_user_attr(theirs.study_id, name, value)
    stored = ours.storage.get_study_user_attrs(ours.study_id)
    assert stored == theirs.storage.get_study_user_attrs(theirs.study_id) == {"other": 1, **attributes}


def test_parameters_of_another_kind_are_refused_as_by_optuna(ours: Written, theirs: Written) -> None:
    other = IntDistribution(0, 1)
    wrong = create_trial(values=[1.0, 1.0], params={"mode": 0}, distributions={"mode": other})
    messages = []
    for study in (ours, theirs):
        study.add(TRIALS[0])
        with pytest.raises(ValueError, match=r".") as caught:
            study.add(wrong)
        messages.append(str(caught.value))
        assert len(study.storage.get_all_trials(study.study_id)) == 1
    assert messages[1] in messages[0]


def test_a_study_takes_words_that_are_new_and_keeps_those_it_has(ours: Written) -> None:
    """As after an update of the package, or of a package that adds a runtime: with an order, a runtime or a format."""
    ours.add(*TRIALS)
    # The list of a later version begins with another word; that of an earlier one lacks the last.
    for words, own in (("cab", "c"), ("ab", "a")):
        longer = RANGES | {"mode": CategoricalDistribution(words)}
        ours.add(create_trial(values=[1.0, 1.0], params=TRIALS[0].params | {"mode": own}, distributions=longer))
    trials = ours.storage.get_all_trials(ours.study_id)
    assert [trial.params["mode"] for trial in trials] == ["b", "a", "b", "c", "a"]
    assert {trial.distributions["mode"] for trial in trials} == {CategoricalDistribution("abc")}


def test_a_switch_may_get_a_word(ours: Written) -> None:
    for choices, own in (((False, True), True), ((False, True, "auto"), "auto")):
        ranges: dict[str, BaseDistribution] = {"recompute": CategoricalDistribution(choices)}
        ours.add(create_trial(values=[1.0, 1.0], params={"recompute": own}, distributions=ranges))
    stored = [trial.params["recompute"] for trial in ours.storage.get_all_trials(ours.study_id)]
    assert [repr(value) for value in stored] == ["True", "'auto'"]


def of_share(share: float | str, distribution: BaseDistribution) -> FrozenTrial:
    return create_trial(
        state=TrialState.COMPLETE, values=[1.0, 2.0], params={"share": share}, distributions={"share": distribution}
    )


def test_numbers_may_follow_texts_but_texts_no_numbers(tmp_path: Path) -> None:
    storage = open_storage(f"sqlite:///{tmp_path / 'a.db'}")
    texts, numbers = Written.by(storage, "texts"), Written.by(storage, "numbers")
    texts.add(
        of_share("0.1:0.2", CategoricalDistribution(("0.1:0.2", 0.3))), of_share(0.4, FloatDistribution(0.3, 0.5))
    )
    trials = storage.get_all_trials(texts.study_id)
    assert [trial.params["share"] for trial in trials] == ["0.1:0.2", 0.4]
    assert {trial.distributions["share"] for trial in trials} == {CategoricalDistribution(("0.1:0.2", 0.3, 0.4))}
    numbers.add(of_share(0.4, FloatDistribution(0.3, 0.5)))
    with pytest.raises(BadInput, match="has numbers of share so far, got texts, too; give another --study-name"):
        numbers.add(of_share("0.1:0.2", CategoricalDistribution(("0.1:0.2",))))


def tables(engine: Engine) -> dict[str, object]:
    inspector = inspect(engine)
    columns = {name: [str(column) for column in inspector.get_columns(name)] for name in inspector.get_table_names()}
    return {**columns, "key": inspector.get_pk_constraint("alembic_version")}


def test_a_new_database_is_as_optuna_makes_it_with_alembic(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path}/{name}.db" for name in ("ours", "theirs")]
    ours, theirs = open_storage(urls[0]), RDBStorage(urls[1])
    assert tables(ours.engine) == tables(theirs.engine)
    rows = []
    for storage in (ours, theirs):
        with storage.engine.connect() as connection:
            rows.append(connection.exec_driver_sql("SELECT * FROM version_info, alembic_version").all())
    assert rows[0] == rows[1]


def test_the_revision_is_the_newest_of_this_optuna_and_either_reads_it_of_the_other(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path}/{name}.db" for name in ("ours", "theirs")]
    made = open_storage(urls[0]), RDBStorage(urls[1])
    read = RDBStorage(urls[0]), open_storage(urls[1])
    assert {storage.get_current_version() for storage in (*made, *read)} == {REVISION}
    assert {storage.get_head_version() for storage in (*made, *read)} == {REVISION}


def test_a_database_that_a_killed_process_made_in_part_is_completed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/trials.db"
    storage = open_storage(url)
    with storage.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM alembic_version")
        connection.exec_driver_sql("DROP TABLE trial_values")
    assert tables(open_storage(url).engine) == tables(open_storage(f"sqlite:///{tmp_path}/other.db").engine)


def test_a_database_from_before_alembic_has_the_first_revision_and_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/trials.db"
    storage = open_storage(url)
    with storage.engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE alembic_version")
        connection.exec_driver_sql("UPDATE version_info SET schema_version = 0")
    with pytest.raises(BadInput, match="optuna storage upgrade"):
        open_storage(url)
    with create_engine(url).connect() as connection:
        assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar() == "v0.9.0.a"


def test_opening_a_database_imports_no_alembic(tmp_path: Path) -> None:
    opens = f"from autoauto.study.store.database import open_storage; open_storage('sqlite:///{tmp_path}/trials.db')"
    program = f"import sys; {opens}; {opens}; assert 'alembic' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_trial_that_something_else_must_go_with_is_not_written_without_it(ours: Written) -> None:
    assert isinstance(ours.storage, TrialStorage)

    def refuse(_: object, trial_id: int) -> None:
        raise LookupError(trial_id)

    with pytest.raises(LookupError):
        ours.storage.add_trial(ours.study_id, TRIALS[0], refuse)
    assert ours.storage.get_all_trials(ours.study_id) == []


def test_a_deleted_study_leaves_rows_of_others_alone(ours: Written, theirs: Written) -> None:
    for study in (ours, theirs):
        study.add(*TRIALS)
        study.storage.set_study_user_attr(study.study_id, "note", "x")
    before = theirs.rows()
    ours.storage.delete_study(ours.study_id)
    assert ours.rows() == [[]] * 5
    assert theirs.rows() == before
    ours.storage.create_new_study([StudyDirection.MAXIMIZE], "again")
    ours.storage.delete_study(ours.storage.get_study_id_from_name("again"))
