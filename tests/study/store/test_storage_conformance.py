"""Optuna's own suite for storages passes on ours; and a user's study in the same process is Optuna's alone."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import optuna
import pytest
from optuna.storages import RDBStorage
from optuna.storages._rdb import storage as rdb
from optuna.testing.pytest_storages import StorageTestCase
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.engine import make_url

from autoauto.database.registry import driver_url
from autoauto.records.layers import LayerGraph
from autoauto.space.space import SearchSpace
from autoauto.study.search import search
from autoauto.study.store.database import open_storage
from autoauto.study.store.trial_storage import TrialStorage, storage_of


@pytest.fixture(params=["sqlite", "postgresql"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TrialStorage]:
    """An empty database, as the suite expects it: a file, then a schema of a server."""
    if request.param == "sqlite":
        yield open_storage(f"sqlite:///{tmp_path}/trials.db")
        return
    url = make_url(request.getfixturevalue("postgres"))
    server = create_engine(driver_url(url), poolclass=NullPool)
    schema = f"autoauto_test_{uuid.uuid4().hex[:12]}"
    with server.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
    in_schema = url.update_query_dict({"options": f"-csearch_path={schema}"})
    storage = open_storage(in_schema.render_as_string(hide_password=False))
    yield storage
    storage.engine.dispose()
    with server.begin() as connection:
        connection.execute(text(f"DROP SCHEMA {schema} CASCADE"))


class TestWhatIsOurs:
    """Cases of methods that are not Optuna's."""

    test_a_study_is_deleted = StorageTestCase.test_delete_study
    test_it_is_deleted_among_others = StorageTestCase.test_delete_study_after_create_multiple_studies
    test_a_finished_trial_is_written = StorageTestCase.test_create_new_trial_with_template_trial
    test_it_can_be_pickled = StorageTestCase.test_pickle_storage
    test_what_is_not_there_is_a_key_error = StorageTestCase.test_get_trial_id_from_study_id_trial_number


@pytest.mark.slow
class TestAll(StorageTestCase):
    """The whole suite."""


def test_a_study_of_the_user_after_a_search_has_optunas_own_classes(
    chain: Callable[..., LayerGraph], tmp_path: Path
) -> None:
    ours, theirs = (f"sqlite:///{tmp_path}/{name}.db" for name in ("ours", "theirs"))
    search(chain("ab"), "c600", SearchSpace((1,), (0.6,), (4,)), storage=ours, study_name="ours", n_repeats=0)
    study = optuna.create_study(storage=theirs)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
    backend = storage_of(study)
    assert [type(backend), type(backend._version_manager)] == [RDBStorage, rdb._VersionManager]
    members = [value for owner in (rdb, *RDBStorage.__mro__, rdb._VersionManager) for value in vars(owner).values()]
    assert [each for each in members if str(getattr(each, "__module__", "")).startswith("autoauto")] == []
    assert [trial.number for trial in optuna.load_study(study_name="ours", storage=ours).trials] == [0]
