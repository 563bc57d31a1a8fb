"""What every kind of database does, on a database of each."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from sqlalchemy import Column, Engine, Index, Integer, MetaData, String, Table, create_engine, inspect, select, update
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, ProgrammingError

from autoauto.database.backend import WAIT_S, Backend
from autoauto.database.registry import BACKENDS, LONG_BYTES, LONG_TEXT, backend_of, driver_errors, driver_url
from autoauto.database.tables import create_table, insert_rows
from autoauto.records.errors import MissingExtra

URLS = {
    "sqlite": "sqlite:///FOLDER/numbers.db",
    "postgresql": os.environ.get("AUTOAUTO_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test"),
}
"""By the name of a kind a database; a kind without one here fails the tests."""


@pytest.fixture(params=list(BACKENDS))
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """Connections to a database; without a server the test is skipped, with AUTOAUTO_REQUIRE_POSTGRES it fails."""
    url = driver_url(make_url(URLS[request.param].replace("FOLDER", str(tmp_path))))
    try:
        engine = create_engine(url, connect_args=backend_of(url).connect_arguments())
        engine.connect().close()
    except (ImportError, OperationalError) as error:
        if os.environ.get("AUTOAUTO_REQUIRE_POSTGRES"):
            raise
        pytest.skip(f"no server: {error}")
    yield engine
    engine.dispose()


@pytest.fixture
def backend(engine: Engine) -> Backend:
    return backend_of(engine)


@pytest.fixture
def jobs(engine: Engine) -> Iterator[Table]:
    """Three jobs, of which the second is taken."""
    name = f"autoauto_test_{uuid.uuid4().hex}"
    table = Table(
        name,
        MetaData(),
        Column("key", Integer, primary_key=True),
        Column("owner", String(16), nullable=False),
        Column("text", LONG_TEXT),
        Column("content", LONG_BYTES),
        Index(f"{name}_owner", "owner"),
    )
    insert_rows(engine, table, [{"key": key, "owner": owner} for key, owner in ((1, ""), (2, "mary"), (3, ""))])
    yield table
    table.drop(engine)


def test_a_table_that_is_there_with_its_indexes_stays(engine: Engine, jobs: Table) -> None:
    create_table(engine, jobs)
    assert [index["name"] for index in inspect(engine).get_indexes(jobs.name)] == [f"{jobs.name}_owner"]
    with engine.connect() as connection:
        assert len(connection.execute(jobs.select()).all()) == 3


def test_rows_whose_key_is_new_are_inserted_and_counted(engine: Engine, backend: Backend, jobs: Table) -> None:
    with engine.begin() as connection:
        rows = [{"key": key, "owner": "john"} for key in (2, 4, 5)]
        assert backend.insert_new(connection, jobs, rows) == 2
        owners = connection.execute(jobs.select().with_only_columns(jobs.c.owner).order_by(jobs.c.key)).scalars().all()
    assert owners == ["", "mary", "", "john", "john"]


def test_a_row_that_is_changed_is_returned_as_it_is_then(engine: Engine, backend: Backend, jobs: Table) -> None:
    change = update(jobs).values(owner=jobs.c.owner + "!")
    with engine.begin() as connection:
        assert backend.update_one(connection, change.where(jobs.c.key == 2), jobs.c.key, jobs.c.owner) == (2, "mary!")
        assert backend.update_one(connection, change.where(jobs.c.key == 9), jobs.c.key) is None


def test_the_first_row_that_is_free_is_claimed(engine: Engine, backend: Backend, jobs: Table) -> None:
    keys = []
    for owner in ("john", "jane", "joan"):
        with engine.begin() as connection:
            row = backend.claim_first(connection, jobs, jobs.c.owner == "", {"owner": owner})
            keys.append(row and (row.key, row.owner))
    assert keys == [(1, "john"), (3, "jane"), None]


def test_two_that_claim_at_once_get_different_rows(engine: Engine, backend: Backend, jobs: Table) -> None:
    together, keys = threading.Barrier(2), []

    def claim() -> None:
        together.wait(60.0)
        with engine.begin() as connection:
            row = backend.claim_first(connection, jobs, jobs.c.owner == "", {"owner": "john"})
            keys.append(row and row.key)

    threads = [threading.Thread(target=claim) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, keys)) == ["1", "3"]


def test_others_are_excluded_until_the_transaction_ends(engine: Engine, backend: Backend, jobs: Table) -> None:
    seen = []

    def other() -> None:
        with engine.begin() as connection:
            backend.exclude_others(connection, jobs.name)
            connection.execute(update(jobs).where(jobs.c.key == 1).values(owner="john"))
            seen.append("second")

    with engine.begin() as connection:
        backend.exclude_others(connection, jobs.name)
        connection.execute(update(jobs).where(jobs.c.key == 3).values(owner="mary"))
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(0.3)  # in which it would come first if it could
        seen.append("first")
    thread.join()
    assert seen == ["first", "second"]


def test_the_clock_goes_on_within_a_transaction(engine: Engine, backend: Backend) -> None:
    with engine.begin() as connection:
        times_s = [connection.execute(select(backend.clock_s())).scalar_one() for _ in range(2)]
    assert times_s[0] < times_s[1]
    assert times_s[1] - times_s[0] < 60.0


def test_texts_and_bytes_of_megabytes_come_back_whole(engine: Engine, jobs: Table) -> None:
    text, content = "ä" * 2_000_000, bytes(range(256)) * 16_384
    with engine.begin() as connection:
        connection.execute(update(jobs).where(jobs.c.key == 1).values(text=text, content=content))
        row = connection.execute(jobs.select().where(jobs.c.key == 1)).one()
    assert (row.text, bytes(row.content)) == (text, content)


def test_only_a_kind_without_a_server_has_files(engine: Engine, backend: Backend) -> None:
    assert (backend.file(engine.url) is None) == backend.is_server
    assert not backend.is_in_memory(engine.url)


def test_any_name_excludes_others(engine: Engine, backend: Backend) -> None:
    """Half of all digests would be too large for a number of 8 bytes with a sign."""
    for number in range(12):
        with engine.begin() as connection:
            backend.exclude_others(connection, f"name {number}")


def test_sqlite_waits_for_a_lock() -> None:
    engine = create_engine("sqlite://", connect_args=BACKENDS["sqlite"].connect_arguments())
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 1000 * WAIT_S
    engine.dispose()


@pytest.mark.parametrize(
    ("error", "is_raised"),
    [
        (IntegrityError("CREATE", {}, Exception("a key of the catalogue")), False),
        (ProgrammingError("CREATE", {}, Exception("relation already exists")), False),
        (OperationalError("CREATE", {}, Exception("disk I/O error")), True),
    ],
)
def test_an_index_that_another_process_has_just_made_stays(
    monkeypatch: pytest.MonkeyPatch, error: DBAPIError, is_raised: bool
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Index, "create", fail)
    engine = create_engine("sqlite://")
    table = Table("jobs", MetaData(), Column("key", Integer, primary_key=True), Index("of_key", "key"))
    with pytest.raises(type(error)) if is_raised else nullcontext():
        create_table(engine, table)
    engine.dispose()


@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        ("postgresql://host/a", ImportError("none", name="psycopg"), "postgresql://host/a needs .*postgres"),
        (
            "postgresql+pg8000://host/a",
            ImportError("none", name="pg8000"),
            "lacks the driver pg8000; postgresql:// alone",
        ),
        ("postgresql+pg8000://host/a", ImportError("of Optuna"), "lacks the driver pg8000; postgresql:// alone"),
        (
            "sqlite+pysqlcipher:///a",
            ImportError("none", name="sqlcipher3"),
            "needs the database driver sqlcipher3; try",
        ),
    ],
)
def test_a_driver_that_is_not_installed_is_named(url: str, error: ImportError, message: str) -> None:
    with pytest.raises(MissingExtra, match=message), driver_errors(driver_url(make_url(url))):
        raise error
