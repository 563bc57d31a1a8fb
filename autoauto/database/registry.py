"""The databases that can be used, and their URLs: `BACKENDS`, `backend_of`, `parse_url`, `driver_url`, `shown`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, LargeBinary, Text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from autoauto.database.backend import Backend
from autoauto.database.postgresql import PostgreSql
from autoauto.database.sqlite import Sqlite
from autoauto.records.errors import BadInput, MissingExtra, missing_extra

BACKENDS: dict[str, Backend] = {backend.name: backend for backend in (Sqlite(), PostgreSql())}
LONG_TEXT = Text()
"""Texts of any length, as the answer of a search."""
LONG_BYTES = LargeBinary()
"""Bytes of any number, as a part of an uploaded model."""
_EXAMPLE = "sqlite:///studies/autoauto.db"


def backend_of(where: URL | Engine | Connection) -> Backend:
    """The kind of a database that `driver_url` does not refuse."""
    name = where.get_backend_name() if isinstance(where, URL) else where.dialect.name
    return BACKENDS[name]


def parse_url(storage: str) -> URL:
    """The URL of a database with the driver that we use.

    Raises:
        BadInput: it is none, or of another database.
    """
    try:
        url = make_url(storage)
        url.get_dialect()
        if "\0" in storage:
            raise ArgumentError("a null character")
    except ArgumentError as error:
        raise BadInput(f"storage must be a database URL like {_EXAMPLE}, got {storage!r}") from error
    return driver_url(url)


def driver_url(url: URL) -> URL:
    """A URL with the driver that we use; raises BadInput for another database.

    >>> driver_url(URL.create("postgresql", host="host")).drivername
    'postgresql+psycopg'
    """
    if url.get_backend_name() not in BACKENDS:
        examples = " or ".join(backend.example for backend in BACKENDS.values())
        raise BadInput(f"a database is {' or '.join(BACKENDS)}, got {shown(url)}; try {examples}")
    backend = backend_of(url)
    if url.drivername != backend.name or backend.driver is None:  # the URL names a driver, or any will do
        return url
    return url.set(drivername=f"{backend.name}+{backend.driver}")


def shown(url: URL) -> str:
    """A URL without its password, and without the driver that `driver_url` adds."""
    ours = {f"{backend.name}+{backend.driver}": backend.name for backend in BACKENDS.values()}
    return url.set(drivername=ours.get(url.drivername, url.drivername)).render_as_string(hide_password=True)


@contextmanager
def driver_errors(url: URL) -> Iterator[None]:
    """Turn the ImportError of a driver that is not installed into MissingExtra; `url` is that of `driver_url`."""
    try:
        yield
    except ImportError as error:
        cause = error if error.name else error.__cause__  # Optuna's own ImportError does not say which module
        module = cause.name if isinstance(cause, ImportError) and cause.name else url.get_driver_name()
        backend = backend_of(url)
        if backend.extra is not None:
            what = shown(url)
            if module != backend.driver:  # the URL names a driver that no extra installs
                what += f" lacks the driver {module}; {backend.name}:// alone"
            raise missing_extra(what, backend.extra) from error
        raise MissingExtra(f"{shown(url)} needs the database driver {module}; try: pip install {module}") from error
