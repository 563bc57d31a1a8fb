"""The trials of searches, which are the studies of the database: `study_name`, `list_trials`, `delete_trials`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from optuna.storages._rdb import models
from sqlalchemy import ScalarSelect, delete, func, select

from autoauto.server.store.searches import check_visible
from autoauto.server.store.tables import ServiceDatabase
from autoauto.server.store.users import User
from autoauto.study.store.rows import UNREADABLE, rows_of


class TrialsPage(NamedTuple):
    """Some trials by number, and the number of the first of the next page; None at the end."""

    trials: list[dict[str, Any]]
    first: int | None


def study_name(search_id: str) -> str:
    """The study that holds the trials of a search."""
    return f"search-{search_id}"


def name_of_study(database: ServiceDatabase, study_number: str) -> str | None:
    """The name of a study by its number; None where there is none."""
    if not (study_number.isascii() and study_number.isdecimal() and len(study_number) < 10):
        return None
    studies = models.StudyModel.__table__
    query = select(studies.c.study_name).where(studies.c.study_id == int(study_number))
    name: str | None = database.write(lambda connection: connection.scalar(query))
    return name


def list_trials(database: ServiceDatabase, user: User, search_id: str, first: int, limit: int) -> TrialsPage:
    """Trials of a search from number `first` on, at most `limit`.

    Raises:
        NotFound: there is no search that the user may see.
    """
    check_visible(database, user, search_id)
    study_id = study_number(database, search_id)
    if study_id is None:
        return TrialsPage([], None)
    numbers = range(first, first + limit + 1)
    rows = database.run(lambda: rows_of(database.studies, study_id, numbers))
    return TrialsPage(list(map(_described, rows[:limit])), first + limit if len(rows) > limit else None)


def delete_trials(database: ServiceDatabase, search_id: str) -> None:
    """Delete the study of a search, table by table: Optuna would load every row first."""
    study_id = study_number(database, search_id)
    if study_id is None:
        return
    trials = models.TrialModel.__table__
    own = select(trials.c.trial_id).where(trials.c.study_id == study_id)
    tables = list(reversed(models.BaseModel.metadata.sorted_tables))
    of_trials = [table for table in tables if "trial_id" in table.c and table is not trials]
    of_study = [table for table in tables if "study_id" in table.c]
    deletions = [delete(table).where(table.c.trial_id.in_(own)) for table in of_trials]
    deletions += [delete(table).where(table.c.study_id == study_id) for table in of_study]
    database.write(lambda connection: [connection.execute(each) for each in deletions])


def study_number(database: ServiceDatabase, search_id: str) -> int | None:
    """The number of the study of a search; None before its first trial."""
    studies = models.StudyModel.__table__
    query = select(studies.c.study_id).where(studies.c.study_name == study_name(search_id))
    study_id: int | None = database.write(lambda connection: connection.scalar(query))
    return study_id


def n_trials_of(search_id: str) -> ScalarSelect[int]:
    """How many trials the study of a search has, as a part of a statement."""
    studies, trials = models.StudyModel.__table__, models.TrialModel.__table__
    own = trials.join(studies, trials.c.study_id == studies.c.study_id)
    named = studies.c.study_name == study_name(search_id)
    return select(func.count()).select_from(own).where(named).scalar_subquery()


def _described(row: Mapping[str, Any]) -> dict[str, Any]:
    """The cells of a trial that have a value; times in ISO 8601."""
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in row.items()
        if value is not None and value is not UNREADABLE
    }
