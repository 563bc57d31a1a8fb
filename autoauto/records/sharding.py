"""Replicated tensor sharding (seed 002): replicas stream parts of a variable, links bring the rest: `Sharding`."""

from __future__ import annotations

from dataclasses import dataclass

from autoauto.records.errors import BadInput
from autoauto.records.hardware import Link


def shard_elements(n_elements: int, n_shards: int) -> int:
    """Elements of one shard.

    Raises:
        BadInput: the elements cannot be dealt out evenly.

    >>> shard_elements(12, 4)
    3
    """
    if n_shards < 1 or n_elements % n_shards:
        raise BadInput(
            f"a sharded tensor needs a number of elements that its shards divide, got {n_elements} elements for "
            f"{n_shards} shards; pad the tensor or try another number of replicas"
        )
    return n_elements // n_shards


@dataclass(frozen=True, slots=True)
class Sharding:
    """What loading and storing a variable costs each of `n_replicas` that hold a shard of it each.

    Collectives go round a ring: in every round each replica passes one shard on over its link to the next.

    Attributes:
        n_replicas: equal devices, each with data of its own; 1 for no sharding.
        streaming: the way between a device and its streaming memory.
        between: the link from replica to replica; unused for one.
        clock_hz: of the cycles.
    """

    n_replicas: int
    streaming: Link
    between: Link
    clock_hz: float

    def shard_bytes(self, n_bytes: int) -> int:
        """What one replica loads or stores; a planner's bytes need not divide evenly, so rounded up."""
        return -(-n_bytes // self.n_replicas)

    def streaming_cycles(self, n_bytes: int) -> int:
        """Cycles to load or store one shard; nothing for nothing."""
        return self.streaming.cycles(self.shard_bytes(n_bytes), self.clock_hz) if n_bytes else 0

    def gather_bytes(self, n_bytes: int) -> int:
        """What an all-gather brings to every replica over its link, or a reduce-scatter takes from it."""
        return (self.n_replicas - 1) * self.shard_bytes(n_bytes)

    def gather_cycles(self, n_bytes: int) -> int:
        """Cycles of an all-gather, and of a reduce-scatter: n_replicas - 1 rounds of one shard."""
        if not n_bytes:
            return 0
        return (self.n_replicas - 1) * self.between.cycles(self.shard_bytes(n_bytes), self.clock_hz)

    def load_cycles(self, n_bytes: int) -> int:
        """Load a shard, then all-gather.

        >>> link, fast = Link(1.0, 0), Link(10.0, 0)
        >>> Sharding(1, link, fast, 1.0).load_cycles(400), Sharding(4, link, fast, 1.0).load_cycles(400)
        (400, 130)
        """
        return self.streaming_cycles(n_bytes) + self.gather_cycles(n_bytes)

    def store_cycles(self, n_bytes: int, *, groups_match: bool = True) -> int:
        """Reduce-scatter, then store a shard; when groups differ, all-reduce (two rounds), take a slice, store it."""
        rounds = 1 if groups_match else 2
        return rounds * self.gather_cycles(n_bytes) + self.streaming_cycles(n_bytes)
