"""Profiles of compiled layers in a database that many machines share: `SharedCache`, on a `SharedTable`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from time import monotonic, sleep
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    CursorResult,
    Engine,
    Executable,
    MetaData,
    NullPool,
    String,
    Table,
    Text,
    create_engine,
    event,
    inspect,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError, ProgrammingError, SQLAlchemyError
from sqlalchemy.schema import CreateTable

from autoauto.profile.store.codec import Field, layer_profile, layer_record
from autoauto.records.errors import BadInput
from autoauto.records.profile import LayerProfile

_BUSY_TIMEOUT_S = 60
_RESTART_S, _RETRY_S = 60.0, 0.5  # the longest restart of a server, and the time between attempts to connect
_MAX_DIGESTS = 500  # in one query


@dataclass(frozen=True, slots=True)
class SharedTable:
    """Digest -> JSON value in one table of an SQLite or PostgreSQL database, created by the first write.

    A digest covers everything on which the value depends, so a second write of a digest changes nothing. No connection
    stays open between calls, so a table may be passed to other processes.

    Attributes:
        url: of the database.
        name: of the table.
    """

    url: str
    name: str

    def read(self, digests: Iterable[str]) -> dict[str, Any]:
        """The stored values among `digests`.

        Raises:
            BadInput: the database cannot be used.
        """
        table, values = self._table(), {}
        with _engine(self.url) as engine, engine.connect() as connection:
            if not inspect(connection).has_table(self.name):
                return {}
            for batch in _batches(digests):
                for digest, entry in connection.execute(select(table).where(table.c.digest.in_(batch))):
                    values[digest] = json.loads(entry)
        return values

    def write(self, values: Mapping[str, Any]) -> None:
        """Store `values`, in one transaction.

        Raises:
            BadInput: the database cannot be used.
        """
        table = self._table()
        with _engine(self.url) as engine:
            _make(engine, CreateTable(table, if_not_exists=True))
            with engine.begin() as connection:
                insert = postgresql.insert if engine.dialect.name == "postgresql" else sqlite.insert
                rows = [{"digest": digest, "entry": json.dumps(value)} for digest, value in sorted(values.items())]
                connection.execute(insert(table).on_conflict_do_nothing(), rows)

    def _table(self) -> Table:
        return Table(
            self.name, MetaData(), Column("digest", String(64), primary_key=True), Column("entry", Text, nullable=False)
        )


@dataclass(frozen=True, slots=True)
class SharedCache:
    """A cache like `ProfileCache` in the database at `url`, so that all workers of all studies compile a layer once."""

    url: str

    def read(self, digests: Iterable[str]) -> dict[str, LayerProfile]:
        """The cached entries among `digests`.

        Raises:
            BadInput: the database cannot be used, or an entry is broken.
        """
        entries = self._rows.read(digests)
        return {digest: layer_profile(Field(entry, f"entry {digest}")) for digest, entry in entries.items()}

    def write(self, entries: Mapping[str, LayerProfile]) -> None:
        """Store `entries`, in one transaction.

        Raises:
            BadInput: the database cannot be used.
        """
        self._rows.write({digest: layer_record(entry) for digest, entry in entries.items()})

    @contextmanager
    def open(self, tables: Sequence[str]) -> Iterator[_SqliteLikeConnection]:
        """The database for one transaction; `tables` are created where they are missing.

        Raises:
            BadInput: the database cannot be used.
        """
        with _engine(self.url) as engine:
            for table in tables:
                _make(engine, text(table))
            with engine.begin() as connection:
                yield _SqliteLikeConnection(connection)

    @property
    def _rows(self) -> SharedTable:
        return SharedTable(self.url, "autoauto_profiles")


@dataclass(frozen=True, slots=True)
class _SqliteLikeConnection:
    """A connection to any database with the methods of one of `sqlite3`."""

    connection: Connection

    def execute(self, statement: str, parameters: tuple[Any, ...] = ()) -> CursorResult[Any]:
        return self.connection.exec_driver_sql(self._with_its_parameters(statement), parameters)

    def executemany(self, statement: str, rows: list[tuple[Any, ...]]) -> None:
        if rows:
            self.connection.exec_driver_sql(self._with_its_parameters(statement), rows)

    def _with_its_parameters(self, statement: str) -> str:
        return statement if self.connection.dialect.paramstyle == "qmark" else statement.replace("?", "%s")


@contextmanager
def _engine(url: str) -> Iterator[Engine]:
    """Connections to a database; its errors become BadInput of one line."""
    try:
        yield _engine_of(url)
    except (SQLAlchemyError, ValueError) as error:
        shown = make_url(url).render_as_string(hide_password=True)
        cause = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
        raise BadInput(f"{shown} cannot hold what was compiled: {cause}; try another --storage") from error


def _make(engine: Engine, table: Executable) -> None:
    with (
        suppress(IntegrityError, ProgrammingError),
        engine.begin() as connection,
    ):  # another process creates it at the same time
        connection.execute(table)


@lru_cache(maxsize=8)
def _engine_of(url: str) -> Engine:
    parsed = make_url(url)
    is_file = parsed.get_backend_name() == "sqlite"
    options = {"timeout": _BUSY_TIMEOUT_S} if is_file else {}
    engine = create_engine(parsed, poolclass=NullPool, connect_args=options)
    if not is_file:
        event.listen(engine, "do_connect", _Reconnection())
    return engine


class _Reconnection:
    """Connects to a server; after the first connection it waits for the server while it restarts."""

    def __init__(self) -> None:
        self._connected_before = False

    def __call__(self, dialect: Any, _record: object, arguments: Any, options: Any) -> Any:
        give_up_s = monotonic() + _RESTART_S
        while True:
            try:
                connection = dialect.connect(*arguments, **options)
            except dialect.loaded_dbapi.OperationalError:
                if not self._connected_before or monotonic() > give_up_s:
                    raise
            else:
                self._connected_before = True
                return connection
            sleep(_RETRY_S)


def _batches(digests: Iterable[str]) -> Iterator[list[str]]:
    """Batches of digests: databases limit the number of values in one query."""
    rest = list(digests)
    for start in range(0, len(rest), _MAX_DIGESTS):
        yield rest[start : start + _MAX_DIGESTS]
