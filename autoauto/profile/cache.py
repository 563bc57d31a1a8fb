"""Compiled layers kept on disk, as the seed's executable cache keeps executables: `ProfileCache`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoauto.records.errors import BadInput


@dataclass(frozen=True, slots=True)
class ProfileCache:
    """A table of digest -> JSON in one SQLite file, safe for several processes at once.

    A digest covers everything that the entry depends on, so an entry is never stale and never overwritten with
    something else; deleting the file costs time, not correctness.
    """

    path: Path

    def read(self, digests: Iterable[str]) -> dict[str, dict[str, Any]]:
        """The entries there are among `digests`."""
        wanted = list(digests)
        with closing(self._connect()) as db, db:
            rows = db.execute(
                "SELECT digest, entry FROM entries WHERE digest IN (SELECT value FROM json_each(?))",
                (json.dumps(wanted),),
            ).fetchall()
        return {digest: json.loads(entry) for digest, entry in rows}

    def write(self, entries: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep `entries`, in one transaction."""
        with closing(self._connect()) as db, db:
            db.executemany(
                "INSERT OR IGNORE INTO entries (digest, entry) VALUES (?, ?)",
                [(digest, json.dumps(entry)) for digest, entry in entries.items()],
            )

    def _connect(self) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            db = sqlite3.connect(self.path, timeout=60)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("CREATE TABLE IF NOT EXISTS entries (digest TEXT PRIMARY KEY, entry TEXT NOT NULL)")
        except (OSError, sqlite3.Error) as error:
            raise BadInput(
                f"the profile cache must be a writable SQLite file, got {self.path} ({error}); "
                "try another folder in AUTOAUTO_CACHE_DIR"
            ) from error
        return db
