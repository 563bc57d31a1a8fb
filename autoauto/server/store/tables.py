"""The tables of the service, beside those of the studies in one database: `ServiceDatabase`.

    tokens     who may do what: hashes of tokens, names and roles
    searches   a request once, whoever asks for it, and what became of it; its owner is the holder in whose turn it runs
    holders    who asked for a search and may see it, and with which priority
    models     files that were uploaded, by the digest of their content
    model_parts     their content, by the upload that has written it
    uploads    those that are being written
    model_holders   who uploaded a file, may search it, and how it is called

All statements are such that two processes may run them at once, and that they may be repeated after a lost connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from optuna.exceptions import StorageInternalError
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Float,
    Index,
    Integer,
    MetaData,
    Row,
    Select,
    String,
    Table,
    UniqueConstraint,
    inspect,
    text,
)
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from autoauto.database.leases import LeasedRows
from autoauto.database.registry import BACKENDS, LONG_BYTES, LONG_TEXT, backend_of
from autoauto.database.retries import first_line, retried
from autoauto.database.tables import create_table
from autoauto.records.errors import AutoautoError, BadInput
from autoauto.study.store.database import existing_engine, in_memory, open_storage, shown_storage

T = TypeVar("T")

SCHEMA = 2
"""The number of the form of these tables; a database of another one is refused."""
MAX_NAME = 80
MAX_FILE_NAME = 120
_METADATA = MetaData()
TOKENS = Table(
    "autoauto_tokens",
    _METADATA,
    Column("token_id", Integer, primary_key=True),
    Column("name", String(MAX_NAME), nullable=False),
    Column("role", String(16), nullable=False),
    Column("digest", String(64), nullable=False, unique=True),
    Column("created_s", Float(53), nullable=False),
    Column("expires_s", Float(53)),
    Column("revoked_s", Float(53)),
)
SEARCHES = Table(
    "autoauto_searches",
    _METADATA,
    Column("number", Integer, primary_key=True),
    Column("id", String(32), nullable=False, unique=True),
    Column("digest", String(64), nullable=False, unique=True),
    Column("submission", LONG_TEXT, nullable=False),
    Column("owner", String(MAX_NAME), nullable=False),
    Column("state", String(16), nullable=False),
    Column("reason", LONG_TEXT, nullable=False),
    Column("progress", LONG_TEXT, nullable=False),
    Column("answer", LONG_TEXT, nullable=False),
    Column("limits", LONG_TEXT, nullable=False),
    Column("n_attempts", Integer, nullable=False),
    Column("n_measured", Integer, nullable=False),
    Column("n_trials", Integer, nullable=False),
    Column("used_s", Float(53), nullable=False),
    Column("wants_stop", Boolean, nullable=False),
    Column("created_s", Float(53), nullable=False),
    Column("started_s", Float(53)),
    Column("ended_s", Float(53)),
    Column("token", String(32)),
    Column("process", String(256)),
    Column("expires_s", Float(53)),
    Index("autoauto_searches_state", "state", "number"),
    Index("autoauto_searches_owner", "owner", "started_s"),
)
LEASES = LeasedRows(SEARCHES)
"""The leases of searches: one worker runs a search at a time."""
HOLDERS = Table(
    "autoauto_holders",
    _METADATA,
    Column("search_id", String(32), primary_key=True),
    Column("owner", String(MAX_NAME), primary_key=True),
    Column("priority", Integer, nullable=False),
    Column("is_shared", Boolean, nullable=False),
    Column("shares_weights", Boolean, nullable=False),
    Column("has_stopped", Boolean, nullable=False),
    Column("names", LONG_TEXT, nullable=False),
    Index("autoauto_holders_owner", "owner"),
    Index("autoauto_holders_shared", "is_shared", "search_id"),
)
MODELS = Table(
    "autoauto_models",
    _METADATA,
    Column("digest", String(64), primary_key=True),
    Column("upload", String(32), nullable=False),
    Column("n_bytes", BigInteger, nullable=False),
)
MODEL_PARTS = Table(
    "autoauto_model_parts",
    _METADATA,
    Column("upload", String(32), primary_key=True),
    Column("part", Integer, primary_key=True),
    Column("content", LONG_BYTES, nullable=False),
)
UPLOADS = Table(
    "autoauto_uploads",
    _METADATA,
    Column("upload", String(32), primary_key=True),
    Column("process", String(256), nullable=False),
    Column("written_s", Float(53), nullable=False),
)
MODEL_HOLDERS = Table(
    "autoauto_model_holders",
    _METADATA,
    Column("number", Integer, primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("owner", String(MAX_NAME), nullable=False),
    Column("name", String(MAX_FILE_NAME), nullable=False),
    Column("created_s", Float(53), nullable=False),
    UniqueConstraint("digest", "owner"),
    Index("autoauto_model_holders_owner", "owner"),
)
_SCHEMAS = Table(
    "autoauto_server_schema",
    _METADATA,
    Column("schema", Integer, primary_key=True),
)
TABLES = (TOKENS, SEARCHES, HOLDERS, MODELS, MODEL_PARTS, UPLOADS, MODEL_HOLDERS, _SCHEMAS)
"""All tables; the last one has the schema number."""


class DatabaseAway(AutoautoError):
    """The database cannot be used now."""


class StorageFull(AutoautoError):
    """A disk has no room, or a folder cannot be written."""


class Page(NamedTuple):
    """Some entries of a list, and the number at which those of the next page begin; None at the end."""

    entries: list[dict[str, Any]]
    more: int | None


class ServiceDatabase:
    """The database of a service; its tables are made where they are missing.

    Attributes:
        studies: the studies in the database, as Optuna has them.
        last_full_s: when its disk had no room the last time, on the monotonic clock.

    Raises:
        BadInput: the URL or the database cannot be used, or another version of autoauto made the tables.
        MissingExtra: the database's driver is not installed.
    """

    def __init__(self, storage: str) -> None:
        if in_memory(storage):
            raise BadInput(
                f"a server stores its searches in a file or on a server, got {storage}; try sqlite:///studies/server.db"
            )
        self.storage = storage
        self.studies = open_storage(storage)  # closes its connections when it is no longer used
        self._engine = self.studies.engine
        self.last_full_s = -inf
        self.run(self._make_tables)

    @property
    def file(self) -> Path | None:
        """The file of the database; None on a server."""
        return backend_of(self._engine).file(self._engine.url)

    @property
    def shown(self) -> str:
        """The URL without its password."""
        return shown_storage(self.storage)

    def write(self, work: Callable[[Connection], T]) -> T:
        """The result of `work` in one transaction, which is repeated when its connection is lost.

        Raises:
            DatabaseAway: it cannot be used for longer than it may be restarted.
            StorageFull: its disk has no room.
        """

        def transaction() -> T:
            with self._engine.begin() as connection:
                return work(connection)

        return self.run(transaction)

    def rows(self, query: Select[Any]) -> Sequence[Row[Any]]:
        """The rows of a query; raises as `write`."""
        return self.write(lambda connection: connection.execute(query).all())

    def scalar(self, query: Select[Any]) -> Any:
        """The first value of the first row of a query; None where it has no row; raises as `write`."""
        return self.write(lambda connection: connection.scalar(query))

    def newest(
        self,
        query: Select[Any],
        number: ColumnElement[int],
        limit: int,
        before: int,
        describe: Callable[[Row[Any]], dict[str, Any]],
    ) -> Page:
        """The rows of a query with the highest numbers, `limit` of them, below the number `before` if it is not 0."""
        if before:
            query = query.where(number < before)
        rows = self.rows(query.order_by(number.desc()).limit(limit + 1))
        more = rows[limit - 1].number if len(rows) > limit else None
        return Page(list(map(describe, rows[:limit])), more)

    def run(self, work: Callable[[], T]) -> T:
        """The result of `work`, repeated as in `write`; raises as `write`."""
        try:
            with _errors(self.shown):
                return retried(work)
        except StorageFull:
            self.last_full_s = monotonic()
            raise

    def answers(self) -> bool:
        """True if the database answers now; a lost connection is not waited for."""
        try:
            with self._engine.connect() as connection:
                connection.execute(text("SELECT 1"))
        except SQLAlchemyError:
            return False
        return True

    def now(self) -> ColumnElement[float]:
        """The time of leases."""
        return backend_of(self._engine).clock_s()

    def alone(self, connection: Connection) -> None:
        """Let no other process claim a search until the transaction ends."""
        backend_of(connection).exclude_others(connection, "autoauto claims")

    def alone_with_uploads(self, connection: Connection) -> None:
        """Let no other process take or drop an uploaded file until the transaction ends."""
        backend_of(connection).exclude_others(connection, "autoauto uploads")

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def _make_tables(self) -> None:
        for table in TABLES:
            create_table(self._engine, table)
        with self._engine.begin() as connection:
            schemas = set(connection.scalars(_SCHEMAS.select()))
            if not schemas:
                insert_new(connection, _SCHEMAS, {"schema": SCHEMA})
        if schemas - {SCHEMA}:
            raise BadInput(
                f"the schema of the server's tables must be {SCHEMA}, got {max(schemas)} in {self.shown}: another "
                "version of autoauto made them; use that version, or another --storage"
            )


def has_searches(storage: str) -> bool:
    """True if a database has the tables of a service.

    Raises:
        BadInput: there is no such database, or it holds no studies.
    """
    with _errors(shown_storage(storage)):
        return retried(lambda: inspect(existing_engine(storage)).has_table(SEARCHES.name))


@contextmanager
def _errors(shown: str) -> Iterator[None]:
    """Turn the exceptions of the database's driver, and of Optuna, into DatabaseAway, or StorageFull."""
    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        cause = error.__cause__ if isinstance(error, StorageInternalError) else error
        if isinstance(cause, DBAPIError) and any(backend.is_full(cause.orig) for backend in BACKENDS.values()):
            raise StorageFull(
                f"the disk of the server's database must have room, it has none: {first_line(error)}; free some of it, "
                "or delete uploads and searches"
            ) from error
        raise DatabaseAway(
            f"the database of the server must answer, {shown} does not: {first_line(error)}; try again later"
        ) from error


def insert_new(connection: Connection, table: Table, row: Mapping[str, object]) -> bool:
    """Insert a row unless its key is stored already; returns True if it is new."""
    return backend_of(connection).insert_new(connection, table, [row]) == 1
