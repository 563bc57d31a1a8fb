from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from autoauto.plan.pipeline.probe import cheap_cuts, cut_ranges, probe, search_smallest_bound
from autoauto.plan.pipeline.problem import CutProblem, prepare
from autoauto.records.costs.cost import CostTable

MakeTable = Callable[[int], CostTable]


@given(
    realised=st.lists(st.integers(0, 60), min_size=1, max_size=6),
    low=st.integers(0, 70),
    width=st.integers(-1, 70),
    first=st.integers(-5, 140),
)
@settings(deadline=None)
def test_the_search_finds_the_smallest_bound_from_any_start(
    realised: list[int], low: int, width: int, first: int
) -> None:
    """An attempt at a bound finds the largest of some sizes that is no larger, so not always the smallest of all."""
    bounds = []

    def attempt(bound: int) -> int | None:
        bounds.append(bound)
        return max((size for size in realised if size <= bound), default=None)

    smallest = min(realised)
    solution = search_smallest_bound(attempt, lambda size: size, low, low + width, low + first)
    if width < 0 or smallest > low + width:
        assert solution is None
    elif smallest >= low:
        assert solution == smallest
    else:
        assert solution is not None
        assert solution <= low
    assert all(low <= bound <= low + width for bound in bounds)


def test_the_distance_doubles_until_the_first_success() -> None:
    bounds = []

    def attempt(bound: int) -> int | None:
        bounds.append(bound)
        return bound if bound >= 1000 else None

    assert search_smallest_bound(attempt, lambda bound: bound, 0, 10**9, 10) == 1000
    assert bounds[:4] == [10, 31, 72, 153]
    assert len(bounds) < 25


@given(smallest=st.integers(0, 1000), tolerance=st.integers(0, 50), first=st.integers(0, 1000))
@settings(deadline=None)
def test_with_a_tolerance_the_bound_is_within_it(smallest: int, tolerance: int, first: int) -> None:
    solution = search_smallest_bound(
        lambda b: b if b >= smallest else None, lambda b: b, 0, 1000, first, tolerance=tolerance
    )
    assert solution is not None
    assert smallest <= solution <= smallest + tolerance


def test_snapping_skips_bounds_that_no_solution_realises() -> None:
    bounds = []

    def attempt(bound: int) -> int | None:
        bounds.append(bound)
        return 700 if bound >= 700 else None

    smallest = search_smallest_bound(
        attempt, lambda size: size, 0, 1000, 1000, snap=lambda bound: -(-bound // 100) * 100
    )
    assert smallest == 700
    assert len(bounds) <= 6


def problems(random_table: MakeTable) -> Iterator[CutProblem]:
    for seed in range(150):
        problem = prepare(random_table(seed))
        if len(problem.blocks) >= problem.n_stages:
            yield problem


def plans_in_memory(problem: CutProblem) -> list[list[int]]:
    inner = combinations(range(1, len(problem.blocks)), problem.n_stages - 1)
    plans = [[0, *cuts, len(problem.blocks)] for cuts in inner]
    return list(filter(problem.fits, plans))


def test_the_probe_finds_a_plan_within_both_bounds_exactly_when_one_exists(random_table: MakeTable) -> None:
    for problem in problems(random_table):
        plans = plans_in_memory(problem)
        computes = {problem.compute_cycles(cuts) for cuts in plans}
        transfers = {problem.transfer_cycles(cuts) for cuts in plans}
        for compute in (*computes, 0):
            for transfer in (*transfers, 0):
                within = [
                    cuts
                    for cuts in plans
                    if problem.compute_cycles(cuts) <= compute and problem.transfer_cycles(cuts) <= transfer
                ]
                cuts = probe(problem, compute, transfer)
                assert cuts in within if within else cuts is None


def test_every_plan_within_the_bounds_cuts_inside_the_cut_ranges(random_table: MakeTable) -> None:
    for problem in problems(random_table):
        plans = plans_in_memory(problem)
        for transfer in {problem.transfer_cycles(cuts) for cuts in plans}:
            cheap = cheap_cuts(problem, transfer)
            for compute in {problem.compute_cycles(cuts) for cuts in plans}:
                left = cut_ranges(problem, problem.own_cycles(compute), cheap)
                for cuts in plans:
                    if problem.compute_cycles(cuts) <= compute and problem.transfer_cycles(cuts) <= transfer:
                        assert left is not None
                        assert all(cut in choices for cut, choices in zip(cuts, left, strict=True))


def test_cheap_cuts_leave_out_cuts_whose_own_transfers_are_too_large(random_table: MakeTable) -> None:
    for problem in problems(random_table):
        blocks = problem.blocks
        for transfer in range(0, 60, 7):
            for i, cuts in enumerate(cheap_cuts(problem, transfer)[1:-1], start=1):
                min_receive, min_send = blocks.min_receive_cycles[i - 1], blocks.min_send_cycles[i]
                assert cuts == [
                    cut
                    for cut in range(len(blocks) + 1)
                    if blocks.send_cycles[i - 1][cut] + min_receive <= transfer
                    and blocks.receive_cycles[i][cut] + min_send <= transfer
                ]


def test_the_probe_leaves_no_device_empty(random_table: MakeTable) -> None:
    for problem in problems(random_table):
        cuts = probe(problem, 2**60, 2**60)
        assert cuts is None or all(start < stop for start, stop in pairwise(cuts))
