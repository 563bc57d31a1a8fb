"""Databases, through SQLAlchemy: the one retry rule, `retried`, and the statements that differ between databases."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from random import uniform
from time import monotonic, sleep
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Dialect, Engine, Float, Insert, Table, event, literal, literal_column
from sqlalchemy.engine import URL
from sqlalchemy.exc import (
    DBAPIError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    ProgrammingError,
    SQLAlchemyError,
)
from sqlalchemy.schema import CreateTable

from autoauto.records.errors import AutoautoError, BadInput, MissingExtra, missing_extra

T = TypeVar("T")

for _library in ("psycopg", "sqlalchemy"):  # they would print errors, and Ctrl-C, that they raise too
    logging.getLogger(_library).addHandler(logging.NullHandler())

WAIT_S = 60.0
"""Seconds for which a server may be away, as while it is restarted, and an SQLite file may be locked."""
_KINDS = {"sqlite": "sqlite:///FILE.db", "postgresql": "postgresql://HOST/NAME"}
"""The databases whose statements this file knows, with a URL."""
_RETRY_S = 0.5  # mean time between two tries; a random one, so that processes that wait together come back apart


def retried(work: Callable[[], T], check: Callable[[], None] = lambda: None) -> T:
    """The result of `work`, which is repeated for up to `WAIT_S` while its error may pass; then the error is raised.

    Only for work that may be done twice: the server may have done it before the connection broke. Errors that pass are
    those of a server that is away or ended a transaction for another's sake, and of a locked SQLite file, for which the
    driver has waited already (`connect_arguments`). `check` is called before every wait; it may raise, as for Ctrl-C.
    """
    give_up_s = monotonic() + WAIT_S
    while True:
        try:
            return work()
        except Exception as error:
            if not _may_pass(error) or monotonic() > give_up_s:
                raise
        check()
        sleep(_RETRY_S * uniform(0.5, 1.5))


def reach(engine: Engine, check: Callable[[], None] = lambda: None) -> None:
    """Connect for the first time; a server that does not answer is not waited for, it may not exist.

    One that answers and then drops the connection is waited for as in `retried`.
    """
    answers: list[object] = []
    event.listen(engine, "connect", lambda connection, _: answers.append(connection), insert=True)
    try:
        engine.connect().close()
    except DBAPIError:
        if not answers:
            raise
        retried(lambda: engine.connect().close(), check)


def _may_pass(error: Exception) -> bool:
    """Whether the same work may succeed later; drivers of PostgreSQL only call such errors operational."""
    if isinstance(error, AutoautoError):
        return False  # made of an error for which we have waited already
    cause = error if isinstance(error, DBAPIError) else error.__cause__  # of an exception of Optuna
    if not isinstance(cause, OperationalError | InterfaceError):
        return isinstance(cause, DBAPIError) and cause.connection_invalidated
    if isinstance(cause.orig, sqlite3.Error):
        code = getattr(cause.orig, "sqlite_errorcode", sqlite3.SQLITE_ERROR)  # the driver's own errors have none
        return code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
    return True


def driver_url(url: URL) -> URL:
    """A URL with the driver that we use; for PostgreSQL psycopg 3, where SQLAlchemy 2.0 takes psycopg2.

    Raises:
        BadInput: it is of another database.

    >>> driver_url(URL.create("postgresql", host="host")).drivername
    'postgresql+psycopg'
    """
    if url.get_backend_name() not in _KINDS:
        raise BadInput(f"a database is {' or '.join(_KINDS)}, got {shown(url)}; try {' or '.join(_KINDS.values())}")
    return url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url


@contextmanager
def driver_errors(url: URL) -> Iterator[None]:
    """Turn the ImportError of a driver that is not installed into MissingExtra; `url` is that of `driver_url`."""
    try:
        yield
    except ImportError as error:
        cause = error if error.name else error.__cause__  # Optuna's own ImportError does not say which module
        module = cause.name if isinstance(cause, ImportError) and cause.name else url.get_driver_name()
        if url.get_backend_name() == "postgresql":
            other = f" lacks the driver {module}; postgresql:// alone" if module != "psycopg" else ""
            raise missing_extra(f"{shown(url)}{other}", "postgres") from error
        raise MissingExtra(f"{shown(url)} needs the database driver {module}; try: pip install {module}") from error


def connect_arguments(url: URL) -> dict[str, Any]:
    """Arguments of the driver for connections to a database: SQLite waits `WAIT_S` for a lock."""
    return {"timeout": WAIT_S} if url.get_backend_name() == "sqlite" else {}


def create_table(engine: Engine, table: Table) -> None:
    """Create a table where it is missing, in a transaction of its own; another process may create it meanwhile."""
    with suppress(IntegrityError, ProgrammingError), engine.begin() as connection:
        connection.execute(CreateTable(table, if_not_exists=True))


def insert_rows(engine: Engine, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows in one transaction, into a table that is created where it is missing; in SQLite and PostgreSQL.

    Where the primary key is stored already, the row is left out.
    """
    create_table(engine, table)
    with engine.begin() as connection:
        connection.execute(insert_if_new(engine.dialect, table), rows)


def insert_if_new(dialect: Dialect, table: Table) -> Insert:
    """The statement that inserts a row, but none whose key is stored already."""
    if dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert  # slow to import, and not loaded for an SQLite file
    else:
        from sqlalchemy.dialects.sqlite import insert  # type: ignore[assignment]
    return insert(table).on_conflict_do_nothing()


def clock_s(dialect: Dialect) -> ColumnElement[float]:
    """The time of leases: PostgreSQL's clock; for SQLite the monotonic clock of the one machine that uses it."""
    if dialect.name == "sqlite":
        return literal(monotonic())
    return literal_column("extract(epoch FROM clock_timestamp())", Float)


def first_line(error: BaseException) -> str:
    """The message of the database's driver, without the statement and the links that SQLAlchemy adds."""
    if not isinstance(error, SQLAlchemyError) and isinstance(
        error.__cause__, SQLAlchemyError
    ):  # of an exception of Optuna
        error = error.__cause__
    if isinstance(error, DBAPIError) and error.orig is not None:
        error = error.orig
    return str(error).strip().partition("\n")[0]


def shown(url: URL) -> str:
    """A URL without its password, and without the driver that `driver_url` adds."""
    if url.drivername == "postgresql+psycopg":
        url = url.set(drivername="postgresql")
    return url.render_as_string(hide_password=True)
