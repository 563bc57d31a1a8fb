from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations, pairwise, product
from random import Random

import numpy as np
import pytest

from autoauto.plan.pipeline.infeasible import why_infeasible
from autoauto.plan.pipeline.interleaved import _make_search, chunk_table, evaluate_chunks, interleaved
from autoauto.plan.pipeline.optimal import incumbents, optimal
from autoauto.plan.pipeline.problem import prepare
from autoauto.records.costs.cost import CostTable
from autoauto.records.errors import BadInput, Infeasible
from autoauto.records.hardware import Period
from autoauto.records.plans.plan import Plan
from tests.cost_tables import make_table, with_memory
from tests.drawn import n_drawn

MakeTable = Callable[[int], CostTable]


def test_the_host_counts_once_a_device_and_the_last_device_sends_to_the_first() -> None:
    """Two devices: the host's constants are 100 in and 1000 out, the link between them 1 + i in and 10 + i out."""
    nothing = np.zeros(5, dtype=np.int64)
    inward, outward = np.arange(4) + 1, np.arange(5) + 10
    table = make_table(
        np.array([0, 3, 5, 6, 10]),
        2,
        receive_cycles=np.stack((nothing[:4], inward)) + 100,
        send_cycles=np.stack((outward, nothing)) + 1000,
    )
    plan = evaluate_chunks(chunk_table(table, 2), 2, (0, 1, 2, 3, 4))
    assert [stage.device for stage in plan.stages] == [0, 1, 0, 1]
    assert [stage.receive_cycles for stage in plan.stages] == [100, 100 + 2, 3, 4]
    assert [stage.send_cycles for stage in plan.stages] == [1000 + 11, 1000 + 12, 13, 0]
    assert plan.device_compute_cycles == {0: 3 + 1, 1: 2 + 4}
    assert plan.device_transfer_cycles == {0: 1100 + 11 + 3 + 13, 1: 1100 + 2 + 12 + 4}
    assert plan.cost_cycles == 6 + 1127


def test_one_device_sends_nothing_to_itself() -> None:
    table = make_table(np.array([0, 3, 5, 6]), receive_cycles=np.full((1, 3), 100), send_cycles=np.full((1, 4), 1000))
    plan = evaluate_chunks(chunk_table(table, 3), 1, (0, 1, 2, 3))
    assert (plan.compute_cycles, plan.transfer_cycles) == (6, 1100)


def test_one_chunk_is_the_table_itself(any_table: MakeTable) -> None:
    for table in map(any_table, range(50)):
        same = chunk_table(table, 1)
        assert (same.receive_cycles == table.receive_cycles).all()
        assert (same.send_cycles == table.send_cycles).all()
        assert same.speeds == table.speeds


def test_chunks_that_touch_need_what_their_range_needs(any_table: MakeTable) -> None:
    for table in map(any_table, range(200)):
        cuts = sorted({0, table.n_layers // 3, table.n_layers // 2, table.n_layers})
        whole = sum(table.memory_bytes(0, table.n_layers).values())
        together = table.memory.together(list(pairwise(cuts)))
        assert table.memory.together([(0, table.n_layers)]) == whole
        assert whole <= together <= whole + int(table.memory.activation_prefix_bytes[-1])


def test_chunks_that_recompute_stash_their_inputs_only() -> None:
    """Two chunks of two layers, each layer stashing 10 bytes, working on 5 and receiving 3."""
    table = make_table(np.zeros(5, dtype=np.int64), peak_bytes=np.full(4, 5), activation_prefix_bytes=np.arange(5) * 10)
    chunks = [(0, 2), (2, 4)]
    assert table.memory.together(chunks) == 20 + 10 + 5
    recomputing = with_memory(table, input_bytes=np.full(4, 3), recompute=True)
    assert recomputing.memory.together(chunks) == 3 + 10 + 5


def tables(any_table: MakeTable, seeds: range) -> Iterator[tuple[CostTable, int]]:
    """Random tables with the host's constants in all rows, as the estimate has them, and a number of chunks."""
    for seed in seeds:
        table = any_table(seed)
        host_in, host_out = seed % 5, seed % 7
        table.receive_cycles[0] = 0
        table.send_cycles[-1] = 0
        waiting = replace(
            table,
            receive_cycles=table.receive_cycles + host_in,
            send_cycles=table.send_cycles + host_out,
            memory_limit_bytes=table.memory_limit_bytes * 2,
            period=(Period.BARRIER, Period.OVERLAP)[seed % 2],
        )
        yield waiting, 1 + seed % 3


def all_plans(table: CostTable, n_chunks: int) -> Iterator[tuple[Plan, int]]:
    """Every plan with the bytes that it exceeds its devices by."""
    rows = chunk_table(table, n_chunks)
    allowed = [cut for cut in range(1, table.n_layers) if table.cut_allowed[cut]]
    for inner in combinations(allowed, rows.n_devices - 1):
        plan = evaluate_chunks(rows, table.n_devices, (0, *inner, table.n_layers))
        yield plan, max(0, *excess_bytes(table, plan))


def excess_bytes(table: CostTable, plan: Plan) -> Iterator[int]:
    for device, limit in enumerate(table.memory_limit_bytes.tolist()):
        yield table.memory.together([stage.layers for stage in plan.stages if stage.device == device]) - limit


@pytest.mark.drawn
def test_an_exhaustive_search_finds_the_cheapest_of_all_plans(any_table: MakeTable) -> None:
    n_feasible, beyond_smallest = 0, []
    for table, n_chunks in tables(any_table, range(n_drawn(750))):
        fitting = [plan.cost_cycles for plan, excess in all_plans(table, n_chunks) if not excess]
        try:
            bounded = interleaved(table, n_chunks)
        except Infeasible as failure:
            assert not fitting
            smallest_excess = min((excess for _, excess in all_plans(table, n_chunks)), default=0)
            beyond_smallest.append(failure.excess_bytes - smallest_excess)
            continue
        assert bounded.plan.cost_cycles == bounded.bound_cycles == min(fitting)
        assert max(excess_bytes(table, bounded.plan)) <= 0
        n_feasible += 1
    assert min(n_feasible, len(beyond_smallest)) > n_drawn(150)
    assert min(beyond_smallest) == 0


@pytest.mark.drawn
def test_a_short_search_has_a_lower_bound_of_the_best_cost(any_table: MakeTable) -> None:
    n_open = 0
    for table, n_chunks in tables(any_table, range(n_drawn(400))):
        try:
            lowest_cost = interleaved(table, n_chunks).plan.cost_cycles
            bounded = interleaved(table, n_chunks, max_nodes=1)
        except Infeasible:
            continue
        assert bounded.bound_cycles <= lowest_cost <= bounded.plan.cost_cycles
        n_open += bounded.gap > 0
    assert n_open > n_drawn(25)


@pytest.mark.drawn
def test_the_bound_of_cuts_is_the_cost_of_the_cheapest_plan_that_has_them_or_lower(any_table: MakeTable) -> None:
    """And that of all cuts is the cost itself."""
    n_plans = 0
    for table, n_chunks in tables(any_table, range(n_drawn(150))):
        rows = chunk_table(table, n_chunks)
        search = _make_search(rows, table.n_devices)
        n_blocks, n_stages = len(search.problem.blocks), rows.n_devices
        costs: dict[tuple[int, ...], list[int]] = {}
        for inner in combinations(range(1, n_blocks), n_stages - 1):
            cuts = (0, *inner, n_blocks)
            plan = evaluate_chunks(rows, table.n_devices, search.problem.partition(list(cuts)))
            for length in range(1, n_stages + 2):
                costs.setdefault(cuts[:length], []).append(plan.cost_cycles)
            assert search.bound(cuts) == plan.cost_cycles
            n_plans += 1
        for cuts, completed in costs.items():
            assert search.bound(cuts) <= min(completed)
    assert n_plans > n_drawn(500)


@pytest.mark.drawn
def test_one_chunk_a_device_is_the_ordinary_plan(any_table: MakeTable) -> None:
    for table, _ in tables(any_table, range(n_drawn(300))):
        try:
            expected = optimal(table).cost_cycles
        except Infeasible:
            continue
        assert interleaved(table, 1).plan.cost_cycles == expected


def long_table(seed: int) -> CostTable:
    """Sixty layers on three equal devices, with ample memory and transfers as uneven as a real model's."""
    random, n, n_devices = Random(seed), 60, 3
    cycles = np.array([random.randint(1, 40) for _ in range(n)])
    n_bytes = np.array([random.choice((30, 200, 400, 800)) for _ in range(n + 1)])
    receive, send = np.tile(n_bytes[:-1], (n_devices, 1)), np.tile(n_bytes, (n_devices, 1))
    receive[0], send[-1] = 0, 0
    prefix = np.concatenate(([0], np.cumsum(cycles)))
    return make_table(prefix, n_devices, receive_cycles=receive, send_cycles=send)


def even_cuts(table: CostTable, n_stages: int) -> list[int]:
    prefix = table.compute_prefix_cycles
    shares = prefix[-1] * np.arange(n_stages + 1) // n_stages
    return [int(cut) for cut in np.searchsorted(prefix, shares)]


@pytest.mark.drawn
def test_no_start_and_no_single_move_beats_the_plan_of_a_long_model() -> None:
    for table in map(long_table, range(n_drawn(8))):
        rows = chunk_table(table, 2)
        best = interleaved(table, 2, max_nodes=0).plan
        starts = [even_cuts(table, 6), *(list(plan.cuts) for plan in incumbents(prepare(rows)))]
        cuts = best.partition
        near = [
            (*cuts[:i], cuts[i] + step, *cuts[i + 1 :])
            for i, step in product(range(1, 6), (-16, -4, -1, 1, 4, 16))
            if cuts[i - 1] < cuts[i] + step < cuts[i + 1]
        ]
        assert best.cost_cycles < min(evaluate_chunks(rows, 3, start).cost_cycles for start in starts)
        assert best.cost_cycles <= min(evaluate_chunks(rows, 3, moved).cost_cycles for moved in near)


def test_the_same_table_gives_the_same_plan() -> None:
    assert interleaved(long_table(0), 2, max_nodes=0) == interleaved(long_table(0), 2, max_nodes=0)


def test_more_nodes_never_give_a_worse_plan_or_bound() -> None:
    few, many = (interleaved(long_table(1), 2, max_nodes=n_nodes) for n_nodes in (0, 2000))
    assert few.bound_cycles <= many.bound_cycles <= many.plan.cost_cycles <= few.plan.cost_cycles


def test_the_error_names_the_full_device_and_its_largest_chunk() -> None:
    table = long_table(0)
    heavy = with_memory(table, exclusive_prefix_bytes={"parameter": 1024 * np.arange(61)})
    with pytest.raises(
        Infeasible, match=r"but no plan fits: the best plan tried exceeds device \d by 20.0 KiB"
    ) as raised:
        interleaved(heavy, 2)
    layers = raised.value.layers
    assert layers is not None
    assert raised.value.excess_bytes == 20 * 1024
    assert raised.value.memory_bytes["parameter"] == 1024 * (layers.stop - layers.start)


def test_one_chunk_a_device_raises_the_error_of_ordinary_plans() -> None:
    heavy = with_memory(long_table(0), exclusive_prefix_bytes={"parameter": 1024 * np.arange(61)})
    with pytest.raises(Infeasible) as raised:
        interleaved(heavy, 1)
    assert str(raised.value) == str(why_infeasible(heavy, prepare(heavy)))


def test_chunks_are_dealt_out_in_turn(any_table: MakeTable) -> None:
    table, _ = next(t for t in tables(any_table, range(99)) if (t[0].n_devices, t[0].n_layers) == (2, 8))
    roomy = replace(table, memory_limit_bytes=table.memory_limit_bytes + 1000)
    assert [stage.device for stage in interleaved(roomy, 3).plan.stages] == [0, 1, 0, 1, 0, 1]


def test_too_few_layers_for_the_chunks_are_infeasible(any_table: MakeTable) -> None:
    table, _ = next(t for t in tables(any_table, range(99)) if t[0].n_devices == 4 and t[0].n_layers < 8)
    with pytest.raises(Infeasible, match="2 chunks on 4 devices need 7 cuts") as raised:
        interleaved(table, 2)
    assert raised.value.excess_bytes == 0


@pytest.mark.parametrize("period", [Period.SERIAL, Period.DUPLEX])
def test_several_chunks_of_devices_that_exchange_by_themselves_are_refused(period: Period) -> None:
    table = replace(make_table(np.array([0, 3, 5, 6])), period=period)
    assert interleaved(table, 1).plan.cost_cycles == 6
    with pytest.raises(BadInput, match=f"^several chunks a device need the period barrier or overlap, got {period}"):
        interleaved(table, 2)


def test_no_chunks_are_refused(any_table: MakeTable) -> None:
    with pytest.raises(BadInput, match="chunks a device must be at least 1, got 0"):
        interleaved(any_table(0), 0)
