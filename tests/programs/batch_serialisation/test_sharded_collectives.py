import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoauto.programs.batch_serialisation.sharded_collectives import (
    ShardedStep,
    Sharding,
    shard_elements,
    sharded_load,
    sharded_store,
)
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Link


def sharding(n_replicas: int, idle_cycles: int = 0) -> Sharding:
    return Sharding(n_replicas, Link(1.0, idle_cycles), Link(8.0, idle_cycles), 1.0)


STREAMING, BETWEEN = Link(1.0, 5), Link(10.0, 2)


def fast_sharding(n_replicas: int) -> Sharding:
    return Sharding(n_replicas, STREAMING, BETWEEN, 1.0)


def test_one_replica_streams_everything() -> None:
    single = sharding(1, 5)
    assert (single.load_cycles(100), single.store_cycles(100), single.gather_bytes(100)) == (105, 105, 0)


def test_four_replicas_stream_a_quarter_and_pass_three_on() -> None:
    four = sharding(4, 5)
    assert (four.shard_bytes(160), four.gather_bytes(160)) == (40, 120)
    assert four.load_cycles(160) == (5 + 40) + 3 * (5 + 5)
    assert four.store_cycles(160, groups_match=False) == (5 + 40) + 6 * (5 + 5)


def test_zero_bytes_take_no_time() -> None:
    assert sharding(4, 5).load_cycles(0) == sharding(4, 5).store_cycles(0) == 0


@given(st.integers(1, 16), st.integers(0, 10**6))
def test_replicas_receive_everything_between_them(n_replicas: int, n_bytes: int) -> None:
    shards = sharding(n_replicas)
    received = shards.shard_bytes(n_bytes) + shards.gather_bytes(n_bytes)
    assert n_bytes <= received < n_bytes + n_replicas


@pytest.mark.parametrize("n_shards", [0, 5])
def test_shards_are_equal(n_shards: int) -> None:
    assert shard_elements(12, 4) == 3
    with pytest.raises(BadInput, match=f"got 12 elements for {n_shards} shards"):
        shard_elements(12, n_shards)


def test_a_load_streams_a_shard_and_gathers_three() -> None:
    assert sharded_load(400, 2, fast_sharding(4)) == (
        ShardedStep("remote_load", 200, 0, 5 + 200),
        ShardedStep("all_gather", 0, 600, 3 * (2 + 20)),
    )


def test_a_store_reduces_to_a_shard() -> None:
    assert sharded_store(400, 2, fast_sharding(4)) == (
        ShardedStep("reduce_scatter", 0, 600, 66),
        ShardedStep("remote_store", 200, 0, 205),
    )


def test_other_groups_reduce_everything_and_take_a_slice() -> None:
    steps = sharded_store(400, 2, fast_sharding(4), groups_match=False)
    assert [step.op for step in steps] == ["all_reduce", "slice", "remote_store"]
    assert (steps[0].linked_bytes, steps[0].cycles) == (1200, 132)


def test_one_replica_only_streams() -> None:
    assert sharded_load(400, 2, fast_sharding(1)) == (ShardedStep("remote_load", 800, 0, 805),)
    assert [step.op for step in sharded_store(400, 2, fast_sharding(1))] == ["remote_store"]


@pytest.mark.parametrize("groups_match", [True, False])
@pytest.mark.parametrize("n_replicas", [1, 2, 4])
def test_the_parts_add_up(n_replicas: int, groups_match: bool) -> None:
    shards = fast_sharding(n_replicas)
    assert sum(step.cycles for step in sharded_load(400, 2, shards)) == shards.load_cycles(800)
    stored = sharded_store(400, 2, shards, groups_match=groups_match)
    assert sum(step.cycles for step in stored) == shards.store_cycles(800, groups_match=groups_match)


def test_elements_must_be_dealt_out_evenly() -> None:
    with pytest.raises(BadInput, match="got 401 elements for 4 shards"):
        sharded_load(401, 2, fast_sharding(4))
