"""From how many GPUs a decoder fits, or in which format, where it does not: `where_it_fits`.

A stage holds n blocks, and the first and the last a table more, so S stages of T GPUs fit where

    the blocks that fit beside a table, twice, and those that fit alone, S - 2 times, are all blocks or more
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np

from autoauto.engines.engine import Engine
from autoauto.engines.registry import engine_named
from autoauto.records.costs.decoder import Decoder, WeightFormat, Workload
from autoauto.records.errors import Unsupported
from autoauto.targets.gpu.memory import block_cache_bytes, block_weight_bytes, memory_rule, table_bytes
from autoauto.targets.gpu.systems import GpuSystem
from autoauto.targets.gpu.tables import Serving, open_tables

_SMALLER = (WeightFormat.FP8, WeightFormat.NVFP4, WeightFormat.INT4)
_GROUPS = (1, 2, 4, 8)
_MAX_STAGES = 16
_MAX_STORED = 1024


class Need(NamedTuple):
    """A configuration whose model must fit its GPUs; `batch_size` is of a micro-batch."""

    decoder: Decoder
    serving: Serving
    system: GpuSystem
    requests: Workload
    batch_size: int
    n_stages: int
    n_max_batched_tokens: int

    @property
    def n_gpus(self) -> int:
        """GPUs of a replica."""
        return self.n_stages * self.serving.n_gpus

    @property
    def engine(self) -> Engine:
        """The serving engine."""
        return engine_named(self.serving.engine)

    @property
    def fits(self) -> bool:
        """Whether there are cuts with which every stage fits."""
        n_in_flight = self.serving.split.of_rank(np.array(self.batch_size)).item() * self.n_stages
        rule = memory_rule(
            self.decoder,
            self.serving,
            self.system,
            self.engine,
            self.n_stages,
            self.n_max_batched_tokens,
            n_in_flight * self.requests.speculation.step_tokens,
        )
        table = table_bytes(self.decoder, self.serving)
        kinds: list[float] = []
        for alike in self.decoder.by_kind:
            cache = block_cache_bytes(alike, self.serving, self.requests.max_length) * n_in_flight
            kinds.append(block_weight_bytes(alike, self.serving) + rule.kv_factor * cache)
        blocks = [kinds[kind] for kind in self.decoder.block_order]
        free = rule.limit_bytes - rule.fixed_bytes.item()
        if self.n_stages == 1:  # which has both tables, or one that is tied
            n_tables = 1 if self.decoder.is_tied else 2
            return free - n_tables * table >= sum(blocks)
        # Every stage takes as many of the blocks that are left as it can: then the last one has the fewest.
        for stage in range(self.n_stages):
            left = free
            if stage in (0, self.n_stages - 1):
                left -= table
            most = len(blocks) - (self.n_stages - 1 - stage)  # one at least for each of the others
            n_blocks = 0
            while n_blocks < most and left >= blocks[n_blocks]:
                left -= blocks[n_blocks]
                n_blocks += 1
            if not n_blocks:
                return False
            blocks = blocks[n_blocks:]
        return not blocks

    @property
    def is_taken(self) -> bool:
        """Whether the engine takes it, and its kernels were measured."""
        if self.engine.takes(self.decoder, self.serving.split, self.serving.weights):
            return False
        try:
            open_tables(self.decoder, self.serving)
        except Unsupported:
            return False
        return True


@lru_cache(_MAX_STORED)
def where_it_fits(need: Need) -> str:
    """From how many GPUs on it fits, in which format it would on those given, or that fewer sequences do."""
    options: list[str] = []
    if need.batch_size > 1 and need._replace(batch_size=1).fits:
        options.append("with a smaller batch_size")
    if more := _smallest(need):
        shape = f"tensor_parallel {more.serving.tensor_parallel}"
        if more.n_stages > 1:
            shape += f", {more.n_stages} stages"
        options.append(f"from {_gpus(more)} of {need.system.name} on ({shape})")
    for weights in _SMALLER:
        smaller = need._replace(serving=need.serving._replace(weights=weights))
        if weights.n_bytes < need.serving.weights.n_bytes and smaller.fits and smaller.is_taken:
            options.append(f"in {weights} on {_gpus(need)}")
            break
    if not options:
        return f"it fits no replica of up to {_GROUPS[-1] * _MAX_STAGES} GPUs of {need.system.name}; try fewer tokens"
    return f"it fits {', or '.join(options)}"


def _gpus(need: Need) -> str:
    return "1 GPU" if need.n_gpus == 1 else f"{need.n_gpus} GPUs"


def _smallest(need: Need) -> Need | None:
    most_stages = min(_MAX_STAGES, need.decoder.n_layers)
    if need.requests.speculation.draft_tokens:
        most_stages = 1  # a pipeline does not draft
    size = need.system.n_gpus_per_node
    shapes: list[tuple[int, int, int]] = []
    for n_gpus, n_stages in product(_GROUPS, range(1, most_stages + 1)):
        n_all = n_stages * n_gpus
        if n_gpus <= size and (n_all <= size or n_all % size == 0):  # a replica is in one node or in whole ones
            shapes.append((n_all, n_stages, n_gpus))
    for _, n_stages, n_gpus in sorted(shapes):
        expert_parallel = 1
        if need.serving.expert_parallel > 1:  # among as many as the engine can, in a group of this size
            expert_parallel = max(n for n in need.engine.launcher.placing.experts_among(n_gpus) if n <= n_gpus)
        serving = need.serving._replace(
            tensor_parallel=n_gpus, expert_parallel=expert_parallel, attention_data_parallel=1
        )
        larger = need._replace(serving=serving, n_stages=n_stages)
        if larger.fits and larger.is_taken:
            return larger
    return None
