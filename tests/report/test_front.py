"""The table of trade-offs."""

from __future__ import annotations

from collections.abc import Callable

from autoauto.records.trial import Counts, Knobs, Objective
from autoauto.report.front import front_table

Text = Callable[..., str]

ROWS = [
    (3, Knobs(4, 0.6, 16), 2000.0, 0.0321, (2000.0, 0.0321, 4000.0)),
    (1, Knobs(1, 1.0, 2, replicas=2), 1000.0, 0.001, (1000.0, 0.001, 1500.5)),
]


def test_the_front_is_drawn(text: Text) -> None:
    aim = (Objective.THROUGHPUT, Objective.LATENCY, Objective.PER_IPU)
    drawn = text(front_table(ROWS, aim, Counts(9, 7, 20)))
    for words in ("No other is better in throughput and latency and per-ipu", "replicas", "32.100 ms", "4,000"):
        assert words in drawn
    assert drawn.endswith("2 of 7 measured; 9 of 20 configurations tried")
    assert drawn.index("2,000.0") < drawn.index("1,000.0")


def test_knobs_that_are_all_alike_have_no_column(text: Text) -> None:
    drawn = text(front_table(ROWS[:1], (Objective.THROUGHPUT, Objective.LATENCY), Counts(9, 7)))
    assert "replicas" not in drawn
    assert "/ sample" not in drawn
