"""The best configuration, drawn."""

import re
from collections.abc import Callable

from autoauto.records.plan import Plan
from autoauto.records.schedule import Order
from autoauto.records.trial import Counts, Knobs
from autoauto.report.best import best_table

Text = Callable[..., str]

DRAWN = """\
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

TRAINED = """\
batch_size         16
schedule           1f1b
recompute          on
n_micro_batches    8
partition          0 2 5"""


def test_a_configuration_is_drawn(measured: Plan, text: Text) -> None:
    assert text(best_table(Knobs(2, 0.6, 16), measured, 1000.0, 920.0, Counts(20, 14, 1152))) == DRAWN


def test_what_the_estimate_ruled_out_is_told_only_where_something_was(measured: Plan, text: Text) -> None:
    drawn = text(best_table(Knobs(2, 0.6, 16), measured, 1000.0, 920.0, Counts(20, 20, 1152)))
    assert "20 of those tried" in drawn
    assert "ruled out" not in drawn


def test_without_an_estimate_there_is_no_such_row(measured: Plan, text: Text) -> None:
    assert "estimated," not in text(best_table(Knobs(2, 0.6, 16), measured, 1000.0, 0.0, Counts(1, 1)))


def test_training_shows_its_schedule_and_its_makespan(measured: Plan, text: Text) -> None:
    knobs = Knobs(2, 0.6, 16, Order.ONE_F_ONE_B, recompute=True, n_micro_batches=8)
    drawn = text(best_table(knobs, measured, 1000.0, 0.0, Counts(1, 1), 45_000))
    assert "\n".join(line.rstrip() for line in drawn.splitlines()[3:8]).startswith(TRAINED.rstrip())
    assert re.search(r"makespan +45,000 cycles +simulated", drawn)
