"""What a search is expected to do, drawn."""

from collections.abc import Callable

from autoauto.records.schedule import Order
from autoauto.records.trial import ExpectedCell, Knobs, Strategy
from autoauto.report.rehearsal import rehearsal_table

Text = Callable[..., str]

DRAWN = """\
Cells, best first, estimated
           memory                                       best
n_ipu  proportion  other knobs                         batch  samples/s  tries
──────────────────────────────────────────────────────────────────────────────
    2         0.6  2 replicas                             16      900.0      2
    4         1.0  gpipe, 16 micro-batches, recompute      8      345.7      0
    1         0.3  phased, 16 steps                     none          -      1"""


def test_every_cell_is_a_row(text: Text) -> None:
    cells = [
        ExpectedCell(Knobs(1, 0.3, 1, n_micro_batches=16, strategy=Strategy.PHASED), 0.0, 1, "too large"),
        ExpectedCell(Knobs(4, 1.0, 8, Order.GPIPE, True, 16), 345.67, 0, ""),
        ExpectedCell(Knobs(2, 0.6, 16, replicas=2), 900.0, 2, ""),
    ]
    assert text(rehearsal_table(cells)) == DRAWN
