"""Memory of a GPU of a group: weights, KV cache, activations, and what engine and libraries hold.

    limit >= weights + kv_factor * KV cache + activations + other

An engine takes a share of all memory (`kv_factor` 1), or for its KV cache a share of what the rest leaves free; or a
share for weights and KV cache alone, and the rest for the rest. Activations are those of the step that holds most:

    a step over as many tokens as may be       or       all sequences are sampled, each with logits of the vocabulary
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autoauto.engines.engine import Engine
from autoauto.records.costs.decoder import BlockPart, Decoder, WeightFormat
from autoauto.records.units import FloatArray, IntArray
from autoauto.targets.gpu.systems import GpuSystem
from autoauto.targets.gpu.tables import Serving

BF16_BYTES = 2
DEFAULT_SEQUENCES = 1024
"""The default maximum of sequences of engines on a large GPU."""
_WORKSPACES = 1.5
"""Copies of the inputs and outputs of experts that a GPU holds in a step (`studies/gpu_memory.py`)."""
_FP8 = (WeightFormat.FP8, WeightFormat.FP8_DYNAMIC, WeightFormat.FP8_BLOCK)


class MemoryRule(NamedTuple):
    """Memory of a GPU of a group besides weights and KV cache, and its limit, in bytes."""

    limit_bytes: float  # of all memory
    kv_factor: float  # bytes that count for a byte of KV cache
    activation_bytes: FloatArray  # of a step, by the number of sequences in flight
    other_bytes: float  # of libraries, groups and graphs

    @property
    def fixed_bytes(self) -> FloatArray:
        """Memory that does not depend on the stage, by the number of sequences in flight."""
        return np.asarray(np.floor(self.activation_bytes + self.other_bytes))

    def excess_bytes(self, weight_bytes: float, kv_bytes: float) -> FloatArray:
        """Bytes by which the limit is exceeded; below 0 if some are left."""
        return np.asarray(weight_bytes + self.kv_factor * kv_bytes + self.fixed_bytes - self.limit_bytes)

    def max_kv_bytes(self, weight_bytes: float) -> FloatArray:
        """The largest KV cache beside `weight_bytes` of weights; 0 if they do not fit."""
        return np.asarray(np.maximum(0.0, -self.excess_bytes(weight_bytes, 0.0)) / self.kv_factor)


def memory_rule(
    decoder: Decoder,
    serving: Serving,
    system: GpuSystem,
    engine: Engine,
    n_stages: int,
    n_max_batched_tokens: int,
    n_sequences: int | IntArray = DEFAULT_SEQUENCES,
) -> MemoryRule:
    """The rule of every GPU of a replica with so many sequences of a rank in flight."""
    n_gpus, held = serving.n_gpus, engine.memory
    memory = float(system.memory_bytes)
    share = held.share(system.memory_bytes, n_gpus, n_stages)
    activations = activation_bytes(decoder, serving, engine, n_max_batched_tokens, n_sequences)
    libraries = held.base_bytes
    graphs = held.graph_bytes * decoder.n_layers / n_stages
    if n_gpus > 1:
        libraries += held.group_bytes
        graphs *= 2
    rule = MemoryRule(memory * share, 1.0, activations, libraries + graphs)
    if held.is_of_free:
        return rule._replace(limit_bytes=memory, kv_factor=1 / share)
    if held.counts_activations:
        return rule
    # The share is for weights and KV cache alone; everything else is in the rest of the memory.
    of_both = share * (memory - libraries)
    return rule._replace(limit_bytes=min(memory, of_both + float(np.max(rule.fixed_bytes))))


def activation_bytes(
    decoder: Decoder, serving: Serving, engine: Engine, n_tokens: int, n_sequences: int | IntArray = DEFAULT_SEQUENCES
) -> FloatArray:
    """The activations of a step of at most `n_tokens` tokens on a GPU, of the shape of `n_sequences`."""
    held, n_gpus = engine.memory, serving.tensor_parallel
    of_tokens = BF16_BYTES * n_tokens * decoder.attention_size * held.activation_factor(n_gpus)
    largest = np.full(np.shape(n_sequences), float(max(of_tokens, held.min_activation_bytes)))
    if held.logit_bytes > 0:
        logits = held.logit_bytes * decoder.vocabulary_size * np.minimum(n_sequences, n_tokens)
        largest = np.maximum(largest, BF16_BYTES * n_tokens * decoder.hidden_size + logits)
    if decoder.experts is not None:
        # Inputs and outputs of experts: a token is there once for each of its experts, for products in fp8 in fp8, too.
        # Where ranks of the attention have tokens of their own, only those of one rank count: with those of all, less
        # fits than was measured (even rows of 4 to 8 ranks [inferencemax]).
        inside = decoder.experts.intermediate_size / serving.n_gpus
        n_bytes = BF16_BYTES * (max(decoder.hidden_size, 2 * inside) + inside)
        if serving.weights in _FP8:
            n_bytes += decoder.hidden_size + inside
        largest = largest + _WORKSPACES * n_tokens * decoder.experts.n_chosen * n_bytes
    return np.asarray(largest, dtype=np.float64)


def block_weight_bytes(decoder: Decoder, serving: Serving) -> float:
    """Weights of a block of the most frequent kind on a GPU.

    Matrices are in their formats, norms and the router of experts in bf16. Every rank of the attention has all its
    weights; experts are split or dealt among all GPUs of the group.
    """
    formats = decoder.part_formats(serving.weights)
    weights = decoder.part_weights(serving.tensor_parallel)
    if BlockPart.EXPERTS in weights:
        weights |= {BlockPart.EXPERTS: decoder.part_weights(serving.n_gpus)[BlockPart.EXPERTS]}
    matrices = sum(n * formats[part].n_bytes for part, n in weights.items())
    return matrices + BF16_BYTES * decoder.kind.unsplit_weights(decoder.hidden_size)


def table_bytes(decoder: Decoder, serving: Serving) -> float:
    """Bytes of the embedding, or of the head, on a GPU."""
    return BF16_BYTES * decoder.table_weights / serving.tensor_parallel


def block_cache_bytes(decoder: Decoder, serving: Serving, n_tokens: int) -> float:
    """Bytes of a sequence of `n_tokens` on a GPU in such a block: keys and values, latent vectors, or a state."""
    return decoder.kind.cached_bytes(serving.tensor_parallel, serving.kv_cache, n_tokens)
