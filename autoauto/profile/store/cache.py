"""Profiles of compiled layers in an SQLite file: `ProfileCache`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from autoauto.profile.store.codec import Field, layer_profile, layer_record
from autoauto.records.errors import BadInput
from autoauto.records.profile import LayerProfile


@dataclass(frozen=True, slots=True)
class ProfileCache:
    """A table of digest -> layer profile in one SQLite file, safe for several processes at once.

    A digest covers everything on which the entry depends, so an entry is never stale and never overwritten. Deleting
    the file costs time, not correctness. A file that cannot be written can still be read.
    """

    path: Path

    def read(self, digests: Iterable[str]) -> dict[str, LayerProfile]:
        """The cached entries among `digests`.

        Raises:
            BadInput: the file is broken, or not a cache.
        """
        with open_database(self.path) as db:
            if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'entries'").fetchone():
                return {}
            rows = db.execute(
                "SELECT digest, entry FROM entries WHERE digest IN (SELECT value FROM json_each(?))",
                (json.dumps(list(digests)),),
            )
            return {digest: layer_profile(Field(json.loads(entry), "entry")) for digest, entry in rows}

    def write(self, entries: Mapping[str, LayerProfile]) -> None:
        """Store `entries`, in one transaction.

        Raises:
            BadInput: the file is broken, not a cache, or cannot be written.
        """
        with open_database(self.path) as db:
            db.execute("CREATE TABLE IF NOT EXISTS entries (digest TEXT PRIMARY KEY, entry TEXT NOT NULL)")
            db.executemany(
                "INSERT OR IGNORE INTO entries (digest, entry) VALUES (?, ?)",
                [(digest, json.dumps(layer_record(entry))) for digest, entry in entries.items()],
            )

    def open(self, tables: Sequence[str]) -> AbstractContextManager[sqlite3.Connection]:
        """The database for one transaction; `tables` are created where they are missing.

        Raises:
            BadInput: the file is broken, not a cache, or cannot be written.
        """
        return open_database(self.path, tables)


@contextmanager
def open_database(path: Path, tables: Sequence[str] = ()) -> Iterator[sqlite3.Connection]:
    """The database in a file for one transaction; `tables` are created where they are missing.

    Raises:
        BadInput: the file is broken, not a cache, or cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=60)) as db, db:
            for table in tables:
                db.execute(table)
            yield db
    except (OSError, sqlite3.Error, ValueError) as error:
        raise BadInput(
            f"the profile cache must be a whole, writable SQLite file, got {path} ({error}); "
            "delete it, or set AUTOAUTO_CACHE_DIR to another folder"
        ) from error
