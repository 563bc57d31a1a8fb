"""Replicated tensor sharding: the collectives around loads and stores, with their bytes and cycles (seed 002)."""

from __future__ import annotations

from typing import NamedTuple

from autoauto.records.sharding import Sharding, shard_elements


class ShardedStep(NamedTuple):
    """One part of a sharded load or store, on each replica.

    Attributes:
        op: "remote_load", "all_gather", "reduce_scatter", "all_reduce", "slice" or "remote_store".
        streamed_bytes: from or to streaming memory.
        linked_bytes: over the links between replicas.
        cycles: how long it takes.
    """

    op: str
    streamed_bytes: int
    linked_bytes: int
    cycles: int


def sharded_load(n_elements: int, element_bytes: int, sharding: Sharding) -> tuple[ShardedStep, ...]:
    """Load a shard, gather the others.

    Raises:
        BadInput: the replicas do not divide the elements.

    >>> from autoauto.records.hardware import Link
    >>> four = Sharding(4, streaming=Link(1.0, 0), between=Link(10.0, 0), clock_hz=1.0)
    >>> for step in sharded_load(200, 2, four):
    ...     print(*step)
    remote_load 100 0 100
    all_gather 0 300 30
    """
    n_bytes = _whole_bytes(n_elements, element_bytes, sharding)
    load = _stream("remote_load", n_bytes, sharding)
    return (load,) if sharding.n_replicas == 1 else (load, _ring("all_gather", n_bytes, sharding, 1))


def sharded_store(
    n_elements: int, element_bytes: int, sharding: Sharding, *, groups_match: bool = True
) -> tuple[ShardedStep, ...]:
    """Sum over the replicas, store a shard of the sum.

    When the replicas that hold shards are those that are summed over, each gets no more than its shard of the sum;
    otherwise it gets all of it, twice the way round the ring, and takes its slice.

    Raises:
        BadInput: the replicas do not divide the elements.
    """
    n_bytes = _whole_bytes(n_elements, element_bytes, sharding)
    store = _stream("remote_store", n_bytes, sharding)
    if sharding.n_replicas == 1:
        return (store,)
    if groups_match:
        return (_ring("reduce_scatter", n_bytes, sharding, 1), store)
    return (_ring("all_reduce", n_bytes, sharding, 2), ShardedStep("slice", 0, 0, 0), store)


def _whole_bytes(n_elements: int, element_bytes: int, sharding: Sharding) -> int:
    return shard_elements(n_elements, sharding.n_replicas) * sharding.n_replicas * element_bytes


def _stream(op: str, n_bytes: int, sharding: Sharding) -> ShardedStep:
    return ShardedStep(op, sharding.shard_bytes(n_bytes), 0, sharding.streaming_cycles(n_bytes))


def _ring(op: str, n_bytes: int, sharding: Sharding, rounds: int) -> ShardedStep:
    return ShardedStep(op, 0, rounds * sharding.gather_bytes(n_bytes), rounds * sharding.gather_cycles(n_bytes))
