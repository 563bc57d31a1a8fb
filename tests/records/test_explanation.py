from __future__ import annotations

from autoauto.records.explanation import CutMoves, Explanation, Move


def test_the_next_best_move_is_the_cheapest_that_fits() -> None:
    cuts = (
        CutMoves(3, Move(2, 50, 0), Move(4, 30, 7)),
        CutMoves(6, Move(5, 40, 0), None),
    )
    assert Explanation((0,), (1,), 0, 10, cuts).next_best == Move(5, 40, 0)


def test_no_move_may_fit() -> None:
    assert Explanation((0,), (0,), 0, 10, (CutMoves(3, None, Move(4, 30, 7)),)).next_best is None
    assert Explanation((0,), (0,), 0, 10, ()).next_best is None
