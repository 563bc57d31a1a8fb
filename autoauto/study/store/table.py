"""The trials of a study as a pandas table: `trial_table`."""

from __future__ import annotations

import pandas as pd
from optuna import Study

from autoauto.study.store.database import reads
from autoauto.study.store.rows import local_time, trial_rows
from autoauto.study.store.study import space_of
from autoauto.study.store.trials import knobs_of_row

_FIRST = ("number", "state", "value", "n_ipu", "memory_proportion", "batch_size")
_TRAINING = ("schedule", "recompute", "n_micro_batches", "strategy")
_LAST = ("reason", "constraint", "datetime_start", "datetime_complete", "duration_s")


@reads
def trial_table(study: Study) -> pd.DataFrame:
    """One row a trial: its state, value, parameters, times and all user attributes that are a number or a text.

    The values are those of `study.trials_dataframe()`, without prefixes in the names of the columns; `constraint` is
    above 0 for an infeasible configuration; `in_space` says whether it is in the space of the study's last
    search. Cells without a value are NaN, NaT or None.
    """
    rows, space = trial_rows(study), space_of(study)
    for row in rows:
        row["in_space"] = space is None or ("status" in row and knobs_of_row(row) in space)
        row |= {name: local_time(row[name]) for name in ("datetime_start", "datetime_complete")}
    columns = dict.fromkeys(name for row in rows for name in row)
    training = [name for name in _TRAINING if name in columns]
    between = sorted(name for name in columns if name not in (*_FIRST, *_TRAINING, *_LAST))
    return pd.DataFrame(rows, columns=[*_FIRST, *training, *between, *_LAST])
