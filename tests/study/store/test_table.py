"""The trial table: its columns and their types, and its cells against Optuna's own table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import optuna
import pytest
from optuna.trial import create_trial

from autoauto.records.errors import BadInput
from autoauto.records.schedule import Order
from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Strategy
from autoauto.space.objectives import Objective, Objectives
from autoauto.space.space import SearchSpace
from autoauto.space.table import COLUMNS
from autoauto.study.execution.process import finished_trial
from autoauto.study.run import run_search
from autoauto.study.store.study import load_study, open_study
from autoauto.study.store.table import trial_table, trials_dataframe
from autoauto.study.store.trials import ranges_of, to_optuna
from autoauto.targets.host.runtimes.registry import SESSIONS
from autoauto.targets.host.runtimes.session import PRECISIONS
from tests.drawn import daily

if TYPE_CHECKING:
    from tests.study.conftest import Fake

SPACE = SearchSpace((1, 2), (0.3, 1.0), tuple(range(1, 101)))


def test_its_cells_are_those_of_optuna(storage: str, fake: Fake) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    run_search(SPACE, fake, study, Objective.THROUGHPUT)
    knobs = Knobs(n_ipu=1, memory_proportion=0.3, batch_size=1)
    failed = finished_trial(knobs, ZeroDivisionError(), 0.5)
    study.add_trial(to_optuna(failed, ranges_of(SPACE, knobs), Objective.THROUGHPUT))
    study.ask()
    study = load_study(storage, "bow")
    table, frame = trial_table(study), study.trials_dataframe()
    assert set(table["state"]) == {"COMPLETE", "PRUNED", "FAIL", "RUNNING"}
    names = {name: name for name in ("number", "state", "datetime_start", "datetime_complete")}
    names |= {f"params_{name}": name for name in ("n_ipu", "memory_proportion", "batch_size")}
    names |= {f"user_attrs_{name}": name for name in ("reason", "status", "compute_cycles", "transfer_cycles")}
    names |= {f"user_attrs_{name}": name for name in ("samples_per_s", "estimated_samples_per_s", "excess_bytes")}
    names["value_throughput (samples/s)"] = "value"
    expected = frame.rename(columns=names).assign(duration_s=frame["duration"].dt.total_seconds())
    for name in (*names.values(), "duration_s"):
        assert table[name].equals(expected[name].astype(table[name].dtype)), name
    infeasible = table[table["state"] == "PRUNED"]
    assert (infeasible["constraint"] > 0).all()
    assert (infeasible["constraint"] == infeasible["excess_bytes"] / 1000).all()
    running = table[table["state"] == "RUNNING"].drop(columns=["number", "state", "datetime_start"])
    assert running.isna().all(axis=None)


HEAD = {"number": "int64", "state": "string", "status": "string"}
KNOBS_AND_RESULTS = {
    "n_ipu": "Int64",
    "replicas": "Int64",
    "stage_replicas": "boolean",
    "runtime": "string",
    "cores_per_device": "Int64",
    "precision": "string",
    "spinning": "boolean",
    "graph_optimization": "string",
    "streams": "Int64",
    "cuda_graph": "boolean",
    "channels_last": "boolean",
    "prompt_threads": "Int64",
    "n_batch": "Int64",
    "n_ubatch": "Int64",
    "flash_attention": "string",
    "cache_type": "string",
    "memory_proportion": "float64",
    "io_tiles": "Int64",
    "engine": "string",
    "tensor_parallel": "Int64",
    "expert_parallel": "Int64",
    "kv_cache_precision": "string",
    "max_batched_tokens": "Int64",
    "attention_data_parallel": "Int64",
    "prefill_workers": "Int64",
    "prefill_tensor_parallel": "Int64",
    "prefill_expert_parallel": "Int64",
    "prefill_attention_data_parallel": "Int64",
    "prefill_batch_size": "Int64",
    "prefill_kind": "Int64",
    "batch_size": "Int64",
    "schedule": "string",
    "stages_per_device": "Int64",
    "recompute": "string",
    "n_micro_batches": "Int64",
    "optimizer": "string",
    "master_weights": "boolean",
    "shard_optimizer": "boolean",
    "optimizer_state": "string",
    "strategy": "string",
    "input_tokens": "Int64",
    "output_tokens": "Int64",
    "samples_per_s": "float64",
    "estimated_samples_per_s": "float64",
    "latency_s": "float64",
    "compute_cycles": "Int64",
    "transfer_cycles": "Int64",
    "makespan_cycles": "float64",
    "bubble_fraction": "float64",
    "output_error": "float64",
    "usd_per_hour": "float64",
    "power_limit_w": "float64",
    "tokens_per_s": "float64",
    "tpot_s": "float64",
    "ttft_s": "float64",
    **dict.fromkeys(("tpot_low_s", "tpot_high_s", "ttft_low_s", "ttft_high_s", "bounds_probability"), "float64"),
    "kv_cache_bytes": "Int64",
    **dict.fromkeys(("prefill_busy_share", "kv_transfer_s"), "float64"),
    **{f"{name}_p{percent}_s": "float64" for name in ("ttft", "tpot", "latency") for percent in (50, 90, 95, 99)},
    **dict.fromkeys(("rate_per_s", "busy_share", "kv_share", "n_waiting"), "float64"),
    **dict.fromkeys(("n_waiting_kv", "n_waiting_tokens", "n_waiting_sequences"), "float64"),
    "n_preempted": "Int64",
    "queue_growth_per_s": "float64",
    "low_samples_per_s": "float64",
    "high_samples_per_s": "float64",
    "core_share": "float64",
    "excess_bytes": "Int64",
    "usd_per_million": "float64",
    "max_joules": "float64",
    "host_cycles": "Int64",
    "shared_cycles": "Int64",
    "period": "string",
    "reason": "string",
    "origin": "string",
    "constraint": "float64",
    "in_space": "boolean",
    "datetime_start": "datetime64[ns]",
    "datetime_complete": "datetime64[ns]",
    "duration_s": "float64",
}
INFERENCE = SearchSpace((1, 2), (1.0,), (1, 50))
TRAINING = SearchSpace((2,), (1.0,), (1,), schedule=(Order.ONE_F_ONE_B,), recompute=(False, True), n_micro_batches=(4,))
PHASES = SearchSpace((2,), (1.0,), (1,), strategy=(Strategy.PHASED,), steps=(4,))
HOST = SearchSpace((1, 2), (), (1,), cores_per_device=(1, 2), stage_replicas=(False, True), runtime=("onnxruntime",))
OF_SESSIONS = SearchSpace((1,), (), (1,), runtime=tuple(SESSIONS), precision=PRECISIONS)
NOTHING_FITS = SearchSpace((1,), (1.0,), (50,))


@pytest.mark.parametrize("space", [INFERENCE, TRAINING, PHASES, HOST, OF_SESSIONS, NOTHING_FITS, None])
@pytest.mark.parametrize(
    ("objectives", "values"),
    daily(
        [
            ((Objective.THROUGHPUT, Objective.PER_DEVICE), ["value_throughput", "value_per_device"]),
            (Objective.THROUGHPUT, ["value"]),
            (Objective.LATENCY, ["value"]),
        ],
        several=True,
    ),
)
def test_columns_and_their_types_depend_on_the_objectives_alone(
    storage: str, fake: Fake, space: SearchSpace | None, objectives: Objectives, values: list[str]
) -> None:
    study = open_study(storage, "bow", objectives, {})
    for knobs in [knobs for cell in space.cells for knobs in cell] if space else []:
        assert space is not None
        trial = finished_trial(knobs, fake(knobs), 0.5)
        study.add_trial(to_optuna(trial, ranges_of(space, knobs), objectives))
    table = trials_dataframe("bow", storage)
    expected = {**HEAD, **dict.fromkeys(values, "float64"), **KNOBS_AND_RESULTS}
    assert list(table.dtypes.astype(str).items()) == list(expected.items())
    assert len(table) == (space.n_configurations if space else 0)
    of_all = [knob.name for knob in COLUMNS if knob.absent is not None]
    assert not table[of_all].isna().any(axis=None)
    for name in ("runtime", "precision"):
        assert table[name].notna().all() == (space in (HOST, OF_SESSIONS) or not len(table))


def test_the_page_describes_every_column_with_its_type() -> None:
    page = (Path(__file__).parents[3] / "docs" / "python.md").read_text(encoding="utf-8")
    described: dict[str, str] = {}
    for line in page.partition("## The trial table")[2].splitlines():
        if line.startswith("| `"):
            names, types, _ = line.strip("| ").split(" | ", 2)
            described |= dict.fromkeys(re.findall(r"`(\w+)`", names), types)
    columns = {**HEAD, **KNOBS_AND_RESULTS}
    assert {name for name, kind in columns.items() if kind not in described.get(name, "")} == set()
    assert {name for name in described if not name.startswith("value")} == {*columns}


def test_several_objectives_have_a_column_each(storage: str, fake: Fake) -> None:
    objectives = (Objective.LATENCY, Objective.THROUGHPUT)
    study = open_study(storage, "bow", objectives, {})
    trial = finished_trial(
        Knobs(n_ipu=1, memory_proportion=0.3, batch_size=1),
        fake(Knobs(n_ipu=1, memory_proportion=0.3, batch_size=1)),
        0.5,
    )
    study.add_trial(to_optuna(trial, ranges_of(SPACE, trial.knobs), objectives))
    [row] = trial_table(study)[["value_latency", "value_throughput"]].to_numpy().tolist()
    assert row == [trial.latency_s, trial.samples_per_s]


def test_a_study_that_optuna_opened_is_read(storage: str, fake: Fake) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    run_search(SPACE, fake, study, Objective.THROUGHPUT)
    assert trial_table(optuna.load_study(study_name="bow", storage=storage)).equals(trial_table(study))


def test_attributes_of_other_programs_come_last(storage: str) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    study.add_trial(create_trial(value=1.0, user_attrs={"note": "mine", "alpha": 0.5, "list": [1]}))
    table = trial_table(study)
    assert list(table)[-3:] == ["duration_s", "alpha", "note"]
    assert table["n_ipu"].isna().all()  # nothing is known of it


def test_an_unknown_study_is_refused(storage: str) -> None:
    open_study(storage, "bow", Objective.THROUGHPUT, {})
    with pytest.raises(BadInput, match=r"^there is no study 'x' in .*; `autoauto studies` lists what there is$"):
        trials_dataframe("x", storage)


def test_orders_are_texts_and_an_infinite_value_is_infinity(storage: str, fake: Fake) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    knobs = Knobs(n_ipu=1, memory_proportion=0.3, batch_size=1, schedule=Order.GPIPE, recompute=True, n_micro_batches=4)
    space = SearchSpace((1,), (0.3,), (1,), schedule=(Order.GPIPE,), recompute=(True,), n_micro_batches=(4,))
    trial = to_optuna(finished_trial(knobs, fake(knobs), 0.5), ranges_of(space, knobs), Objective.THROUGHPUT)
    for trial.value in (float("inf"), float("-inf"), 1.0):
        study.add_trial(trial)
    table = trial_table(study)
    assert list(table["value"]) == [float("inf"), float("-inf"), 1.0]
    assert table[["schedule", "recompute", "n_micro_batches"]].iloc[0].tolist() == ["gpipe", "on", 4]


def test_proportions_of_each_device_are_texts_beside_numbers(storage: str) -> None:
    space = SearchSpace((2,), (0.6, "0.1:0.2"), (4,))
    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    for knobs in (knobs for cell in space.cells for knobs in cell):
        failed = finished_trial(knobs, ZeroDivisionError(), 0.5)
        study.add_trial(to_optuna(failed, ranges_of(space, knobs), Objective.THROUGHPUT))
    assert trial_table(load_study(storage, "bow"))["memory_proportion"].tolist() == [0.6, "0.1:0.2"]
