"""The trials of a study as rows of plain values, read from the tables of the database: `trial_rows`."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from optuna import Study
from optuna.distributions import json_to_distribution
from optuna.storages import RDBStorage
from sqlalchemy import DateTime, Row, Select, String, bindparam, column, func, select, table

from autoauto.study.store.database import database_of, through_restarts

# Tables of Optuna without its types, which would refuse values that were edited.
_TRIALS = table(
    "trials",
    column("trial_id"),
    column("study_id"),
    column("number"),
    column("state"),
    column("datetime_start", DateTime),
    column("datetime_complete", DateTime),
)
_OF_STUDY = _TRIALS.c.study_id == bindparam("study")
_NUMBERED = select(_TRIALS).where(
    _OF_STUDY, _TRIALS.c.number >= bindparam("first"), _TRIALS.c.number < bindparam("end")
)


def _of_trials(name: str, *names: str) -> Select[Any]:
    """Columns of a table with rows of trials, for the trials of a study whose ids are in a range."""
    rows = table(name, *map(column, ("trial_id", *names)))
    of_trial = rows.join(_TRIALS, rows.c.trial_id == _TRIALS.c.trial_id)
    these = rows.c.trial_id >= bindparam("low"), rows.c.trial_id <= bindparam("high")
    return select(rows).select_from(of_trial).where(_OF_STUDY, *these)


_VALUES = _of_trials("trial_values", "objective", "value", "value_type")
_PARAMS = _of_trials("trial_params", "param_name", "param_value")
# Only the choices of a parameter's distributions matter here, and they are equal in all trials of a study.
_NAME, _DISTRIBUTION = column("param_name", String), column("distribution_json", String)
_DISTRIBUTIONS = (
    _of_trials("trial_params")
    .with_only_columns(_NAME, func.max(_DISTRIBUTION), maintain_column_froms=True)
    .group_by(_NAME)
)
# Lists and objects, such as stages, are long and do not fit a cell of a table.
_SCALARS = _of_trials("trial_user_attributes", "key", "value_json").where(
    func.substr(column("value_json"), 1, 1).not_in(("[", "{", "n"))
)
# A reason that is too long for a user attribute is there in full.
_SYSTEM = _of_trials("trial_system_attributes", "key", "value_json").where(column("key").in_(("constraints", "reason")))
_INFINITE = {"INF_POS": float("inf"), "INF_NEG": float("-inf")}


@through_restarts
def trial_rows(study: Study) -> list[dict[str, Any]]:
    """The cells of every trial that have a value, by trial number: state, times, parameters, values and attributes.

    Attributes that are lists or objects, such as stages, are left out. It makes a few queries of Optuna's tables:
    letting Optuna build every trial takes many times as long (`studies/storage_benchmark.py`).
    """
    return rows_of(*database_of(study))


def rows_of(storage: RDBStorage, study_id: int, numbers: range = range(2**31)) -> list[dict[str, Any]]:
    """The rows of `trial_rows`, of those trials whose numbers are among consecutive `numbers`."""
    with storage.engine.connect() as connection:
        some = {"study": study_id, "first": numbers.start, "end": numbers.stop}
        trials = connection.execute(_NUMBERED.order_by(_TRIALS.c.number), some).all()
        ids = [trial.trial_id for trial in trials]
        these = {"study": study_id, "low": min(ids, default=0), "high": max(ids, default=-1)}
        scalars = connection.execute(_SCALARS, these).all()
        params = connection.execute(_PARAMS, these).all()
        distributions = connection.execute(_DISTRIBUTIONS, these).all()
        values = connection.execute(_VALUES, these).all()
        system = connection.execute(_SYSTEM, these).all()
    # Between these ids may be trials with other numbers, begun by other processes: their rows are made, and left out.
    rows = defaultdict(dict, {trial.trial_id: _trial_cells(trial) for trial in trials})
    # A cell of the table of trials is not replaced by an attribute of its name.
    for (trial_id, name, _), value in zip(scalars, _parsed(row[2] for row in scalars), strict=True):
        rows[trial_id].setdefault(name, value)
    external = {name: json_to_distribution(distribution).to_external_repr for name, distribution in distributions}
    for trial_id, name, value in params:
        try:
            rows[trial_id][name] = external[name](value)
        except (IndexError, TypeError, ValueError):
            rows[trial_id][name] = UNREADABLE
    for trial_id, objective, value, kind in values:
        name = f"value_{objective}" if objective else "value"
        rows[trial_id][name] = _INFINITE.get(kind, value)
    for (trial_id, name, _), value in zip(system, _parsed(row[2] for row in system), strict=True):
        if name == "reason":
            rows[trial_id]["reason"] = value
        elif isinstance(value, list) and all(isinstance(each, int | float) for each in value):
            rows[trial_id]["constraint"] = max(value, default=None)  # the largest violation
        else:
            rows[trial_id]["constraint"] = UNREADABLE
    return [rows[trial.trial_id] for trial in trials]


class _Unreadable:
    """What stands for a cell that was edited so that it cannot be read; its trial is left out."""


UNREADABLE = _Unreadable()


def _trial_cells(trial: Row[Any]) -> dict[str, Any]:
    """The cells from the table of trials; its times are UTC."""
    start, complete = _with_zone(trial.datetime_start), _with_zone(trial.datetime_complete)
    return {
        "number": trial.number,
        "state": trial.state,
        "value": None,
        "constraint": None,
        "datetime_start": start,
        "datetime_complete": complete,
        "duration_s": (complete - start).total_seconds() if start and complete else None,
    }


def _with_zone(utc: datetime | None) -> datetime | None:
    return None if utc is None else utc.replace(tzinfo=UTC)


def _parsed(values: Iterable[str]) -> list[Any]:
    """JSON values, parsed in one call because that is quicker; one by one where one of them is none."""
    texts = list(values)
    try:
        together = list(json.loads(f"[{','.join(texts)}]"))
    except (TypeError, ValueError):
        together = []
    if len(together) == len(texts):
        return together
    alone = []
    for text in texts:  # one that was edited may be none, or look like several
        try:
            alone.append(json.loads(text))
        except (TypeError, ValueError):
            alone.append(UNREADABLE)
    return alone
