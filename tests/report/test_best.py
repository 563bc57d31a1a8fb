"""The best configuration, drawn."""

from collections.abc import Callable

from autoauto.records.plan import Plan
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


def test_a_configuration_is_drawn(measured: Plan, estimated: Plan, text: Text) -> None:
    table = best_table(Knobs(2, 0.6, 16), measured, 1000.0, estimated, Counts(20, 14, 1152))
    assert estimated.cost_cycles == 2500  # so the estimate is 1000 * 2300 / 2500
    assert text(table) == DRAWN


def test_without_an_estimate_there_is_no_such_row(measured: Plan, text: Text) -> None:
    table = best_table(Knobs(2, 0.6, 16), measured, 1000.0, None, Counts(1, 1))
    assert "estimated," not in text(table)
