"""The trials of a study as rows of plain values, read from the tables of the database: `trial_rows`."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC
from typing import Any

from optuna import Study
from optuna.distributions import json_to_distribution
from optuna.storages import RDBStorage
from sqlalchemy import DateTime, Row, text

from autoauto.study.store.database import database_of, through_restarts

_TRIALS = text(
    "SELECT trial_id, number, state, datetime_start, datetime_complete FROM trials WHERE study_id = :study "
    "AND number >= :first AND number < :end ORDER BY number"
).columns(datetime_start=DateTime, datetime_complete=DateTime)
_THESE = "JOIN trials USING (trial_id) WHERE study_id = :study AND trial_id >= :low AND trial_id <= :high"
_VALUES = text(f"SELECT trial_id, objective, value, value_type FROM trial_values {_THESE}")
_PARAMS = text(f"SELECT trial_id, param_name, param_value FROM trial_params {_THESE}")
# Only the choices of a parameter's distributions matter here, and they are equal in all trials of a study.
_DISTRIBUTIONS = text(f"SELECT param_name, max(distribution_json) FROM trial_params {_THESE} GROUP BY param_name")
# Lists and objects, such as stages, are long and do not fit a cell of a table.
_SCALARS = text(
    f"SELECT trial_id, key, value_json FROM trial_user_attributes {_THESE} "
    "AND substr(value_json, 1, 1) NOT IN ('[', '{', 'n')"
)
# A reason that is too long for a user attribute is there in full.
_SYSTEM = text(
    f"SELECT trial_id, key, value_json FROM trial_system_attributes {_THESE} AND key IN ('constraints', 'reason')"
)
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
        trials = connection.execute(_TRIALS, some).all()
        ids = [trial.trial_id for trial in trials]
        these = {"study": study_id, "low": min(ids, default=0), "high": max(ids, default=-1)}
        scalars, params, distributions, values, system = (
            connection.execute(query, these).all() for query in (_SCALARS, _PARAMS, _DISTRIBUTIONS, _VALUES, _SYSTEM)
        )
    # Between these ids may be trials with other numbers, begun by other processes: what is told of them is left out.
    rows = defaultdict(dict, {trial.trial_id: _trial_cells(trial) for trial in trials})
    for (trial_id, name, _), value in zip(scalars, _parsed(row[2] for row in scalars), strict=True):
        rows[trial_id].setdefault(name, value)
    external = {name: json_to_distribution(distribution).to_external_repr for name, distribution in distributions}
    for trial_id, name, value in params:
        rows[trial_id][name] = _external(external[name], value)
    for trial_id, objective, value, kind in values:
        rows[trial_id][f"value_{objective}" if objective else "value"] = _INFINITE.get(kind, value)
    for (trial_id, name, _), value in zip(system, _parsed(row[2] for row in system), strict=True):
        rows[trial_id] |= {"reason": value} if name == "reason" else {"constraint": _largest(value)}
    return [rows[trial.trial_id] for trial in trials]


class _Unreadable:
    """What stands for a cell that was edited so that it cannot be read; its trial is left out."""


UNREADABLE = _Unreadable()


def _external(convert: Callable[[float], Any], value: Any) -> Any:
    try:
        return convert(value)
    except (IndexError, TypeError, ValueError):
        return UNREADABLE


def _largest(violations: Any) -> Any:
    """The largest of the violations of a trial; None where it has none."""
    if isinstance(violations, list) and all(isinstance(each, int | float) for each in violations):
        return max(violations, default=None)
    return UNREADABLE


def _trial_cells(trial: Row[Any]) -> dict[str, Any]:
    """The cells from the table of trials; its times are UTC."""
    times = (trial.datetime_start, trial.datetime_complete)
    start, complete = (None if time is None else time.replace(tzinfo=UTC) for time in times)
    return {
        "number": trial.number,
        "state": trial.state,
        "value": None,
        "constraint": None,
        "datetime_start": start,
        "datetime_complete": complete,
        "duration_s": (complete - start).total_seconds() if start and complete else None,
    }


def _parsed(values: Iterable[str]) -> list[Any]:
    """JSON values, parsed in one call because that is quicker; one by one where one of them is none."""
    texts = list(values)
    try:
        together = list(json.loads(f"[{','.join(texts)}]"))
    except (TypeError, ValueError):
        together = []
    return together if len(together) == len(texts) else list(map(_parsed_alone, texts))


def _parsed_alone(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return UNREADABLE
