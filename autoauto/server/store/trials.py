"""The trials of searches, which are the studies of the database: `study_name`, `summary_of`, `list_trials`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from optuna.storages import RDBStorage
from sqlalchemy import ScalarSelect, column, func, select, table

from autoauto.records.errors import BadInput
from autoauto.server.store.searches import check_visible
from autoauto.server.store.tables import Page, ServiceDatabase
from autoauto.server.store.users import User
from autoauto.space.study_summary import StudySummary
from autoauto.study.analysis.best import summarise_study
from autoauto.study.store.rows import UNREADABLE, rows_of
from autoauto.study.store.study import load_study

_STUDIES = table("studies", column("study_id"), column("study_name"))
TRIALS = table("trials", column("trial_id"), column("study_id"), column("number"))
"""Columns of Optuna's table that its public interface has no query for."""


def study_name(search_id: str) -> str:
    """The study that holds the trials of a search."""
    return f"search-{search_id}"


def summary_of(storage: str, search_id: str) -> StudySummary | None:
    """The trials of a search, and what they say; None before the first is stored."""
    try:
        return summarise_study(load_study(storage, study_name(search_id)), storage)
    except BadInput:
        return None


def name_of_study(database: ServiceDatabase, study_number: str) -> str | None:
    """The name of a study by its number; None where there is none."""
    if not (study_number.isascii() and study_number.isdecimal() and len(study_number) < 10):
        return None
    try:
        return database.run(lambda: database.studies.get_study_name_from_id(int(study_number)))
    except KeyError:
        return None


def list_trials(database: ServiceDatabase, user: User, search_id: str, first: int, limit: int) -> Page:
    """Trials of a search from number `first` on, at most `limit`.

    Raises:
        NotFound: there is no search that the user may see.
    """
    check_visible(database, user, search_id)
    study_id = study_number(database, search_id)
    if study_id is None:
        return Page([], None)
    numbers = range(first, first + limit + 1)
    rows = database.run(lambda: rows_of(database.studies, study_id, numbers))
    return Page(list(map(_described, rows[:limit])), first + limit if len(rows) > limit else None)


def delete_trials(database: ServiceDatabase, search_id: str) -> None:
    """Delete the study of a search."""
    study_id = study_number(database, search_id)
    if study_id is not None:
        with suppress(KeyError):  # it was deleted at once
            database.run(lambda: database.studies.delete_study(study_id))


def study_number(database: ServiceDatabase, search_id: str) -> int | None:
    """The number of the study of a search; None before its first trial."""
    return database.run(lambda: number_of_study(database.studies, study_name(search_id)))


def number_of_study(storage: RDBStorage, name: str) -> int | None:
    """The number of a study by its name; None where there is none."""
    try:
        return storage.get_study_id_from_name(name)
    except KeyError:
        return None


def n_trials_of(search_id: str) -> ScalarSelect[int]:
    """The number of trials of a search, as a subquery."""
    own = TRIALS.join(_STUDIES, TRIALS.c.study_id == _STUDIES.c.study_id)
    named = _STUDIES.c.study_name == study_name(search_id)
    return select(func.count()).select_from(own).where(named).scalar_subquery()


def _described(row: Mapping[str, Any]) -> dict[str, Any]:
    """The cells of a trial that have a value; times in ISO 8601."""
    described = {}
    for name, value in row.items():
        if value is not None and value is not UNREADABLE:
            described[name] = value.isoformat() if isinstance(value, datetime) else value
    return described
