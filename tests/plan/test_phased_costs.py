from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from autoauto.plan.phased_costs import (
    PassCosts,
    PhaseCosts,
    all_cuts,
    phase_candidates,
    prepare_phases,
    single_candidate,
)
from autoauto.records.costs.cost import CostTable
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import LayerProfile, ModelProfile
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, Device, Link, StreamingMemory
from autoauto.records.plans.phased import IoMode, PhasedOptions, PhaseKind
from autoauto.records.units import Precision
from tests.cost_tables import make_table, with_memory


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("most", [1, 5, 50_000])
def test_the_candidates_cost_what_the_table_says_and_none_within_the_limit_is_missing(
    training_table: Callable[[int], CostTable], seed: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = training_table(seed)
    keys, shared = ("parameter", "code"), table.memory.shared
    shared = shared._replace(categories=tuple(keys[i % 2] for i in range(len(shared.n_bytes))))
    table = with_memory(replace(table.part(0, 1), stash_entries=(0,)), recompute=False, shared=shared)
    limit = int(table.memory_limit_bytes[0])
    costs: dict[tuple[int, int], tuple[int, ...]] = {}
    monkeypatch.setattr("autoauto.plan.pipeline.fitting.MAX_RANGES", most)
    for candidates in phase_candidates(table, limit, all_cuts(table)):
        assert len(set(candidates.stops == table.n_layers)) == 1
        for start, stop, *n_bytes in zip(*(column.tolist() for column in candidates), strict=True):
            costs[start, stop] = tuple(n_bytes)
    expected = {}
    for stop in range(1, table.n_layers + 1):
        for start in range(stop):
            memory = table.memory_bytes(start, stop)
            if sum(memory.values()) <= limit:
                activations = table.memory.activations.between(start, stop)
                expected[start, stop] = (sum(memory.values()), memory.get("parameter", 0), activations)
                single = single_candidate(table, start, stop)
                assert tuple(int(column[0]) for column in single[2:]) == expected[start, stop]
    assert costs == expected


HOST, BETWEEN = Link(0.5, 0), Link(10.0, 1)
CLUSTER = Cluster(
    "c", "ipu", (Device("d", 1.0, 100, 10, 10),) * 2, (HOST, BETWEEN), (BETWEEN, HOST), StreamingMemory(1.0, 3, 1000)
)


def prepared(options: PhasedOptions, *, training: bool = False) -> PhaseCosts:
    """Each layer: 20 bytes of variables, 10 cycles forward, 20 backward, 6 bytes stashed; 4, 8, 2 bytes at the cuts."""
    n = training + 0
    table = make_table(
        np.array([0, 10, 20]) * (1 + 2 * n),
        backward_prefix_cycles=np.array([0, 20, 40]) * n,
        exclusive_prefix_bytes={"parameter": np.array([0, 20, 40]), "code": np.array([0, 1, 2])},
        peak_bytes=np.array([5, 5]),
        activation_prefix_bytes=np.array([0, 6, 12]) * n,
        memory_limit_bytes=[100],
    )
    layers = tuple(LayerProfile(10, 20, {}, {}, 5, 0, *moved, 6) for moved in ((4, 8), (8, 2)))
    compile_options = CompileOptions(1, Precision.FP16, training)
    profile = ModelProfile("m", "t", compile_options, ("a", "b"), ("a", "b"), (None, None), layers)
    return prepare_phases(table, profile, CLUSTER, options)


def values(costs: PassCosts) -> tuple[object, ...]:
    return (*costs[:2], *(int(column[0]) for column in costs[2:]))


def passes(costs: PhaseCosts, start: int, stop: int) -> list[tuple[object, ...]]:
    return [values(one_pass) for one_pass in costs.passes(single_candidate(costs.table, start, stop))]


def test_inference_reads_from_the_host_first_and_writes_to_it_last() -> None:
    costs = prepared(PhasedOptions(4, IoMode.COMPUTE))
    # from the host 4 / 0.5; to streaming memory 3 + 8
    assert passes(costs, 0, 1) == [(PhaseKind.FORWARD, 1, 4, 8, 10, 8, 11)]
    assert passes(costs, 1, 2) == [(PhaseKind.FORWARD, 1, 8, 11, 10, 2, 4)]


def test_the_forward_phase_stores_what_the_backward_phase_loads() -> None:
    costs = prepared(PhasedOptions(4, IoMode.COMPUTE), training=True)
    forward, backward = passes(costs, 0, 1)
    assert forward == (PhaseKind.FORWARD, 1, 4, 8, 10, 8 + 6, 3 + 14)
    assert backward == (PhaseKind.BACKWARD, 2, 8 + 6, 3 + 14, 20, 0, 0)
    assert passes(costs, 1, 2) == [(PhaseKind.BOTH, 2, 8, 11, 30, 8, 11)]


def test_recomputing_stores_the_inputs_from_the_host() -> None:
    options = PhasedOptions(4, IoMode.COMPUTE, recompute=True)
    forward, backward = passes(prepared(options, training=True), 0, 1)
    assert forward[5] == 8 + 4
    assert backward[2] == 8 + 4


def test_io_tiles_do_not_compute() -> None:
    assert passes(prepared(PhasedOptions(4, IoMode.IO, io_tiles=5)), 0, 1)[0][4] == 20
    assert passes(prepared(PhasedOptions(4, IoMode.IO, io_tiles=3)), 0, 1)[0][4] == 15  # 10 * 10 / 7, rounded up


def test_replicas_load_shards_and_gather_them() -> None:
    costs = prepared(PhasedOptions(4, IoMode.COMPUTE))
    layer = single_candidate(costs.table, 0, 1)
    variable_cycles = [int(costs.variable_cycles(layer.variable_bytes, n)[0]) for n in (1, 2)]
    assert variable_cycles == [3 + 20, (3 + 10) + (1 + 1)]
    loop_cycles = 4 * (8 + 10 + 11)
    assert costs.total_cycles(layer, [1, 2]).tolist() == [[loop_cycles + cycles] for cycles in variable_cycles]


@pytest.mark.parametrize(
    ("mode", "compute_bytes", "io_bytes"),
    [(IoMode.COMPUTE, 26 + 12, 0), (IoMode.IO, 26, 12), (IoMode.IO_OVERLAPPED, 26 + 12, 12)],
)
def test_buffers_lie_where_the_mode_puts_them(mode: IoMode, compute_bytes: int, io_bytes: int) -> None:
    costs = prepared(PhasedOptions(4, mode, io_tiles=2))
    candidate = single_candidate(costs.table, 0, 1)
    assert [int(n_bytes[0]) for n_bytes in costs.needed_bytes(candidate)] == [compute_bytes, io_bytes]
    assert costs.compute_limit_bytes + costs.io_limit_bytes == 100
    assert costs.io_limit_bytes == (0 if mode is IoMode.COMPUTE else 20)


def test_phases_that_the_cluster_cannot_run_are_refused() -> None:
    for options, message in [
        (PhasedOptions(4, n_replicas=3), "replicas must be at most 2 on c, got 3"),
        (PhasedOptions(4, io_tiles=10), "io_tiles must be below 10, the tiles of a d, got 10"),
    ]:
        with pytest.raises(BadInput, match=message):
            prepared(options)
