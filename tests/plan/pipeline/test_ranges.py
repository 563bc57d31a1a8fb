"""Plans by the costs of all ranges against exhaustive search: all-to-all, devices of several kinds, stage replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, pairwise, product
from random import Random

import numpy as np
import pytest

from autoauto.plan.pipeline import range_plans, range_problem
from autoauto.plan.pipeline.blocks import contract
from autoauto.plan.pipeline.optimal import optimal
from autoauto.plan.pipeline.problem import evaluate, prepare, stage_of
from autoauto.plan.pipeline.range_plans import best_in_any_order, best_in_line
from autoauto.records.costs.cost import CostTable, Exchange, TensorUse
from autoauto.records.errors import BadInput, Infeasible
from autoauto.records.hardware import Link, Period
from autoauto.records.plans.plan import Plan
from tests.cost_tables import make_table
from tests.drawn import daily, n_drawn
from tests.plan.exhaustive import exhaustive

MakeTable = Callable[[int], CostTable]


def with_exchange(table: CostTable, seed: int) -> CostTable:
    """The same layers with random tensors between them, some of them read by earlier layers, on links of their own."""
    random, n = Random(seed), table.n_layers

    def use() -> TensorUse:
        consumers = sorted(random.sample(range(n), random.randint(1, min(n, 3))))
        return TensorUse(random.randrange(n), tuple(consumers), random.choice((0, random.randint(1, 40))))

    links = [Link(random.choice((0.5, 1.0, 4.0)), random.randint(0, 3)) for _ in range(2 * table.n_devices)]
    uses = tuple(use() for _ in range(random.randint(0, 2 * n)))
    exchange = Exchange(uses, tuple(links[::2]), tuple(links[1::2]), 1.0)
    if random.random() < 0.5:  # the host's links only
        table.receive_cycles[:, 1:] = 0
        table.send_cycles[:, :-1] = 0
    return replace(table, exchange=exchange)


@pytest.mark.parametrize("chunk", daily(range(2)))
def test_all_to_all_costs_what_the_cheapest_of_all_partitions_costs(any_table: MakeTable, chunk: int) -> None:
    modes = set()
    for seed in range(400 * chunk, 400 * (chunk + 1)):
        table = with_exchange(any_table(seed), seed)
        lowest, missing = outcome(exhaustive, table)
        assert outcome(optimal, table) == (lowest, missing), seed
        modes.add((table.period, lowest is None))
        if lowest is None:
            continue
        bounded = best_in_line(table)
        assert bounded.plan.cost_cycles == bounded.bound_cycles == lowest, seed
    assert len(modes) == 8


def outcome(plan: Callable[[CostTable], Plan], table: CostTable) -> tuple[int | None, int]:
    """The cost of the best plan, if any, and the missing bytes."""
    try:
        return plan(table).cost_cycles, 0
    except Infeasible as failure:
        return None, failure.excess_bytes


@pytest.mark.drawn
def test_the_bytes_of_all_ranges_are_those_of_each(any_table: MakeTable) -> None:
    for seed in range(n_drawn(300)):
        table = with_exchange(any_table(seed), seed)
        exchange = table.exchange
        assert exchange is not None
        first = replace(exchange, receive_links=(Link(1.0, 0),), send_links=(Link(1.0, 0),))
        cuts = contract(table).cuts
        received, sent = first.range_bytes(cuts)
        for (i, start), (j, stop) in combinations(enumerate(cuts), 2):
            assert received[i, j] == first.receive_cycles(0, start, stop)
            assert sent[i, j] == first.send_cycles(0, start, stop)


def test_a_tensor_that_skips_a_stage_is_charged_at_its_ends() -> None:
    """Layer 0 makes a tensor for layers 1 and 2; in a line, layer 1 passes it on."""
    table = make_table(np.array([0, 10, 20, 30]), 3)
    links = (Link(1.0, 0),) * 3
    table = replace(table, exchange=Exchange((TensorUse(0, (2,), 7),), links, links, 1.0))
    plan = evaluate(table, (0, 1, 2, 3))
    assert [(stage.receive_cycles, stage.send_cycles) for stage in plan.stages] == [(0, 7), (0, 0), (7, 0)]
    assert table.part(1, 3).exchange == Exchange((TensorUse(0, (2,), 7),), links[1:], links[1:], 1.0)


def test_other_queries_need_a_line() -> None:
    table = replace(make_table(np.array([0, 1, 2])), exchange=Exchange((), (Link(1.0, 0),), (Link(1.0, 0),), 1.0))
    with pytest.raises(BadInput, match=r"^this query needs devices in a line, got topology all-to-all"):
        prepare(table)


def kinds_of(any_table: MakeTable, seed: int) -> tuple[list[CostTable], list[int]]:
    """Tables of one device each, for the same layers: other cycles, transfers, limits and clocks."""
    random, first = Random(seed), any_table(seed)
    n, tables = first.n_layers, []
    for _ in range(random.choice((1, 2, 2, 3))):
        cycles = np.concatenate(([0], np.cumsum([random.randint(0, 40) for _ in range(n)])))
        transfers = np.array([[random.randint(0, 20) for _ in range(n + 1)] for _ in range(2)])
        row = replace(
            first.part(0, 1),
            compute_prefix_cycles=cycles,
            backward_prefix_cycles=np.zeros_like(cycles),
            weight_prefix_cycles=np.zeros_like(cycles),
            entry_cycles=np.zeros(n, dtype=np.int64),
            receive_cycles=transfers[:1, :n],
            send_cycles=transfers[1:],
            memory_limit_bytes=np.array([random.choice((random.randint(5, 60), 150))]),
            speeds=(Fraction(random.randint(1, 3), random.randint(1, 3)),),
        )
        tables.append(with_exchange(row, seed) if seed % 3 == 0 else row)
    return tables, [random.randint(1, 3 if len(tables) < 3 else 2) for _ in tables]


def all_plans(tables: Sequence[CostTable], counts: Sequence[int], max_replicas: int) -> Iterator[Plan]:
    """Every plan on at most so many devices of every kind."""
    table = tables[0]
    allowed = [cut for cut in range(1, table.n_layers) if table.cut_allowed[cut]]
    ways = [(kind, m) for kind, n in enumerate(counts) for m in range(1, min(n, max_replicas) + 1)]
    for n_stages in range(1, sum(counts) + 1):
        orders = [
            order
            for order in product(ways, repeat=n_stages)
            if all(sum(m for k, m in order if k == kind) <= n for kind, n in enumerate(counts))
        ]
        for cuts in combinations(allowed, n_stages - 1):
            layers = list(pairwise((0, *cuts, table.n_layers)))
            costs = {(kind, ends): stage_of(tables[kind], 0, *ends) for kind in range(len(tables)) for ends in layers}
            for order in orders:
                stages = (
                    replace(costs[kind, ends], device=i, n_replicas=m)
                    for i, ((kind, m), ends) in enumerate(zip(order, layers, strict=True))
                )
                yield Plan(tuple(stages), table.period)


def excess(plan: Plan) -> int:
    return max(stage.total_bytes - stage.limit_bytes for stage in plan.stages)


@pytest.mark.parametrize("max_replicas", [3, 1])
@pytest.mark.parametrize("chunk", daily(range(2)))
def test_any_order_costs_what_the_cheapest_of_all_costs(any_table: MakeTable, chunk: int, max_replicas: int) -> None:
    modes = set()
    for seed in range(120 * chunk, 120 * (chunk + 1)):
        tables, counts = kinds_of(any_table, seed)
        if tables[0].n_layers > 6:
            continue
        plans = list(all_plans(tables, counts, max_replicas))
        cheapest = min((plan.cost_cycles for plan in plans if excess(plan) <= 0), default=None)
        if cheapest is None:
            with pytest.raises(Infeasible) as raised:
                best_in_any_order(tables, counts, max_replicas)
            assert raised.value.excess_bytes == min(map(excess, plans)), seed
        else:
            bounded = best_in_any_order(tables, counts, max_replicas)
            assert bounded.plan.cost_cycles == bounded.bound_cycles == cheapest, seed
            assert excess(bounded.plan) <= 0
            check_devices(bounded.plan, tables, counts)
        modes.add((tables[0].period, cheapest is None))
    assert len(modes) == 8


@pytest.mark.drawn
@pytest.mark.parametrize("max_replicas", [1, 2])
def test_plans_on_so_many_devices_cost_what_the_cheapest_of_all_costs(any_table: MakeTable, max_replicas: int) -> None:
    outcomes = set()
    for seed in range(n_drawn(150)):
        tables, counts = kinds_of(any_table, seed)
        if tables[0].n_layers > 6:
            continue
        plans = list(all_plans(tables, counts, max_replicas))
        for n_in_use in range(1, sum(counts) + 1):
            same = [plan for plan in plans if sum(stage.n_replicas for stage in plan.stages) == n_in_use]
            cheapest = min((plan.cost_cycles for plan in same if excess(plan) <= 0), default=None)
            if cheapest is None:
                with pytest.raises(Infeasible) as raised:
                    best_in_any_order(tables, counts, max_replicas, n_in_use=n_in_use)
                assert raised.value.excess_bytes == min(map(excess, same), default=0), seed
            else:
                bounded = best_in_any_order(tables, counts, max_replicas, n_in_use=n_in_use)
                assert bounded.plan.cost_cycles == bounded.bound_cycles == cheapest, seed
                assert sum(stage.n_replicas for stage in bounded.plan.stages) == n_in_use
                check_devices(bounded.plan, tables, counts)
            outcomes.add((tables[0].period, cheapest is None, not same))
    assert {(period, fits) for period, fits, _ in outcomes} == {(period, fits) for period in Period for fits in (0, 1)}
    assert any(impossible for *_, impossible in outcomes)


@pytest.mark.drawn
def test_more_states_than_the_limit_have_a_lower_bound(any_table: MakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    gaps = []
    for seed in range(n_drawn(150)):
        tables, counts = kinds_of(any_table, seed)
        tables, counts = [*tables, tables[0]][:3], [2, 2, 2][: len(tables) + 1]
        try:
            lowest = best_in_any_order(tables, counts).plan.cost_cycles
        except Infeasible:
            continue
        with monkeypatch.context() as patch:
            patch.setattr(range_problem, "MAX_STATES", 5)
            try:
                bounded = best_in_any_order(tables, counts)
            except Infeasible:  # only the other states have a plan
                continue
        assert bounded.bound_cycles <= lowest <= bounded.plan.cost_cycles, seed
        check_devices(bounded.plan, tables, counts)
        gaps.append(bounded.plan.cost_cycles - lowest)
    assert len(gaps) > 10
    assert max(gaps) > 0 == sorted(gaps)[len(gaps) // 2]


def test_an_even_use_of_kinds_is_counted_and_reaches_all_devices() -> None:
    for n_devices in ((4, 4), (1, 5), (3, 2, 4), (7,), (2, 0, 3)):
        for spread in (1, 2, max(n_devices)):
            usages = list(range_problem.usages(n_devices, sum(n_devices), spread))
            assert len(usages) == len(set(usages)) == range_problem._n_usages(n_devices, sum(n_devices), spread)
            assert usages[-1] == n_devices
            steps = {(a, b) for a, b in product(usages, repeat=2) if np.abs(np.subtract(a, b)).sum() == 1}
            assert all(any((before, after) in steps for before in usages) for after in usages[1:])
        assert len(usages) == np.prod(np.add(n_devices, 1))


def check_devices(plan: Plan, tables: Sequence[CostTable], counts: Sequence[int]) -> None:
    """No device is used twice, and every stage costs what it costs on the kind of its device."""
    kinds = [kind for kind, n in enumerate(counts) for _ in range(n)]
    used = [d for stage in plan.stages for d in range(stage.device, stage.device + stage.n_replicas)]
    assert len(set(used)) == len(used)
    for stage in plan.stages:
        [kind] = {kinds[d] for d in range(stage.device, stage.device + stage.n_replicas)}
        assert stage_of(tables[kind], 0, *stage.layers) == replace(stage, device=0, n_replicas=1)


def test_replicas_of_the_longest_stage_shorten_the_period() -> None:
    """One layer of 90 cycles and one of 10: two stages take 90, three replicas of the first 30."""
    table = replace(make_table(np.array([0, 90, 100])), period=Period.SERIAL)
    assert best_in_any_order([table], [4]).plan.cost_cycles == 90
    plan = best_in_any_order([table], [4], max_replicas=4).plan
    assert plan.cost_cycles == 25  # all four run all layers
    split = replace(table, cut_allowed=np.array([True, True, True]), memory_limit_bytes=np.array([90]))
    split = replace(
        split, memory=make_table(np.array([0, 0, 0]), exclusive_prefix_bytes={"w": np.array([0, 90, 100])}).memory
    )
    plan = best_in_any_order([split], [4], max_replicas=4).plan
    assert [(stage.device, stage.n_replicas) for stage in plan.stages] == [(0, 3), (3, 1)]
    assert plan.cost_cycles == 30


def test_more_cuts_than_the_limit_have_a_lower_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(5)
    table = make_table(np.concatenate(([0], np.cumsum([random.randint(1, 50) for _ in range(60)]))), 4)
    links = (Link(1.0, 0),) * 4
    uses = tuple(TensorUse(i, (i + 1,), random.randint(1, 30)) for i in range(59))
    table = replace(table, period=Period.SERIAL, exchange=Exchange(uses, links, links, 1.0))
    best = best_in_line(table)
    assert best.gap == 0
    monkeypatch.setattr(range_plans, "MAX_BLOCKS", 20)
    coarse = best_in_line(table)
    assert coarse.bound_cycles <= best.plan.cost_cycles <= coarse.plan.cost_cycles
    assert 0 < coarse.gap < 0.5
