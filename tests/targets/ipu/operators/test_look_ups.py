from collections.abc import Callable
from typing import Any

import pytest

from autoauto.targets.ipu import kernels
from autoauto.targets.ipu.operator_cost import Family, OperatorContext
from autoauto.targets.ipu.operators import data_movement
from autoauto.targets.ipu.operators.data_movement import LookUps

MakeContext = Callable[..., OperatorContext]


@pytest.fixture
def context(context_of: MakeContext, node: Any) -> Callable[..., OperatorContext]:
    """A layer by its operator, operands, output shape and attributes."""
    return lambda op, operands, shape, **attributes: context_of(node(op, operands, shape, **attributes))


def test_looking_up_more_rows_takes_longer(context: MakeContext) -> None:
    cycles = [
        data_movement.look_up(context("Gather", [(30522, 768), f"x:1x{n}"], (1, n, 768))).cycles
        for n in (16, 128, 1024)
    ]
    assert 0 < cycles[0] < cycles[1] < cycles[2]


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "work"),
    [
        ("Gather", [(30522, 768), "x:1x128"], {"axis": 0}, LookUps(1, 30522, 768, 128)),
        ("Gather", ["x:1x50x8", (4,)], {"axis": 1}, LookUps(1, 50, 8, 4)),
        ("GatherND", ["x:1x128x768", "x:1x5x2"], {}, LookUps(1, 128, 768, 5)),
        ("GatherND", ["x:1x128x768", "x:1x5x1"], {"batch_dims": 1}, LookUps(1, 128, 768, 5)),
        ("GatherElements", ["x:12x384x512", "x:12x384x300"], {"axis": -1}, LookUps(12 * 384, 512, 1, 300)),
        ("GatherElements", ["x:4x900x4", "x:4x300x4"], {"axis": 1}, LookUps(16, 900, 1, 300)),
    ],
)
def test_what_is_looked_up(
    context: MakeContext, op: str, operands: list[Any], attributes: dict[str, int], work: LookUps
) -> None:
    assert data_movement.gathered(context(op, operands, (1, 8), **attributes)) == work


def test_what_is_updated(context: MakeContext) -> None:
    by_tuple = context("ScatterND", ["x:1x128x768", "x:1x5x2", "x:1x5x768"], (1, 128, 768))
    by_element = context("ScatterElements", ["x:6x128", "x:6x5", "x:6x5"], (6, 128), axis=1)
    in_cache = context("TensorScatter", ["x:2x4x64x16", "x:2x4x1x16"], (2, 4, 64, 16), axis=-2)
    assert data_movement.scattered(by_tuple) == LookUps(1, 128, 768, 5)
    assert data_movement.scattered(by_element) == LookUps(6, 128, 1, 5)
    assert data_movement.scattered(in_cache) == LookUps(2, 64, 64, 1)


def test_a_tile_looks_up_whole_groups_one_after_the_other(context: MakeContext) -> None:
    cost = data_movement.look_up(context("GatherElements", ["x:12x384x512", "x:12x384x384"], (12, 384, 384), axis=-1))
    groups_a_tile = -(-12 * 384 // 1472)
    assert cost.compute_cycles == groups_a_tile * kernels.gather(384, 1, 1)
    assert cost.family is Family.GATHER


def test_many_indices_into_a_small_table_are_divided_over_tiles(context: MakeContext) -> None:
    cost = data_movement.look_up(context("Gather", [(10, 2), "x:1x1000000"], (1, 1000000, 2)))
    assert cost.cycles < kernels.gather(1_000_000, 1, 1) / 100


def test_tables_of_other_layers_are_copied_only_where_that_is_faster(context: MakeContext) -> None:
    weight = data_movement.look_up(context("Gather", [(197, 768), "x:1x4"], (1, 4, 768)))
    few = data_movement.look_up(context("Gather", ["x:1x197x768", "x:1x4"], (1, 4, 768), axis=1))
    assert weight.cycles <= few.cycles <= weight.cycles + kernels.exchange(197 * 768 * 2 / 1472, 8)


def test_few_constant_indices_are_slices(context: MakeContext) -> None:
    assert data_movement.look_up(context("Gather", ["x:1x128x768", (1,)], (1, 1, 768), axis=1)).family is Family.MOVE
    assert (
        data_movement.look_up(context("Gather", ["x:1x128x768", (64,)], (1, 64, 768), axis=1)).family is Family.GATHER
    )


def test_every_worker_of_a_tile_looks_at_all_updates(context: MakeContext) -> None:
    read = data_movement.look_up(context("GatherND", [(1000, 1000), "x:1x90000x2"], (1, 90000)))
    written = data_movement.update(context("ScatterND", ["x:1000x1000", "x:1x90000x2", "x:1x90000"], (1000, 1000)))
    assert written.compute_cycles > 6 * read.compute_cycles


def test_temporaries_stay_within_the_bound(context_of: MakeContext, node: Any) -> None:
    layer = node("Gather", [(30522, 768), "x:48x128"], (48, 128, 768))
    some, few = (data_movement.look_up(context_of(layer, proportion=proportion)) for proportion in (0.6, 0.1))
    assert few.working_bytes <= 0.1 * 638976 * 1472 < some.working_bytes <= 0.6 * 638976 * 1472
    assert some.cycles < few.cycles
