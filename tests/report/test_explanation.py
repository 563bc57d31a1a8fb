"""The table of what cuts could do, drawn."""

from collections.abc import Callable

from autoauto.records.explanation import CutMoves, Explanation, Move
from autoauto.records.plan import Plan
from autoauto.report.explanation import explanation_table


def test_every_cut_is_a_line(measured: Plan, text: Callable[..., str]) -> None:
    cuts = (CutMoves(2, Move(1, 2450, 0), Move(3, 2100, 2048)), CutMoves(4, None, Move(5, 2300, 0)))
    lines = text(explanation_table(Explanation(0, 1, 1, 1024, cuts), measured), width=120).splitlines()
    assert lines[4].split() == ["2", "1", "+150", "3", "2.0", "KiB", "missing"]
    assert lines[5].split() == ["4", "-", "-", "5", "+0"]
    caption = " ".join(line.strip() for line in lines[6:])
    assert caption.startswith("stage 0 computes longest, stage 1 transfers longest, stage 1 has the least memory to")
    assert caption.endswith("spare: 1.0 KiB")
