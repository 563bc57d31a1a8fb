"""Memory of a GPU of a group: weights, KV cache, activations, and what engine and libraries hold [aiconfigurator].

    limit >= weights + kv_factor * KV cache + activations + workspace + other

An engine takes a share of all memory (`kv_factor` 1), or for its KV cache a share of what the rest leaves free; or a
share for weights and KV cache alone, and the rest for the rest.
"""

from __future__ import annotations

from typing import NamedTuple

from autoauto.engines.engine import Engine
from autoauto.records.costs.decoder import Decoder
from autoauto.targets.gpu.systems import GpuSystem
from autoauto.targets.gpu.tables import Serving

BF16_BYTES = 2


class MemoryRule(NamedTuple):
    """What a GPU of a group holds besides weights and KV cache, and how much it may hold.

    Attributes:
        limit_bytes: of all.
        kv_factor: bytes that count for a byte of KV cache.
        activation_bytes: of a step.
        workspace_bytes: of NCCL.
        other_bytes: of CUDA and libraries.
    """

    limit_bytes: float
    kv_factor: float
    activation_bytes: float
    workspace_bytes: float
    other_bytes: float

    @property
    def fixed_bytes(self) -> float:
        """What does not depend on the stage."""
        return self.activation_bytes + self.workspace_bytes + self.other_bytes

    def excess_bytes(self, weight_bytes: float, kv_bytes: float) -> float:
        """How many bytes are missing; below 0 what is left."""
        return weight_bytes + self.kv_factor * kv_bytes + self.fixed_bytes - self.limit_bytes

    def max_kv_bytes(self, weight_bytes: float) -> float:
        """The largest KV cache beside so many weights; 0 where they do not fit."""
        return max(0.0, -self.excess_bytes(weight_bytes, 0.0)) / self.kv_factor


def memory_rule(
    decoder: Decoder,
    serving: Serving,
    system: GpuSystem,
    engine: Engine,
    n_stages: int,
    n_max_batched_tokens: int,
) -> MemoryRule:
    """The rule of every GPU of a replica."""
    n_gpus, memory, held = serving.tensor_parallel, float(system.memory_bytes), engine.memory
    share = held.share(system.memory_bytes, n_gpus, n_stages)
    of_all = MemoryRule(
        limit_bytes=memory if held.is_of_free else memory * share,
        kv_factor=1 / share if held.is_of_free else 1.0,
        activation_bytes=activation_bytes(decoder, serving, engine, n_max_batched_tokens),
        workspace_bytes=system.nccl_bytes_of(n_gpus),
        other_bytes=system.other_bytes * (1 + held.other_overhead),
    )
    if held.counts_activations:
        return of_all
    return of_all._replace(limit_bytes=min(memory, of_all.limit_bytes + of_all.fixed_bytes))


def activation_bytes(decoder: Decoder, serving: Serving, engine: Engine, n_tokens: int) -> float:
    """What a step of so many tokens holds on a GPU."""
    memory = engine.memory
    factor = memory.activation_factor(serving.tensor_parallel) * (1 if decoder.experts is None else 2)
    n_bytes = BF16_BYTES * n_tokens * decoder.attention_size * factor
    return max(n_bytes, memory.min_activation_bytes) * (1 + memory.activation_overhead)


def block_weight_bytes(decoder: Decoder, serving: Serving) -> float:
    """Weights of one block on a GPU: matrices in their formats, norms and the router of experts in bf16."""
    formats = decoder.part_formats(serving.weights)
    matrices = sum(n * formats[part].n_bytes for part, n in decoder.part_weights(serving.tensor_parallel).items())
    router = 0 if decoder.experts is None else decoder.hidden_size * decoder.experts.n_experts
    return matrices + BF16_BYTES * (2 * decoder.hidden_size + router)


def table_bytes(decoder: Decoder, serving: Serving) -> float:
    """The embedding, or the head, on a GPU."""
    return BF16_BYTES * decoder.table_weights / serving.tensor_parallel


def block_kv_bytes(decoder: Decoder, serving: Serving) -> float:
    """Keys and values of one token in one block on a GPU."""
    return decoder.kv_elements(serving.tensor_parallel) * serving.kv_cache.n_bytes
