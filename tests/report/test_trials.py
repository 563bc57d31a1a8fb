"""The table of trials."""

from collections.abc import Callable

import pandas as pd

from autoauto.records.trial import Objective
from autoauto.report.trials import trials_table

Text = Callable[..., str]

TRIALS = pd.DataFrame(
    {
        "number": [0, 1, 2, 3],
        "state": ["COMPLETE", "PRUNED", "COMPLETE", "FAIL"],
        "n_ipu": [1, 4, 4, 2],
        "memory_proportion": [0.3, 0.6, 1.0, 0.6],
        "batch_size": [8, 128, 16, 1],
        "samples_per_s": [1000.0, None, 2000.0, None],
    }
)

DRAWN = """\
Trials by throughput, measured (cost model)
rank  trial  n_ipu  memory_proportion  batch_size  samples/s  state
──────────────────────────────────────────────────────────────────────
   1      2      4                1.0          16    2,000.0  COMPLETE
   2      0      1                0.3           8    1,000.0  COMPLETE
   3      1      4                0.6         128          -  PRUNED
   4      3      2                0.6           1          -  FAIL
4 of 4 trials"""


def test_trials_are_drawn_best_first(text: Text) -> None:
    assert text(trials_table(TRIALS)) == DRAWN


def test_only_the_best_are_shown(text: Text) -> None:
    drawn = text(trials_table(TRIALS, top=1))
    assert "2,000.0" in drawn
    assert "1,000.0" not in drawn
    assert drawn.endswith("1 of 4 trials")


def test_per_ipu_ranks_by_throughput_of_one_device(text: Text) -> None:
    rows = text(trials_table(TRIALS, top=2, objective=Objective.PER_IPU)).splitlines()[3:5]
    assert ["1,000.0" in rows[0], "2,000.0" in rows[1]] == [True, True]


def test_a_study_in_which_nothing_fits_has_rows(text: Text) -> None:
    drawn = text(trials_table(TRIALS[TRIALS["state"] == "PRUNED"].drop(columns="samples_per_s")))
    assert "PRUNED" in drawn
    assert drawn.endswith("1 of 1 trials")


def test_an_empty_study_has_none(text: Text) -> None:
    assert text(trials_table(TRIALS[:0])).endswith("0 of 0 trials")
