import pytest

from autoauto.records.errors import BadInput
from autoauto.records.hardware import Link
from autoauto.records.sharding import Sharding
from autoauto.schedule.rts import ShardedStep, sharded_load, sharded_store

STREAMING, BETWEEN = Link(1.0, 5), Link(10.0, 2)


def sharding(n_replicas: int) -> Sharding:
    return Sharding(n_replicas, STREAMING, BETWEEN, 1.0)


def test_a_load_streams_a_shard_and_gathers_three() -> None:
    assert sharded_load(400, 2, sharding(4)) == (
        ShardedStep("remote_load", 200, 0, 5 + 200),
        ShardedStep("all_gather", 0, 600, 3 * (2 + 20)),
    )


def test_a_store_reduces_to_a_shard() -> None:
    assert sharded_store(400, 2, sharding(4)) == (
        ShardedStep("reduce_scatter", 0, 600, 66),
        ShardedStep("remote_store", 200, 0, 205),
    )


def test_other_groups_reduce_everything_and_take_a_slice() -> None:
    steps = sharded_store(400, 2, sharding(4), groups_match=False)
    assert [step.op for step in steps] == ["all_reduce", "slice", "remote_store"]
    assert (steps[0].linked_bytes, steps[0].cycles) == (1200, 132)


def test_one_replica_only_streams() -> None:
    assert sharded_load(400, 2, sharding(1)) == (ShardedStep("remote_load", 800, 0, 805),)
    assert [step.op for step in sharded_store(400, 2, sharding(1))] == ["remote_store"]


@pytest.mark.parametrize("groups_match", [True, False])
@pytest.mark.parametrize("n_replicas", [1, 2, 4])
def test_the_parts_add_up(n_replicas: int, groups_match: bool) -> None:
    given = sharding(n_replicas)
    assert sum(step.cycles for step in sharded_load(400, 2, given)) == given.load_cycles(800)
    stored = sharded_store(400, 2, given, groups_match=groups_match)
    assert sum(step.cycles for step in stored) == given.store_cycles(800, groups_match=groups_match)


def test_elements_must_be_dealt_out_evenly() -> None:
    with pytest.raises(BadInput, match="got 401 elements for 4 shards"):
        sharded_load(401, 2, sharding(4))
