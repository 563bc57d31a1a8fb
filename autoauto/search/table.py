"""The trials of a study as a pandas table."""

from __future__ import annotations

from typing import Any

import pandas as pd
from optuna import Study
from optuna.trial import FrozenTrial

from autoauto.search.storage import storage_errors

_FIRST = ("number", "state", "value", "n_ipu", "memory_proportion", "batch_size")
_TRAINING = ("schedule", "recompute", "n_micro_batches", "strategy")
_LAST = ("reason", "constraint", "datetime_start", "datetime_complete", "duration_s")


@storage_errors()
def trial_table(study: Study) -> pd.DataFrame:
    """One row a trial: its state, value, parameters, times and all user attributes that are a number or a text.

    It says what `study.trials_dataframe()` says, without prefixes in the names of the columns; `constraint` is above 0
    for an infeasible configuration. Cells without a value are NaN, NaT or None.
    """
    rows = [_row(trial) for trial in study.get_trials(deepcopy=False)]
    found = dict.fromkeys(name for row in rows for name in row)
    training = [name for name in _TRAINING if name in found]
    between = sorted(name for name in found if name not in (*_FIRST, *_TRAINING, *_LAST))
    return pd.DataFrame(rows, columns=[*_FIRST, *training, *between, *_LAST])


def _row(trial: FrozenTrial) -> dict[str, Any]:
    duration = trial.duration
    scalars = {name: value for name, value in trial.user_attrs.items() if isinstance(value, int | float | str)}
    return {
        **scalars,
        **trial.params,
        "number": trial.number,
        "state": trial.state.name,
        "value": trial.value,
        "constraint": max(trial.system_attrs.get("constraints", ()), default=None),
        "datetime_start": trial.datetime_start,
        "datetime_complete": trial.datetime_complete,
        "duration_s": None if duration is None else duration.total_seconds(),
    }
