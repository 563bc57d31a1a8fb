"""One configuration as one trial: what is written, and what Optuna, pandas and the dashboard read."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from autoauto.records.errors import BadInput
from autoauto.records.plan import Plan
from autoauto.records.schedule import Order
from autoauto.records.trial import Knobs, Objective, SearchSpace
from autoauto.search.plans import plan_of
from autoauto.search.study import open_study
from autoauto.search.trials import ask, finished_trials, tell_failure, tell_outcome

if TYPE_CHECKING:
    from tests.search.conftest import Fake

SPACE = SearchSpace((1, 2), (0.3, 1.0), (1, 2, 4, 8, 16, 32, 64))
FITS = Knobs(2, 0.3, 32)
TOO_BIG = Knobs(1, 1.0, 64)
TIED = Knobs(1, 0.3, 1)


@pytest.fixture
def study(storage: str) -> optuna.Study:
    return open_study(storage, "bow", Objective.THROUGHPUT, {"model": "abc"})


@pytest.fixture
def told(study: optuna.Study, fake: Fake) -> dict[Knobs, FrozenTrial]:
    fake.tied = 1
    outcomes = {FITS: fake(FITS), TIED: fake(TIED)}
    fake.tied = -1
    outcomes[TOO_BIG] = fake(TOO_BIG)
    return {k: tell_outcome(study, ask(study, SPACE, k), o, Objective.THROUGHPUT) for k, o in outcomes.items()}


def test_a_trial_runs_from_ask_on(study: optuna.Study) -> None:
    ask(study, SPACE, FITS)
    [trial] = study.get_trials()
    assert trial.state is TrialState.RUNNING
    assert trial.params == {"n_ipu": 2, "memory_proportion": 0.3, "batch_size": 32}


def test_a_measured_trial_is_complete(told: dict[Knobs, FrozenTrial], plan: Callable[[Knobs], Plan]) -> None:
    trial = told[FITS]
    cost_cycles, rate = plan(FITS).cost_cycles, 32 * 1e9 / 18_100
    assert cost_cycles == 18_100
    assert (trial.state, trial.value) == (TrialState.COMPLETE, rate)
    assert trial.system_attrs["constraints"] == [0.0]
    stages = trial.user_attrs.pop("stages")
    estimated = trial.user_attrs.pop("estimated_stages")
    assert trial.user_attrs == {
        "samples_per_s": rate,
        "estimated_samples_per_s": pytest.approx(32 * 1e9 / (0.9 * 18_000 + 100)),
        "compute_cycles": 18_000,
        "transfer_cycles": 100,
        "partition": [0, 10, 20],
    }
    assert stages[1] == {
        "layers": [10, 20],
        "device": 1,
        "forward_cycles": 18_000,
        "backward_cycles": 0,
        "receive_cycles": 40,
        "send_cycles": 60,
        "memory_bytes": {"parameter": 100, "temporary": 120},
        "weight_cycles": 0,
        "total_bytes": 220,
        "limit_bytes": 1000,
    }
    assert estimated[0]["forward_cycles"] == 16_200
    assert plan_of({}, stages) == plan(FITS)


def test_a_plan_is_read_back_whole(study: optuna.Study, fake: Fake) -> None:
    knobs = Knobs(2, 0.6, 32, Order.ZB1P, True, 8)
    outcome = fake(knobs)
    assert isinstance(outcome.measured, Plan)
    overlapped = replace(outcome.measured, overlap=True, host_cycles=70_000)
    space = SearchSpace((2,), (0.6,), (32,), (Order.ZB1P,), (True,), (8,))
    trial = tell_outcome(study, ask(study, space, knobs), replace(outcome, measured=overlapped), Objective.THROUGHPUT)
    assert plan_of(trial.user_attrs, trial.user_attrs["stages"]) == overlapped
    assert finished_trials(study) == {knobs: trial}
    assert finished_trials(study, SearchSpace((2,), (0.6,), (32,))) == {}


def test_out_of_memory_is_pruned_with_the_excess_as_its_constraint(told: dict[Knobs, FrozenTrial]) -> None:
    trial = told[TOO_BIG]
    assert (trial.state, trial.value) == (TrialState.PRUNED, None)
    assert trial.system_attrs["constraints"] == [0.7]
    assert trial.user_attrs.pop("estimated_stages")[0]["total_bytes"] == 1700
    assert trial.user_attrs == {"reason": "stage 0 is out of memory", "excess_bytes": 700, "partition": [0, 10]}


def test_infeasible_for_another_reason_has_the_constraint_one(told: dict[Knobs, FrozenTrial]) -> None:
    trial = told[TIED]
    assert trial.state is TrialState.PRUNED
    assert trial.system_attrs["constraints"] == [1.0]
    assert trial.user_attrs == {"reason": "tied weights leave no cut", "excess_bytes": 0}


def test_times_are_real(told: dict[Knobs, FrozenTrial]) -> None:
    for trial in told.values():
        assert trial.datetime_start is not None
        assert trial.datetime_complete is not None
        assert trial.datetime_start < trial.datetime_complete


@pytest.mark.parametrize(
    ("error", "attributes"),
    [
        (KeyboardInterrupt(), {"reason": "interrupted"}),
        (ZeroDivisionError("by zero"), {"reason": "ZeroDivisionError: by zero", "exc_type": "ZeroDivisionError"}),
    ],
)
def test_a_failure_says_why(study: optuna.Study, error: BaseException, attributes: dict[str, str]) -> None:
    trial = tell_failure(study, ask(study, SPACE, FITS), error)
    assert (trial.state, trial.user_attrs) == (TrialState.FAIL, attributes)


def test_a_trial_ended_by_another_process_is_one_line(storage: str, study: optuna.Study, fake: Fake) -> None:
    trial = ask(study, SPACE, FITS)
    open_study(storage, "bow", Objective.THROUGHPUT, {"model": "abc"})
    with pytest.raises(BadInput, match="another process ended the trial; run one search at a time"):
        tell_outcome(study, trial, fake(FITS), Objective.THROUGHPUT)


def test_finished_trials_are_found_by_configuration(study: optuna.Study, told: dict[Knobs, FrozenTrial]) -> None:
    tell_failure(study, ask(study, SPACE, Knobs(2, 1.0, 1)), KeyboardInterrupt())
    ask(study, SPACE, Knobs(2, 1.0, 2))
    numbers = {knobs: trial.number for knobs, trial in told.items()}
    assert {knobs: trial.number for knobs, trial in finished_trials(study).items()} == numbers
    narrow = SearchSpace((1,), (0.3, 1.0), (1, 2, 64))
    assert set(finished_trials(study, narrow)) == {TIED, TOO_BIG}
    assert set(finished_trials(study, SearchSpace((1, 2), (0.3,), (1, 64)))) == {TIED}


def test_a_wider_space_goes_on_in_the_same_study(
    study: optuna.Study, told: dict[Knobs, FrozenTrial], fake: Fake
) -> None:
    wide, knobs = SearchSpace((1, 2, 4), (0.1, 0.3, 1.0), (1, 500)), Knobs(4, 0.1, 500)
    tell_outcome(study, ask(study, wide, knobs), fake(knobs), Objective.THROUGHPUT)
    assert set(finished_trials(study)) == {*told, knobs}


@pytest.mark.usefixtures("told")
def test_optuna_reads_it(storage: str) -> None:
    study = optuna.load_study(study_name="bow", storage=storage)
    assert study.best_trial.params == {"n_ipu": 2, "memory_proportion": 0.3, "batch_size": 32}
    table = study.trials_dataframe()
    assert list(table["state"]) == ["COMPLETE", "PRUNED", "PRUNED"]
    assert list(table["system_attrs_constraints"]) == [[0.0], [1.0], [0.7]]
    assert list(table["user_attrs_excess_bytes"].dropna()) == [0, 700]


@pytest.mark.filterwarnings("ignore")  # the dashboard's own imports
@pytest.mark.usefixtures("told")
def test_the_dashboard_reads_it(storage: str) -> None:
    dashboard = pytest.importorskip("optuna_dashboard")
    app = dashboard.wsgi(optuna.storages.get_storage(storage))

    def get(path: str) -> Any:
        environ = {"REQUEST_METHOD": "GET", "PATH_INFO": path, "QUERY_STRING": "", "wsgi.input": io.BytesIO()}
        return json.loads(b"".join(app(environ, lambda *_: None)))

    [summary] = get("/api/studies")["study_summaries"]
    detail = get(f"/api/studies/{summary['study_id']}")
    assert detail["objective_names"] == ["throughput (samples/s)"]
    assert [trial["state"] for trial in detail["trials"]] == ["Complete", "Pruned", "Pruned"]
    assert [trial["constraints"] for trial in detail["trials"]] == [[0.0], [1.0], [0.7]]
    assert {p["name"] for p in detail["trials"][0]["params"]} == {"batch_size", "memory_proportion", "n_ipu"}
    assert {"key": "reason", "value": "stage 0 is out of memory"} in detail["trials"][2]["user_attrs"]
