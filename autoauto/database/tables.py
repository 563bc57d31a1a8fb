"""Tables that several processes may make at once: `create_table`, `insert_rows`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from sqlalchemy import Engine, Table, inspect
from sqlalchemy.exc import DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.schema import CreateTable

from autoauto.database.registry import backend_of


def create_table(engine: Engine, table: Table) -> None:
    """Create a table and its indexes where they are missing; another process may create them meanwhile."""
    with suppress(IntegrityError, ProgrammingError), engine.begin() as connection:
        connection.execute(CreateTable(table, if_not_exists=True))
    known = {index["name"] for index in inspect(engine).get_indexes(table.name)} if table.indexes else set()
    for index in table.indexes:
        if index.name not in known:
            try:
                index.create(engine, checkfirst=True)
            except DBAPIError as error:
                if not backend_of(engine).is_made_already(error):
                    raise


def insert_rows(engine: Engine, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows in one transaction, into a table that is created where it is missing.

    Where the primary key is stored already, the row is left out.
    """
    create_table(engine, table)
    with engine.begin() as connection:
        connection.execute(backend_of(engine).insert_if_new(table), rows)
