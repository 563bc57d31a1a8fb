"""Which errors of a database pass, how often work is repeated, and what is said of them."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, Table, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError, InterfaceError, OperationalError
from sqlalchemy.pool import NullPool

from autoauto.database import retries
from autoauto.database.backend import WAIT_S
from autoauto.database.registry import BACKENDS, parse_url, shown
from autoauto.database.retries import first_line, retried
from autoauto.database.tables import create_table, insert_rows
from autoauto.records.errors import BadInput


def locked() -> OperationalError:
    cause = sqlite3.OperationalError("database is locked")
    cause.sqlite_errorcode = sqlite3.SQLITE_BUSY
    return OperationalError("SELECT 1", {}, cause)


def away() -> OperationalError:
    return OperationalError("SELECT 1", {}, Exception("connection refused\nIs the server running?"))


def wrapped(cause: Exception, wrapper: Exception) -> Exception:
    wrapper.__cause__ = cause
    return wrapper


class Fails:
    """Work that fails `n_failures` times."""

    def __init__(self, error: Exception, n_failures: int) -> None:
        self.error, self.n_failures = error, n_failures

    def __call__(self) -> str:
        if self.n_failures:
            self.n_failures -= 1
            raise self.error
        return "done"


@pytest.fixture(autouse=True)
def pauses_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits between tries, which the test does not wait for."""
    pauses_s: list[float] = []
    monkeypatch.setattr(retries, "sleep", pauses_s.append)
    return pauses_s


@pytest.mark.parametrize(
    "error",
    [
        locked(),
        away(),
        InterfaceError("SELECT 1", {}, Exception("connection already closed")),
        wrapped(away(), RuntimeError("what Optuna raises")),
    ],
    ids=["locked", "away", "closed", "wrapped"],
)
def test_an_error_that_passes_is_waited_for(error: Exception, pauses_s: list[float]) -> None:
    assert retried(Fails(error, 3)) == "done"
    assert len(set(pauses_s)) == 3
    assert all(0 < pause_s < 1 for pause_s in pauses_s)


@pytest.mark.parametrize(
    "error",
    [
        OperationalError("SELECT 1", {}, sqlite3.OperationalError("no such table: studies")),
        IntegrityError("INSERT", {}, Exception("duplicate key")),
        wrapped(away(), BadInput("the server was waited for already")),
        ValueError("no error of a database"),
    ],
    ids=["no table", "duplicate", "waited", "other"],
)
def test_other_errors_are_raised_at_once(error: Exception, pauses_s: list[float]) -> None:
    with pytest.raises(type(error)):
        retried(Fails(error, 1))
    assert pauses_s == []


def test_after_the_longest_wait_the_error_is_raised(monkeypatch: pytest.MonkeyPatch, pauses_s: list[float]) -> None:
    monkeypatch.setattr(retries, "monotonic", lambda: sum(pauses_s))
    with pytest.raises(OperationalError):
        retried(Fails(away(), 10**6))
    assert WAIT_S <= sum(pauses_s) <= WAIT_S + 1


def test_a_check_ends_the_wait() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        retried(Fails(away(), 1), interrupt)


@pytest.mark.parametrize("make", [away, lambda: wrapped(away(), RuntimeError("what Optuna raises"))])
def test_an_error_is_the_first_line_of_the_driver(make: Callable[[], Exception]) -> None:
    assert first_line(make()) == "connection refused"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("  one\ntwo"), "one"),
        (BadInput("one"), "one"),
        (wrapped(OperationalError("SELECT 1", {}, Exception("cause\nmore")), RuntimeError("of Optuna")), "cause"),
        (wrapped(ValueError("cause"), RuntimeError("ours")), "ours"),
    ],
)
def test_an_error_of_another_kind_is_its_own_first_line(error: Exception, line: str) -> None:
    assert first_line(error) == line


def refusing(n_times: int, *, answers: bool) -> tuple[Engine, list[str]]:
    """A database that is locked for the first connections, before or after it has answered; and what happened."""
    happened: list[str] = []
    cause = sqlite3.OperationalError("database is locked")
    cause.sqlite_errorcode = sqlite3.SQLITE_BUSY

    def connect(*_: object) -> sqlite3.Connection:
        if not answers and happened.count("refused") < n_times:
            happened.append("refused")
            raise cause
        return sqlite3.connect(":memory:")

    engine = create_engine("sqlite://", creator=connect, poolclass=NullPool)

    @event.listens_for(engine, "connect")
    def set_up(*_: object) -> None:
        if answers and happened.count("refused") < n_times:
            happened.append("refused")
            raise cause
        happened.append("connected")

    return engine, happened


def test_a_server_that_answers_is_waited_for_and_one_that_does_not_is_not(pauses_s: list[float]) -> None:
    engine, happened = refusing(1, answers=False)
    with pytest.raises(OperationalError, match="database is locked"):
        retries.reach(engine)
    assert (happened, pauses_s) == (["refused"], [])
    engine, happened = refusing(3, answers=True)
    checks: list[str] = []
    retries.reach(engine, lambda: checks.append("check"))
    assert happened[:4] == ["refused", "refused", "refused", "connected"]
    assert len(pauses_s) == len(checks) == 2  # the first time it was not asked again, but waited for
    engine, happened = refusing(0, answers=True)
    retries.reach(engine)
    assert happened == ["connected"]


@pytest.mark.parametrize(
    ("code", "is_final", "is_full"),
    [
        (sqlite3.SQLITE_BUSY, False, False),
        (sqlite3.SQLITE_LOCKED, False, False),
        (sqlite3.SQLITE_BUSY | 2 << 8, False, False),  # SQLITE_BUSY_SNAPSHOT
        (sqlite3.SQLITE_FULL, True, True),
        (sqlite3.SQLITE_CORRUPT, True, False),
        (None, True, False),
    ],
)
def test_all_but_a_lock_comes_again(code: int | None, is_final: bool, is_full: bool) -> None:
    error = sqlite3.OperationalError("one")
    if code is not None:
        error.sqlite_errorcode = code
    backend = BACKENDS["sqlite"]
    assert (backend.is_final(error), backend.is_full(error)) == (is_final, is_full)
    assert not backend.is_final(ValueError("of another database"))
    assert not backend.is_full(None)


@pytest.mark.parametrize(
    ("url", "file"),
    [
        ("sqlite://", None),
        ("sqlite:///:memory:", None),
        ("sqlite:///file:a.db?uri=true", None),
        ("sqlite:///a/b.db", Path("a/b.db")),
    ],
)
def test_a_database_in_memory_has_no_file(url: str, file: Path | None) -> None:
    backend = BACKENDS["sqlite"]
    assert backend.file(make_url(url)) == file
    assert backend.is_in_memory(make_url(url)) == (url in ("sqlite://", "sqlite:///:memory:"))


@pytest.mark.parametrize(
    ("storage", "message"),
    [
        ("numbers", "storage must be a database URL like sqlite:///studies/autoauto.db, got 'numbers'"),
        ("sqlite:///a\0b", "storage must be a database URL like"),
        ("nothing://host/a", "storage must be a database URL like"),
        ("mysql://me:secret@host/a", "a database is sqlite or postgresql, got mysql://me:[*]*@host/a; try sqlite:///"),
    ],
)
def test_what_is_no_url_of_ours_is_refused(storage: str, message: str) -> None:
    with pytest.raises(BadInput, match=message) as refused:
        parse_url(storage)
    assert "secret" not in str(refused.value)


def test_urls_have_our_driver_unless_they_name_one() -> None:
    assert parse_url("postgresql://host/a").drivername == "postgresql+psycopg"
    assert parse_url("postgresql+pg8000://host/a").drivername == "postgresql+pg8000"
    assert parse_url("sqlite:///a.db").drivername == "sqlite"


def test_a_password_is_not_shown() -> None:
    assert shown(make_url("postgresql://me:secret@host/db")) == "postgresql://me:***@host/db"


def test_rows_of_a_stored_key_stay(tmp_path: Path) -> None:
    numbers = Table("numbers", MetaData(), Column("key", Integer, primary_key=True), Column("value", Integer))
    engine = create_engine(f"sqlite:///{tmp_path}/numbers.db")
    create_table(engine, numbers)
    for pairs in ([(1, 1), (2, 2)], [(1, 5), (3, 3)]):
        insert_rows(engine, numbers, [{"key": key, "value": value} for key, value in pairs])
    engine.dispose()
    with closing(sqlite3.connect(tmp_path / "numbers.db")) as connection:
        rows = list(connection.execute("SELECT key, value FROM numbers ORDER BY key"))
    assert rows == [(1, 1), (2, 2), (3, 3)]


INTERRUPTED_RESET = """
from sqlalchemy import create_engine
from sqlalchemy.pool import QueuePool

import autoauto.database.retries

engine = create_engine("sqlite://", poolclass=QueuePool)
connection = engine.connect()

def interrupted(_connection):
    raise KeyboardInterrupt

engine.dialect.do_rollback = interrupted
try:
    connection.close()
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_while_a_connection_goes_back_to_its_pool_prints_nothing() -> None:
    python = subprocess.run([sys.executable, "-c", INTERRUPTED_RESET], capture_output=True, text=True, check=True)
    assert (python.stdout, python.stderr) == ("interrupted\n", "")
