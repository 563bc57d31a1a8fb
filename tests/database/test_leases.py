"""Rows that a process holds for a time, by the clock of the database, and which processes are gone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Column, Connection, Float, Integer, MetaData, String, Table, create_engine, literal, select

from autoauto.database.leases import LeasedRows, is_gone, this_process

JOBS = Table(
    "jobs",
    MetaData(),
    Column("key", Integer, primary_key=True),
    Column("token", String),
    Column("process", String),
    Column("expires_s", Float),
)
ROWS = LeasedRows(JOBS, lease_s=10.0)
NOW = literal(1000.0)


@pytest.fixture
def connection() -> Iterator[Connection]:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        JOBS.create(connection)
        yield connection
    engine.dispose()


@pytest.fixture
def ended() -> str:
    """A process of this machine that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    machine, _, _ = this_process().rpartition(":")
    return f"{machine}:{process.pid}"


def insert(connection: Connection, *rows: tuple[str | None, str | None, float | None]) -> None:
    """Rows of a token, a process and an end, from key 1 on."""
    names = ("token", "process", "expires_s")
    connection.execute(
        JOBS.insert(), [{"key": key, **dict(zip(names, row, strict=True))} for key, row in enumerate(rows, 1)]
    )


def keys(connection: Connection, condition: Any) -> list[int]:
    return list(connection.scalars(select(JOBS.c.key).where(condition).order_by(JOBS.c.key)))


def test_a_row_is_free_without_a_token_or_once_its_lease_has_run_out(connection: Connection) -> None:
    """No lease may last more than 60 s from now: that was written before the clock was set back."""
    ends_s = (999.9, 1000.0, 1000.1, 1060.0, 1060.1)
    insert(connection, (None, None, None), *(("t", "p", end_s) for end_s in ends_s))
    assert keys(connection, ROWS.have_run_out(NOW)) == [2, 6]
    assert keys(connection, ROWS.are_free(NOW)) == [1, 2, 6]


def test_a_row_that_is_taken_or_renewed_is_held_for_the_time_of_a_lease(connection: Connection) -> None:
    insert(connection, (None, None, None), (None, None, None))
    for key in (1, 2):
        connection.execute(JOBS.update().where(JOBS.c.key == key).values(**ROWS.taken(NOW, "p")))
    first, second = connection.execute(JOBS.select()).all()
    assert (first.process, first.expires_s) == ("p", 1010.0)
    assert first.token != second.token
    connection.execute(JOBS.update().where(JOBS.c.key == 1).values(**ROWS.renewed(literal(1007.0))))
    renewed = connection.execute(JOBS.select()).first()
    assert renewed is not None
    assert (renewed.token, renewed.expires_s) == (first.token, 1017.0)
    assert keys(connection, ROWS.are_free(literal(1012.0))) == [2]


def test_leases_of_processes_that_are_gone_end_and_no_others(connection: Connection, ended: str) -> None:
    ours = this_process()
    insert(
        connection,
        ("a", ended, 1010.0),
        ("b", ours, 1010.0),
        ("c", "elsewhere:1", 1010.0),
        (None, ended, None),
        ("d", ended, 1010.0),
    )
    assert not ROWS.free_those_of_gone_processes(connection, JOBS.c.key.in_([2, 3, 4]))
    assert keys(connection, JOBS.c.token.is_(None)) == [4]
    assert ROWS.free_those_of_gone_processes(connection, JOBS.c.key < 5)
    assert keys(connection, JOBS.c.token.is_(None)) == [1, 4]  # the last is not among them


def test_only_of_processes_of_this_machine_it_is_known_that_they_are_gone(
    ended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_gone(ended)
    assert not is_gone(this_process())
    assert not is_gone(f"elsewhere:{ended.rpartition(':')[2]}")

    def refused(error: type[Exception]) -> Callable[[int, int], None]:
        def kill(pid: int, number: int) -> None:
            assert (pid, number) == (7, 0)
            raise error

        return kill

    machine = this_process().rpartition(":")[0]
    for error, gone in ((PermissionError, False), (ProcessLookupError, True)):
        monkeypatch.setattr(os, "kill", refused(error))
        assert is_gone(f"{machine}:7") is gone
