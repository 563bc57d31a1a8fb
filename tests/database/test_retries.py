"""Which errors of a database pass, how often work is repeated, and what is said of them."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError, InterfaceError, OperationalError

from autoauto.database import retries
from autoauto.database.backend import WAIT_S
from autoauto.database.registry import shown
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
