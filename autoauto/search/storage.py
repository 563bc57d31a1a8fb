"""The database of a study, opened through Optuna's `RDBStorage`, with one clear line for whatever goes wrong."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.storages import RDBStorage
from sqlalchemy import create_engine, inspect
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from autoauto.records.errors import BadInput, MissingExtra

_BUSY_TIMEOUT_S = 60
_EXAMPLE = "sqlite:///studies/autoauto.db"
_PACKAGES = {"psycopg": "psycopg[binary]", "psycopg2": "psycopg2-binary"}  # the module's own package needs a compiler


@contextmanager
def storage_errors(subject: str = "the study's database") -> Iterator[None]:
    """Turn what the database's driver and Optuna raise into BadInput; also a decorator."""
    try:
        yield
    except UpdateFinishedTrialError as error:
        message = f"{subject}: another process ended the trial; run one search at a time, or use another --study-name"
        raise BadInput(message) from error
    except (SQLAlchemyError, StorageInternalError) as error:
        raise BadInput(f"{subject} cannot be used: {_first_line(error)}; try another --storage") from error


def open_storage(storage: str) -> RDBStorage:
    """Open the database at the URL `storage`, made with its folder when it is new.

    SQLite gets write-ahead logging, `synchronous=NORMAL` and a 60 s busy timeout: a commit costs no fsync, a killed
    process loses nothing, and a reader does not block the writer (SEARCH.md section 3.1 and 3.2).

    Raises:
        BadInput: the URL or the database cannot be used.
        MissingExtra: the database's driver is not installed.
    """
    url = _parse(storage)
    file = _sqlite_file(url)
    if file is not None:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"the folder of {storage} cannot be made: {error}; try another --storage") from error
    return _connect(url, [(_tune_sqlite, "connect")] if url.get_backend_name() == "sqlite" else [])


def existing_storage(storage: str) -> RDBStorage:
    """Open the database at the URL `storage` to read it; never makes one.

    Raises:
        BadInput: there is none, it holds no studies, or it cannot be used.
        MissingExtra: the database's driver is not installed.
    """
    url = _parse(storage)
    file = _sqlite_file(url)
    if file is not None and not file.exists():
        raise BadInput(f"there is no database {file}; `autoauto search` makes one, or give another --storage")
    with storage_errors(_shown(url)), _driver_errors(url):
        engine = create_engine(url)
        has_studies = inspect(engine).has_table("studies")  # Optuna would make its tables in anyone's database
        engine.dispose()
    if not has_studies:
        raise BadInput(f"{_shown(url)} holds no studies; `autoauto search` makes one, or give another --storage")
    return _connect(url, [])


def shown_storage(storage: str) -> str:
    """A storage URL as it may be shown and kept: without its password.

    >>> shown_storage("postgresql://me:secret@host/db")
    'postgresql://me:***@host/db'

    Raises:
        BadInput: it is no database URL.
    """
    return _shown(_parse(storage))


def _connect(url: URL, pool_events: list[tuple[Any, str]]) -> RDBStorage:
    options: dict[str, Any] = {"pool_events": pool_events}
    if url.get_backend_name() == "sqlite":
        options["connect_args"] = {"timeout": _BUSY_TIMEOUT_S}
    text = url.render_as_string(hide_password=False)
    with storage_errors(_shown(url)), _driver_errors(url):
        try:
            return RDBStorage(text.replace("{", "{{").replace("}", "}}"), engine_kwargs=options)  # it calls str.format
        except RuntimeError as error:  # made by another version of Optuna; the message tells how to upgrade
            raise BadInput(f"{_shown(url)} cannot be used: {error}") from error


def _tune_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")


def _parse(storage: str) -> URL:
    try:
        url = make_url(storage)
        url.get_dialect()
    except ArgumentError as error:
        raise BadInput(f"storage must be a database URL like {_EXAMPLE}, got {storage!r}") from error
    return url


def _sqlite_file(url: URL) -> Path | None:
    """The file of an SQLite URL; None for a database in memory, an SQLite URI and any other database."""
    name = url.database or ":memory:"
    if url.get_backend_name() != "sqlite" or name == ":memory:" or name.startswith("file:"):
        return None
    return Path(name)


@contextmanager
def _driver_errors(url: URL) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        cause = error if error.name else error.__cause__  # Optuna's own ImportError does not say which module
        module = cause.name if isinstance(cause, ImportError) and cause.name else url.get_driver_name()
        install = f"pip install '{_PACKAGES.get(module, module)}'"
        raise MissingExtra(f"{_shown(url)} needs the database driver {module}: {install}") from error


def _shown(url: URL) -> str:
    return url.render_as_string(hide_password=True)


def _first_line(error: BaseException) -> str:
    """What the database's driver said, without the statement and the links that SQLAlchemy adds."""
    if isinstance(error, StorageInternalError) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, DBAPIError) and error.orig is not None:
        error = error.orig
    return str(error).strip().partition("\n")[0]
