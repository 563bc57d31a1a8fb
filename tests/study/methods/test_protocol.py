"""What a method is known by."""

from __future__ import annotations

from collections.abc import Callable

from autoauto.records.knobs import Knobs, SearchSpace
from autoauto.study.methods.grid_bisect import grid_bisect
from autoauto.study.methods.protocol import Propose, Step, Steps, Tried, drive, look_ahead
from autoauto.study.methods.registry import exhaustive


def test_a_method_begins_again_unless_it_has_a_name() -> None:
    assert not Propose(lambda space, _: exhaustive(space)).name


def test_a_method_is_answered_when_it_tries_and_not_while_it_predicts() -> None:
    told: list[Tried | None] = []

    def method() -> Steps:
        for knobs in (None, Knobs(1, 0.6, 4), None, Knobs(1, 0.6, 8)):
            told.append((yield Step(knobs, 0, 4)))

    drive(method(), lambda knobs: Tried(float(knobs.batch_size), True))
    assert told == [None, Tried(4.0, True), None, Tried(8.0, True)]


SPACE = SearchSpace((1, 2), (1.0,), tuple(range(1, 16)))
CELL = SPACE.cells[0]


def begin(method: Callable[[SearchSpace], Steps] = grid_bisect) -> Callable[[], Steps]:
    return lambda: method(SPACE)


def sizes(coming: list[Knobs]) -> list[tuple[int, int]]:
    return [(knobs.n_ipu, knobs.batch_size) for knobs in coming]


def test_the_first_is_what_the_method_asks_for() -> None:
    assert look_ahead(begin(), {}, None, 1) == [CELL[7]]


def test_the_others_follow_from_the_guesses() -> None:
    assert sizes(look_ahead(begin(), {}, lambda knobs: 1.0, 5)) == [(1, 8), (1, 12), (1, 14), (1, 15), (2, 8)]
    fits_four = lambda knobs: 1.0 if knobs.batch_size <= 4 else None  # noqa: E731
    assert sizes(look_ahead(begin(), {}, fits_four, 5)) == [(1, 8), (1, 4), (1, 6), (1, 5), (2, 8)]
    assert look_ahead(begin(), {}, None, 5) == look_ahead(begin(), {}, lambda knobs: 1.0, 5)


def test_what_is_known_counts_more_than_a_guess_and_is_not_asked_for() -> None:
    known = {CELL[7]: Tried(None, True)}
    assert sizes(look_ahead(begin(), known, lambda knobs: 1.0, 2)) == [(1, 4), (1, 6)]


def test_a_method_that_is_done_asks_for_less() -> None:
    known = {knobs: Tried(1.0, True) for cell in SPACE.cells for knobs in cell[:-1]}
    assert sizes(look_ahead(begin(exhaustive), known, None, 9)) == [(1, 15), (2, 15)]


def test_steps_that_only_predict_are_passed_over() -> None:
    def predicts() -> Steps:
        assert (yield Step(None, 0, 2)) is None
        first = yield Step(CELL[0], 0, 2)
        assert first is not None
        assert (yield Step(None, 1, 2)) is None
        yield Step(CELL[0], 1, 2)
        yield Step(CELL[1], 1, 2)

    assert look_ahead(predicts, {}, None, 2) == [CELL[0], CELL[1]]
