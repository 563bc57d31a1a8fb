import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoauto.records.errors import BadInput
from autoauto.records.hardware import Link
from autoauto.records.sharding import Sharding, shard_elements


def sharding(n_replicas: int, idle_cycles: int = 0) -> Sharding:
    return Sharding(n_replicas, Link(1.0, idle_cycles), Link(8.0, idle_cycles), 1.0)


def test_one_replica_streams_everything() -> None:
    one = sharding(1, 5)
    assert (one.load_cycles(100), one.store_cycles(100), one.gather_bytes(100)) == (105, 105, 0)


def test_four_replicas_stream_a_quarter_and_pass_three_on() -> None:
    four = sharding(4, 5)
    assert (four.shard_bytes(160), four.gather_bytes(160)) == (40, 120)
    assert four.load_cycles(160) == (5 + 40) + 3 * (5 + 5)
    assert four.store_cycles(160, groups_match=False) == (5 + 40) + 6 * (5 + 5)


def test_nothing_takes_no_time() -> None:
    assert sharding(4, 5).load_cycles(0) == sharding(4, 5).store_cycles(0) == 0


@given(st.integers(1, 16), st.integers(0, 10**6))
def test_replicas_receive_everything_between_them(n_replicas: int, n_bytes: int) -> None:
    given_sharding = sharding(n_replicas)
    received = given_sharding.shard_bytes(n_bytes) + given_sharding.gather_bytes(n_bytes)
    assert n_bytes <= received < n_bytes + n_replicas


@pytest.mark.parametrize("n_shards", [0, 5])
def test_shards_are_equal(n_shards: int) -> None:
    assert shard_elements(12, 4) == 3
    with pytest.raises(BadInput, match=f"got 12 elements for {n_shards} shards"):
        shard_elements(12, n_shards)
