"""The table of what cuts could do, drawn."""

from collections.abc import Callable

from autoauto.records.explanation import CutMoves, Explanation, Move
from autoauto.records.plan import Plan
from autoauto.report.explanation import explanation_table


def test_every_cut_is_a_line(measured: Plan, text: Callable[..., str]) -> None:
    cuts = (CutMoves(2, Move(1, 2450, 0), Move(3, 2100, 2048)), CutMoves(4, None, Move(5, 2300, 0)))
    lines = text(explanation_table(Explanation((0,), (1, 2), 1, 1024, cuts), measured), width=120).splitlines()
    assert lines[4].split() == ["2", "1", "+150", "3", "2.0", "KiB", "missing"]
    assert lines[5].split() == ["4", "-", "-", "5", "+0"]
    assert [line.strip() for line in lines[6:]] == [
        "compute binds: stage 0",
        "transfer binds: stage 1, 2",
        "least memory to spare: stage 1, 1.0 KiB",
    ]
