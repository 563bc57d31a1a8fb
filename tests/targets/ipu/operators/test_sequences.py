from collections.abc import Callable
from typing import Any

import pytest

from autoauto.targets.ipu.operator_cost import Family, OperatorContext, OperatorCost
from autoauto.targets.ipu.operators import sequences

MakeContext = Callable[..., OperatorContext]


@pytest.fixture
def top(context_of: MakeContext, node: Any) -> Callable[..., OperatorCost]:
    """The cost of the k largest of so many rows."""
    return lambda rows, length, k: sequences.sort(context_of(node("TopK", [f"x:{rows}x{length}"], (rows, k), axis=-1)))


@pytest.fixture
def summed(context_of: MakeContext, node: Any) -> Callable[..., OperatorCost]:
    """The cost of a scan along the last axis."""
    return lambda op, rows, length: sequences.scan(
        context_of(node(op, [f"x:{rows}x{length}"], (rows, length), axis=(1,)))
    )


def test_keeping_few_is_cheaper_than_sorting_all(top: Callable[..., OperatorCost]) -> None:
    costs = [top(4, 250_000, k).cycles for k in (1, 4, 64, 250_000)]
    assert costs == sorted(costs)
    assert costs[0] < costs[-1] / 10


def test_whole_rows_are_sorted_without_exchange(top: Callable[..., OperatorCost]) -> None:
    assert top(100_000, 64, 4).exchange_cycles == 0 < top(1, 1_000_000, 4).exchange_cycles


def test_more_rows_take_longer(top: Callable[..., OperatorCost]) -> None:
    assert 0 < top(1472, 50, 4).cycles < top(100_000, 50, 4).cycles


def test_sums_of_short_rows_are_products_with_a_triangle(summed: Callable[..., OperatorCost]) -> None:
    assert summed("CumSum", 20_000, 512).family is Family.PRODUCT
    assert summed("CumProd", 20_000, 512).family is Family.SORT
    assert summed("CumSum", 1, 5_000_000).family is Family.SORT


def test_long_rows_are_cut_over_tiles(summed: Callable[..., OperatorCost]) -> None:
    assert summed("CumSum", 1, 5_000_000).cycles < summed("CumProd", 1472, 5_000_000).cycles / 300
