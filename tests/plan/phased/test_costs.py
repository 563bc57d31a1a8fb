from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from autoauto.plan.phased.costs import Pass, PhaseCosts, one_range, prepare_phases, ranges
from autoauto.records.cost import CostTable
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, Device, Link, StreamingMemory
from autoauto.records.phased import IoMode, PhasedOptions, PhaseKind
from autoauto.records.profile import CompileOptions, LayerProfile, ModelProfile
from autoauto.records.units import Precision


@pytest.mark.parametrize("seed", range(40))
def test_ranges_are_those_of_the_table_and_none_within_the_limit_is_missing(
    training_table: Callable[[int], CostTable], seed: int
) -> None:
    table = training_table(seed)
    keys = ("parameter", "code") * len(table.shared_bytes)
    table = replace(
        table.part(0, 1),
        stash_entries=(0,),
        recompute_bytes=np.zeros(0, dtype=np.int64),
        shared_categories=keys[: len(table.shared_bytes)],
    )
    limit = int(table.memory_limit_bytes[0])
    found = {}
    for candidates in ranges(table, limit):
        columns = (candidates.starts, candidates.base_bytes, candidates.variable_bytes)
        for start, base, variables in zip(*(column.tolist() for column in columns), strict=True):
            found[start, candidates.stop] = (base, variables)
    expected = {}
    for stop in range(1, table.n_layers + 1):
        for start in range(stop):
            memory = table.memory_bytes(start, stop)
            if sum(memory.values()) <= limit:
                expected[start, stop] = (sum(memory.values()), memory.get("parameter", 0))
                single = one_range(table, start, stop)
                assert (int(single.base_bytes[0]), int(single.variable_bytes[0])) == expected[start, stop]
    assert found == expected


HOST, BETWEEN = Link(0.5, 0), Link(10.0, 1)
CLUSTER = Cluster(
    "c", "ipu", (Device("d", 1.0, 100, 10, 10),) * 2, (HOST, BETWEEN), (BETWEEN, HOST), StreamingMemory(1.0, 3, 1000)
)


def prepared(options: PhasedOptions, *, training: bool = False) -> PhaseCosts:
    """Each layer: 20 bytes of variables, 10 cycles forward (and 20 backward), keeps 6 bytes; 4, 8, 2 bytes around."""
    n = training + 0
    table = CostTable(
        compute_prefix_cycles=np.array([0, 10, 20]) * (1 + 2 * n),
        backward_prefix_cycles=np.array([0, 20, 40]) * n,
        exclusive_prefix_bytes={"parameter": np.array([0, 20, 40]), "code": np.array([0, 1, 2])},
        shared_keys=((), ()),
        shared_bytes=(),
        shared_categories=(),
        peak_bytes=np.array([5, 5]),
        activation_prefix_bytes=np.array([0, 6, 12]) * n,
        receive_cycles=np.zeros((1, 2), dtype=np.int64),
        send_cycles=np.zeros((1, 3), dtype=np.int64),
        cut_allowed=np.ones(3, dtype=np.bool_),
        memory_limit_bytes=np.array([100]),
    )
    layers = tuple(LayerProfile(10, 20, {}, {}, 5, 0, *moved, 6) for moved in ((4, 8), (8, 2)))
    how = CompileOptions(1, 0.6, Precision.FP16, training)
    profile = ModelProfile("m", "t", how, ("a", "b"), ("a", "b"), (None, None), layers)
    return prepare_phases(table, profile, CLUSTER, options)


def written(made: Pass) -> tuple[object, ...]:
    return (made.kind, *(int(column[0]) for column in made[1:]))


def passes(costs: PhaseCosts, start: int, stop: int) -> list[tuple[object, ...]]:
    return [written(made) for made in costs.passes(one_range(costs.table, start, stop))]


def test_inference_reads_from_the_host_first_and_writes_to_it_last() -> None:
    costs = prepared(PhasedOptions(4, IoMode.COMPUTE))
    # variables 3 + 20; from the host 4 / 0.5; to streaming memory 3 + 8
    assert passes(costs, 0, 1) == [(PhaseKind.FORWARD, 23, 4, 8, 10, 8, 11)]
    assert passes(costs, 1, 2) == [(PhaseKind.FORWARD, 23, 8, 11, 10, 2, 4)]


def test_training_keeps_what_backward_loads() -> None:
    costs = prepared(PhasedOptions(4, IoMode.COMPUTE), training=True)
    forward, backward = passes(costs, 0, 1)
    assert forward == (PhaseKind.FORWARD, 23, 4, 8, 10, 8 + 6, 3 + 14)
    assert backward == (PhaseKind.BACKWARD, 46, 8 + 6, 3 + 14, 20, 0, 0)
    assert passes(costs, 1, 2) == [(PhaseKind.BOTH, 46, 8, 11, 30, 8, 11)]


def test_recomputing_keeps_what_the_host_gave() -> None:
    options = PhasedOptions(4, IoMode.COMPUTE, recompute=True)
    forward, backward = passes(prepared(options, training=True), 0, 1)
    assert forward[5] == 8 + 4
    assert backward[2] == 8 + 4


def test_io_tiles_compute_nothing() -> None:
    assert passes(prepared(PhasedOptions(4, IoMode.IO, io_tiles=5)), 0, 1)[0][4] == 20
    assert passes(prepared(PhasedOptions(4, IoMode.IO, io_tiles=3)), 0, 1)[0][4] == 15  # 10 * 10 / 7, rounded up


def test_replicas_load_shards_and_gather_them() -> None:
    costs = prepared(PhasedOptions(4, IoMode.COMPUTE, n_replicas=2))
    assert passes(costs, 0, 1)[0][1] == (3 + 10) + (1 + 1)


@pytest.mark.parametrize(
    ("mode", "compute_bytes", "io_bytes"),
    [(IoMode.COMPUTE, 26 + 12, 0), (IoMode.IO, 26, 12), (IoMode.IO_OVERLAPPED, 26 + 12, 12)],
)
def test_buffers_lie_where_the_mode_puts_them(mode: IoMode, compute_bytes: int, io_bytes: int) -> None:
    costs = prepared(PhasedOptions(4, mode, io_tiles=2))
    found = one_range(costs.table, 0, 1)
    assert (int(costs.compute_bytes(found)[0]), int(costs.io_bytes(found)[0])) == (compute_bytes, io_bytes)
    assert costs.compute_limit_bytes + costs.io_limit_bytes == 100
    assert costs.io_limit_bytes == (0 if mode is IoMode.COMPUTE else 20)


def test_what_cannot_run_is_refused() -> None:
    for options, told in [
        (PhasedOptions(4, n_replicas=3), "replicas must be at most 2 on c, got 3"),
        (PhasedOptions(4, io_tiles=10), "io_tiles must be below 10, the tiles of a d, got 10"),
    ]:
        with pytest.raises(BadInput, match=told):
            prepared(options)
