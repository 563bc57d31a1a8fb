"""The revision of Optuna's schema that we read and write is the one that Alembic reads and writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from optuna.storages import RDBStorage
from optuna.storages._rdb import storage as optuna_storage
from sqlalchemy import Engine, create_engine, inspect

from autoauto.study.store.database import open_storage
from autoauto.study.store.schema_revision import SchemaRevision, newest_revision

ALEMBIC: type[optuna_storage._VersionManager] = SchemaRevision.__mro__[1]


def tables(engine: Engine) -> dict[str, object]:
    inspector = inspect(engine)
    columns = {name: [str(column) for column in inspector.get_columns(name)] for name in inspector.get_table_names()}
    return {**columns, "key": inspector.get_pk_constraint("alembic_version")}


def test_a_new_database_is_as_alembic_makes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = open_storage(f"sqlite:///{tmp_path}/ours.db")
    monkeypatch.setattr(optuna_storage, "_VersionManager", ALEMBIC)
    theirs = RDBStorage(f"sqlite:///{tmp_path}/theirs.db")
    assert tables(ours.engine) == tables(theirs.engine)
    assert theirs.get_head_version() == newest_revision()
    assert theirs.get_current_version() == ours.get_current_version() == newest_revision()


def test_alembic_reads_the_revision_and_the_other_way_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    urls = [f"sqlite:///{tmp_path}/{name}.db" for name in ("ours", "theirs")]
    open_storage(urls[0]).engine.dispose()
    with monkeypatch.context() as patch:
        patch.setattr(optuna_storage, "_VersionManager", ALEMBIC)
        assert [RDBStorage(url).get_current_version() for url in urls] == [newest_revision()] * 2
    assert open_storage(urls[1]).get_current_version() == newest_revision()


def test_scripts_that_we_cannot_read_are_read_by_alembic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = newest_revision()
    monkeypatch.setattr("autoauto.study.store.schema_revision.newest_revision", lambda: None)
    storage = open_storage(f"sqlite:///{tmp_path}/trials.db")
    assert storage.get_current_version() == storage.get_head_version() == newest


def test_a_database_from_before_alembic_has_the_first_revision_and_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/trials.db"
    storage = open_storage(url)
    with storage.engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE alembic_version")
        connection.exec_driver_sql("UPDATE version_info SET schema_version = 0")
    with pytest.raises(RuntimeError, match="optuna storage upgrade"):
        RDBStorage(url)
    with create_engine(url).connect() as connection:
        assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar() == "v0.9.0.a"


def test_opening_a_database_imports_no_alembic(tmp_path: Path) -> None:
    opens = f"from autoauto.study.store.database import open_storage; open_storage('sqlite:///{tmp_path}/trials.db')"
    program = f"import sys; {opens}; {opens}; assert 'alembic' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
