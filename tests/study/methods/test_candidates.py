"""What is still worth a measurement in a cell."""

from __future__ import annotations

import pytest

from autoauto.records.knobs import Knobs
from autoauto.study.methods.candidates import PATIENCE, Candidates
from autoauto.study.methods.error_model import Errors, Trust
from autoauto.study.methods.protocol import Forecast, Tried

SIZES = range(1, 33)


def errors() -> Errors:
    return Errors(Trust(0.0), Trust(0.0))


def cell(fits: int = 32) -> Candidates:
    """Scores are the batch size; every sample takes 3 % of memory, and `fits` samples fill it."""

    def predict(knobs: Knobs) -> Forecast:
        n = knobs.batch_size
        return Forecast(float(n) if n <= fits else None, 0.03 * (n - fits))

    found = Candidates([Knobs(1, 0.6, n) for n in SIZES], predict, 0, 0)
    found.prospect.survey()
    found.trust(errors())
    return found


def sizes(candidates: Candidates) -> list[int]:
    return sorted(candidate.knobs.batch_size for candidate in candidates.open())


def test_what_is_forecast_to_fit_is_open_until_it_is_tried() -> None:
    some, known = cell(16), errors()
    assert sizes(some) == [1, 2, 4, 8, 16]
    some.learn(15, Tried(20.0, True), known, good=True)
    some.trust(known)
    assert sizes(some) == [1, 2, 4, 8]
    eight = next(candidate for candidate in some.open() if candidate.knobs.batch_size == 8)
    assert eight.expected == pytest.approx(8 * 20 / 16, rel=0.01)
    assert eight.expected < eight.bound < 1.1 * eight.expected


def test_a_failure_closes_what_is_as_full() -> None:
    some, known = cell(), errors()
    some.learn(15, Tried(None, True), known, good=False)
    assert sizes(some) == [1, 2, 4, 8]
    some.learn(7, Tried(None, True), known, good=False)
    assert sizes(some) == [1, 2, 4]


def test_a_cell_that_disappoints_is_left_alone() -> None:
    some, known = cell(), errors()
    for index in range(PATIENCE):
        assert some.best() is not None
        some.learn(index, Tried(1.0, True), known, good=False)
    assert some.best() is None
    assert some.gap(0.0) is None
    assert some.closed(0.0)
    assert sizes(some)  # for ties


def test_the_first_beyond_what_fits_is_doubted_when_it_would_be_worth_it() -> None:
    some, known = cell(16), errors()
    some.learn(15, Tried(16.0, True), known, good=True)
    some.trust(known)
    some.ask(16)
    assert some.doubtful(16.1) == 16
    assert some.doubtful(1000.0) is None
    some.learn(16, Tried(None, False), known, good=False)
    assert some.doubtful(16.1) is None


def test_surprises_are_followed_in_doubling_steps_and_then_halves() -> None:
    some, known = cell(16), errors()
    some.learn(15, Tried(16.0, True), known, good=True)
    for index in range(16, 32):
        some.ask(index)
    seen: list[int] = []
    while True:
        some.trust(known)
        found = some.doubtful(0.1)
        if found is None or len(seen) > 9:
            break
        seen.append(SIZES[found])
        fits = SIZES[found] <= 19
        some.learn(found, Tried(float(SIZES[found]) if fits else None, True), known, good=fits)
    assert seen == [17, 19, 23, 21, 20]


def test_where_nothing_fits_the_smallest_and_the_least_is_tried() -> None:
    some, known = cell(0), errors()
    assert some.smallest() == 0
    some.learn(0, Tried(None, False), known, good=False)
    assert some.smallest() is None


def bounded(bound: float) -> Candidates:
    """Everything fits; the batch size may be `bound` by the estimate."""

    def predict(knobs: Knobs) -> Forecast:
        n = knobs.batch_size
        return Forecast(float(n), -0.5, n / bound - 1 if n > bound else 1 - bound / n)

    found = Candidates([Knobs(1, 0.6, n) for n in SIZES], predict, 0, 0)
    for index in range(len(SIZES)):
        found.ask(index)
    found.trust(errors())
    return found


@pytest.mark.parametrize(("error", "largest", "doubted"), [(1.0, 20, None), (1.1, 18, 19), (0.79, 25, None)])
def test_what_a_constraint_allows_is_learned(error: float, largest: int, doubted: int | None) -> None:
    """A measurement at 10 tells how much more, or less, of the bound a batch really takes."""
    some, known = bounded(20.0), errors()
    assert max(sizes(some)) == 20
    some.learn(9, Tried(10.0, True, (), 1 - 20 / (10 * error)), known, good=True)
    some.trust(known)
    assert max(sizes(some)) == largest
    assert some.doubtful(10.03) == (None if doubted is None else doubted - 1)


def test_what_surely_breaks_a_constraint_is_tried_once_to_tell_why() -> None:
    some, known = bounded(0.1), errors()
    assert some.smallest() == 0
    some.learn(0, Tried(None, True, (), 9.0), known, good=False)
    some.trust(known)
    assert some.smallest() is None
