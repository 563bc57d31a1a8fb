"""Reading and writing the trials of a study, against Optuna's own methods in the same run.

    python studies/storage_benchmark.py [--trials 1000,3000,10000] [--storage URL]

Reading is `trial_table` against `study.trials_dataframe()` on one database of so many trials, each with 3 parameters,
6 numbers and texts, and 2 lists of stages. Writing is one write a finished trial (`Study.add_trial`) against Optuna's
ask, one write an attribute, and tell. Both times are wall time; on a busy machine only their ratio is meaningful.
"""

from __future__ import annotations

import argparse
import tempfile
import uuid
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import optuna
from optuna.trial import FrozenTrial
from sqlalchemy import Connection, text

from autoauto.cli.options.values import integers
from autoauto.records.hardware import Device
from autoauto.records.layers import LayerRange
from autoauto.records.plans.plan import Plan, Stage
from autoauto.space.knobs import Knobs
from autoauto.space.numbers import Result
from autoauto.space.objectives import Objective
from autoauto.space.space import SearchSpace
from autoauto.space.trial import measured_trial
from autoauto.study.execution.process import finished_trial
from autoauto.study.store.database import database_of
from autoauto.study.store.study import open_study
from autoauto.study.store.table import trial_table
from autoauto.study.store.trials import ranges_of, to_optuna

SPACE = SearchSpace()
MEMORY = {"parameter": 100_000_000, "temporary": 50_000_000, "activation": 20_000_000, "code": 3_000_000}
N_WRITTEN = 50


def some_trial(number: int) -> FrozenTrial:
    """The trial of one measured configuration of the default space."""
    cells = SPACE.cells
    knobs: Knobs = cells[number % len(cells)][number // len(cells) % len(SPACE["batch_size"])]
    stages = [Stage(LayerRange(10 * i, 10 * i + 10), i, 90_000, 0, 40, 60, MEMORY, 900_000_000) for i in range(4)]
    plan = Plan(tuple(stages))
    trial = measured_trial(
        knobs,
        plan,
        plan,
        Result(samples_per_s=1000.0 + number, estimated_samples_per_s=1100.0, latency_s=0.0),
        device=Device("bow", 1e9, 900_000_000, 1, 1),
    )
    return to_optuna(finished_trial(knobs, trial, 0.5), ranges_of(SPACE, knobs), Objective.THROUGHPUT)


def write_one_by_one(study: optuna.Study, trial: FrozenTrial) -> None:
    """Write a trial by Optuna's ask, `set_user_attr` and tell, as programs that ask for trials do."""
    running = study.ask(trial.distributions)
    for name, value in (trial.user_attrs | trial.system_attrs).items():
        running.set_user_attr(name, value)
    study.tell(running, trial.value)


def multiply(study: optuna.Study, n_trials: int) -> None:
    """Copy the trials of a study, rows and all, until there are `n_trials`."""
    storage, study_id = database_of(study)
    with storage.engine.begin() as connection:
        n_have = len(study.get_trials(deepcopy=False))
        while n_have < n_trials:
            n_copied = min(n_have, n_trials - n_have)
            _copy(connection, study_id, n_have, n_copied)
            n_have += n_copied


def _copy(connection: Connection, study_id: int, n_have: int, n_copied: int) -> None:
    last = connection.execute(text("SELECT max(trial_id) FROM trials")).scalar_one()
    first = connection.execute(
        text("SELECT min(trial_id) FROM trials WHERE study_id = :s"), {"s": study_id}
    ).scalar_one()
    values = {"shift": last - first + 1, "n": n_have, "s": study_id, "end": n_copied}
    of_study = "trial_id IN (SELECT trial_id FROM trials WHERE study_id = :s AND number < :end)"
    copied = {
        "trial_values": "objective, value, value_type",
        "trial_params": "param_name, param_value, distribution_json",
        "trial_user_attributes": "key, value_json",
        "trial_system_attributes": "key, value_json",
    }
    rest = "study_id, state, datetime_start, datetime_complete"
    connection.execute(
        text(
            f"INSERT INTO trials (trial_id, number, {rest}) SELECT trial_id + :shift, number + :n, {rest} "
            "FROM trials WHERE study_id = :s AND number < :end"
        ),
        values,
    )
    for table, columns in copied.items():
        statement = f"INSERT INTO {table} (trial_id, {columns}) SELECT trial_id + :shift, {columns} FROM {table}"
        connection.execute(text(f"{statement} WHERE {of_study}"), values)


def seconds(work: Callable[..., Any], *arguments: object) -> float:
    """Wall time of one call."""
    start_s = perf_counter()
    work(*arguments)
    return perf_counter() - start_s


def main(sizes: Sequence[int], storage: str) -> None:
    """Print both tables."""
    names = [f"storage-benchmark-{uuid.uuid4()}" for _ in range(2)]
    study, other = (open_study(storage, name, Objective.THROUGHPUT, {}) for name in names)
    other.sampler = optuna.samplers.RandomSampler(seed=0)  # the cheapest
    trials = [some_trial(number) for number in range(N_WRITTEN)]
    ours_s, theirs_s = (
        sum(seconds(write, target, trial) for trial in trials)
        for write, target in ((optuna.Study.add_trial, study), (write_one_by_one, other))
    )
    print(f"writing {N_WRITTEN} trials: {ours_s:.2f} s in one write each, {theirs_s:.2f} s by ask and tell: ", end="")
    print(f"{theirs_s / ours_s:.1f} x\n\n{'trials':>7} {'trial_table':>12} {'trials_dataframe':>17} {'ratio':>6}")
    for n_trials in sorted(sizes):
        multiply(study, n_trials)
        ours_s, theirs_s = (
            seconds(read, optuna.load_study(study_name=names[0], storage=storage))
            for read in (trial_table, optuna.Study.trials_dataframe)
        )
        print(f"{n_trials:>7} {ours_s:>10.2f} s {theirs_s:>15.2f} s {theirs_s / ours_s:>5.1f} x")
    for name in names:
        optuna.delete_study(study_name=name, storage=storage)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=integers, default=(1000, 3000, 10_000))
    parser.add_argument("--storage", help="default: a new SQLite file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        main(args.trials, args.storage or f"sqlite:///{folder}/benchmark.db")
