"""Every baseline on examples that a reader can follow, and properties of all of them on random models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import pytest

from autoauto.plan.pipeline.optimal import optimal
from autoauto.plan.pipeline.problem import evaluate
from autoauto.records.costs.cost import CostTable
from autoauto.records.costs.memory import SharedMemory
from autoauto.records.errors import Infeasible
from autoauto.records.hardware import Period
from studies.planner_baselines import (
    BASELINES,
    Partition,
    binary_search,
    block_partition,
    greedy_fill,
    three_axes,
    uniform_count,
    uniform_parameters,
)
from tests.cost_tables import make_table, one_clock, with_memory
from tests.drawn import n_drawn
from tests.plan import conftest as planner_fixtures
from tests.plan.exhaustive import exhaustive

Baseline = Callable[[CostTable], Partition | None]
MakeTable = Callable[[int], CostTable]
ROOMY = 2**40

random_table = planner_fixtures.random_table


def model(
    cycles: Sequence[int],
    n_devices: int,
    *,
    parameter_bytes: Sequence[int] = (),
    limit_bytes: int = ROOMY,
    sent: Sequence[int] = (),
    tied: Sequence[int] = (),
) -> CostTable:
    """Layers of these cycles; `sent` are the send cycles of a stage by its last layer; `tied` are cuts not allowed."""
    n = len(cycles)
    return make_table(
        np.array([0, *accumulate(cycles)]),
        n_devices,
        exclusive_prefix_bytes={"parameter": np.array([0, *accumulate(parameter_bytes or [0] * n)])},
        send_cycles=np.array([[0, *(sent or [0] * n)]] * n_devices),
        cut_allowed=np.array([cut not in tied for cut in range(n + 1)]),
        memory_limit_bytes=np.full(n_devices, limit_bytes),
    )


def plain_table(random_table: MakeTable, seed: int) -> CostTable:
    """A random table as [auto-pipeline] has them: one clock, a barrier."""
    return replace(one_clock(random_table(seed)), period=Period.BARRIER)


@pytest.mark.parametrize(
    ("n_layers", "n_devices", "partition"),
    [(7, 3, (0, 2, 4, 7)), (8, 4, (0, 2, 4, 6, 8)), (38, 8, (0, 4, 8, 13, 18, 23, 28, 33, 38)), (5, 1, (0, 5))],
)
def test_uniform_count_gives_the_remainder_to_the_last(n_layers: int, n_devices: int, partition: Partition) -> None:
    assert uniform_count(model([1] * n_layers, n_devices)) == partition


def test_tied_layers_count_as_one() -> None:
    assert uniform_count(model([1] * 6, 2, tied=(1, 2))) == (0, 4, 6)  # blocks: 0-2, 3, 4, 5


@pytest.mark.parametrize(
    ("parameter_bytes", "n_devices", "partition"),
    [
        ((4, 1, 1, 1, 1), 2, (0, 1, 5)),
        ((1, 1, 1, 1, 4), 2, (0, 4, 5)),
        ((5, 4, 3, 6), 2, (0, 2, 4)),  # 9 and 9
        ((90, 1, 1, 1), 3, (0, 1, 2, 4)),  # the first layer alone is more than two shares
        ((1, 1, 90), 3, (0, 1, 2, 3)),
    ],
)
def test_uniform_parameters(parameter_bytes: tuple[int, ...], n_devices: int, partition: Partition) -> None:
    table = model([1] * len(parameter_bytes), n_devices, parameter_bytes=parameter_bytes)
    assert uniform_parameters(table) == partition


@pytest.mark.parametrize(
    ("n_layers", "limit_bytes", "partition"),
    [
        (6, 60, (0, 3, 6)),  # half a limit holds three layers
        (7, 60, (0, 4, 7)),  # 0.5 and 0.6 hold three, 0.7 holds four
        (9, 60, (0, 5, 9)),  # 0.8 holds four, nine need 0.9
        (12, 60, (0, 6, 12)),
        (5, 60, (0, 3, 5)),  # three layers a device are too many: two
        (5, 500, (0, 3, 5)),  # all would fit on one; the minimum is reserved for the other
        (3, 500, (0, 2, 3)),
    ],
)
def test_greedy_fill(n_layers: int, limit_bytes: int, partition: Partition) -> None:
    table = model([1] * n_layers, 2, parameter_bytes=[10] * n_layers, limit_bytes=limit_bytes)
    assert greedy_fill(table) == partition


def test_greedy_fill_fails_only_where_nothing_fits(random_table: MakeTable) -> None:
    assert greedy_fill(model([1] * 13, 2, parameter_bytes=[10] * 13, limit_bytes=60)) is None
    for seed in range(400):
        table = plain_table(random_table, seed)
        assert (greedy_fill(table) is None) == (three_axes(table) is None)


def test_greedy_fill_splits_bert_large_as_popliner_did(vectors: Callable[[str], Any]) -> None:
    """popliner bounds the fullest tile; profiles hold sums over tiles, which is 5 to 6 % less full on average."""
    bert = vectors("memory_popliner_profiles")["bert_large_seq128_inference"]
    layers, split = bert["layers"], bert["greedy_split_2_ipus_limit_350000"]
    alone = layers[5]["variables"]  # of one layer: its weights and the tensors alive while it runs
    weights = (split[1]["variables"] - alone) // 11  # eleven more layers on the second device
    extra = [0, layers[1]["variables"] - alone, *[0] * 23]
    code = [layer["vertex_state"] + layer["exchange_code"] + layer["control_code"] for layer in layers]
    table = with_memory(
        model(
            [1] * 25,
            2,
            parameter_bytes=[code[i] + extra[i] + (weights if i > 0 else 0) for i in range(25)],
            limit_bytes=int(350_000 * 1472 / 1.06),
        ),
        peak_bytes=np.full(25, alone - weights),
        shared=SharedMemory(
            ((0,), *(((1,),) * 24)),
            (split[0]["vertex_code"] - split[1]["vertex_code"], split[1]["vertex_code"]),
            ("vertexCode",) * 2,
        ),
    )
    assert greedy_fill(table) == (0, 13, 25)  # None and 0..11 | 12..23
    for stage, known in zip(evaluate(table, (0, 13, 25)).stages, split, strict=True):
        assert stage.total_bytes == pytest.approx(known["total"], rel=0.02)


@pytest.mark.parametrize(
    ("cycles", "n_devices", "partition"),
    [
        ((4, 4, 4, 2, 3, 4, 4, 4, 1), 3, (0, 3, 6, 9)),  # from 8, 13, 9 to 12, 9, 9
        ((1, 1, 1, 1, 5), 3, (0, 3, 4, 5)),  # 3, 1, 5 is even enough
        ((5, 1, 1), 3, (0, 1, 2, 3)),
        ((1, 1, 1, 1, 1), 4, (0, 1, 2, 4, 5)),
        ((1, 1, 1, 1, 1, 1), 3, (0, 2, 4, 6)),
    ],
)
def test_block_partition(cycles: tuple[int, ...], n_devices: int, partition: Partition) -> None:
    assert block_partition(model(cycles, n_devices)) == partition


def test_block_partition_may_differ_from_the_optimum() -> None:
    table = model((1, 3, 1, 2), 3)
    assert block_partition(table) == (0, 1, 3, 4)  # 1, 4, 2 differ by no more than the largest layer
    assert optimal(table).partition == (0, 1, 2, 4)  # 1, 3, 3


def test_block_partition_evens_out_as_the_theorem_says(random_table: MakeTable) -> None:
    for seed in range(400):
        table = plain_table(random_table, seed)
        allowed = np.flatnonzero(table.cut_allowed)
        partition = block_partition(table)
        if len(allowed) <= table.n_devices:
            assert partition is None
            continue
        assert partition is not None
        sums = np.diff(table.compute_prefix_cycles[list(partition)])
        assert sums.max() - sums.min() <= np.diff(table.compute_prefix_cycles[allowed]).max()


@pytest.mark.parametrize(
    ("cycles", "n_devices", "partition"),
    [
        ((1, 2, 3, 4, 5), 2, (0, 3, 5)),  # 6 | 9
        ((5, 4, 3, 2, 1), 2, (0, 2, 5)),  # 9 | 6
        ((1, 1, 1, 1, 1), 4, None),  # DeepSpeed pull request 4312: [0, 2, 4, 5, 5]
        ((1,) * 42, 16, None),  # DeepSpeed issue 5078: 42 layers on 16 stages leave two without layers
    ],
)
def test_binary_search(cycles: tuple[int, ...], n_devices: int, partition: Partition | None) -> None:
    assert binary_search(model(cycles, n_devices)) == partition


def test_binary_search_has_the_smallest_bottleneck_of_compute(random_table: MakeTable) -> None:
    n_partitions = 0
    for seed in range(400):
        table = plain_table(random_table, seed)
        partition = binary_search(table)
        if partition is not None:
            n_partitions += 1
            free = replace(
                table,
                memory_limit_bytes=np.full(table.n_devices, ROOMY),
                receive_cycles=0 * table.receive_cycles,
                send_cycles=0 * table.send_cycles,
            )
            assert evaluate(free, partition).cost_cycles == exhaustive(free).cost_cycles
    assert n_partitions > 100


def test_three_axes_prefers_a_cheap_cut_to_an_even_one() -> None:
    assert three_axes(model((4, 4, 4, 4), 2, sent=(9, 9, 9, 0))) == (0, 2, 4)
    assert three_axes(model((4, 4, 4, 4), 2, sent=(9, 9, 2, 0))) == (0, 3, 4)  # 12 + 2 beats 8 + 9


@pytest.mark.drawn
def test_three_axes_is_exact(random_table: MakeTable) -> None:
    n_feasible = 0
    for seed in range(n_drawn(1000)):
        table = plain_table(random_table, seed)
        try:
            cost = exhaustive(table).cost_cycles
        except Infeasible:
            assert three_axes(table) is None
            continue
        n_feasible += 1
        partition = three_axes(table)
        assert partition is not None
        assert evaluate(table, partition).cost_cycles == cost == optimal(table).cost_cycles
    assert n_feasible > n_drawn(200)


@pytest.mark.drawn
@pytest.mark.parametrize("baseline", BASELINES, ids=lambda baseline: baseline.__name__)
def test_partitions_are_legal(random_table: MakeTable, baseline: Baseline) -> None:
    knows_memory = baseline in {three_axes, greedy_fill}
    n_partitions = 0
    for seed in range(n_drawn(400)):
        table = plain_table(random_table, seed)
        partition = baseline(table)
        if partition is not None:
            n_partitions += 1
            stages = evaluate(table, partition).stages  # refuses empty stages
            assert all(table.cut_allowed[cut] for cut in partition)
            if knows_memory:
                assert all(stage.total_bytes <= stage.limit_bytes for stage in stages)
    assert n_partitions > n_drawn(50)


@pytest.mark.parametrize("baseline", BASELINES, ids=lambda baseline: baseline.__name__)
def test_two_layers_do_not_make_three_stages(baseline: Baseline) -> None:
    assert baseline(model((1, 1), 3)) is None
