"""Replicated tensor sharding [popxl-phased], `Sharding`: replicas stream shards of a variable, links bring the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from autoauto.records.errors import BadInput
from autoauto.records.hardware import Link


def shard_elements(n_elements: int, n_shards: int) -> int:
    """Elements of one shard. Raises BadInput if the elements cannot be dealt out evenly."""
    if n_shards < 1 or n_elements % n_shards:
        raise BadInput(
            f"a sharded tensor needs a number of elements that its shards divide, got {n_elements} elements for "
            f"{n_shards} shards; pad the tensor or try another number of replicas"
        )
    return n_elements // n_shards


@dataclass(frozen=True, slots=True)
class Sharding:
    """The cost of loading and storing a variable on each of `n_replicas`, which hold a shard of it each.

    Collectives go round a ring: in every round each replica passes one shard on over its link to the next.

    Attributes:
        n_replicas: equal devices, each with its own data; 1 for no sharding.
        streaming: the link between a device and its streaming memory.
        between: the link from replica to replica; unused for one.
    """

    n_replicas: int
    streaming: Link
    between: Link
    clock_hz: float

    def shard_bytes(self, n_bytes: int) -> int:
        """Bytes that one replica loads or stores, rounded up, as a planner's bytes need not divide evenly."""
        return -(-n_bytes // self.n_replicas)

    def streaming_cycles(self, n_bytes: int) -> int:
        """Cycles to load or store one shard; 0 for 0 bytes."""
        return self.streaming.load_cycles(self.shard_bytes(n_bytes), self.clock_hz)

    def gather_bytes(self, n_bytes: int) -> int:
        """Bytes that an all-gather brings to every replica over its link, or that a reduce-scatter takes from it."""
        return (self.n_replicas - 1) * self.shard_bytes(n_bytes)

    def gather_cycles(self, n_bytes: int) -> int:
        """Cycles of an all-gather, and of a reduce-scatter: n_replicas - 1 rounds of one shard."""
        return (self.n_replicas - 1) * self.between.load_cycles(self.shard_bytes(n_bytes), self.clock_hz)

    def load_cycles(self, n_bytes: int) -> int:
        """Load a shard, then all-gather."""
        return self.streaming_cycles(n_bytes) + self.gather_cycles(n_bytes)

    def store_cycles(self, n_bytes: int, *, groups_match: bool = True) -> int:
        """Reduce-scatter, then store a shard; when groups differ, all-reduce (two rounds), take a slice, store it."""
        rounds = 1 if groups_match else 2
        return rounds * self.gather_cycles(n_bytes) + self.streaming_cycles(n_bytes)


class ShardedStep(NamedTuple):
    """One part of a sharded load or store, on each replica.

    Attributes:
        op: "remote_load", "all_gather", "reduce_scatter", "all_reduce", "slice" or "remote_store".
        streamed_bytes: from or to streaming memory.
        linked_bytes: over the links between replicas.
    """

    op: str
    streamed_bytes: int
    linked_bytes: int
    cycles: int


def sharded_load(n_elements: int, element_bytes: int, sharding: Sharding) -> tuple[ShardedStep, ...]:
    """Load a shard, gather the others. Raises BadInput if the replicas do not divide the elements."""
    n_bytes = shard_elements(n_elements, sharding.n_replicas) * sharding.n_replicas * element_bytes
    load = _stream("remote_load", n_bytes, sharding)
    return (load,) if sharding.n_replicas == 1 else (load, _ring("all_gather", n_bytes, sharding, 1))


def sharded_store(
    n_elements: int, element_bytes: int, sharding: Sharding, *, groups_match: bool = True
) -> tuple[ShardedStep, ...]:
    """Sum over the replicas, store a shard of the sum.

    When the replicas that hold shards are those that are summed over, each gets no more than its shard of the sum;
    otherwise it gets all of it, twice the way round the ring, and takes its slice. Raises BadInput if the replicas do
    not divide the elements.
    """
    n_bytes = shard_elements(n_elements, sharding.n_replicas) * sharding.n_replicas * element_bytes
    store = _stream("remote_store", n_bytes, sharding)
    if sharding.n_replicas == 1:
        return (store,)
    if groups_match:
        return (_ring("reduce_scatter", n_bytes, sharding, 1), store)
    return (_ring("all_reduce", n_bytes, sharding, 2), ShardedStep("slice", 0, 0, 0), store)


def _stream(op: str, n_bytes: int, sharding: Sharding) -> ShardedStep:
    return ShardedStep(op, sharding.shard_bytes(n_bytes), 0, sharding.streaming_cycles(n_bytes))


def _ring(op: str, n_bytes: int, sharding: Sharding, rounds: int) -> ShardedStep:
    return ShardedStep(op, 0, rounds * sharding.gather_bytes(n_bytes), rounds * sharding.gather_cycles(n_bytes))
