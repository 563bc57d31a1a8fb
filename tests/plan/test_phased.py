"""The phase planner against every partition in turn, with costs written out anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from random import Random

import numpy as np
import pytest

from autoauto.plan.phased import best_cuts, cuts_within, each_fits_alone, phased, phased_by_replicas, shortest_paths
from autoauto.plan.phased_costs import all_cuts, prepare_phases
from autoauto.programs.batch_serialisation.sharded_collectives import Sharding
from autoauto.records.costs.cost import CostTable
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import LayerProfile, ModelProfile
from autoauto.records.errors import BadInput, Infeasible
from autoauto.records.hardware import Cluster, Device, Link, StreamingMemory
from autoauto.records.plans.phased import IoMode, PhasedOptions, PhasedPlan
from autoauto.records.units import Precision
from tests.cost_tables import make_table, with_memory
from tests.drawn import daily, n_drawn

MakeTable = Callable[[int], CostTable]


@dataclass(frozen=True)
class Instance:
    table: CostTable
    profile: ModelProfile
    cluster: Cluster
    options: PhasedOptions

    @property
    def training(self) -> bool:
        assert self.profile.options is not None
        return self.profile.options.training

    def plan(self) -> PhasedPlan:
        return phased(self.table, self.profile, self.cluster, self.options)

    def loop(self, load: int, compute: int, store: int) -> int:
        """N (L + C + S), or with overlap L + max(L, C) + (N - 2) max(L + S, C) + max(S, C) + S."""
        n, ends = self.options.steps, max(load, compute) + max(store, compute)
        if self.options.io_mode != IoMode.IO_OVERLAPPED or n == 1:
            return n * (load + compute + store)
        return load + ends + store + (n - 2) * max(load + store, compute)

    def costs(self, start: int, stop: int) -> tuple[int, int]:
        """Cycles of all passes over the layers, and the bytes by which they exceed their tiles."""
        table, layers, options = self.table, self.profile.layers, self.options
        n, clock_hz = len(layers), self.cluster.devices[0].clock_hz
        assert self.cluster.streaming_memory is not None
        stream = self.cluster.streaming_memory.link
        sharding = Sharding(options.n_replicas, stream, self.cluster.receive_links[1], clock_hz)
        memory = table.memory_bytes(start, stop)
        variables = memory.get("parameter", 0)
        inputs, outputs = layers[start].input_bytes, layers[stop - 1].output_bytes

        def moved(n_bytes: int, link: Link = stream) -> int:
            return link.cycles(n_bytes, clock_hz) if n_bytes else 0

        def tiles(cycles: int) -> int:
            n_tiles = self.cluster.devices[0].n_tiles
            left = n_tiles - options.n_io_tiles
            return (cycles * n_tiles + left - 1) // left

        whole, backward = table.compute_cycles(start, stop), table.backward_cycles(start, stop)
        entry = moved(inputs, self.cluster.receive_links[0] if start == 0 else stream)
        gradient = 0 if start == 0 else inputs
        if not self.training:
            passes = [
                (
                    1,
                    inputs,
                    entry,
                    whole - backward,
                    outputs,
                    moved(outputs, self.cluster.send_links[-1] if stop == n else stream),
                )
            ]
        elif stop == n:
            once = backward if options.recompute else whole
            passes = [(2, inputs, entry, once, gradient, moved(gradient))]
        else:
            stashed = int(table.memory.activation_prefix_bytes[stop] - table.memory.activation_prefix_bytes[start])
            again = stashed + int(table.memory.stashed_input_bytes[start])
            if options.recompute:
                stashed, again = inputs if start == 0 else 0, inputs
            passes = [
                (1, inputs, entry, whole - backward, outputs + stashed, moved(outputs + stashed)),
                (2, outputs + again, moved(outputs + again), backward, gradient, moved(gradient)),
            ]
        cycles = sum(
            times * sharding.load_cycles(variables) + self.loop(load, tiles(compute), store)
            for times, _, load, compute, _, store in passes
        )
        buffers = max(loaded + stored for _, loaded, _, _, stored, _ in passes)
        limit, mode = int(table.memory_limit_bytes[0]), options.effective_mode
        io_limit = limit * options.n_io_tiles // self.cluster.devices[0].n_tiles
        on_compute = 0 if mode is IoMode.IO else buffers
        excess = sum(memory.values()) + on_compute - (limit - io_limit)
        return cycles, max(excess, buffers - io_limit) if options.n_io_tiles else excess

    def partitions(self) -> Iterator[tuple[int, ...]]:
        n = len(self.profile.layers)
        for size in range(n):
            for cuts in combinations(range(1, n), size):
                yield (0, *cuts, n)

    def best(self) -> tuple[int | None, int]:
        """The fewest cycles of partitions that fit, and the smallest excess of any partition."""
        cycles, excess = [], []
        for partition in self.partitions():
            costs = [self.costs(*ends) for ends in pairwise(partition)]
            excess.append(max(over for _, over in costs))
            if excess[-1] <= 0:
                cycles.append(sum(phase_cycles for phase_cycles, _ in costs))
        return min(cycles, default=None), min(excess)


def instance(seed: int, make_table: MakeTable) -> Instance:
    random, table = Random(f"phased {seed}"), make_table(seed)
    n, training = table.n_layers, random.random() < 0.6
    limit = int(table.memory_limit_bytes[0]) + random.choice((0, 20, 60))
    shared = table.memory.shared
    shared = shared._replace(categories=tuple(random.choice(("code", "parameter")) for _ in shared.n_bytes))
    table = replace(table.part(0, 1), stash_entries=(0,), memory_limit_bytes=np.array([limit]))
    table = with_memory(table, recompute=False, shared=shared)
    top = random.choice((5, 30))
    layers = [LayerProfile(0, 0, {}, {}, 0, 0, random.randint(0, top), random.randint(0, top), 0) for _ in range(n)]
    kinds = tuple(random.choice("ab") for _ in range(n))
    options = CompileOptions(1, Precision.FP16, training)
    profile = ModelProfile("m", "t", options, kinds, kinds, (None,) * n, tuple(layers))
    links = tuple(Link(random.choice((0.5, 3.0)), random.choice((0, 4))) for _ in range(4))
    memory = StreamingMemory(random.choice((0.3, 2.0, 1e3)), random.choice((0, 7)), 10**9)
    cluster = Cluster("c", "ipu", (Device("d", 1.0, limit, 8, 1),) * 4, links, links, memory)
    mode = random.choice(tuple(IoMode))
    steps, tiles = random.choice((1, 2, 3, 8)), random.choice((1, 4))
    recompute = training and random.random() < 0.5
    return Instance(table, profile, cluster, PhasedOptions(steps, mode, tiles, random.choice((1, 4)), recompute))


@pytest.mark.parametrize("block", daily(range(5), 2))
def test_no_partition_is_cheaper(training_table: MakeTable, block: int) -> None:
    for seed in range(block * 25, block * 25 + 25):
        problem = instance(seed, training_table)
        cycles, excess = problem.best()
        if cycles is None:
            with pytest.raises(Infeasible) as caught:
                problem.plan()
            assert caught.value.excess_bytes == excess
            assert caught.value.layers is not None
            assert problem.costs(*caught.value.layers)[1] == excess
        else:
            plan = problem.plan()
            assert plan.cost_cycles == cycles
            assert sum(problem.costs(*ends)[0] for ends in pairwise(plan.partition)) == cycles
            assert all(problem.costs(*ends)[1] <= 0 for ends in pairwise(plan.partition))


@pytest.mark.drawn
def test_the_cuts_that_are_left_out_are_those_of_no_best_plan(training_table: MakeTable) -> None:
    n_left_out = 0
    for seed in range(n_drawn(300)):
        problem, counts = instance(seed, training_table), [1, 2, 4]
        costs = prepare_phases(problem.table, problem.profile, problem.cluster, problem.options)
        best = shortest_paths(costs, counts, all_cuts(costs.table))
        assert best_cuts(costs, counts) == best.cuts
        if each_fits_alone(earliest := costs.earliest_starts()):
            n_left_out += costs.table.n_layers + 1 - len(cuts_within(costs, counts, best.cycles, earliest))
    assert n_left_out > n_drawn(100)


@pytest.mark.drawn
def test_plans_for_several_numbers_of_replicas_are_those_for_each(training_table: MakeTable) -> None:
    for seed in range(n_drawn(60)):
        problem, counts = instance(seed, training_table), [1, 2, 4]
        together = phased_by_replicas(problem.table, problem.profile, problem.cluster, problem.options, counts)
        for n, outcome in zip(counts, together, strict=True):
            alone = replace(problem, options=replace(problem.options, n_replicas=n))
            if isinstance(outcome, Infeasible):
                with pytest.raises(Infeasible) as caught:
                    alone.plan()
                assert str(caught.value) == str(outcome)
            else:
                assert outcome == alone.plan()


@pytest.mark.drawn
def test_random_instances_are_both_feasible_and_infeasible(training_table: MakeTable) -> None:
    fits = [instance(seed, training_table).best()[0] is not None for seed in range(n_drawn(60))]
    assert n_drawn(10) < sum(fits) < n_drawn(50)


def simple(n_layers: int, limit: int, **options: object) -> Instance:
    """Layers of 10 bytes of variables, 1 byte between them and 5 cycles; a byte takes a cycle."""
    sums = np.arange(n_layers + 1)
    table = make_table(5 * sums, exclusive_prefix_bytes={"parameter": 10 * sums}, memory_limit_bytes=[limit])
    layer = LayerProfile(5, 0, {}, {"parameter": 10}, 0, 0, 1, 1, 0)
    same = ("fc",) * n_layers
    profile = ModelProfile("m", "t", None, same, same, (None,) * n_layers, (layer,) * n_layers)
    link = Link(1.0, 0)
    cluster = Cluster("c", "ipu", (Device("d", 1.0, limit, 8, 1),), (link,), (link,), StreamingMemory(1.0, 0, 1000))
    return Instance(table, profile, cluster, PhasedOptions(**{"steps": 2, "io_mode": IoMode.COMPUTE, **options}))  # type: ignore[arg-type]


def test_two_phases_by_hand() -> None:
    # Two layers and two buffers of a byte fill 22 of 25 bytes: variables 20, then two steps of 1 + 10 + 1.
    plan = simple(4, 25).plan()
    assert plan.partition == (0, 2, 4)
    assert plan.phase_cycles == (44, 44)
    assert plan.naive_cycles == 2 * 2 * (20 + 12)


def test_a_layer_that_fits_nowhere_is_named() -> None:
    with pytest.raises(Infeasible, match=r"need 12 B on the compute tiles, which may fill 11 B") as caught:
        simple(3, 11).plan()
    assert (caught.value.excess_bytes, caught.value.layers) == (1, (0, 1))


def test_io_tiles_must_hold_a_copy_of_the_buffers() -> None:
    with pytest.raises(Infeasible, match=r"move 2 B through 1 io tiles, which may fill 1 B.*more io tiles"):
        simple(2, 14, io_mode=IoMode.IO, io_tiles=1).plan()


def test_buffers_must_fit_the_streaming_memory() -> None:
    with pytest.raises(Infeasible, match="try fewer steps") as caught:
        simple(4, 25, steps=1000).plan()
    assert caught.value.excess_bytes == 1000 + 40 - 1000


def test_phases_may_separate_layers_that_share_a_variable() -> None:
    problem = simple(4, 25)
    problem.table.cut_allowed[1:-1] = False
    assert problem.plan().partition == (0, 2, 4)


def test_a_cluster_without_streaming_memory_is_refused() -> None:
    problem = simple(2, 99)
    with pytest.raises(BadInput, match="needs a streaming memory, cluster c has none"):
        replace(problem, cluster=replace(problem.cluster, streaming_memory=None)).plan()
