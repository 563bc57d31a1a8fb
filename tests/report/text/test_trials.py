"""Tables of a search: the best configuration, trials, cells, the Pareto front, and the dry run."""

from __future__ import annotations

import re
from collections.abc import Callable

import pandas as pd

from autoauto.records.knobs import Knobs, Objective, Strategy
from autoauto.records.plan import Plan
from autoauto.records.schedule import Order
from autoauto.records.trial import Cell, Counts, ExpectedCell
from autoauto.report.text.trials import best_table, cells_table, dry_run_table, front_table, trials_table

Text = Callable[..., str]
BEST_TABLE = """\
Best configuration
n_ipu              2
memory_proportion  0.6
batch_size         16
partition          0 2 5
throughput         1,000.0 samples/s           measured (cost model)
                   920.0 samples/s             estimated, -8.0 %
period             2,300 cycles                measured (cost model)
tried              20 of 1,152 configurations
measured           14 of those tried           the estimate ruled out the others"""
TRAINING_ROWS = """\
batch_size         16
schedule           1f1b
recompute          on
n_micro_batches    8
partition          0 2 5"""
TRIALS_TABLE = """\
Trials by throughput, measured (cost model)
                        memory
rank  trial  n_ipu  proportion  batch_size  samples/s    latency  state
──────────────────────────────────────────────────────────────────────────
   1      2      4         1.0          16    2,000.0  32.100 ms  COMPLETE
   2      0      1         0.3           8    1,000.0   8.000 ms  COMPLETE
   3      1      4         0.6         128          -          -  PRUNED
   4      3      2         0.6           1          -          -  FAIL
4 of 4 trials"""
CELLS_TABLE = """\
What fits, measured (cost model)
           memory                        micro-  largest       best
n_ipu  proportion  schedule  recompute  batches    batch  samples/s
───────────────────────────────────────────────────────────────────
    4         0.6  gpipe     off             16     none          -
    4         0.6  1f1b      on              16    >= 12      345.7
1f1b fits batches of 12, which gpipe (none) cannot"""
DRY_RUN_TABLE = """\
Cells, best first, estimated
           memory                                       best
n_ipu  proportion  other knobs                         batch  samples/s  tries
──────────────────────────────────────────────────────────────────────────────
    2         0.6  2 replicas                             16      900.0      2
    4         1.0  gpipe, 16 micro-batches, recompute      8      345.7      0
    1         0.3  phased, 16 steps                     none          -      1"""

NONE = float("nan")  # as pandas marks what is missing
TRIALS = pd.DataFrame(
    {
        "number": [0, 1, 2, 3],
        "state": ["COMPLETE", "PRUNED", "COMPLETE", "FAIL"],
        "n_ipu": [1, 4, 4, 2],
        "memory_proportion": [0.3, 0.6, 1.0, 0.6],
        "batch_size": [8, 128, 16, 1],
        "value": [1000.0, None, 2000.0, None],
        "samples_per_s": [1000.0, None, 2000.0, None],
        "latency_s": [0.008, None, 0.0321, None],
    }
)
ROWS = [
    (3, Knobs(4, 0.6, 16), 2000.0, 0.0321, (2000.0, 0.0321, 4000.0)),
    (1, Knobs(1, 1.0, 2, replicas=2), 1000.0, 0.001, (1000.0, 0.001, 1500.5)),
]


def test_a_configuration_is_drawn(measured: Plan, text: Text) -> None:
    assert text(best_table(Knobs(2, 0.6, 16), measured, 1000.0, 920.0, Counts(20, 14, 1152))) == BEST_TABLE


def test_configurations_that_the_estimate_ruled_out_are_mentioned_only_if_there_are_any(
    measured: Plan, text: Text
) -> None:
    drawn = text(best_table(Knobs(2, 0.6, 16), measured, 1000.0, 920.0, Counts(20, 20, 1152)))
    assert "20 of those tried" in drawn
    assert "ruled out" not in drawn


def test_without_an_estimate_there_is_no_row_for_it(measured: Plan, text: Text) -> None:
    assert "estimated," not in text(best_table(Knobs(2, 0.6, 16), measured, 1000.0, 0.0, Counts(1, 1)))


def test_training_shows_its_schedule_and_its_makespan(measured: Plan, text: Text) -> None:
    knobs = Knobs(2, 0.6, 16, Order.ONE_F_ONE_B, recompute=True, n_micro_batches=8)
    drawn = text(best_table(knobs, measured, 1000.0, 0.0, Counts(1, 1), 45_000))
    assert "\n".join(line.rstrip() for line in drawn.splitlines()[3:8]).startswith(TRAINING_ROWS.rstrip())
    assert re.search(r"makespan +45,000 cycles +simulated", drawn)


def test_trials_are_drawn_best_first(text: Text) -> None:
    assert text(trials_table(TRIALS)) == TRIALS_TABLE


def test_only_the_best_are_shown(text: Text) -> None:
    drawn = text(trials_table(TRIALS, top=1))
    assert "2,000.0" in drawn
    assert "1,000.0" not in drawn
    assert drawn.endswith("1 of 4 trials")


def test_per_ipu_ranks_by_the_smallest_value_with_any_number_of_replicas(text: Text) -> None:
    """Trial 0 has 4 devices: 250 samples/s each, trial 2 has 500."""
    trials = TRIALS.assign(replicas=[4, 1, 1, 1], value=[4e6, NONE, 2e6, NONE])
    rows = text(trials_table(trials, top=2, objective=Objective.PER_IPU)).splitlines()[4:6]
    assert ["2,000.0" in rows[0], "1,000.0" in rows[1]] == [True, True]


def test_replicas_are_shown_where_they_vary(text: Text) -> None:
    """Trials from before replicas were a knob have no value."""
    rows = text(trials_table(TRIALS.assign(replicas=[4, NONE, 1, NONE]))).splitlines()
    assert rows[2].split()[:4] == ["rank", "trial", "n_ipu", "replicas"]
    assert [row.split()[3] for row in rows[4:8]] == ["1", "4", "-", "-"]


def test_of_several_objectives_the_first_ranks(text: Text) -> None:
    trials = TRIALS.assign(value=TRIALS["latency_s"])
    drawn = text(trials_table(trials, top=1, objective=(Objective.LATENCY, Objective.THROUGHPUT)))
    assert drawn.startswith("Trials by latency,throughput")
    assert "8.000 ms" in drawn


def test_trials_that_break_a_constraint_come_last(text: Text) -> None:
    broken = TRIALS.assign(state=["COMPLETE", "PRUNED", "PRUNED", "FAIL"], value=[1000.0, NONE, NONE, NONE])
    assert "1,000.0" in text(trials_table(broken, top=1))


def test_a_study_in_which_nothing_fits_has_rows(text: Text) -> None:
    drawn = text(trials_table(TRIALS[TRIALS["state"] == "PRUNED"].drop(columns="samples_per_s")))
    assert "PRUNED" in drawn
    assert drawn.endswith("1 of 1 trials")


def test_an_empty_study_has_no_rows(text: Text) -> None:
    assert text(trials_table(TRIALS[:0])).endswith("0 of 0 trials")


def test_every_cell_of_training_is_a_row(text: Text) -> None:
    cells = [
        Cell(Knobs(4, 0.6, 1, Order.GPIPE, n_micro_batches=16), None, 0.0, "too large", 1),
        Cell(Knobs(4, 0.6, 1, Order.ONE_F_ONE_B, True, 16), 12, 345.67, ""),
    ]
    assert text(cells_table(cells)) == CELLS_TABLE


def test_the_pareto_front_is_drawn(text: Text) -> None:
    objectives = (Objective.THROUGHPUT, Objective.LATENCY, Objective.PER_IPU)
    drawn = text(front_table(ROWS, objectives, Counts(9, 7, 20)))
    for words in ("No other is better in throughput and latency and per-ipu", "replicas", "32.100 ms", "4,000"):
        assert words in drawn
    assert drawn.endswith("2 of 7 measured; 9 of 20 configurations tried")
    assert drawn.index("2,000.0") < drawn.index("1,000.0")


def test_knobs_that_do_not_vary_have_no_column(text: Text) -> None:
    drawn = text(front_table(ROWS[:1], (Objective.THROUGHPUT, Objective.LATENCY), Counts(9, 7)))
    assert "replicas" not in drawn
    assert "/ sample" not in drawn


def test_every_cell_of_a_dry_run_is_a_row(text: Text) -> None:
    cells = [
        ExpectedCell(Knobs(1, 0.3, 1, n_micro_batches=16, strategy=Strategy.PHASED), 0.0, 1, "too large"),
        ExpectedCell(Knobs(4, 1.0, 8, Order.GPIPE, True, 16), 345.67, 0, ""),
        ExpectedCell(Knobs(2, 0.6, 16, replicas=2), 900.0, 2, ""),
    ]
    assert text(dry_run_table(cells)) == DRY_RUN_TABLE
