"""The differences between databases: each database has a subclass of `Backend`, in a file of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from sqlalchemy import ColumnElement, Connection, Insert, Row, Table, Update, select, update
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, IntegrityError

WAIT_S = 60.0
"""Seconds for which a server may be away, as while it is restarted, and the file of a database may be locked."""


class Backend(ABC):
    """A kind of database, and the statements of which databases have variants.

    Attributes:
        name: SQLAlchemy's, the scheme of its URLs.
        driver: the Python module that we use; None for SQLAlchemy's choice.
        extra: of ours that installs the driver; None where Python has it.
        is_server: whether processes of several machines may use it.
    """

    name: ClassVar[str]
    example: ClassVar[str]
    driver: ClassVar[str | None] = None
    extra: ClassVar[str | None] = None
    is_server: ClassVar[bool] = True

    def file(self, _url: URL) -> Path | None:
        """The file of a database; None where it is in none, or its URL does not say in which."""
        return None

    def is_in_memory(self, _url: URL) -> bool:
        """True if a database is lost with its connection."""
        return False

    def connect_arguments(self) -> dict[str, Any]:
        """Arguments of the driver for connections."""
        return {}

    def tune(self, connection: Any, record: object) -> None:  # noqa: B027 (most databases need nothing)
        """Set up a new connection of the driver for many small transactions."""

    def is_final(self, _error: BaseException | None) -> bool:
        """True if an operational error of this database's driver would come again.

        Drivers of servers only call those operational that may pass.
        """
        return False

    def is_full(self, _error: BaseException | None) -> bool:
        """True if an error of this database's driver says that its disk has no room."""
        return False

    def is_damaged(self, _error: BaseException | None) -> bool:
        """True if an error of this database's driver says that its file is no whole database."""
        return False

    def is_made_already(self, error: DBAPIError) -> bool:
        """True if a statement failed because another process has just made its table or index."""
        return isinstance(error, IntegrityError) or "already exists" in str(error.orig)

    @abstractmethod
    def clock_s(self) -> ColumnElement[float]:
        """The time of leases, which no clock of a worker changes."""

    @abstractmethod
    def insert_if_new(self, table: Table) -> Insert:
        """The statement that inserts a row, but none whose key is stored already."""

    def insert_new(self, connection: Connection, table: Table, rows: Sequence[Mapping[str, object]]) -> int:
        """Insert rows, but those whose key is stored already; returns how many are new."""
        new = self.insert_if_new(table).returning(*table.primary_key)
        return sum(len(connection.execute(new, row).all()) for row in rows)

    def update_one(self, connection: Connection, change: Update, *columns: ColumnElement[Any]) -> Row[Any] | None:
        """Change the one row that an update is of; returns its columns as they are then, None where there is no row."""
        return connection.execute(change.returning(*columns)).one_or_none()

    def claim_first(
        self, connection: Connection, table: Table, where: ColumnElement[bool], values: Mapping[str, Any]
    ) -> Row[Any] | None:
        """Change the row with the lowest key among those `where` holds for, and that nobody else is just claiming.

        One statement, so that a database that locks all of itself does so before it reads.
        """
        [key] = table.primary_key
        first = select(key).where(where).order_by(key).limit(1).with_for_update(skip_locked=True)
        claim = update(table).where(key == first.scalar_subquery()).values(values)
        return self.update_one(connection, claim, *table.c)

    @abstractmethod
    def exclude_others(self, connection: Connection, name: str) -> None:
        """Let no other process exclude others by this name until the transaction ends."""
