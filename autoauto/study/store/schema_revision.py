"""Which revision of Optuna's schema a database has, without Alembic: `SchemaRevision`.

Optuna asks Alembic whenever it opens a database. To import it and to run the scripts of all revisions takes a third of
a second, a third of a short command; what it reads and writes is one row of one table. Alembic itself is asked where
that row is not the newest revision, for the error that says what to do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from optuna.storages._rdb import models
from optuna.storages._rdb import storage as optuna_storage
from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, String, Table, insert, inspect, select

_SCRIPTS = Path(models.__file__).parent / "alembic" / "versions"
_REVISION = re.compile(r'^(down_)?revision(?:: [^=]+)? = "([^"]+)"', re.MULTILINE)
_TABLE = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
"""As Alembic makes it."""


@cache
def newest_revision() -> str | None:
    """The revision that no script of Optuna follows; None where it is not the only one."""
    matches = [match for script in _SCRIPTS.glob("*.py") for match in _REVISION.findall(script.read_text("utf-8"))]
    newest = {name for is_down, name in matches if not is_down} - {name for is_down, name in matches if is_down}
    return newest.pop() if len(newest) == 1 else None


class SchemaRevision(optuna_storage._VersionManager):
    """Optuna's `_VersionManager`, which reads and writes the row of a database itself."""

    def _init_alembic(self) -> None:
        """Write the newest revision into a database that was created just now."""
        with self.engine.connect() as connection:
            if _revisions(connection):
                return
        newest = newest_revision()
        if newest is None or not self._is_alembic_supported():
            super()._init_alembic()
            return
        with self.engine.begin() as connection:
            _TABLE.create(connection, checkfirst=True)
            connection.execute(insert(_TABLE).values(version_num=newest))

    def get_current_version(self) -> str:
        """The revision of the database."""
        with self.engine.connect() as connection:
            revisions = _revisions(connection)
        return revisions[0] if len(revisions) == 1 else super().get_current_version()

    def get_head_version(self) -> str:
        """The revision of this Optuna."""
        return newest_revision() or super().get_head_version()


def _revisions(connection: Connection) -> Sequence[str]:
    """One, or none where the database is new."""
    if not inspect(connection).has_table(_TABLE.name):
        return ()
    return connection.scalars(select(_TABLE.c.version_num)).all()


setattr(optuna_storage, "_VersionManager", SchemaRevision)  # noqa: B010  # by this name Optuna's storage makes one
