"""Methods as generators: driven, identified by name, and run with assumed observations."""

from __future__ import annotations

from collections.abc import Callable

from autoauto.space.knobs import Knobs
from autoauto.space.space import SearchSpace
from autoauto.study.methods.grid_bisect import grid_bisect
from autoauto.study.methods.protocol import Observation, Proposal, Proposals, Proposer, drive, followed_by, lookahead
from autoauto.study.methods.registry import exhaustive


def test_a_method_has_no_name_unless_it_must_not_start_again() -> None:
    assert not Proposer(lambda space, _: exhaustive(space)).name


def test_a_method_is_sent_observations_of_its_proposals_and_nothing_while_it_predicts() -> None:
    received: list[Observation | None] = []

    def method() -> Proposals:
        for knobs in (
            None,
            Knobs(n_ipu=1, memory_proportion=0.6, batch_size=4),
            None,
            Knobs(n_ipu=1, memory_proportion=0.6, batch_size=8),
        ):
            received.append((yield Proposal(knobs, 0, 4)))

    drive(method(), lambda knobs: Observation(float(knobs.batch_size), True))
    assert received == [None, Observation(4.0, True), None, Observation(8.0, True)]


SPACE = SearchSpace((1, 2), (1.0,), tuple(range(1, 16)))
CELL = SPACE.cells[0]


def start(method: Callable[[SearchSpace], Proposals] = grid_bisect) -> Callable[[], Proposals]:
    return lambda: method(SPACE)


def sizes(coming: list[Knobs]) -> list[tuple[int, int]]:
    return [(knobs.n_ipu, knobs.batch_size) for knobs in coming]


def test_the_first_configuration_is_what_the_method_proposes() -> None:
    assert lookahead(start(), {}, None, 1) == [CELL[7]]


def test_the_next_configurations_follow_from_the_expected_scores() -> None:
    assert sizes(lookahead(start(), {}, lambda knobs: 1.0, 5)) == [(1, 8), (1, 12), (1, 14), (1, 15), (2, 8)]
    fits_four = lambda knobs: 1.0 if knobs.batch_size <= 4 else None  # noqa: E731
    assert sizes(lookahead(start(), {}, fits_four, 5)) == [(1, 8), (1, 4), (1, 6), (1, 5), (2, 8)]
    assert lookahead(start(), {}, None, 5) == lookahead(start(), {}, lambda knobs: 1.0, 5)


def test_known_observations_replace_expected_scores() -> None:
    known = {CELL[7]: Observation(None, True)}
    assert sizes(lookahead(start(), known, lambda knobs: 1.0, 2)) == [(1, 4), (1, 6)]


def test_a_method_that_ends_proposes_fewer() -> None:
    known = {knobs: Observation(1.0, True) for cell in SPACE.cells for knobs in cell[:-1]}
    assert sizes(lookahead(start(exhaustive), known, None, 9)) == [(1, 15), (2, 15)]


def test_proposals_without_a_configuration_are_skipped() -> None:
    def predicting() -> Proposals:
        assert (yield Proposal(None, 0, 2)) is None
        first = yield Proposal(CELL[0], 0, 2)
        assert first is not None
        assert (yield Proposal(None, 1, 2)) is None
        yield Proposal(CELL[0], 1, 2)
        yield Proposal(CELL[1], 1, 2)

    assert lookahead(predicting, {}, None, 2) == [CELL[0], CELL[1]]


def proposed(method: Proposer, space: SearchSpace = SPACE, known: frozenset[Knobs] = frozenset()) -> list[Knobs]:
    tried: list[Knobs] = []

    def observe(knobs: Knobs) -> Observation:
        tried.append(knobs)
        return Observation(1.0, True)

    drive(method.start(space, {knobs: Observation(1.0, True) for knobs in known}), observe)
    return tried


def test_one_more_configuration_follows_unless_it_is_known_or_outside_of_the_space() -> None:
    bisection = Proposer(lambda space, _: grid_bisect(space), "bisect")
    alone = proposed(bisection)
    last = CELL[0]
    assert last not in alone
    assert proposed(followed_by(bisection, last)) == [*alone, last]
    assert proposed(followed_by(bisection, last), known=frozenset({last})) == alone
    assert proposed(followed_by(bisection, alone[0])) == alone
    assert proposed(followed_by(bisection, Knobs(n_ipu=9, memory_proportion=1.0, batch_size=1))) == alone
    assert followed_by(bisection, last).name == "bisect"


def test_lookahead_includes_the_configuration_that_follows() -> None:
    method = followed_by(
        Proposer(lambda space, _: exhaustive(space)), Knobs(n_ipu=2, memory_proportion=1.0, batch_size=3)
    )
    space = SearchSpace((2,), (1.0,), (1, 2, 3))
    assert sizes(lookahead(lambda: method.start(space, {}), {}, None, 9)) == [(2, 1), (2, 2), (2, 3)]
