"""Databases that can be used, and one line for those that cannot."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import text

from autoauto.records.errors import AutoautoError, BadInput, MissingExtra
from autoauto.search.storage import existing_storage, open_storage


def refusal(storage: str, *, existing: bool = False) -> str:
    with pytest.raises(AutoautoError) as caught:
        (existing_storage if existing else open_storage)(storage)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_sqlite_is_made_with_its_folder_and_tuned(tmp_path: Path) -> None:
    storage = open_storage(f"sqlite:///{tmp_path}/a/b/trials.db")
    with storage.engine.connect() as connection:
        pragmas = [
            connection.execute(text(f"PRAGMA {p}")).scalar() for p in ("journal_mode", "synchronous", "busy_timeout")
        ]
    assert pragmas == ["wal", 1, 60_000]  # synchronous 1 is NORMAL
    assert (tmp_path / "a/b/trials.db").stat().st_size > 0


def test_a_relative_path_and_a_path_with_braces_are_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    open_storage("sqlite:///here/{0}.db")
    existing_storage("sqlite:///here/{0}.db")
    assert (tmp_path / "here" / "{0}.db").exists()


def test_a_database_in_memory_works() -> None:
    assert open_storage("sqlite://").get_all_studies() == []


@pytest.mark.parametrize("storage", ["trials.db", "", "mongodb://localhost/trials", "sqlite:/trials.db"])
@pytest.mark.parametrize("existing", [False, True])
def test_no_database_url(storage: str, existing: bool) -> None:
    assert refusal(storage, existing=existing) == (
        f"storage must be a database URL like sqlite:///studies/autoauto.db, got {storage!r}"
    )


@pytest.mark.parametrize("existing", [False, True])
def test_a_missing_driver_names_what_to_install(existing: bool) -> None:
    storage = "mysql+mysqldb://user:secret@localhost/trials"
    with pytest.raises(
        MissingExtra, match=r"^mysql\+mysqldb://user:\*\*\*@localhost/trials needs the database driver MySQLdb: pip"
    ):
        (existing_storage if existing else open_storage)(storage)


def test_a_path_that_cannot_be_a_database(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "the folder of" in refusal(f"sqlite:///{tmp_path}/file/trials.db")
    assert "unable to open database file; try another --storage" in refusal(f"sqlite:///{tmp_path}")
    assert "unable to open database file" in refusal(f"sqlite:///{tmp_path}", existing=True)


@pytest.mark.parametrize("existing", [False, True])
def test_a_file_that_is_no_database(tmp_path: Path, existing: bool) -> None:
    (tmp_path / "notes.txt").write_text("not a database, but longer than a header of SQLite would be, " * 20)
    assert "file is not a database" in refusal(f"sqlite:///{tmp_path}/notes.txt", existing=existing)


@pytest.mark.parametrize("existing", [False, True])
def test_a_corrupt_database(tmp_path: Path, existing: bool) -> None:
    path = tmp_path / "trials.db"
    open_storage(f"sqlite:///{path}").engine.dispose()
    content = path.read_bytes()
    path.write_bytes(content[:100] + b"\xff" * (len(content) - 100))
    assert "malformed" in refusal(f"sqlite:///{path}", existing=existing)


def test_a_database_that_may_only_be_read(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "trials.db").execute("CREATE TABLE theirs (x)").connection.close()
    uri = f"sqlite:///file:{tmp_path}/trials.db?mode=ro&uri=true"
    assert "attempt to write a readonly database" in refusal(uri)


def test_a_database_of_another_optuna(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/trials.db"
    open_storage(url).engine.dispose()
    with sqlite3.connect(tmp_path / "trials.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'v99'")
    connection.close()
    assert "no longer compatible" in refusal(url)


def test_reading_makes_nothing(tmp_path: Path) -> None:
    assert refusal(f"sqlite:///{tmp_path}/typo/trials.db", existing=True).startswith("there is no database ")
    assert list(tmp_path.iterdir()) == []


def test_reading_leaves_other_databases_alone(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    before = path.read_bytes()
    assert "holds no studies" in refusal(f"sqlite:///{path}", existing=True)
    assert path.read_bytes() == before


def test_bad_input_is_what_the_user_can_mend() -> None:
    assert issubclass(MissingExtra, AutoautoError)
    assert issubclass(BadInput, ValueError)
