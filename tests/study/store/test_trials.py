"""Trials as Optuna stores them and back, written whole or not at all, and plans as attributes of trials."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf
from typing import TYPE_CHECKING, Any

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import event, text

from autoauto.records.errors import BadInput, WorkerLost
from autoauto.records.hardware import MachineDevice, Period
from autoauto.records.layers import LayerRange
from autoauto.records.plans.phased import BufferLayout, BufferRow, IoMode, Phase, PhasedPlan, PhaseKind
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.schedule import Order
from autoauto.records.target import Origin
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objective, Objectives
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Status, Trial
from autoauto.study.execution.process import finished_trial
from autoauto.study.store.database import attributes_of, database_of, set_attribute
from autoauto.study.store.study import load_study, note_space, open_study
from autoauto.study.store.table import trial_table
from autoauto.study.store.trials import (
    N_SHOWN,
    STAGES,
    describe_plan,
    describe_stages,
    from_optuna,
    plan_of,
    ranges_of,
    stored_trials,
    to_optuna,
    with_plans,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.study.conftest import Fake


STAGE = Stage(LayerRange(0, 3), 0, 90, 180, 4, 6, {"parameter": 70}, 100, 80)
MEMORY = {"parameter": 70, "load buffer": 8}
FIRST = Phase(LayerRange(0, 2), 0, 0, 50, 2, 9, 3, MEMORY, 100, variable_bytes=70, stores=(BufferRow("x", 0),))
LAST = Phase(LayerRange(2, 5), 1, 0, 40, 3, 9, 2, MEMORY, 100, PhaseKind.BOTH, 60, 8, 8, (BufferRow("x", 0),))
BUFFERS = (BufferLayout("x", 1, 4, 8), BufferLayout("variables0", 1, 1, 70))
PHASED = PhasedPlan((FIRST, LAST), 4, IoMode.IO, BUFFERS, (0, 0), 0, 2).with_phases((FIRST, LAST))


def finished_in(study: optuna.Study, space: SearchSpace) -> dict[Knobs, Trial]:
    return {knobs: trial for knobs, trial in stored_trials(study).finished.items() if knobs in space}


def round_trip(plan: Plan | PhasedPlan) -> Plan | PhasedPlan:
    """Through JSON, as through the database."""
    attributes: Mapping[str, object] = json.loads(json.dumps(describe_plan(plan) | describe_stages(plan, STAGES)))
    return plan_of(attributes, STAGES)


def test_a_plan_survives_a_round_trip() -> None:
    assert round_trip(Plan((STAGE,))) == Plan((STAGE,))
    assert describe_plan(Plan((STAGE,))) == {"partition": [0, 3]}
    assert round_trip(Plan((STAGE,), Period.OVERLAP, 500)) == Plan((STAGE,), Period.OVERLAP, 500)
    assert round_trip(Plan((STAGE,), shared_cycles=70)) == Plan((STAGE,), shared_cycles=70)


def test_plans_of_replicas_survive_a_round_trip() -> None:
    here, there = (tuple((MachineDevice(machine, 0),) for machine in machines) for machines in ((0, 2), (1,)))
    other = Plan((replace(STAGE, forward_cycles=91),), shared_cycles=7, placement=there)
    plan = Plan((STAGE,), shared_cycles=7, placement=here, other_plans=(other,))
    assert round_trip(plan) == plan
    assert plan.parts == (STAGE, *other.stages)


def test_phases_survive_a_round_trip() -> None:
    assert PHASED.cost_cycles == 50 + 40 + 4 * (2 + 9 + 3) + 4 * (3 + 9 + 2)
    assert round_trip(PHASED) == PHASED
    assert describe_stages(PHASED, STAGES)[STAGES][1]["total_bytes"] == 78


SPACE = SearchSpace((1, 2), (0.3, 1.0), (1, 2, 4, 8, 16, 32, 64))
FITS = Knobs(n_ipu=2, memory_proportion=0.3, batch_size=32)
TOO_BIG = Knobs(n_ipu=1, memory_proportion=1.0, batch_size=64)
TIED = Knobs(n_ipu=1, memory_proportion=0.3, batch_size=1)


def added(study: optuna.Study, trial: FrozenTrial) -> FrozenTrial:
    """The trial as it was stored."""
    backend, study_id = database_of(study)
    return backend.get_trial(backend.create_new_trial(study_id, trial))


def add(
    study: optuna.Study, knobs: Knobs, result: Trial | Exception, space: SearchSpace = SPACE, elapsed_s: float = 2.5
) -> FrozenTrial:
    trial = finished_trial(knobs, result, elapsed_s)
    return added(study, to_optuna(trial, ranges_of(space, knobs), Objective.THROUGHPUT))


@pytest.fixture
def study(storage: str) -> optuna.Study:
    return open_study(storage, "bow", Objective.THROUGHPUT, {"model": "abc"})


@pytest.fixture
def by_knobs(study: optuna.Study, fake: Fake) -> dict[Knobs, FrozenTrial]:
    fake.tied = 1
    trials = {FITS: fake(FITS), TIED: fake(TIED)}
    fake.tied = -1
    trials[TOO_BIG] = fake(TOO_BIG)
    return {knobs: add(study, knobs, trial) for knobs, trial in trials.items()}


def test_a_measured_trial_is_complete(by_knobs: dict[Knobs, FrozenTrial], plan: Callable[[Knobs], Plan]) -> None:
    trial = by_knobs[FITS]
    cost_cycles, rate = plan(FITS).cost_cycles, 32 * 1e9 / 18_100
    assert cost_cycles == 18_100
    assert (trial.state, trial.value) == (TrialState.COMPLETE, rate)
    assert trial.system_attrs["constraints"] == [0.0]
    stages, estimated = trial.system_attrs["stages"], trial.system_attrs["estimated_stages"]
    assert trial.user_attrs == {
        "status": "ok",
        "samples_per_s": rate,
        "latency_s": (40 + 18_100 + 18_000 + 60) / 1e9,
        "estimated_samples_per_s": pytest.approx(32 * 1e9 / (0.9 * 18_000 + 100)),
        "compute_cycles": 18_000,
        "transfer_cycles": 100,
        "usd_per_hour": 7.2,
        "power_limit_w": 600.0,
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
        "n_replicas": 1,
        "device_kind": "",
        "recomputes": False,
        "total_bytes": 220,
        "limit_bytes": 1000,
    }
    assert estimated[0]["forward_cycles"] == 16_200
    assert plan_of({STAGES: stages}, STAGES) == plan(FITS)


def test_a_plan_is_read_back_whole(study: optuna.Study, fake: Fake) -> None:
    knobs = Knobs(n_ipu=2, memory_proportion=0.6, batch_size=32, schedule=Order.ZB1P, recompute=True, n_micro_batches=8)
    measured = fake(knobs)
    assert isinstance(measured.measured, Plan)
    overlapped = replace(measured.measured, period=Period.DUPLEX, host_cycles=70_000)
    space = SearchSpace((2,), (0.6,), (32,), schedule=(Order.ZB1P,), recompute=(True,), n_micro_batches=(8,))
    stored = add(study, knobs, replace(measured, measured=overlapped), space)
    assert plan_of({**stored.user_attrs, **stored.system_attrs}, STAGES) == overlapped
    [trial] = stored_trials(study).own
    assert with_plans(study, trial) == from_optuna(stored)
    assert with_plans(study, trial).measured == overlapped
    assert stored_trials(study).finished == {knobs: trial}
    assert finished_in(study, SearchSpace((2,), (0.6,), (32,))) == {}


def test_stage_replicas_are_stored_and_earlier_trials_have_none(study: optuna.Study, fake: Fake) -> None:
    space = SearchSpace((2, 3), (0.6,), (32,), stage_replicas=(False, True))
    before, off, on = (
        Knobs(n_ipu=3, memory_proportion=0.6, batch_size=32),
        Knobs(n_ipu=2, memory_proportion=0.6, batch_size=32),
        Knobs(n_ipu=2, memory_proportion=0.6, batch_size=32, stage_replicas=True),
    )
    trial = fake(on)
    assert isinstance(trial.measured, Plan)
    stages = tuple(replace(stage, device=2 * s, n_replicas=2 - s) for s, stage in enumerate(trial.measured.stages))
    shared = replace(trial.measured, stages=stages)
    assert "stage_replicas" not in add(study, before, fake(before), SearchSpace((3,), (0.6,), (32,))).params
    assert add(study, off, fake(off), space).params["stage_replicas"] is False
    stored = add(study, on, replace(trial, measured=shared), space)
    assert stored.params["stage_replicas"] is True
    assert from_optuna(stored).measured == shared
    assert list(finished_in(study, space)) == [before, off, on]


def test_out_of_memory_is_pruned_with_the_excess_as_its_constraint(by_knobs: dict[Knobs, FrozenTrial]) -> None:
    trial = by_knobs[TOO_BIG]
    assert (trial.state, trial.value) == (TrialState.PRUNED, None)
    assert trial.system_attrs["constraints"] == [0.7]
    assert trial.system_attrs["estimated_stages"][0]["total_bytes"] == 1700
    assert trial.user_attrs == {
        "status": "out of memory",
        "reason": "stage 0 is out of memory",
        "excess_bytes": 700,
        "partition": [0, 10],
    }


def test_infeasible_for_another_reason_has_the_constraint_one(by_knobs: dict[Knobs, FrozenTrial]) -> None:
    trial = by_knobs[TIED]
    assert trial.state is TrialState.PRUNED
    assert trial.system_attrs["constraints"] == [1.0]
    assert trial.user_attrs == {"status": "infeasible", "reason": "tied weights leave no cut", "excess_bytes": 0}


def test_times_are_those_of_the_measurement(study: optuna.Study, fake: Fake) -> None:
    before = datetime.now()
    trial = add(study, FITS, fake(FITS), elapsed_s=2.5)
    assert trial.datetime_start is not None
    assert trial.datetime_complete is not None
    assert trial.duration == timedelta(seconds=2.5)
    assert before <= trial.datetime_complete <= datetime.now()


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (ZeroDivisionError("by zero"), "bug", "ZeroDivisionError: by zero"),
        (MemoryError("cannot allocate"), "process out of memory", "MemoryError: cannot allocate"),
    ],
)
def test_a_failed_trial_holds_its_reason(study: optuna.Study, error: Exception, status: str, reason: str) -> None:
    trial = add(study, FITS, error)
    assert (trial.state, trial.value, trial.system_attrs) == (TrialState.FAIL, None, {})
    assert trial.user_attrs == {"status": status, "reason": reason, "log": [reason]}


def test_a_long_reason_is_shown_shortened_and_read_in_full(study: optuna.Study, fake: Fake) -> None:
    trial = replace(ended(fake(TOO_BIG)), reason="stage 0 needs " + 30 * "more ")
    assert stored_and_read(study, trial).reason == trial.reason
    [stored] = study.trials
    assert stored.user_attrs["reason"] == f"{trial.reason[: N_SHOWN - 1]}…"
    assert trial_table(study)["reason"].tolist() == [trial.reason]


def test_no_user_attribute_is_longer_than_the_dashboard_shows_in_a_line(study: optuna.Study, fake: Fake) -> None:
    knobs = Knobs(n_ipu=64, memory_proportion=0.3, batch_size=32)
    add(study, knobs, fake(knobs), SearchSpace((64,), (0.3,), (32,)))
    add(study, FITS, ZeroDivisionError("by zero, " * 20))
    for stored in study.trials:
        assert all(len(json.dumps(value, ensure_ascii=False)) <= N_SHOWN + 2 for value in stored.user_attrs.values())
    complete, failed = map(from_optuna, study.trials)
    assert len(complete.plan.partition) == 65
    assert "partition" not in study.trials[0].user_attrs
    assert failed.log == (failed.reason,)


def test_plans_that_earlier_versions_stored_as_user_attributes_are_read(study: optuna.Study, fake: Fake) -> None:
    trial = to_optuna(ended(fake(FITS)), ranges_of(SPACE, FITS), Objective.THROUGHPUT)
    trial.user_attrs |= {name: value for name, value in trial.system_attrs.items() if name != "constraints"}
    trial.system_attrs = {"constraints": trial.system_attrs["constraints"]}
    added(study, trial)
    assert "stages" in study.trials[0].user_attrs
    [read] = stored_trials(study).own
    assert (with_plans(study, read).measured, with_plans(study, read).estimate) == (
        fake(FITS).measured,
        fake(FITS).estimate,
    )


def stored_and_read(study: optuna.Study, trial: Trial, objectives: Objectives = Objective.THROUGHPUT) -> Trial:
    """A trial through the database, whole: with its plans."""
    stored = added(study, to_optuna(trial, ranges_of(SPACE, trial.knobs), objectives))
    [read] = [read for read in stored_trials(study).own if read.number == stored.number]
    whole = with_plans(study, read)
    assert from_optuna(stored) == replace(whole, estimate=trial.estimate, log=trial.log)
    return whole


ENDED = datetime(2024, 7, 1, 12, 30, 0, 250_000, tzinfo=UTC)


def ended(trial: Trial) -> Trial:
    return replace(trial, started=ENDED - timedelta(seconds=2.5), ended=ENDED)


def test_a_trial_that_fits_survives_a_round_trip(study: optuna.Study, fake: Fake) -> None:
    trial = ended(fake(FITS))
    read = stored_and_read(study, trial)
    # without constraints none is violated; the excess is not stored
    assert read == replace(trial, number=0, values=(trial.samples_per_s,), violation=0.0, excess=0.0)
    assert (read.status, read.value, read.plan) == (Status.OK, trial.samples_per_s, trial.measured)
    assert read.estimate == trial.estimate != trial.measured
    assert read.started is not None
    assert read.ended is not None
    assert read.started.tzinfo is read.ended.tzinfo is UTC


def test_a_trial_that_violates_a_constraint_survives_a_round_trip(study: optuna.Study, fake: Fake) -> None:
    fake.constraints = (Constraint("latency_s <= 2e-5"), Constraint("n_ipu <= 9"))
    trial = ended(fake(FITS))
    assert trial.status is Status.CONSTRAINED
    read = stored_and_read(study, trial)
    assert read == replace(trial, number=0, excess=0.0)
    assert read.violation == trial.violation > 0
    assert read.samples_per_s == trial.samples_per_s > 0
    assert read.values == ()
    assert read.reason.startswith("latency_s <= 2e-05 does not hold: latency_s is")


def test_a_constraint_that_holds_by_far_is_read_back(study: optuna.Study, fake: Fake) -> None:
    fake.constraints = (Constraint("latency_s <= 1"),)
    trial = ended(fake(FITS))
    read = stored_and_read(study, trial)
    assert (read.status, read.violation) == (Status.OK, trial.violation)
    assert -inf < trial.violation < 0


def test_a_trial_out_of_memory_survives_a_round_trip_without_its_estimate(study: optuna.Study, fake: Fake) -> None:
    trial = ended(fake(TOO_BIG))
    assert (trial.status, trial.estimate is None) == (Status.OUT_OF_MEMORY, False)
    read = stored_and_read(study, trial)
    assert read == replace(trial, number=0, estimate=None, excess=0.0)
    assert (read.excess_bytes, read.was_measured, read.failed) == (700, True, False)


def test_an_infeasible_trial_survives_a_round_trip(study: optuna.Study, fake: Fake) -> None:
    fake.tied = 1
    trial = ended(fake(TIED))
    assert stored_and_read(study, trial) == replace(trial, number=0)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ZeroDivisionError("by zero"), Status.BUG),
        (MemoryError("no"), Status.PROCESS_OUT_OF_MEMORY),
        (WorkerLost("machine 1 is lost"), Status.CRASH),
    ],
)
def test_a_failed_trial_survives_a_round_trip_without_its_log(
    study: optuna.Study, error: Exception, status: Status
) -> None:
    trial = ended(finished_trial(FITS, error, 2.5))
    assert (trial.status, len(trial.log)) == (status, 1)
    read = stored_and_read(study, trial)
    assert read == replace(trial, number=0, log=())
    assert (read.failed, read.values) == (True, ())


def test_several_objectives_have_their_values_in_order(storage: str, fake: Fake) -> None:
    objectives = (Objective.LATENCY, Objective.THROUGHPUT, Objective.PER_DEVICE)
    study = open_study(storage, "three", objectives, {})
    trial = ended(fake(FITS))
    assert trial.measured is not None
    read = stored_and_read(study, trial, objectives)
    cost = trial.measured.cost_cycles * 2 / 32
    assert read.values == (trial.latency_s, trial.samples_per_s, cost)
    assert read.value == trial.latency_s
    assert stored_and_read(study, ended(fake(TOO_BIG)), objectives).values == ()


def test_a_step_of_training_has_its_makespan_and_bubbles_when_read(study: optuna.Study, fake: Fake) -> None:
    space = SearchSpace((2,), (0.6,), (32,), schedule=(Order.ZB1P,), recompute=(True,), n_micro_batches=(8,))
    knobs = Knobs(n_ipu=2, memory_proportion=0.6, batch_size=32, schedule=Order.ZB1P, recompute=True, n_micro_batches=8)
    add(study, knobs, fake(knobs).with_values(makespan_cycles=1234.5, bubble_fraction=0.25), space)
    [read] = stored_trials(study).own
    assert (read.knobs, read.step.makespan_cycles, read.step.bubble_fraction) == (knobs, 1234.5, 0.25)


def test_all_ended_trials_are_read_by_number_and_have_no_plans(
    study: optuna.Study, by_knobs: dict[Knobs, FrozenTrial]
) -> None:
    add(study, FITS, ZeroDivisionError("by zero"))
    study.ask()  # is not read: it runs
    study.tell(study.ask(), state=TrialState.FAIL)  # nor is this one, of another program
    trials = stored_trials(study).own
    assert [trial.number for trial in trials] == [0, 1, 2, 3]
    assert [trial.knobs for trial in trials] == [*by_knobs, FITS]
    assert [trial.status for trial in trials] == [Status.OK, Status.INFEASIBLE, Status.OUT_OF_MEMORY, Status.BUG]
    assert all((trial.measured, trial.estimate, trial.timeline) == (None, None, None) for trial in trials)


def test_a_trial_that_begins_while_trials_are_read_is_left_out(study: optuna.Study, storage: str, fake: Fake) -> None:
    add(study, FITS, fake(FITS))
    other = load_study(storage, "bow")

    @event.listens_for(database_of(study).storage.engine, "after_cursor_execute")
    def begin(*arguments: Any) -> None:
        if "datetime_start" in arguments[2]:  # the list of trials is read, their attributes are not yet
            add(other, TOO_BIG, fake(TOO_BIG))

    assert [trial.knobs for trial in stored_trials(study).own] == [FITS]
    assert [trial.knobs for trial in stored_trials(other).own] == [FITS, TOO_BIG]


def test_plans_are_read_only_of_a_trial_that_runs_and_has_none(
    study: optuna.Study, by_knobs: dict[Knobs, FrozenTrial]
) -> None:
    n_read: list[int] = []

    @event.listens_for(database_of(study).storage.engine, "before_cursor_execute")
    def count(*_: Any) -> None:
        n_read.append(1)

    fits, tied, too_big = (from_optuna(by_knobs[knobs]) for knobs in (FITS, TIED, TOO_BIG))
    assert with_plans(study, fits) is fits
    assert with_plans(study, tied) is tied
    assert with_plans(study, too_big) is too_big
    assert n_read == []
    read = with_plans(study, replace(fits, measured=None, estimate=None))
    assert (read, read.origin) == (fits, Origin.MODELLED)
    assert n_read


def test_a_trial_is_written_whole_or_not_at_all(study: optuna.Study, fake: Fake) -> None:
    """For every statement of the transaction: the process dies before it."""
    statements: list[str] = []
    last = 0

    @event.listens_for(database_of(study).storage.engine, "before_cursor_execute")
    def stop(*arguments: Any) -> None:
        statements.append(arguments[2])
        if len(statements) == last:
            raise KeyboardInterrupt

    add(study, FITS, fake(FITS))
    writes = [number for number, text in enumerate(statements, 1) if not text.startswith("SELECT")]
    assert len(writes) == 6  # one a table, and the number of the trial
    for number in writes:
        last = number
        statements.clear()
        with pytest.raises(KeyboardInterrupt):
            add(study, FITS, fake(FITS))
        assert len(study.get_trials()) == 1
    last = 0
    assert add(study, FITS, fake(FITS)).number == 1


def test_finished_trials_are_found_by_configuration(study: optuna.Study, by_knobs: dict[Knobs, FrozenTrial]) -> None:
    add(study, Knobs(n_ipu=2, memory_proportion=1.0, batch_size=1), ZeroDivisionError())
    numbers = {knobs: trial.number for knobs, trial in by_knobs.items()}
    assert {knobs: trial.number for knobs, trial in stored_trials(study).finished.items()} == numbers
    narrow = SearchSpace((1,), (0.3, 1.0), (1, 2, 64))
    assert set(finished_in(study, narrow)) == {TIED, TOO_BIG}
    assert set(finished_in(study, SearchSpace((1, 2), (0.3,), (1, 64)))) == {TIED}


def test_replicas_are_part_of_the_configuration(study: optuna.Study, fake: Fake) -> None:
    space = SearchSpace((1,), (0.3,), (1,), replicas=(1, 2))
    configurations = [knobs for cell in space.cells for knobs in cell]
    for knobs in configurations:
        add(study, knobs, fake(knobs), space)
    assert list(finished_in(study, space)) == configurations


def test_a_wider_space_uses_the_same_study(study: optuna.Study, by_knobs: dict[Knobs, FrozenTrial], fake: Fake) -> None:
    wide, knobs = (
        SearchSpace((1, 2, 4), (0.1, 0.3, 1.0), (1, 500)),
        Knobs(n_ipu=4, memory_proportion=0.1, batch_size=500),
    )
    add(study, knobs, fake(knobs), wide)
    assert set(stored_trials(study).finished) == {*by_knobs, knobs}


@pytest.mark.usefixtures("by_knobs")
def test_optuna_reads_the_trials(storage: str) -> None:
    study = optuna.load_study(study_name="bow", storage=storage)
    assert study.best_trial.params == {"n_ipu": 2, "memory_proportion": 0.3, "batch_size": 32}
    table = study.trials_dataframe()
    assert list(table["state"]) == ["COMPLETE", "PRUNED", "PRUNED"]
    assert list(table["system_attrs_constraints"]) == [[0.0], [1.0], [0.7]]
    assert list(table["user_attrs_excess_bytes"].dropna()) == [0, 700]


@pytest.mark.filterwarnings("ignore")  # the dashboard's own imports
@pytest.mark.usefixtures("by_knobs")
def test_the_dashboard_reads_the_trials(storage: str) -> None:
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


def edit(study: optuna.Study, statement: str) -> None:
    """What somebody does to the tables of a study."""
    with database_of(study).storage.engine.begin() as connection:
        connection.execute(text(statement))


def test_trials_of_other_programs_are_counted_and_left_out(study: optuna.Study, fake: Fake) -> None:
    add(study, FITS, fake(FITS))
    ranges: dict[str, optuna.distributions.BaseDistribution] = {
        "batch_size": optuna.distributions.IntDistribution(1, 9)
    }
    study.add_trial(optuna.trial.create_trial(value=1.0, params={"batch_size": 3}, distributions=ranges))
    own, n_foreign = stored_trials(study)
    assert ([trial.knobs for trial in own], n_foreign) == ([FITS], 1)
    line = note_space(study, SPACE)
    assert line is not None
    assert line.startswith("1 trial of study ")
    assert line.endswith("left out: of another program, or edited")
    assert len(trial_table(study)) == 2


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE trials SET state = 'DONE'",
        "UPDATE trial_values SET value = 'abc'",
        "DELETE FROM trial_values",
        "UPDATE trial_params SET param_value = -5",
        "UPDATE trial_user_attributes SET value_json = '{' WHERE key = 'status'",
        "UPDATE trial_user_attributes SET value_json = '\"x\"' WHERE key = 'status'",
        "UPDATE trial_user_attributes SET value_json = '\"x\"' WHERE key = 'samples_per_s'",
        "UPDATE trial_system_attributes SET value_json = '[{}]' WHERE key = 'constraints'",
    ],
)
def test_trials_that_were_edited_are_counted_and_left_out(study: optuna.Study, fake: Fake, statement: str) -> None:
    add(study, FITS, fake(FITS))
    edit(study, statement)
    assert stored_trials(study) == ([], 1)


def test_a_trial_whose_stages_were_deleted_is_one_line(study: optuna.Study, fake: Fake) -> None:
    add(study, FITS, fake(FITS))
    edit(study, "DELETE FROM trial_user_attributes WHERE key = 'stages'")
    edit(study, "DELETE FROM trial_system_attributes WHERE key = 'stages'")
    [trial] = stored_trials(study).own
    with pytest.raises(BadInput, match=r"trial 0 ran and has no stages\); correct it there, or give another --study"):
        with_plans(study, trial)


def test_a_state_that_optuna_does_not_know_is_one_line(study: optuna.Study, fake: Fake) -> None:
    add(study, FITS, fake(FITS))
    [trial] = stored_trials(study).own
    edit(study, "UPDATE trials SET state = 'DONE'")
    with pytest.raises(BadInput, match=r"holds a value that Optuna does not read: 'DONE'.*; correct it there, or give"):
        with_plans(study, trial)


def test_a_study_that_is_deleted_while_it_is_searched_is_one_line(study: optuna.Study, storage: str) -> None:
    optuna.delete_study(study_name=study.study_name, storage=storage)
    works = (
        lambda: set_attribute(study, "a", 1),
        lambda: attributes_of(study),
        lambda: stored_trials(study),
    )
    for work in works:
        with pytest.raises(BadInput, match="another program deleted it; search again"):
            work()
