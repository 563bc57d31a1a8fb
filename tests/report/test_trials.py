"""The table of trials."""

from collections.abc import Callable

import pandas as pd

from autoauto.records.trial import Objective
from autoauto.report.trials import trials_table

Text = Callable[..., str]
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

DRAWN = """\
Trials by throughput, measured (cost model)
                        memory
rank  trial  n_ipu  proportion  batch_size  samples/s    latency  state
──────────────────────────────────────────────────────────────────────────
   1      2      4         1.0          16    2,000.0  32.100 ms  COMPLETE
   2      0      1         0.3           8    1,000.0   8.000 ms  COMPLETE
   3      1      4         0.6         128          -          -  PRUNED
   4      3      2         0.6           1          -          -  FAIL
4 of 4 trials"""


def test_trials_are_drawn_best_first(text: Text) -> None:
    assert text(trials_table(TRIALS)) == DRAWN


def test_only_the_best_are_shown(text: Text) -> None:
    drawn = text(trials_table(TRIALS, top=1))
    assert "2,000.0" in drawn
    assert "1,000.0" not in drawn
    assert drawn.endswith("1 of 4 trials")


def test_per_ipu_ranks_by_the_least_value_whatever_the_replicas(text: Text) -> None:
    """Trial 0 has 4 devices: 250 samples/s each, trial 2 has 500."""
    trials = TRIALS.assign(replicas=[4, 1, 1, 1], value=[4e6, NONE, 2e6, NONE])
    rows = text(trials_table(trials, top=2, objective=Objective.PER_IPU)).splitlines()[4:6]
    assert ["2,000.0" in rows[0], "1,000.0" in rows[1]] == [True, True]


def test_replicas_are_shown_where_they_vary(text: Text) -> None:
    """Trials that were made before replicas were searched have none."""
    rows = text(trials_table(TRIALS.assign(replicas=[4, NONE, 1, NONE]))).splitlines()
    assert rows[2].split()[:4] == ["rank", "trial", "n_ipu", "replicas"]
    assert [row.split()[3] for row in rows[4:8]] == ["1", "4", "-", "-"]


def test_of_several_objectives_the_first_ranks(text: Text) -> None:
    trials = TRIALS.assign(value=TRIALS["latency_s"])
    drawn = text(trials_table(trials, top=1, objective=(Objective.LATENCY, Objective.THROUGHPUT)))
    assert drawn.startswith("Trials by latency,throughput")
    assert "8.000 ms" in drawn


def test_what_breaks_a_constraint_comes_after_what_runs(text: Text) -> None:
    broken = TRIALS.assign(state=["COMPLETE", "PRUNED", "PRUNED", "FAIL"], value=[1000.0, NONE, NONE, NONE])
    assert "1,000.0" in text(trials_table(broken, top=1))


def test_a_study_in_which_nothing_fits_has_rows(text: Text) -> None:
    drawn = text(trials_table(TRIALS[TRIALS["state"] == "PRUNED"].drop(columns="samples_per_s")))
    assert "PRUNED" in drawn
    assert drawn.endswith("1 of 1 trials")


def test_an_empty_study_has_none(text: Text) -> None:
    assert text(trials_table(TRIALS[:0])).endswith("0 of 0 trials")
