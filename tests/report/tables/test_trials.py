"""Tables of a search: the best configuration, trials, cells, the Pareto front, and the dry run."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from autoauto.records.plans.plan import Plan
from autoauto.records.schedule import Order
from autoauto.records.target import Origin
from autoauto.report.tables.table import Table
from autoauto.report.tables.trials import (
    best_facts,
    best_table,
    dry_run_table,
    front_table,
    trials_table,
    what_fits_table,
)
from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Strategy
from autoauto.space.numbers import DeviceTotals
from autoauto.space.objectives import Objective, Objectives
from autoauto.space.trial import Cell, Counts, ExpectedCell, Status, Trial, ended_early
from tests.report.made import made

Text = Callable[..., str]
ENDS = {"low_samples_per_s": 760.0, "high_samples_per_s": 845.0}
BEST_TABLE = """\
Best configuration
n_ipu              2
memory_proportion  0.6
batch_size         16
partition          0 2 5
throughput         1,000.0 samples/s           modelled
                   920.0 samples/s             estimated, -8.0 %
a device           500.0 samples/s             modelled
period             2,300 cycles                modelled
tried              20 of 1,152 configurations
modelled           14 of those tried           the estimate ruled out the others"""
TRAINING_ROWS = """\
batch_size         16
schedule           1f1b
recompute          on
n_micro_batches    8
partition          0 2 5"""
TRIALS_TABLE = """\
Trials by throughput, modelled
                        memory  batch
rank  trial  n_ipu  proportion   size  samples/s    latency  state
─────────────────────────────────────────────────────────────────────
   1      2      4         1.0     16    2,000.0  32.100 ms  COMPLETE
   2      0      1         0.3      8    1,000.0   8.000 ms  COMPLETE
   3      1      4         0.6    128          -          -  PRUNED
   4      3      2         0.6      1          -          -  FAIL
4 of 4 trials"""
TRAINED_TABLE = """\
Trials by throughput, modelled
                  memory  batch
trial  n_ipu  proportion   size  other knobs        samples/s  latency  state
────────────────────────────────────────────────────────────────────────────────
    0      4         0.6      8  popart, recompute    1,000.0        -  COMPLETE
                                 off,
                                 micro-batches 16
    1      4         0.6      8  1f1b, recompute      2,000.0        -  COMPLETE
                                 on, micro-batches
                                 32
2 of 2 trials"""
CELLS_TABLE = """\
What fits, modelled
           memory                       n_micro  largest       best
n_ipu  proportion  schedule  recompute  batches    batch  samples/s
───────────────────────────────────────────────────────────────────
    4         0.6  gpipe     off             16     none          -
    4         0.6  1f1b      on              16    >= 12      345.7
1f1b fits batches of 12, which gpipe (none) cannot"""
DRY_RUN_TABLE = """\
Combinations of knobs at their best batch, estimated
           memory                                         best
n_ipu  proportion  other knobs                           batch  samples/s  tries
────────────────────────────────────────────────────────────────────────────────
    2         0.6  replicas 2                               16      900.0      2
    4         1.0  gpipe, recompute on, micro-batches        8      345.7      0
                   16
no batch size fits in 1 further combination"""

FAST = made(2, Knobs(n_ipu=4, memory_proportion=1.0, batch_size=16), 2000.0, latency_s=0.0321, values=(2000.0,))
SLOW = made(0, Knobs(n_ipu=1, memory_proportion=0.3, batch_size=8), 1000.0, latency_s=0.008, values=(1000.0,))
UNFIT = made(1, Knobs(n_ipu=4, memory_proportion=0.6, batch_size=128))
TRIALS = (SLOW, UNFIT, FAST, made(3, Knobs(n_ipu=2, memory_proportion=0.6, batch_size=1), status=Status.CRASH))
FRONT = (
    made(
        3,
        Knobs(n_ipu=4, memory_proportion=0.6, batch_size=16),
        2000.0,
        latency_s=0.0321,
        values=(2000.0, 0.0321, 4000.0),
    ),
    made(
        1,
        Knobs(n_ipu=1, memory_proportion=1.0, batch_size=2, replicas=2),
        1000.0,
        latency_s=0.001,
        values=(1000.0, 0.001, 1500.5),
    ),
)


def best(measured: Plan, counts: Counts, origin: Origin = Origin.MODELLED, **facts: Any) -> Table:
    trial = made(0, Knobs(n_ipu=2, memory_proportion=0.6, batch_size=16), 1000.0, measured=measured)
    return best_table(replace(trial, **facts), counts, origin)


def listed(*trials: Trial, top: int = 5, objectives: Objectives = Objective.THROUGHPUT) -> Table:
    return trials_table(trials, top, objectives, Origin.MODELLED)


def cell(*trials: Trial) -> Cell:
    """The last trial that fits is the best."""
    return Cell(trials, next((trial for trial in reversed(trials) if trial.fits), None))


def test_a_configuration_is_drawn(measured: Plan, text: Text) -> None:
    assert text(best(measured, Counts(20, 14, 1152), estimated_samples_per_s=920.0)) == BEST_TABLE


def test_configurations_that_the_estimate_ruled_out_are_mentioned_only_if_there_are_any(
    measured: Plan, text: Text
) -> None:
    drawn = text(best(measured, Counts(20, 20, 1152)))
    assert "20 of those tried" in drawn
    assert "ruled out" not in drawn


def test_without_an_estimate_there_is_no_row_for_it(measured: Plan, text: Text) -> None:
    assert "estimated," not in text(best(measured, Counts(1, 1)))


def test_the_period_of_a_plan_that_devices_ran_is_a_time(measured: Plan, text: Text) -> None:
    assert re.search(r"period +16\.000 ms +measured", text(best(measured, Counts(1, 1), Origin.MEASURED)))


def test_of_a_profile_nothing_is_called_measured(measured: Plan, text: Text) -> None:
    drawn = text(best(measured, Counts(3, 3, 48), Origin.ESTIMATED))
    assert re.search(r"^estimated +3 of those tried", drawn, re.MULTILINE)
    assert "measured" not in drawn


def test_training_shows_its_schedule_and_its_makespan(measured: Plan, text: Text) -> None:
    knobs = Knobs(
        n_ipu=2, memory_proportion=0.6, batch_size=16, schedule=Order.ONE_F_ONE_B, recompute=True, n_micro_batches=8
    )
    drawn = text(best(measured, Counts(1, 1), knobs=knobs, makespan_cycles=45_000))
    assert "\n".join(line.rstrip() for line in drawn.splitlines()[3:8]).startswith(TRAINING_ROWS.rstrip())
    assert re.search(r"makespan +45,000 cycles +simulated", drawn)


def test_the_devices_of_stages_are_shown_where_several_run_one(measured: Plan, text: Text) -> None:
    first, second = measured.stages
    shared = replace(measured, stages=(replace(first, n_replicas=2), replace(second, device=2)))
    drawn = text(
        best(shared, Counts(1, 1), knobs=Knobs(n_ipu=3, memory_proportion=0.6, batch_size=16, stage_replicas=True))
    )
    assert re.search(r"^stage_replicas +on$", drawn, re.MULTILINE)
    assert re.search(r"^devices of stages +0 to 1, 2$", drawn, re.MULTILINE)
    assert "devices of stages" not in text(best(measured, Counts(1, 1)))


def test_trials_are_drawn_best_first(text: Text) -> None:
    assert text(listed(*TRIALS)) == TRIALS_TABLE


def test_only_the_best_are_shown(text: Text) -> None:
    drawn = text(listed(*TRIALS, top=1))
    assert "2,000.0" in drawn
    assert "1,000.0" not in drawn
    assert drawn.endswith("1 of 4 trials")


def test_per_device_ranks_by_the_smallest_value_with_any_number_of_replicas(text: Text) -> None:
    """Trial 0 has 4 devices: 250 samples/s each, trial 2 has 500."""
    slow = replace(SLOW, knobs=replace(SLOW.knobs, replicas=4), values=(4e6,))
    fast = replace(FAST, values=(2e6,))
    table = listed(slow, UNFIT, fast, objectives=Objective.PER_DEVICE)
    assert [row[-3] for row in table.rows] == [2000.0, 1000.0, None]
    assert [row[-2] for row in table.rows] == ["2,000,000", "4,000,000", None]


def test_replicas_are_shown_where_they_vary(text: Text) -> None:
    slow = replace(SLOW, knobs=replace(SLOW.knobs, replicas=4))
    rows = text(listed(slow, *TRIALS[1:])).splitlines()
    assert rows[2].split()[:4] == ["rank", "trial", "n_ipu", "replicas"]
    assert [row.split()[3] for row in rows[4:8]] == ["1", "4", "1", "1"]


def test_several_knobs_that_vary_are_words_that_stay_whole(text: Text) -> None:
    trials = [
        made(
            0,
            Knobs(
                n_ipu=4, memory_proportion=0.6, batch_size=8, schedule=Order.POPART, recompute=False, n_micro_batches=16
            ),
            1000.0,
        ),
        made(
            1,
            Knobs(
                n_ipu=4,
                memory_proportion=0.6,
                batch_size=8,
                schedule=Order.ONE_F_ONE_B,
                recompute=True,
                n_micro_batches=32,
            ),
            2000.0,
        ),
    ]
    assert text(listed(*trials)) == TRAINED_TABLE


def test_of_several_objectives_the_first_ranks(text: Text) -> None:
    trials = (replace(trial, values=(trial.latency_s, trial.samples_per_s)) for trial in (FAST, SLOW))
    drawn = text(listed(*trials, top=1, objectives=(Objective.LATENCY, Objective.THROUGHPUT)))
    assert drawn.startswith("Trials by latency,throughput")
    assert "8.000 ms" in drawn


def test_trials_that_break_a_constraint_come_last(text: Text) -> None:
    broken = replace(FAST, status=Status.CONSTRAINED, values=())
    assert "1,000.0" in text(listed(broken, SLOW, top=1))


def test_a_run_that_ended_early_says_so_with_its_interval(text: Text) -> None:
    early = ended_early(replace(SLOW, values=()).with_values(**ENDS))
    table = text(listed(FAST, early))
    assert " ".join(table.split()).count("ended early (760.0 to 845.0)") == 1
    assert f"{SLOW.samples_per_s:,.1f}" in table
    assert early.reason.endswith("between 760.0 and 845.0; its run ended early")


def test_a_study_in_which_nothing_fits_has_rows(text: Text) -> None:
    drawn = text(listed(UNFIT))
    assert "PRUNED" in drawn
    assert drawn.endswith("1 of 1 trials")


def test_an_empty_study_has_no_rows(text: Text) -> None:
    assert text(listed()).endswith("0 of 0 trials")


def test_every_cell_of_training_is_a_row(text: Text) -> None:
    cells = [
        cell(made(0, Knobs(n_ipu=4, memory_proportion=0.6, batch_size=1, schedule=Order.GPIPE, n_micro_batches=16))),
        cell(
            made(
                1,
                Knobs(
                    n_ipu=4,
                    memory_proportion=0.6,
                    batch_size=12,
                    schedule=Order.ONE_F_ONE_B,
                    recompute=True,
                    n_micro_batches=16,
                ),
                345.67,
            )
        ),
    ]
    assert text(what_fits_table(cells, Origin.MODELLED)) == CELLS_TABLE


def test_the_pareto_front_is_drawn(text: Text) -> None:
    objectives = (Objective.THROUGHPUT, Objective.LATENCY, Objective.PER_DEVICE)
    drawn = text(front_table(FRONT, objectives, Counts(9, 7, 20), Origin.MODELLED))
    for words in ("No other is better in throughput and latency and per-device", "replicas", "32.100 ms", "4,000"):
        assert words in drawn
    assert drawn.endswith("2 of 7 modelled; 9 of 20 configurations tried")
    assert drawn.index("2,000.0") < drawn.index("1,000.0")


def test_knobs_that_do_not_vary_have_no_column(text: Text) -> None:
    objectives = (Objective.THROUGHPUT, Objective.LATENCY)
    first = replace(FRONT[0], values=FRONT[0].values[:2])
    drawn = text(front_table([first], objectives, Counts(9, 7), Origin.MODELLED))
    assert "replicas" not in drawn
    assert "/ sample" not in drawn


def test_every_cell_of_a_dry_run_in_which_something_fits_is_a_row(text: Text) -> None:
    phased = made(-1, Knobs(n_ipu=1, memory_proportion=0.3, batch_size=1, n_micro_batches=16, strategy=Strategy.PHASED))
    training = made(
        -1,
        Knobs(n_ipu=4, memory_proportion=1.0, batch_size=8, schedule=Order.GPIPE, recompute=True, n_micro_batches=16),
        345.67,
    )
    replicated = made(-1, Knobs(n_ipu=2, memory_proportion=0.6, batch_size=16, replicas=2), 900.0)
    cells = [ExpectedCell(cell(trial), n) for trial, n in ((phased, 1), (training, 0), (replicated, 2))]
    assert text(dry_run_table(cells, Objective.THROUGHPUT)) == DRY_RUN_TABLE
    fast = replace(training, result=replace(training.result, latency_s=0.25))
    slow = replace(replicated, result=replace(replicated.result, latency_s=0.5))
    by_latency = dry_run_table([ExpectedCell(cell(trial), 1) for trial in (phased, slow, fast)], Objective.LATENCY)
    assert by_latency.columns[-2].head == "s"
    assert [row[-2] for row in by_latency.rows] == ["0.25", "0.5"]


def test_a_replica_a_device_and_a_price_have_rows_of_their_own(measured: Plan) -> None:
    """Of 600 samples/s two pipelines of two devices give 300 each, a device 150; 3.6 dollars buy 2.16 million."""
    knobs = Knobs(n_ipu=2, batch_size=8, replicas=2)
    trial = replace(made(0, knobs, 600.0), measured=measured)
    priced = replace(trial, result=replace(trial.result, devices=DeviceTotals(3.6)))
    rows = {name: value for name, value, _ in best_facts(priced, Origin.MODELLED)}
    assert (rows["throughput"], rows["a replica"], rows["a device"]) == (
        *("600.0 samples/s", "300.0 samples/s", "150.0 samples/s"),
    )
    assert rows["cost"] == "$1.667 a million samples, $3.6 an hour"
    assert "cost" not in {name for name, *_ in best_facts(trial, Origin.MODELLED)}
    single = replace(trial, knobs=Knobs(n_ipu=2, batch_size=8))
    assert "a replica" not in {name for name, *_ in best_facts(single, Origin.MODELLED)}
