"""A finished trial has the rows that Optuna writes, in every table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy import MetaData, select

from autoauto.study.store.storage import Storage

RANGES = {
    "n": IntDistribution(1, 8),
    "share": FloatDistribution(0.1, 1.0),
    "order": CategoricalDistribution(["a", "b"]),
}
PARAMS = {"n": 2, "share": 0.5, "order": "b"}


def trial_of(state: TrialState, values: Sequence[float] | None, attributes: Mapping[str, Any]) -> FrozenTrial:
    ranges = RANGES if attributes else {}
    trial = create_trial(
        state=state,
        values=values,
        params={name: PARAMS[name] for name in ranges},
        distributions=ranges,
        user_attrs=dict(attributes),
        system_attrs={"constraints": [-1.0], **attributes},
    )
    trial.datetime_start, trial.datetime_complete = datetime(2026, 1, 2, 3, 4, 5), datetime(2026, 1, 2, 3, 4, 6)
    return trial


TRIALS = [
    trial_of(TrialState.COMPLETE, [1.5, float("inf")], {"status": "ok", "list": [1, {"a": None}], "text": "µ"}),
    trial_of(TrialState.PRUNED, None, {"reason": "out of memory"}),
    trial_of(TrialState.FAIL, None, {}),
    trial_of(TrialState.COMPLETE, [0.0, -2.0], {"status": "ok"}),
]


def all_rows(storage: RDBStorage) -> dict[str, list[Any]]:
    tables = MetaData()
    tables.reflect(storage.engine)
    with storage.engine.connect() as connection:
        return {
            name: [tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key))]
            for name, table in tables.tables.items()
        }


def test_the_rows_are_those_of_optuna(tmp_path: Path) -> None:
    rows = []
    for number, kind in enumerate((RDBStorage, Storage)):
        storage = kind(f"sqlite:///{tmp_path}/{number}.db")
        study = optuna.create_study(storage=storage, study_name="a", directions=["maximize", "minimize"])
        for trial in TRIALS:
            study.add_trial(trial)
        study.ask()  # a trial that runs is written by Optuna itself
        rows.append(all_rows(storage))
        storage.engine.dispose()
    theirs, ours = rows
    started = theirs["trials"].pop()[4], ours["trials"].pop()[4]
    assert all(started)
    assert ours == theirs
    assert [len(ours[name]) for name in ("trials", "trial_values", "trial_params")] == [4, 4, 9]


@pytest.mark.parametrize("distribution", [FloatDistribution(1, 8), CategoricalDistribution([1, 2])])
def test_a_parameter_of_another_kind_is_refused_and_nothing_is_written(
    tmp_path: Path, distribution: optuna.distributions.BaseDistribution
) -> None:
    storage = Storage(f"sqlite:///{tmp_path}/a.db")
    study = optuna.create_study(storage=storage, study_name="a", directions=["maximize", "minimize"])
    study.add_trial(TRIALS[0])
    other = create_trial(values=[1.0, 1.0], params={"n": 2}, distributions={"n": distribution})
    with pytest.raises(ValueError, match="different distribution kind"):
        study.add_trial(other)
    assert len(study.get_trials()) == 1
    wider = create_trial(values=[1.0, 1.0], params={"n": 9}, distributions={"n": IntDistribution(1, 16)})
    study.add_trial(wider)
    assert [trial.number for trial in study.get_trials()] == [0, 1]
    storage.engine.dispose()
