"""PostgreSQL: a database on a server. `PostgreSql`."""

from __future__ import annotations

import hashlib
import logging

from sqlalchemy import ColumnElement, Connection, Float, Insert, Table, literal_column, text
from typing_extensions import override

from autoauto.database.backend import Backend

logging.getLogger("psycopg").addHandler(logging.NullHandler())  # it would print errors that it raises too

_DISK_FULL = "53100"


class PostgreSql(Backend):
    """PostgreSQL, with psycopg 3, where SQLAlchemy 2.0 takes psycopg2."""

    name = "postgresql"
    example = "postgresql://HOST/NAME"
    driver = "psycopg"
    extra = "postgres"

    def is_final(self, error: BaseException | None) -> bool:
        """A full disk is not waited for: somebody must free it."""
        return self.is_full(error)

    @override
    def is_full(self, error: BaseException | None) -> bool:
        return getattr(error, "sqlstate", None) == _DISK_FULL

    def clock_s(self) -> ColumnElement[float]:
        """The clock of the server."""
        return literal_column("extract(epoch FROM clock_timestamp())", Float)

    @override
    def insert_if_new(self, table: Table) -> Insert:
        from sqlalchemy.dialects.postgresql import insert  # slow to import, and not loaded for a file

        return insert(table).on_conflict_do_nothing()

    def exclude_others(self, connection: Connection, name: str) -> None:
        """Hold an advisory lock."""
        key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:7])
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})
