"""Trials: their status and what follows from it, latency and constraints; cells, and trials as JSON."""

from __future__ import annotations

import json
import pickle
from dataclasses import asdict, replace
from datetime import UTC, datetime
from math import inf

import pytest

from autoauto.records.errors import OutOfMemory, Unsupported
from autoauto.records.hardware import Device, MachineDevice
from autoauto.records.layers import LayerRange
from autoauto.records.plans.phased import IoMode, Phase, PhasedPlan
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.plans.timeline import Run
from autoauto.records.schedule import Order
from autoauto.records.target import Origin
from autoauto.schedule.times import timeline_of
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.modes.generation import Generation
from autoauto.space.modes.mode import Strategy
from autoauto.space.numbers import Result
from autoauto.space.trial import (
    Cell,
    SearchActivity,
    Status,
    Trial,
    apply_constraints,
    latency_s,
    measured_trial,
    numbers_of,
    run_latency_s,
    unfit_trial,
    used_devices,
    with_devices,
)
from autoauto.targets.clusters import load_cluster
from autoauto.targets.gpu.session import GpuSession
from autoauto.targets.host.runtimes.onnxruntime.session import OnnxRuntimeSession

PLAN = Plan((Stage(LayerRange(0, 2), 0, 100, 0, 4, 6, {"parameter": 70}, 100),))
KNOBS = Knobs(n_ipu=1, memory_proportion=0.6, batch_size=2)
BOW = Device("bow", 1e9, 100, 1, 1)
FITS = measured_trial(
    KNOBS,
    PLAN,
    PLAN,
    Result(samples_per_s=20.0, estimated_samples_per_s=19.0, latency_s=0.11),
    device=BOW,
)
UNFIT = unfit_trial(KNOBS, OutOfMemory("too large", 5), 100)
PHASES = tuple(Phase(LayerRange(i, i + 1), i, 0, 50, 2, 9, 3, {"parameter": 70 + i}, 100) for i in range(2))
PHASED = PhasedPlan(PHASES, 4, IoMode.IO, (), (0, 0), 0)


def test_a_trial_fits_when_it_was_measured_and_violates_nothing() -> None:
    assert FITS.fits
    assert not apply_constraints(FITS, (Constraint("latency_s <= 0.1"),)).fits
    assert not UNFIT.fits
    assert not replace(UNFIT, violation=-0.5).fits


def test_a_planned_trial_without_a_measurement_is_out_of_memory_and_without_a_plan_infeasible() -> None:
    assert FITS.status is Status.OK
    measured = unfit_trial(KNOBS, OutOfMemory("too large", 7), 100, PLAN)
    assert (measured.status, measured.was_measured, measured.estimate) == (Status.OUT_OF_MEMORY, True, PLAN)
    assert (UNFIT.status, UNFIT.was_measured, UNFIT.estimate) == (Status.INFEASIBLE, False, None)


@pytest.mark.parametrize("estimate", [None, PLAN])
def test_what_a_runtime_does_not_run_is_pruned_with_its_reason_and_has_not_failed(estimate: Plan | None) -> None:
    trial = unfit_trial(KNOBS, Unsupported("OpenVINO does not read this model: no rule for Det"), 100, estimate)
    assert (trial.status, trial.state, trial.failed) == (Status.UNSUPPORTED, "PRUNED", False)
    assert trial.reason == "OpenVINO does not read this model: no rule for Det"


@pytest.mark.parametrize(("plan", "peak_bytes"), [(PLAN, 70), (PHASED, 71)])
def test_a_constraint_bounds_every_kind_of_plan(plan: Plan | PhasedPlan, peak_bytes: int) -> None:
    trial = replace(FITS, measured=plan, estimate=plan)
    for bound, status in ((peak_bytes, Status.OK), (peak_bytes - 1, Status.CONSTRAINED)):
        assert apply_constraints(trial, (Constraint(f"peak_memory_bytes <= {bound}"),)).status is status


def test_a_trial_that_runs_but_violates_a_constraint_is_constrained() -> None:
    assert apply_constraints(FITS, (Constraint("latency_s <= 1"),)).status is Status.OK
    constrained = apply_constraints(FITS, (Constraint("latency_s <= 0.1"),))
    assert (constrained.status, constrained.runs, constrained.was_measured) == (Status.CONSTRAINED, True, True)


@pytest.mark.parametrize(("error", "status"), [(0.4, Status.OK), (0.9, Status.CONSTRAINED), (inf, Status.CONSTRAINED)])
@pytest.mark.parametrize("constraints", [(), (Constraint("latency_s <= 1"),)])
def test_wrong_outputs_are_no_answer_though_nobody_bounds_them(
    error: float, status: Status, constraints: tuple[Constraint, ...]
) -> None:
    result = Result(samples_per_s=20.0, latency_s=0.1, output_error=error)
    trial = measured_trial(KNOBS, PLAN, PLAN, result, device=BOW, constraints=constraints)
    assert trial.status is status
    assert trial.reason == ("" if trial.fits else f"output_error <= 0.5 does not hold: output_error is {error}")


def test_every_status_is_of_what_fits_runs_was_measured_or_failed() -> None:
    properties = {
        str(status): [trial.fits, trial.runs, trial.was_measured, trial.failed]
        for status in Status
        for trial in [Trial(KNOBS, status)]
    }
    assert properties == {
        "ok": [True, True, True, False],
        "constrained": [False, True, True, False],
        "ended early": [False, True, True, False],
        "out of memory": [False, False, True, False],
        "infeasible": [False, False, False, False],
        "unsupported": [False, False, False, False],
        "process out of memory": [False, False, False, True],
        "time-out": [False, False, False, True],
        "crash": [False, False, False, True],
        "bug": [False, False, False, True],
    }


def test_excess_is_a_share_of_a_devices_memory_and_negative_when_it_fits() -> None:
    assert (UNFIT.excess_bytes, UNFIT.excess) == (5, 0.05)
    assert (FITS.excess_bytes, FITS.excess) == (0, -0.3)  # 70 of 100 bytes


def test_the_value_is_that_of_the_first_objective() -> None:
    assert FITS.value is None
    assert replace(FITS, values=(3.0, 2.0)).value == 3.0


def test_only_a_step_of_training_has_a_makespan_and_bubbles() -> None:
    knobs = Knobs(n_ipu=1, memory_proportion=0.6, batch_size=2, schedule=Order.GPIPE, n_micro_batches=3)
    step, inference = (
        measured_trial(
            k,
            None,
            PLAN,
            Result(samples_per_s=1.0, latency_s=1.0),
            device=BOW,
            timeline=timeline_of(k.step, PLAN),
        )
        for k in (knobs, KNOBS)
    )
    assert step.timeline is not None
    assert (step.step.makespan_cycles, step.step.bubble_fraction) == (
        step.timeline.makespan_cycles,
        step.timeline.bubble_fraction,
    )
    assert (inference.step.makespan_cycles, inference.step.bubble_fraction) == (None, None)
    assert (inference.result.compute_cycles, inference.result.transfer_cycles) == (100, 10)


def test_latency_of_inference_is_that_of_the_plan() -> None:
    assert latency_s(KNOBS, PLAN, 1000.0) == 0.11


def test_latency_of_a_training_step_is_its_makespan() -> None:
    knobs = Knobs(n_ipu=1, memory_proportion=0.6, batch_size=2, schedule=Order.GPIPE, n_micro_batches=3)
    timeline = timeline_of(knobs.step, PLAN)
    assert latency_s(knobs, PLAN, 1000.0, timeline.makespan_cycles) == timeline.makespan_cycles / 1000.0 > 0.3
    slow = replace(PLAN, host_cycles=500)
    assert latency_s(knobs, slow, 1000.0, timeline.makespan_cycles) == 1.5


def test_measured_latency_is_that_of_the_timeline() -> None:
    simulated = timeline_of(KNOBS.step, PLAN)
    assert run_latency_s(KNOBS, Run(PLAN, (simulated,)), 1000.0) == 0.11
    measured = replace(simulated, origin=Origin.MEASURED, stops=tuple(stops + 900 for stops in simulated.stops))
    assert run_latency_s(KNOBS, Run(PLAN, (measured,)), 1000.0) == 1.0


def test_a_trial_that_violates_a_constraint_does_not_fit_but_has_its_results() -> None:
    loose, tight = Constraint("latency_s <= 0.2"), Constraint("latency_s * n_ipu <= 0.1")
    assert apply_constraints(FITS, ()) is FITS
    fitting = apply_constraints(FITS, (loose,))
    assert fitting.fits
    assert fitting.violation == pytest.approx(-9 / 11)
    for bounds in ((loose, Constraint("n_ipu < 3")), (Constraint("n_ipu < 3"), loose)):
        assert apply_constraints(FITS, bounds).violation == pytest.approx(-9 / 11)  # n_ipu is further from its bound
    violating = apply_constraints(FITS, (loose, tight))
    assert (violating.fits, violating.measured, violating.samples_per_s) == (False, PLAN, 20.0)
    assert violating.violation == pytest.approx(0.1)
    assert violating.reason == "latency_s * n_ipu <= 0.1 does not hold: latency_s is 0.11, n_ipu is 1"


def test_every_result_can_be_constrained() -> None:
    names = "samples_per_s == 20 and compute_cycles == 100 and transfer_cycles == 10"
    more = "cost_cycles == 110 and peak_memory_bytes == 70 and n_samples == 2 and n_devices == 1"
    assert apply_constraints(FITS, (Constraint(f"{names} and {more}"),)).fits


def test_a_trial_that_does_not_run_has_no_violations() -> None:
    assert apply_constraints(UNFIT, (Constraint("latency_s <= 0.2"),)) is UNFIT


def test_a_trial_can_be_pickled_and_written_as_json() -> None:
    moment = datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)
    trial = replace(FITS, number=3, values=(2.0,), started=moment, ended=moment)
    assert pickle.loads(pickle.dumps(trial)) == trial
    record = json.loads(json.dumps(asdict(trial), default=datetime.isoformat))
    assert (record["knobs"]["batch_size"], record["started"]) == (2, "2024-01-02T03:04:05+00:00")


def test_a_cell_counts_what_was_measured() -> None:
    measured = unfit_trial(KNOBS, OutOfMemory("too large", 7), 100, PLAN)
    cell = Cell((FITS, measured, UNFIT), FITS)
    assert (cell.n_measured, cell.knobs) == (2, KNOBS)


def test_activities_are_words_of_the_json_log() -> None:
    assert list(SearchActivity) == ["predicting", "measuring", "verifying"]


def test_the_numbers_of_a_trial_are_those_it_has() -> None:
    numbers = numbers_of(FITS)
    assert (numbers["samples_per_s"], numbers["estimated_samples_per_s"], numbers["latency_s"]) == (20.0, 19.0, 0.11)
    assert (numbers["compute_cycles"], numbers["transfer_cycles"]) == (100, 4 + 6)
    assert "usd_per_hour" not in numbers
    without = replace(FITS, result=replace(FITS.result, estimated_samples_per_s=0.0, transfer_cycles=0))
    assert numbers_of(without)["transfer_cycles"] == 0
    assert numbers.keys() - numbers_of(without).keys() == {"estimated_samples_per_s"}
    assert numbers_of(UNFIT) == {"excess_bytes": 5}


def kinds_plan(*kinds: str, n_replicas: int = 1, n_placed: int = 1) -> Plan:
    """A stage on a device of each kind, so many times beside each other."""
    stages = tuple(
        Stage(LayerRange(i, i + 1), i * n_replicas, 9, 0, 1, 1, {}, 9, n_replicas=n_replicas, device_kind=kind)
        for i, kind in enumerate(kinds)
    )
    placement = ((MachineDevice(0, 0),) * len(kinds) * n_replicas,) * n_placed
    return Plan(stages, placement=placement)


def test_devices_are_counted_by_kind_with_replicas_and_cores() -> None:
    four = OnnxRuntimeSession(cores_per_device=4)
    for knobs, plan, used in (
        (Knobs(n_ipu=2, replicas=3), kinds_plan("a", "b", n_placed=3), {"a": 3, "b": 3}),
        (Knobs(n_ipu=2, replicas=3, session=four), kinds_plan("a", "b", n_placed=3), {"a": 12, "b": 12}),
        (Knobs(n_ipu=3, session=four), kinds_plan("a", "b", "a"), {"a": 8, "b": 4}),
        (Knobs(n_ipu=4), kinds_plan("a", "b", n_replicas=2), {"a": 2, "b": 2}),
        (Knobs(n_ipu=2, replicas=3), kinds_plan("", "", n_placed=3), {"": 6}),
        (Knobs(n_ipu=2, replicas=3), kinds_plan("a", "b", n_placed=1), {"": 6}),  # not placed
        (Knobs(n_ipu=2, replicas=3, session=four), None, {"": 24}),
    ):
        assert used_devices(knobs, plan) == used


def test_throughput_of_a_device_and_of_a_replica() -> None:
    """Of 60 samples/s six devices do 10 each, and three pipelines 20; of phases on three devices each does 20."""
    pipelines = Trial(Knobs(n_ipu=2, replicas=3), Status.OK, samples_per_s=60.0)
    assert (pipelines.device_samples_per_s, pipelines.replica_samples_per_s, pipelines.unit) == (10, 20, "samples/s")
    phases = Trial(Knobs(n_ipu=3, strategy=Strategy.PHASED), Status.OK, samples_per_s=60.0)
    assert (phases.device_samples_per_s, phases.replica_samples_per_s) == (20, 20)
    text = Trial(Knobs(2, 8, replicas=2, session=GpuSession("vllm", 3), mode=Generation(9, 9)), Status.OK)
    assert text.unit == "tokens/s"
    assert replace(text, result=Result(samples_per_s=60.0)).device_samples_per_s == 5


def test_states_are_those_of_optuna() -> None:
    states = {str(status): Trial(KNOBS, status).state for status in Status}
    assert states == {
        **{"ok": "COMPLETE", "constrained": "PRUNED", "out of memory": "PRUNED", "infeasible": "PRUNED"},
        **{"unsupported": "PRUNED", "process out of memory": "FAIL", "time-out": "FAIL", "crash": "FAIL"},
        **{"bug": "FAIL", "ended early": "PRUNED"},
    }


def test_a_trial_has_numbers_of_its_mode_and_no_other_names() -> None:
    trial = Trial(KNOBS, Status.OK, samples_per_s=2.0, tokens_per_s=400.0, tpot_s=0.5)
    assert (trial.tokens.tokens_per_s, trial.tokens.tpot_s, trial.step.makespan_cycles) == (400.0, 0.5, None)
    step = Trial(KNOBS, Status.OK, makespan_cycles=9.0)
    assert (step.step.makespan_cycles, step.tokens.tokens_per_s) == (9.0, 0.0)
    with pytest.raises(TypeError, match="a trial has no speed"):
        Trial(KNOBS, Status.OK, speed=1.0)
    with pytest.raises(AttributeError, match="a trial has no speed"):
        getattr(trial, "speed")  # noqa: B009


def test_devices_beside_replicas_are_paid_for_and_draw_power_too() -> None:
    """Two pipelines of one GPU, and two that compute prompts of another kind: 2 x 3 + 2 x 5 dollars an hour."""
    cluster = load_cluster("c600")
    device = replace(cluster.devices[0], price_per_hour=3.0, power_limit_w=100.0)
    priced = replace(cluster, devices=tuple(device for _ in cluster.devices))
    result = with_devices(Result(samples_per_s=1.0), Knobs(n_ipu=1, replicas=2), PLAN, priced)
    assert (result.devices.usd_per_hour, result.devices.power_limit_w) == (6.0, 200.0)
    beside = Knobs(1, 8, replicas=2, session=GpuSession("vllm", 1, prefill_workers=1), mode=Generation(9, 9))
    assert beside.n_devices == 3
    assert with_devices(Result(), beside, PLAN, priced).devices.usd_per_hour == 9.0


def test_a_step_takes_at_least_what_its_host_takes() -> None:
    knobs = Knobs(n_ipu=1, memory_proportion=0.6, batch_size=2, schedule=Order.GPIPE, n_micro_batches=3)
    host = replace(PLAN, host_cycles=500)
    assert latency_s(knobs, host, 1000.0, 1499) == 1.5
    assert latency_s(knobs, host, 1000.0, 1501) == 1.501
    phased = Knobs(n_ipu=2, strategy=Strategy.PHASED)
    assert latency_s(phased, PHASED, 1000.0) == PHASED.latency_cycles / 1000.0


def test_a_cell_has_its_largest_and_the_first_that_is_too_large_above_it() -> None:
    def sized(size: int, status: Status) -> Trial:
        return Trial(replace(KNOBS, batch_size=size), status)

    trials = (
        *(sized(1, Status.OUT_OF_MEMORY), sized(2, Status.OK), sized(4, Status.OK)),
        *(sized(8, Status.INFEASIBLE), sized(16, Status.OUT_OF_MEMORY)),
    )
    cell = Cell(trials, trials[1])
    assert (cell.largest, cell.first_unfit, cell.n_measured) == (trials[2], trials[3], 4)
    assert Cell(trials[:1], None).first_unfit is trials[0]
    assert Cell(trials[:3], trials[1]).first_unfit is None
    assert Cell(trials[:1], None).largest is None
