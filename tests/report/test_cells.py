"""What fits in every cell, drawn."""

from collections.abc import Callable

from autoauto.records.schedule import Order
from autoauto.records.trial import Cell, Knobs
from autoauto.report.cells import cells_table

Text = Callable[..., str]

DRAWN = """\
What fits, measured (cost model)
           memory                        micro-  largest       best
n_ipu  proportion  schedule  recompute  batches    batch  samples/s
───────────────────────────────────────────────────────────────────
    4         0.6  gpipe     off             16     none          -
    4         0.6  1f1b      on              16    >= 12      345.7
1f1b fits batches of 12, which gpipe (none) cannot"""


def test_every_cell_is_a_row(text: Text) -> None:
    cells = [
        Cell(Knobs(4, 0.6, 1, Order.GPIPE, n_micro_batches=16), None, 0.0, "too large", 1),
        Cell(Knobs(4, 0.6, 1, Order.ONE_F_ONE_B, True, 16), 12, 345.67, ""),
    ]
    assert text(cells_table(cells)) == DRAWN
