"""Compiled layers kept on disk, as the seed's executable cache keeps executables: `ProfileCache`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

from autoauto.profile.store.codec import Field, layer_profile
from autoauto.records.errors import BadInput
from autoauto.records.profile import LayerProfile


@dataclass(frozen=True, slots=True)
class ProfileCache:
    """A table of digest -> layer profile in one SQLite file, safe for several processes at once.

    A digest covers everything that the entry depends on, so an entry is never stale and never overwritten with
    something else; deleting the file costs time, not correctness. A file that cannot be written still serves reads.
    """

    path: Path

    def read(self, digests: Iterable[str]) -> dict[str, LayerProfile]:
        """The entries there are among `digests`.

        Raises:
            BadInput: the file is broken, or no cache.
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
        """Keep `entries`, in one transaction.

        Raises:
            BadInput: the file is broken, no cache, or cannot be written.
        """
        names = [field.name for field in fields(LayerProfile)]
        with open_database(self.path) as db:
            db.execute("CREATE TABLE IF NOT EXISTS entries (digest TEXT PRIMARY KEY, entry TEXT NOT NULL)")
            db.executemany(
                "INSERT OR IGNORE INTO entries (digest, entry) VALUES (?, ?)",
                [
                    (digest, json.dumps({name: getattr(entry, name) for name in names}))
                    for digest, entry in entries.items()
                ],
            )

    def open(self, tables: Sequence[str]) -> AbstractContextManager[sqlite3.Connection]:
        """The file itself, one transaction, with `tables` made where they are missing.

        Raises:
            BadInput: the file is broken, no cache, or cannot be written.
        """
        return open_database(self.path, tables)


@contextmanager
def open_database(path: Path, tables: Sequence[str] = ()) -> Iterator[sqlite3.Connection]:
    """The open file, one transaction, with `tables` made where they are missing.

    Raises:
        BadInput: whatever is wrong with the file, in one line that says what to do.
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
