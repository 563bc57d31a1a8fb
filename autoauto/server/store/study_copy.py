"""A study that moves to another database, as texts: `head_of`, `write_head`, `trial_texts`, `read_trial`, `add_trials`.

A worker that reaches the server only searches in a database of its own:

    server ──head, trials──▶ worker's database ──runner──▶ new trials ──▶ server

Trials are only added, in order, so that what is sent twice is written once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any

from optuna.distributions import distribution_to_json, json_to_distribution
from optuna.exceptions import DuplicatedStudyError
from optuna.storages import RDBStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy import Connection, func, select

from autoauto.records.errors import AutoautoError
from autoauto.server.store.trials import TRIALS
from autoauto.study.store.study import without_optuna_log
from autoauto.study.store.trial_storage import TrialStorage
from autoauto.study.store.trials import local_time


class OutOfOrder(AutoautoError):
    """A trial does not follow those that are there."""


def head_of(storage: RDBStorage, study_id: int) -> dict[str, Any]:
    """The directions and attributes of a study."""
    return {
        "directions": [direction.name for direction in storage.get_study_directions(study_id)],
        "user": storage.get_study_user_attrs(study_id),
        "system": storage.get_study_system_attrs(study_id),
    }


def write_head(storage: RDBStorage, name: str, head: Mapping[str, Any]) -> int:
    """Make a study, or give one that is there other attributes; returns its number."""
    try:
        with without_optuna_log():
            study_id = storage.create_new_study([StudyDirection[each] for each in head["directions"]], name)
    except DuplicatedStudyError:
        study_id = storage.get_study_id_from_name(name)
    for known, given, write in (
        (storage.get_study_user_attrs(study_id), head["user"], storage.set_study_user_attr),
        (storage.get_study_system_attrs(study_id), head["system"], storage.set_study_system_attr),
    ):
        for key, value in given.items():
            if key not in known or known[key] != value:
                write(study_id, key, value)
    return study_id


def trial_texts(storage: RDBStorage, study_id: int, first: int, limit: int) -> list[str]:
    """Trials that have ended, from a number on, up to the first that has not."""
    numbers = TRIALS.c.number >= first, TRIALS.c.number < first + limit
    query = select(TRIALS.c.trial_id).where(TRIALS.c.study_id == study_id, *numbers).order_by(TRIALS.c.number)
    with storage.engine.connect() as connection:
        ids = connection.scalars(query).all()
    ended = takewhile(lambda trial: trial.state.is_finished(), map(storage.get_trial, ids))
    return [_text(trial) for trial in ended]


def add_trials(
    storage: TrialStorage,
    study_id: int,
    first: int,
    trials: Sequence[FrozenTrial],
    check: Callable[[Connection], None],
) -> None:
    """Add trials from a number on; those that are there stay.

    Args:
        check: is called in the transaction of each, and raises where it must not be written.

    Raises:
        OutOfOrder: the first one does not follow the last that is there.
    """
    n_known = storage.get_n_trials(study_id)
    if first > n_known:
        raise OutOfOrder(f"the next trial must have the number {n_known}, got {first}; send those between, too")
    for number, trial in enumerate(trials[n_known - first :], n_known):

        def check_all(connection: Connection, _: int, number: int = number) -> None:
            check(connection)
            n_now = connection.scalar(select(func.count()).where(TRIALS.c.study_id == study_id))
            if n_now != number + 1:
                raise OutOfOrder(f"trial {number} was written by another request; send what follows it")

        storage.add_trial(study_id, trial, check_all)


def _text(trial: FrozenTrial) -> str:
    """A trial as JSON of Python, which has infinity."""
    times = []
    for moment in (trial.datetime_start, trial.datetime_complete):
        times.append(None if moment is None else moment.astimezone(UTC).isoformat())
    return json.dumps(
        {
            "state": trial.state.name,
            "values": trial.values,
            "params": trial.params,
            "distributions": {name: distribution_to_json(each) for name, each in trial.distributions.items()},
            "user_attrs": trial.user_attrs,
            "system_attrs": trial.system_attrs,
            "times": times,
        }
    )


def read_trial(text: str) -> FrozenTrial:
    """The trial of one of `trial_texts`."""
    parts = json.loads(text)
    start, complete = (moment and datetime.fromisoformat(moment) for moment in parts.pop("times"))
    parts["state"] = TrialState[parts["state"]]
    parts["distributions"] = {name: json_to_distribution(each) for name, each in parts["distributions"].items()}
    trial = create_trial(**parts)
    trial.datetime_start, trial.datetime_complete = local_time(start), local_time(complete)
    return trial
