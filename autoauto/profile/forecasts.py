"""Forecasts in the database of the profiles, at most `MAX_BYTES` of them: `ForecastStore`."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from time import time

from sqlalchemy import BigInteger, Column, Engine, Index, Integer, MetaData, String, Table, bindparam, func, select

from autoauto.database.registry import LONG_TEXT
from autoauto.database.tables import insert_rows
from autoauto.profile.cache import ProfileCache

MAX_BYTES = 64 * 2**20
"""Maximum bytes of all forecasts; one search of a large model on 64 devices stores 3 MiB."""
_LEFT = 0.75  # share of the bound that is left after the oldest were deleted, so that few writes have to delete
_FORECASTS = Table(
    "autoauto_forecasts",
    MetaData(),
    Column("digest", String(64), primary_key=True),
    Column("subject", String(64), nullable=False),
    Column("stored_s", BigInteger, nullable=False),
    Column("n_bytes", Integer, nullable=False),
    Column("forecast", LONG_TEXT, nullable=False),
)
Index("autoauto_forecasts_by_subject", _FORECASTS.c.subject)
Index("autoauto_forecasts_by_age", _FORECASTS.c.stored_s, _FORECASTS.c.n_bytes)  # without the texts, which are long


@dataclass(frozen=True, slots=True)
class ForecastStore:
    """A table in the database of the profiles: what estimates say of configurations, each a text by its digest.

    A digest covers everything on which a forecast depends, so none is ever stale. Deleting the database costs time, not
    correctness. All methods raise BadInput when it is broken, not a cache, or cannot be written.
    Forecasts of one `subject` are read together.
    """

    cache: ProfileCache
    subject: str

    def digest(self, key: object) -> str:
        """The name of a forecast; `key` is different for every forecast of this subject."""
        return hashlib.sha256(repr((self.subject, key)).encode()).hexdigest()

    def read(self) -> dict[str, str]:
        """All stored forecasts of this subject, by their digests."""
        own = select(_FORECASTS.c.digest, _FORECASTS.c.forecast).where(_FORECASTS.c.subject == self.subject)
        return dict(self.cache.select(_FORECASTS, own))

    def write(self, forecasts: Mapping[str, str], damaged: Collection[str] = ()) -> None:
        """Store forecasts by their digests, in one transaction; the oldest of all make room for them.

        Those that are stored already do not change; the texts of `damaged` digests are deleted first.
        """
        now_s = int(time())
        rows: list[dict[str, object]] = []
        for digest, forecast in sorted(forecasts.items()):  # in one order in all processes, as the profiles
            entry = {"digest": digest, "subject": self.subject, "forecast": forecast}
            rows.append({**entry, "stored_s": now_s, "n_bytes": len(forecast)})

        def work(engine: Engine) -> None:
            if damaged:
                _delete(engine, sorted(damaged))
            insert_rows(engine, _FORECASTS, rows)
            _make_room(engine)

        if rows:
            self.cache.work(work)


def _make_room(engine: Engine) -> None:
    with engine.connect() as connection:
        n_bytes = connection.scalar(select(func.sum(_FORECASTS.c.n_bytes))) or 0
        if n_bytes <= MAX_BYTES:
            return
        by_age = select(_FORECASTS.c.digest, _FORECASTS.c.n_bytes).order_by(_FORECASTS.c.stored_s, _FORECASTS.c.digest)
        oldest: list[str] = []
        for digest, size in connection.execute(by_age):
            if n_bytes <= _LEFT * MAX_BYTES:
                break
            n_bytes -= size
            oldest.append(digest)
    _delete(engine, oldest)


def _delete(engine: Engine, digests: list[str]) -> None:
    with engine.begin() as connection:
        these = _FORECASTS.delete().where(_FORECASTS.c.digest == bindparam("one"))
        connection.execute(these, [{"one": digest} for digest in digests])
