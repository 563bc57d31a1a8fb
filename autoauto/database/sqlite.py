"""SQLite: a database in a file of one machine, or in memory. `Sqlite`, `file_url`."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from time import monotonic
from typing import Any

from sqlalchemy import ColumnElement, Connection, Insert, Table, literal
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.engine import URL
from typing_extensions import override

from autoauto.database.backend import WAIT_S, Backend


class Sqlite(Backend):
    """SQLite. It has one writer at a time, and locks at the first statement that writes."""

    name = "sqlite"
    example = "sqlite:///FILE.db"
    is_server = False

    def file(self, url: URL) -> Path | None:
        """The file; None for a database in memory and a URI of SQLite's own."""
        name = url.database or ":memory:"
        return None if name == ":memory:" or name.startswith("file:") else Path(name)

    @override
    def is_in_memory(self, url: URL) -> bool:
        return url.database in (None, "", ":memory:")

    def connect_arguments(self) -> dict[str, Any]:
        """The driver waits `WAIT_S` for a lock."""
        return {"timeout": WAIT_S}

    def tune(self, connection: sqlite3.Connection, record: object) -> None:
        """A commit needs no fsync, a killed process loses no commit, and a reader does not block the writer."""
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")

    def is_final(self, error: BaseException | None) -> bool:
        """All but a lock, for which the driver has waited already, comes again."""
        if not isinstance(error, sqlite3.Error):
            return False
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)  # the driver's own errors have none
        return code & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

    @override
    def is_full(self, error: BaseException | None) -> bool:
        return isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL

    @override
    def is_damaged(self, error: BaseException | None) -> bool:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        return isinstance(error, sqlite3.Error) and code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

    def clock_s(self) -> ColumnElement[float]:
        """The monotonic clock of the one machine that uses the file; it begins again when the machine does."""
        return literal(monotonic())

    @override
    def insert_if_new(self, table: Table) -> Insert:
        return insert(table).on_conflict_do_nothing()

    def exclude_others(self, connection: Connection, name: str) -> None:
        """Nothing is to be done: there is one writer at a time anyway."""


def file_url(file: Path) -> URL:
    """The URL of a database in a file."""
    return URL.create(Sqlite.name, database=str(file))
