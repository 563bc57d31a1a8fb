"""Repeated measurements, cells, and the ranking of a study's trials."""

import json
from dataclasses import replace

import pytest

from autoauto.records.costs.rate_curve import RateCurves, RateLine
from autoauto.records.interval import interval
from autoauto.records.schedule import Order
from autoauto.records.target import Origin
from autoauto.space.engine_measurements import EngineMeasurements
from autoauto.space.knobs import Knobs
from autoauto.space.modes.generation import Generation
from autoauto.space.modes.mode import Recompute
from autoauto.space.objectives import Objective
from autoauto.space.study_summary import (
    KnobChoice,
    Repeated,
    Sizing,
    StudySummary,
    UsersPoint,
    Verdict,
    Verification,
    cells_of,
    choices_text,
    users_front_text,
)
from autoauto.space.trial import Status, Trial
from autoauto.targets.gpu.session import GpuSession

KNOBS = Knobs(n_ipu=1, memory_proportion=0.6, batch_size=8)


@pytest.mark.parametrize("values", [[10.0, 11.0], [5.0, 5.5, 4.0, 7.25], [1.0, 2.0, 3.0, 4.0, 5.0, 9.0]])
def test_intervals_are_those_of_students_distribution(values: list[float]) -> None:
    from scipy import stats  # half a second of imports

    result = interval(values)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=result.mean, scale=stats.sem(values))
    assert result.error is not None
    assert (result.mean - result.error, result.mean + result.error) == pytest.approx((low, high))


def test_a_single_measurement_has_no_interval() -> None:
    assert interval([3.0]) == (3.0, None)


def test_turns_that_failed_do_not_count() -> None:
    row = Repeated("winner", KNOBS, (10.0, None, 12.0), (1.0, None, 3.0), "died")
    assert row.speed is not None
    assert row.score is not None
    assert (row.speed.mean, row.score.mean) == (11.0, 2.0)
    assert Repeated("winner", KNOBS, (None,), (None,)).speed is None


def test_the_winner_is_given_by_its_index() -> None:
    rows = Repeated("winner", KNOBS), Repeated("runner-up", Knobs(n_ipu=1, memory_proportion=0.6, batch_size=4))
    assert Verification(rows, 3, 1, Verdict.TIE, None).winner is rows[1]


def summary(*trials: Trial, objective: Objective = Objective.THROUGHPUT) -> StudySummary:
    return StudySummary("small", "sqlite:///x.db", objective, {}, trials, ())


def trial(number: int, knobs: Knobs, samples_per_s: float = 0.0, latency_s: float = 0.0) -> Trial:
    """A trial that fits, or with 0 samples/s one that does not."""
    status = Status.OK if samples_per_s else Status.OUT_OF_MEMORY
    return Trial(knobs, status, samples_per_s=samples_per_s, latency_s=latency_s, number=number)


def test_the_best_come_first_and_of_equals_the_oldest() -> None:
    speeds = (50.0, 70.0, 0.0, 70.0)
    trials = [
        trial(number, Knobs(n_ipu=1, memory_proportion=0.6, batch_size=number + 1), speed)
        for number, speed in enumerate(speeds)
    ]
    assert [row.number for row in summary(*trials).ranked] == [1, 3, 0]


def test_per_device_compares_what_one_device_does() -> None:
    single, four = (
        trial(0, Knobs(n_ipu=1, memory_proportion=0.6, batch_size=1), 50.0),
        trial(1, Knobs(n_ipu=4, memory_proportion=0.6, batch_size=1), 100.0),
    )
    study = summary(single, four, objective=Objective.PER_DEVICE)
    assert (study.worth(single), study.worth(four)) == (50.0, 25.0)
    winner = replace(study, finalists=study.ranked[:1])
    assert winner.loss_percent(four) == 50.0


def test_a_cell_has_its_best_its_largest_and_the_first_size_that_is_too_large() -> None:
    sizes = {8: 0.0, 4: 90.0, 2: 100.0, 6: 0.0}
    trials = [
        trial(number, Knobs(n_ipu=2, memory_proportion=0.6, batch_size=size), speed)
        for number, (size, speed) in enumerate(sizes.items())
    ]
    (cell,) = summary(*trials).cells
    assert [row.knobs.batch_size for row in cell.trials] == [2, 4, 6, 8]
    best, largest, unfit = cell.best, cell.largest, cell.first_unfit
    assert (best and best.number, largest and largest.number, unfit and unfit.number) == (2, 1, 3)


def test_cells_are_in_the_order_of_the_grid() -> None:
    grid = [(4, 0.3), (1, 1.0), (4, 0.1), (1, 0.6)]
    trials = [
        trial(number, Knobs(n_ipu=n, memory_proportion=proportion, batch_size=1))
        for number, (n, proportion) in enumerate(grid)
    ]
    cells = summary(*trials).cells
    assert [(cell.knobs.n_ipu, cell.knobs.values["memory_proportion"]) for cell in cells] == sorted(grid)
    assert all(cell.best is cell.largest is None and cell.first_unfit is cell.trials[0] for cell in cells)


def test_cells_that_recompute_or_not_or_choose_have_an_order_too() -> None:
    ways: tuple[bool | Recompute, ...] = (Recompute.AUTO, True, False)
    trials = [
        trial(
            number,
            Knobs(
                n_ipu=2, memory_proportion=0.6, batch_size=1, schedule=Order.POPART, recompute=way, n_micro_batches=4
            ),
        )
        for number, way in enumerate(ways)
    ]
    assert [cell.knobs.mode.recompute for cell in summary(*trials).cells] == [False, True, Recompute.AUTO]


def test_cells_are_in_the_order_of_their_first_trials_and_the_best_is_chosen_by_worth() -> None:
    speeds = {(2, 4): 90.0, (1, 4): 0.0, (2, 2): 100.0, (1, 2): 50.0}
    trials = [
        trial(number, Knobs(n_ipu=n, memory_proportion=0.6, batch_size=size), speed)
        for number, ((n, size), speed) in enumerate(speeds.items())
    ]
    two_devices, one_device = cells_of(trials, lambda row: row.samples_per_s)
    assert [row.number for row in two_devices.trials] == [2, 0]
    assert (two_devices.best, one_device.best) == (trials[2], trials[3])
    assert cells_of(trials, lambda row: -row.samples_per_s)[0].best == trials[0]


def test_the_winner_is_ranked_before_trials_that_are_as_good() -> None:
    """Of throughputs that differ by noise the simpler configuration wins, though another was a little quicker."""
    simple, quick = (
        trial(0, Knobs(n_ipu=1, memory_proportion=0.6, batch_size=8), 99.5),
        trial(1, Knobs(n_ipu=2, memory_proportion=0.6, batch_size=8), 100.0),
    )
    study = summary(simple, quick)
    assert study.ranked == (quick, simple)
    assert replace(study, finalists=(simple,)).ranked == (simple, quick)


def test_a_trial_that_violates_a_constraint_was_measured_and_does_not_fit() -> None:
    runs = trial(0, Knobs(n_ipu=1, memory_proportion=0.6, batch_size=1), 10.0, 0.1)
    breaks = replace(
        trial(1, Knobs(n_ipu=1, memory_proportion=0.6, batch_size=2), 20.0, 0.2),
        status=Status.CONSTRAINED,
        reason="latency_s <= 0.1 does not hold: latency_s is 0.2",
    )
    study = summary(runs, breaks)
    assert study.ranked == (runs,)
    assert (breaks.was_measured, breaks.fits) == (True, False)
    assert study.cells[0].first_unfit == breaks


def test_by_latency_the_quickest_comes_first() -> None:
    slow, quick = (trial(n, Knobs(n_ipu=1, memory_proportion=0.6, batch_size=n), 10.0 * n, 0.1 * n) for n in (2, 1))
    study = summary(slow, quick, objective=Objective.LATENCY)
    assert study.ranked == (quick, slow)
    assert study.worth(quick) == pytest.approx(2 * study.worth(slow))


def test_what_a_study_stores_of_its_answer_is_read_as_it_was_written() -> None:
    other = Knobs(n_ipu=2, memory_proportion=0.6, batch_size=8)
    choices = (
        KnobChoice("n_ipu", 2, other, 90.0, 0.9, "", False, 0.75, True),
        KnobChoice("batch_size", 16, KNOBS, 0.0, None, "too large"),
    )
    curves = RateCurves((RateLine(1, (1.0, 2.0), (True, False), {"ttft_s": (0.1, 0.2)}),), (), KNOBS.values)
    sizing = Sizing(3, 2, 1, 60.0, ((1, 0.25), (2, 0.75)))
    attributes = {
        "notes": '["a", "b"]',
        "choices": choices_text(choices),
        "rate_curves": curves.text,
        "sizing": json.dumps(sizing._asdict()),
        "transferred": '[["x", 12], ["y", 8]]',
        "objective": "latency,throughput",
        "engine_measurements": EngineMeasurements(answer=None, where="local", n_most=3).text,
    }
    best = trial(0, KNOBS, 50.0)
    study = replace(summary(best), attributes=attributes, finalists=(best,))
    assert (study.notes, study.transferred) == (("a", "b"), (("x", 12), ("y", 8)))
    assert (study.choices, study.sizing, study.rate_curves) == (choices, sizing, curves)
    assert (study.objectives, study.of_several) == ((Objective.LATENCY, Objective.THROUGHPUT), True)
    assert study.engine_measurements == EngineMeasurements(where="local", n_most=3)
    assert replace(study, finalists=(trial(1, other, 60.0),)).rate_curves is None  # of another winner
    lost = replace(study, finalists=())
    assert (lost.winner, lost.sizing, lost.rate_curves) == (None, None, None)


def test_a_study_that_stores_nothing_of_its_answer_has_nothing() -> None:
    study = summary(trial(0, KNOBS, 50.0))
    assert [*study.notes, *study.users_front, *study.choices, *study.transferred] == []
    assert (study.rate_curves, study.sizing, study.engine_measurements, study.winner) == (None, None, None, None)
    assert (study.objectives, study.of_several) == (Objective.THROUGHPUT, False)
    assert (study.left_out.n_outside, study.left_out.n_foreign) == (0, 0)
    assert Sizing(3, 2, 1) == (3, 2, 1, None, ())
    assert KnobChoice("n_ipu", 2, KNOBS, 1.0, 1.0)[5:] == ("", True, None, False)


def test_a_front_of_users_has_tokens_a_second_of_a_gpu_and_of_a_user() -> None:
    """400 tokens/s of 2 x 2 x 2 GPUs are 50 of each; 20 ms between tokens are 50 a second of a user."""
    knobs = Knobs(2, 8, replicas=2, session=GpuSession("vllm", 2), mode=Generation(512, 128))
    tokens, only_one = (
        Trial(knobs, Status.OK, samples_per_s=400.0, tokens_per_s=400.0, tpot_s=tpot_s) for tpot_s in (0.02, 0.0)
    )
    study = replace(summary(tokens), attributes={"users_front": users_front_text((tokens, only_one))})
    assert study.users_front == (UsersPoint(knobs, 50.0, 50.0),)


def test_turns_are_counted_by_the_best_and_the_first_is_the_winner_by_its_index() -> None:
    rows = Repeated("winner", KNOBS, (1.0, 2.0), (1.0, 2.0)), Repeated("other", KNOBS, (1.0,), (1.0,))
    made = Verification(rows, 3, 0, Verdict.CLEAR, None)
    assert (made.winner, made.n_turns) == (rows[0], 2)


def test_measured_engines_are_ranked_before_forecasts() -> None:
    slow, quick = trial(0, KNOBS, 50.0), trial(1, replace(KNOBS, batch_size=4), 70.0)
    measured = replace(slow, origin=Origin.MEASURED)
    assert summary(measured, quick).ranked == (measured, quick)
    assert replace(summary(measured, quick), finalists=(quick,)).ranked == (quick, measured)
