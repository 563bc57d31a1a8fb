"""Grids: how many configurations there are, counted by hand and one by one, and which are left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autoauto.records.errors import BadInput
from autoauto.records.schedule import Order
from autoauto.space.constraint import Constraint
from autoauto.space.grid import Grid
from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Strategy
from autoauto.space.space import SearchSpace, check_n_configurations, of_global_batch


@pytest.mark.parametrize(
    ("space", "n"),
    [
        (SearchSpace((1, 2), (0.6,), (1, 2, 4)), 2 * 3),
        (SearchSpace((1, 2), (0.6,), (1, 2), replicas=(1, 2, 3)), 2 * 2 * 3),
        (
            SearchSpace((1, 2), (0.6,), (1, 2), replicas=(1, 2, 3), strategy=tuple(Strategy), steps=(4, 8)),
            12 + 2 * 2 * 2,
        ),
        (
            SearchSpace((2,), (0.6,), (1, 2), schedule=(Order.GPIPE,), n_micro_batches=(4, 8), recompute=(False, True)),
            8,
        ),
        (SearchSpace((1,), (), (1, 2), runtime=("onnxruntime", "openvino"), cores_per_device=(1, 2)), 8),
    ],
)
def test_configurations_are_as_many_as_by_hand(space: SearchSpace, n: int) -> None:
    assert space.grid.n_combinations == n
    assert space.n_configurations == n
    every = [knobs for cell in space.cells for knobs in cell]
    assert len(set(every)) == n
    assert all(knobs in space for knobs in every)


def test_a_global_batch_leaves_steps_of_so_many_samples() -> None:
    """24 samples by 1 or 2 replicas of sizes 2 or 3: the products of the three are all 24."""
    steps, sizes, constraint = of_global_batch(24, (1, 2), (2, 3))
    assert (steps, sizes, constraint.text) == ((4, 6, 8, 12), (2, 3), "n_samples == 24")
    space = SearchSpace(
        (2,), (0.6,), sizes, replicas=(1, 2), schedule=(Order.GPIPE,), n_micro_batches=steps, constraints=(constraint,)
    )
    made = {(k.replicas, k.batch_size, k.mode.n_micro_batches) for cell in space.cells for k in cell}
    assert made == {(1, 2, 12), (1, 3, 8), (2, 2, 6), (2, 3, 4)}
    assert space.grid.n_combinations == space.n_configurations == 4


def test_a_global_batch_that_nothing_divides_is_refused() -> None:
    with pytest.raises(BadInput, match="got 7 for replicas 2 and batch_size 2 to 3; try others"):
        of_global_batch(7, (2,), (2, 3))
    assert of_global_batch(100_000, (1,), (1,))[0] == (100_000,)
    with pytest.raises(BadInput, match="at most 100,000 of the last, got 100,001 for replicas 1 and batch_size 1"):
        of_global_batch(100_001, (1,), (1,))
    assert of_global_batch(200_000, (1,), (1, 2))[0] == (100_000,)


def test_a_bound_on_devices_leaves_out_what_takes_more() -> None:
    """Of 1, 2 or 3 stages of groups of 2 GPUs, twice or once, six GPUs hold those of three groups or fewer."""
    values: dict[str, Any] = {"engine": ("vllm",), "tensor_parallel": (2,), "input_tokens": (9,), "output_tokens": (9,)}
    bound = Constraint("n_devices <= 6")
    space = SearchSpace((1, 2, 3), (), (8,), replicas=(1, 2), **values, constraints=(bound,))
    assert {(cell[0].n_ipu, cell[0].replicas) for cell in space.cells} == {(1, 1), (1, 2), (2, 1), (3, 1)}
    assert len(list(space.grid.configurations(8))) == 4  # which the bound leaves before any is made
    assert [each.n_devices for each in space.grid.configurations(8)] == [2, 4, 4, 6]


def test_a_space_holds_as_many_configurations_as_allowed_and_no_more() -> None:
    check_n_configurations(SearchSpace(tuple(range(1, 301)), (0.6,), tuple(range(1, 1001))).grid)
    with pytest.raises(BadInput, match=r"at most 300,000 configurations, got 301,000; try fewer values of batch_size"):
        SearchSpace(tuple(range(1, 302)), (0.6,), tuple(range(1, 1001)))


def test_a_space_shows_what_is_no_default() -> None:
    assert repr(SearchSpace()) == "SearchSpace()"
    space = SearchSpace((1, 2), constraints=(Constraint("n_ipu < 2"),))
    assert repr(space) == "SearchSpace(n_ipu=(1, 2), constraints=(Constraint(text='n_ipu < 2'),))"
    assert (getattr(space, "n_ipu"), space["n_ipu"]) == ((1, 2), (1, 2))  # noqa: B009
    with pytest.raises(AttributeError, match="a space has no ipus"):
        getattr(space, "ipus")  # noqa: B009
    with pytest.raises(BadInput, match="there is no knob 'ipus'; did you mean 'n_ipu'"):
        SearchSpace(ipus=(1,))


def test_streams_need_a_core_and_a_sample_each() -> None:
    def space(streams: tuple[int, ...], cores: tuple[int, ...], sizes: tuple[int, ...]) -> SearchSpace:
        values: dict[str, Any] = {"runtime": ("openvino",), "cores_per_device": cores, "streams": streams}
        return SearchSpace((1,), (), sizes, **values)

    assert space((2,), (2,), (4,)).n_configurations == 1
    assert space((2, 4), (1, 2), (3, 4)).n_configurations == 1  # 2 streams on 2 cores, 2 samples each
    for wrong in (((2,), (1,), (4,)), ((2,), (2,), (3,)), ((3, 4), (1, 2), (12,))):
        with pytest.raises(BadInput, match="streams need a core or more each, and equal parts of a batch"):
            space(*wrong)


def test_the_values_of_knobs_have_ends() -> None:
    assert SearchSpace((100_000,), (0.6,), (1,))["n_ipu"] == (100_000,)
    for values in ((100_001,), (0,)):
        with pytest.raises(BadInput, match="must be"):
            SearchSpace(values, (0.6,), (1,))
    for name in ("n_ipu", "replicas", "batch_size"):
        knobs: dict[str, Any] = {name: 0}
        with pytest.raises(BadInput, match=f"{name} must be"):
            Knobs(**knobs)


@pytest.mark.parametrize(("workers", "most"), [((0,), 300_000), ((0, 1), 300_000), ((0, 1, 2), 200_000)])
def test_configurations_of_two_pools_count_as_half_of_both(workers: tuple[int, ...], most: int) -> None:
    """Two pools are searched beside one: of 1, 2 or 3 choices of workers times the batch sizes half is counted."""
    values: dict[str, Any] = {"engine": ("vllm",), "input_tokens": (9,), "output_tokens": (9,)}
    grid = SearchSpace((1,), (), (8,), **values).grid

    def sized(n: int) -> Grid:
        return replace(grid, values={**grid.values, "prefill_workers": workers, "batch_size": tuple(range(1, n + 1))})

    check_n_configurations(sized(most))
    with pytest.raises(BadInput, match=r"at most 300,000 configurations, got 300,001; try fewer values of batch_size"):
        check_n_configurations(sized(most + 1))
