from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from autoauto.plan.pipeline.problem import check_memory, evaluate
from autoauto.records.costs.cost import CostTable
from autoauto.records.errors import BadInput, OutOfMemory
from autoauto.records.layers import LayerRange
from autoauto.records.plans.plan import Stage
from tests.cost_tables import one_clock

MakeTable = Callable[[int], CostTable]


def table_of(random_table: MakeTable, n_devices: int) -> CostTable:
    return next(t for t in map(random_table, range(999)) if t.n_devices == n_devices and t.n_layers >= n_devices + 2)


def test_every_stage_costs_what_the_table_says(random_table: MakeTable) -> None:
    table = table_of(random_table, 3)
    partition = (0, 2, 3, table.n_layers)
    plan = evaluate(table, partition)
    assert plan.partition == partition
    for device, stage in enumerate(plan.stages):
        start, stop = stage.layers
        assert stage.device == device
        assert stage.compute_cycles == table.compute_cycles(start, stop)
        assert stage.backward_cycles == table.backward_prefix_cycles[stop] - table.backward_prefix_cycles[start]
        assert stage.transfer_cycles == table.transfer_cycles(device, start, stop)
        assert stage.memory_bytes == table.memory_bytes(start, stop)
        assert stage.weight_cycles == 0
        assert stage.limit_bytes == table.memory_limit_bytes[device]
    assert plan.cost_cycles == max(s.compute_cycles for s in plan.stages) + max(s.transfer_cycles for s in plan.stages)


@pytest.mark.parametrize("partition", [(), (0,), (0, 1), (0, 2, 2, 5), (0, 3, 2, 5), (1, 2, 3, 5), (0, 1, 2, 99)])
def test_a_partition_that_is_not_ascending_boundaries_is_refused(
    random_table: MakeTable, partition: tuple[int, ...]
) -> None:
    with pytest.raises(BadInput, match="a partition for 3 devices needs 4 ascending boundaries from 0 to"):
        evaluate(table_of(random_table, 3), partition)


def test_a_stage_stashes_as_many_micro_batches_as_its_device(training_table: MakeTable) -> None:
    table = replace(one_clock(table_of(training_table, 3)), stash_entries=(2, 1, 0))
    stages = evaluate(table, (0, 2, 3, table.n_layers)).stages
    for stage, entries in zip(stages, (2, 1, 0), strict=True):
        start, stop = stage.layers
        assert stage.memory_bytes.get("stash", 0) == entries * table.memory.stash_entry.between(start, stop)
        assert stage.weight_cycles == table.weight_prefix_cycles[stop] - table.weight_prefix_cycles[start]


def stage(device: int, n_bytes: int) -> Stage:
    return Stage(LayerRange(device, device + 1), device, 1, 0, 0, 0, {"parameter": n_bytes}, 100)


def test_the_error_names_the_tightest_stage() -> None:
    check_memory([stage(0, 100), stage(1, 7)])
    with pytest.raises(OutOfMemory, match=r"layers \[1, 2\) need .* on device 1") as failure:
        check_memory([stage(0, 101), stage(1, 130), stage(2, 99)])
    assert (failure.value.excess_bytes, failure.value.memory_bytes) == (30, {"parameter": 130})
