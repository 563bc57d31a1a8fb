"""From how many GPUs a decoder fits, or in which format, where it does not: `where_it_fits`.

A stage holds n blocks, and the first and the last a table more, so S stages of T GPUs fit where

    the blocks that fit beside a table, twice, and those that fit alone, S - 2 times, are all blocks or more
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from autoauto.engines.engine import Engine
from autoauto.engines.registry import engine_named
from autoauto.engines.rules import GroupSplit
from autoauto.records.costs.decoder import Decoder, WeightFormat, Workload
from autoauto.records.errors import Unsupported
from autoauto.targets.gpu.memory import block_kv_bytes, block_weight_bytes, memory_rule, table_bytes
from autoauto.targets.gpu.systems import GpuSystem
from autoauto.targets.gpu.tables import Serving, open_tables

_SMALLER = (WeightFormat.FP8, WeightFormat.NVFP4, WeightFormat.INT4)
_GROUPS = (1, 2, 4, 8)
_MAX_STAGES = 16
_MAX_STORED = 1024


class Need(NamedTuple):
    """What must fit.

    Attributes:
        decoder: what is served.
        serving: how, and by which engine.
        system: the GPUs.
        requests: that are answered.
        batch_size: sequences of a micro-batch.
        n_stages: of a pipeline.
        n_max_batched_tokens: of a step.
    """

    decoder: Decoder
    serving: Serving
    system: GpuSystem
    requests: Workload
    batch_size: int
    n_stages: int
    n_max_batched_tokens: int

    @property
    def n_gpus(self) -> int:
        """Of a replica."""
        return self.n_stages * self.serving.tensor_parallel

    @property
    def engine(self) -> Engine:
        """The serving engine."""
        return engine_named(self.serving.engine)

    @property
    def fits(self) -> bool:
        """Whether there are cuts with which every stage fits."""
        n_in_flight = self.batch_size * self.n_stages
        rule = memory_rule(
            *(self.decoder, self.serving, self.system, self.engine, self.n_stages),
            *(self.n_max_batched_tokens, n_in_flight),
        )
        table = table_bytes(self.decoder, self.serving)
        cache = block_kv_bytes(self.decoder, self.serving) * n_in_flight * self.requests.max_length
        block = block_weight_bytes(self.decoder, self.serving) + rule.kv_factor * cache
        free = rule.limit_bytes - rule.fixed_bytes.item()
        if self.n_stages == 1:
            n_tables = 1 if self.decoder.is_tied else 2
            return (free - n_tables * table) // block >= self.decoder.n_layers
        n_blocks = 2 * ((free - table) // block) + (self.n_stages - 2) * (free // block)
        return free - table >= block and n_blocks >= self.decoder.n_layers

    @property
    def is_taken(self) -> bool:
        """Whether the engine takes it, and its kernels were measured."""
        split = GroupSplit(self.serving.tensor_parallel, self.serving.expert_parallel)
        if self.engine.takes(self.decoder, split, self.serving.weights):
            return False
        try:
            open_tables(self.decoder, self.serving)
        except Unsupported:
            return False
        return True


@lru_cache(_MAX_STORED)
def where_it_fits(need: Need) -> str:
    """From how many GPUs on it fits, in which format it would on those given, or that fewer sequences do."""
    options, given = [], f"{need.n_gpus} GPU{'s' * (need.n_gpus > 1)}"
    if need.batch_size > 1 and need._replace(batch_size=1).fits:
        options.append("with a smaller batch_size")
    if more := _smallest(need):
        n = more.n_gpus
        groups = f"tensor_parallel {more.serving.tensor_parallel}"
        stages = f", {more.n_stages} stages" if more.n_stages > 1 else ""
        options.append(f"from {n} GPU{'s' * (n > 1)} of {need.system.name} on ({groups}{stages})")
    for weights in _SMALLER:
        smaller = need._replace(serving=need.serving._replace(weights=weights))
        if weights.n_bytes < need.serving.weights.n_bytes and smaller.fits and smaller.is_taken:
            options.append(f"in {weights} on {given}")
            break
    if not options:
        return f"it fits no replica of up to {_GROUPS[-1] * _MAX_STAGES} GPUs of {need.system.name}; try fewer tokens"
    return f"it fits {', or '.join(options)}"


def _smallest(need: Need) -> Need | None:
    """The fewest GPUs of a replica, with the fewest stages."""
    shapes = [
        (n_stages * n_gpus, n_stages, n_gpus)
        for n_gpus in _GROUPS
        for n_stages in range(1, min(_MAX_STAGES, need.decoder.n_layers) + 1)
        if n_gpus <= need.system.n_gpus_per_node
    ]
    for _, n_stages, n_gpus in sorted(shapes):
        expert_parallel = min(need.serving.expert_parallel, n_gpus)
        serving = need.serving._replace(tensor_parallel=n_gpus, expert_parallel=expert_parallel)
        larger = need._replace(serving=serving, n_stages=n_stages)
        if larger.fits and larger.is_taken:
            return larger
    return None
