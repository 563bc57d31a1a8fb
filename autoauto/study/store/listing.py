"""The studies of a database, read without their trials: `list_studies`, and `find_study` by a part of a name."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import DateTime, bindparam, text

from autoauto.records.errors import BadInput
from autoauto.study.store.database import existing_engine, reads, shown_storage, through_restarts
from autoauto.study.store.study import ANSWER, STARTED, no_study

_MAX_NAMED = 5  # studies in a message
_STUDIES = text("SELECT study_id, study_name FROM studies")
_ATTRIBUTES = text(
    "SELECT study_id, key, value_json FROM study_user_attributes WHERE key IN :names ORDER BY study_id"
).bindparams(bindparam("names", ["model", "cluster", "target", "objective", ANSWER, STARTED], expanding=True))
_TRIALS = text(
    "SELECT study_id, count(*) AS n_trials, max(datetime_complete) AS last FROM trials GROUP BY study_id"
).columns(last=DateTime)


class StoredStudy(NamedTuple):
    """A study as a list shows it.

    Attributes:
        name: its name.
        attributes: those of its model, cluster, target and objective, and of its last search (`note_start`).
        n_trials: number of its trials.
        last_trial: when the last one ended, in UTC; None without trials.
    """

    name: str
    attributes: Mapping[str, Any]
    n_trials: int
    last_trial: datetime | None

    @property
    def state(self) -> str:
        """Whether the last search has stored its answer; one that has not still runs, or was interrupted."""
        if ANSWER not in self.attributes:
            return "unknown"
        return "unfinished" if self.attributes[ANSWER] is None else "finished"

    @property
    def values(self) -> list[float]:
        """The values of its answer, by the first objective where it has several; none without an answer."""
        answer = self.attributes.get(ANSWER)
        return list(answer["values"]) if answer else []

    @property
    def newest(self) -> datetime:
        """When its last search began, or its last trial ended."""
        started = self.attributes.get(STARTED)
        times = [datetime.fromisoformat(started)] if started else []
        return max([*times, *([self.last_trial] if self.last_trial else [])], default=datetime.min.replace(tzinfo=UTC))


@reads
def list_studies(storage: str) -> list[StoredStudy]:
    """The studies that searches made, the newest first; three queries, however many there are.

    Raises:
        BadInput: there is no such database.
        MissingExtra: the database's driver is not installed.
    """
    studies, attributes, trials = _rows(storage)
    of_study: dict[int, dict[str, Any]] = defaultdict(dict)
    for study_id, key, value in attributes:
        of_study[study_id][key] = json.loads(value)
    counts = {study_id: (n_trials, last and last.replace(tzinfo=UTC)) for study_id, n_trials, last in trials}
    stored = [
        StoredStudy(name, of_study[study_id], *counts.get(study_id, (0, None)))
        for study_id, name in sorted(studies, reverse=True)
        if "objective" in of_study[study_id]
    ]
    return sorted(stored, key=lambda study: study.newest, reverse=True)


@through_restarts
def _rows(storage: str) -> list[Sequence[Any]]:
    engine = existing_engine(storage)
    with engine.connect() as connection:
        return [connection.execute(query).all() for query in (_STUDIES, _ATTRIBUTES, _TRIALS)]


def find_study(storage: str, part: str | None) -> tuple[str, str]:
    """The full name of a study, and why it is meant; an empty text where its full name was given.

    Args:
        storage: the URL of its database.
        part: its name, or the beginning of its name alone; None for the latest.

    Raises:
        BadInput: there is no such database, none of its studies is meant, or several are.
    """
    names, where = [study.name for study in list_studies(storage)], shown_storage(storage)
    if part is None and names:
        return names[0], f"the latest of {len(names):,} in {where}"
    if part is None:
        raise BadInput(f"{where} holds no study of `autoauto search`; make one, or give another --storage")
    if part in names:
        return part, ""
    begin = [name for name in names if name.startswith(part)]
    if len(begin) == 1:
        return begin[0], f"the only one of {len(names):,} in {where} that begins with {part!r}"
    if begin:
        raise BadInput(f"a study is a full name or the beginning of one name, {part!r} begins {_named(begin)}")
    raise no_study(storage, part, names)


def _named(names: Sequence[str]) -> str:
    others = f" and {len(names) - _MAX_NAMED:,} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + others
