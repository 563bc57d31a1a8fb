"""The trial table against Optuna's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoauto.records.knobs import Knobs, Objective, SearchSpace
from autoauto.records.schedule import Order
from autoauto.study.execution.process import finished_trial
from autoauto.study.run import run_search
from autoauto.study.store.study import load_study, open_study
from autoauto.study.store.table import trial_table
from autoauto.study.store.trials import add_trial, ranges_of, to_optuna

if TYPE_CHECKING:
    from tests.study.conftest import Fake

SPACE = SearchSpace((1, 2), (0.3, 1.0), tuple(range(1, 101)))


def test_it_equals_trials_dataframe(storage: str, fake: Fake) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    run_search(SPACE, fake, study, Objective.THROUGHPUT)
    knobs = Knobs(1, 0.3, 1)
    failed = finished_trial(knobs, ZeroDivisionError(), 0.5)
    add_trial(study, to_optuna(failed, ranges_of(SPACE, knobs), Objective.THROUGHPUT))
    study.ask()
    study = load_study(storage, "bow")
    table, frame = trial_table(study), study.trials_dataframe()
    assert set(table["state"]) == {"COMPLETE", "PRUNED", "FAIL", "RUNNING"}
    prefixes = {"n_ipu": "params", "memory_proportion": "params", "batch_size": "params"}
    scalars = (
        "reason",
        "status",
        "samples_per_s",
        "estimated_samples_per_s",
        "compute_cycles",
        "transfer_cycles",
        "excess_bytes",
    )
    for name in ("number", "state", "datetime_start", "datetime_complete", *prefixes, *scalars):
        prefix = prefixes.get(name, "user_attrs" if name in scalars else "")
        frame_name = f"{prefix}_{name}" if prefix else name
        assert table[name].equals(frame[frame_name]), name
    assert table["value"].equals(frame["value_throughput (samples/s)"].rename("value"))
    assert table["duration_s"].equals(frame["duration"].dt.total_seconds().rename("duration_s"))
    infeasible = table[table["state"] == "PRUNED"]
    assert (infeasible["constraint"] > 0).all()
    assert (infeasible["constraint"] == infeasible["excess_bytes"] / 1000).all()


def test_columns_have_an_order(storage: str, fake: Fake) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    empty = ["number", "state", "value", "n_ipu", "memory_proportion", "batch_size"]
    tail = ["reason", "constraint", "datetime_start", "datetime_complete", "duration_s"]
    assert list(trial_table(study)) == empty + tail
    assert len(trial_table(study)) == 0
    run_search(SPACE, fake, study, Objective.THROUGHPUT)
    between = [
        "compute_cycles",
        "estimated_samples_per_s",
        "excess_bytes",
        "in_space",
        "latency_s",
        "samples_per_s",
        "status",
        "transfer_cycles",
    ]
    assert list(trial_table(study)) == empty + between + tail


def test_orders_are_texts_and_an_infinite_value_is_infinity(storage: str, fake: Fake) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    knobs = Knobs(1, 0.3, 1, Order.GPIPE, True, 4)
    space = SearchSpace((1,), (0.3,), (1,), (Order.GPIPE,), (True,), (4,))
    trial = to_optuna(finished_trial(knobs, fake(knobs), 0.5), ranges_of(space, knobs), Objective.THROUGHPUT)
    for trial.value in (float("inf"), float("-inf"), 1.0):
        add_trial(study, trial)
    table = trial_table(study)
    assert list(table["value"]) == [float("inf"), float("-inf"), 1.0]
    assert table[["schedule", "recompute", "n_micro_batches"]].iloc[0].tolist() == ["gpipe", True, 4]
