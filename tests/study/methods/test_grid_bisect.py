"""The bisection against a linear scan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, log2
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from autoauto.space.knobs import Knobs
from autoauto.space.space import SearchSpace
from autoauto.study.methods.grid_bisect import grid_bisect, max_tries
from autoauto.study.methods.protocol import Observation, next_proposal


class OneCell:
    """A space of one cell, whose configurations are any numbers."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.cells = [sizes]

    def __getitem__(self, name: str) -> Sequence[int]:
        return self.cells[0]


def bisect(n_candidates: int, n_feasible: int) -> tuple[int | None, list[int]]:
    tried: list[int] = []

    def feasible(candidate: int) -> bool:
        tried.append(candidate)
        return candidate < n_feasible

    return drive(range(n_candidates), feasible), tried


def drive(candidates: Sequence[int], feasible: Callable[[int], bool]) -> int | None:
    """The last that was tried and is feasible; None where none is."""
    proposals: Any = grid_bisect(OneCell(candidates))  # type: ignore[arg-type]  # has what it asks of a space
    largest = None
    observation = None
    while (proposal := next_proposal(proposals.send, observation)) is not None:
        fits = feasible(proposal.knobs)  # type: ignore[arg-type]  # a number of `OneCell`
        if fits:
            largest = proposal.knobs
        observation = Observation(1.0 if fits else None, True)
    return largest  # type: ignore[return-value]


def test_every_threshold_of_every_short_list_agrees_with_a_linear_scan() -> None:
    for n_candidates in range(40):
        for n_feasible in range(n_candidates + 1):
            largest, tried = bisect(n_candidates, n_feasible)
            assert largest == (n_feasible - 1 if n_feasible else None)
            assert len(tried) == len(set(tried)) <= ceil(log2(n_candidates + 1))


@settings(deadline=None, derandomize=True)
@given(st.integers(0, 3000).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_every_threshold_of_long_lists_agrees_with_a_linear_scan(sizes: tuple[int, int]) -> None:
    n_candidates, n_feasible = sizes
    largest, tried = bisect(n_candidates, n_feasible)
    assert largest == (n_feasible - 1 if n_feasible else None)
    assert len(tried) <= max_tries(n_candidates)


@settings(deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 500), unique=True).map(sorted), st.integers(0, 500))
def test_candidates_may_be_any_ascending_numbers(candidates: list[int], limit: int) -> None:
    assert drive(candidates, lambda size: size <= limit) == max((c for c in candidates if c <= limit), default=None)


@settings(deadline=None, derandomize=True)
@given(st.lists(st.booleans(), min_size=1))
def test_without_monotone_feasibility_the_answer_was_still_tried_and_fits(fits: list[bool]) -> None:
    tried: dict[int, bool] = {}

    def feasible(candidate: int) -> bool:
        tried[candidate] = fits[candidate]
        return fits[candidate]

    largest = drive(range(len(fits)), feasible)
    assert tried[0] is False if largest is None else tried[largest]


def test_the_smallest_is_tried_when_larger_ones_failed() -> None:
    assert bisect(127, 1) == (0, [63, 31, 15, 7, 3, 1, 0])


def test_a_single_candidate_is_tried() -> None:
    assert bisect(1, 1) == (0, [0])
    assert bisect(1, 0) == (None, [0])


def test_max_tries_is_reached() -> None:
    for n_candidates in range(200):
        maximum = max(len(bisect(n_candidates, n_feasible)[1]) for n_feasible in range(n_candidates + 1))
        assert maximum == max_tries(n_candidates) == ceil(log2(n_candidates + 1))


def test_cells_are_bisected_one_after_the_other() -> None:
    proposals = grid_bisect(SearchSpace((1, 2), (0.6,), (1, 2, 4, 8)))
    proposal, seen = next(proposals), []
    try:
        while True:
            assert proposal.knobs is not None
            seen.append((proposal.knobs.n_ipu, proposal.knobs.batch_size, proposal.done))
            fits = proposal.knobs.batch_size <= 2 * proposal.knobs.n_ipu
            proposal = proposals.send(Observation(1.0 if fits else None, True))
    except StopIteration:
        pass
    assert proposal.total == 2 * 3
    assert seen == [(1, 4, 0), (1, 2, 1), (2, 4, 3), (2, 8, 4)]


def test_a_cell_takes_no_more_tries_than_a_bisection(world: Callable[..., Any]) -> None:
    for seed in range(20):
        a_world = world(seed)
        cells: dict[tuple[int, float], list[Knobs]] = {}
        for knobs in a_world.run(grid_bisect(a_world.space)):
            cells.setdefault((knobs.n_ipu, knobs.memory_proportion), []).append(knobs)
        assert len(cells) == len(a_world.space.cells)
        assert max(map(len, cells.values())) <= max_tries(len(a_world.space.batch_size))
