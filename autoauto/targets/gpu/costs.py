"""The costs of every layer of a decoder on a GPU of a group, at many batch sizes: `layer_costs`.

embedding ── block 0 ── ... ── block n-1 ── norm ── head          one row a layer, one column a batch size

Blocks of a kind have the same row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from autoauto.engines.engine import Engine
from autoauto.records.costs.blocks import Attention, LatentAttention
from autoauto.records.costs.decoder import Decoder, Workload
from autoauto.records.errors import Unsupported
from autoauto.records.units import FloatArray, IntArray
from autoauto.targets.gpu.memory import BF16_BYTES, block_cache_bytes, block_weight_bytes, table_bytes
from autoauto.targets.gpu.systems import GpuSystem, check_group
from autoauto.targets.gpu.tables import KernelTables, Serving, Times, open_tables

_ROWS_OF_A_READ = 64
"""Rows of a product of matrices of a group of warps on H100, the smallest that attention is computed by."""


class DecoderCosts(NamedTuple):
    """Costs of the layers of a decoder on one GPU of a group.

    Attributes:
        decode_s: time of a decode step of b sequences, shape (layers, batch sizes); 0 where answers have one token.
        prompt_s: time that one prompt adds to the steps that compute it, of the same shape.
        weight_bytes: shape (layers,). Embedding and head count twice if they are one matrix: the last stage has a copy.
        cache_bytes: cache of one sequence when it ends, shape (layers,).
        send_bytes: bytes from every GPU of a stage to the next: b hidden vectors and their share of prompts, shape
            (batch sizes,).
        is_tied: whether embedding and head are one matrix.
        order: the number of the kind of every block.
    """

    decode_s: FloatArray
    prompt_s: FloatArray
    weight_bytes: FloatArray
    cache_bytes: FloatArray
    send_bytes: FloatArray
    is_tied: bool
    order: tuple[int, ...]


def layer_costs(
    decoder: Decoder,
    serving: Serving,
    system: GpuSystem,
    engine: Engine,
    requests: Workload,
    n_sequences: IntArray,
    n_max_batched_tokens: int,
) -> DecoderCosts:
    """The costs of every layer at every batch size b of `n_sequences`, the sequences of a rank of the attention.

    Raises:
        MissingExtra: the package of measured times is not installed.
        Unsupported: the group cannot split the model, does not fit a node, or there are no times.
    """
    check_group(system, engine, serving.split)
    check_length(decoder, requests)
    b = np.asarray(n_sequences, dtype=np.int64)
    if reason := engine.takes(decoder, serving.split, serving.weights):
        raise Unsupported(reason)
    draft = requests.speculation
    # The prompt gives the first token of an answer, and the draft model takes its share of every step.
    n_steps = 0.0 if requests.output_tokens == 1 else 1 + draft.draft_cost
    decodes: list[Times] = []
    prompts: list[Times] = []
    weight_bytes: list[float] = []
    cache_bytes: list[float] = []
    for alike, of_kind in serving_by_kind(decoder, serving):
        tables = open_tables(alike, of_kind)
        reads = attention_reads(alike, of_kind, draft.step_tokens)
        attention = tables.decode_attention(b, requests.mean_length) * reads
        decode = tables.decode_tokens(b * draft.step_tokens)
        decode = decode._replace(block=decode.block + attention)
        decodes.append(Times(*(seconds * n_steps for seconds in decode)))
        prompts.append(_prompt(tables, engine, requests, b, n_max_batched_tokens))
        weight_bytes.append(block_weight_bytes(alike, of_kind))
        cache_bytes.append(block_cache_bytes(alike, of_kind, requests.max_length))
    order, table = decoder.block_order, table_bytes(decoder, serving)
    # Hidden vectors of b sequences, and of the prompts that a step has in the mean.
    n_sent = b * (draft.step_tokens + requests.computed_tokens / requests.n_steps)
    return DecoderCosts(
        decode_s=_rows([decodes[kind] for kind in order]),
        prompt_s=_rows([prompts[kind] for kind in order]),
        weight_bytes=np.array([table, *(weight_bytes[kind] for kind in order), 0.0, table]),
        cache_bytes=np.array([0.0, *(cache_bytes[kind] for kind in order), 0.0, 0.0]),
        send_bytes=np.asarray(n_sent * decoder.hidden_size * BF16_BYTES, dtype=np.float64),
        is_tied=decoder.is_tied,
        order=order,
    )


def serving_by_kind(decoder: Decoder, serving: Serving) -> list[tuple[Decoder, Serving]]:
    """For every kind of block: the decoder if all blocks were of this kind, and how a group computes it.

    Beside blocks with experts, a block without experts is computed by every rank of the attention alone.
    """
    dense = serving._replace(expert_parallel=1, attention_data_parallel=1)
    return [(alike, serving if alike.experts else dense) for alike in decoder.by_kind]


def attention_reads(decoder: Decoder, serving: Serving, step_tokens: int) -> float:
    """The time of attention to verify `step_tokens` tokens of a sequence, over that to compute one token.

    Kernels read keys and values once for as many rows of queries as a product of matrices takes. A row is a token and a
    head that shares them, so drafts are read for nothing where few heads do. A state is made by one token after the
    other. This is reasoned, not measured.
    """
    attention, n_gpus = decoder.kind.attention, serving.tensor_parallel
    if isinstance(attention, Attention):
        n_rows = max(1.0, attention.n_heads / n_gpus / -(-attention.n_kv_heads // n_gpus))
    elif isinstance(attention, LatentAttention):
        n_rows = max(1.0, attention.n_heads / n_gpus)
    else:
        return float(step_tokens)
    return max(1.0, n_rows * step_tokens / max(_ROWS_OF_A_READ, n_rows))


def check_length(decoder: Decoder, requests: Workload) -> None:
    """Raise Unsupported for sequences of more tokens than the model has positions: engines refuse them, too."""
    most = decoder.checkpoint.max_length
    if most is not None and requests.max_length > most:
        raise Unsupported(
            f"{decoder.name} has {most:,} positions, got {requests.input_tokens:,} input tokens and "
            f"{requests.output_tokens:,} output tokens; try fewer, or a config with other max_position_embeddings"
        )


def _prompt(tables: KernelTables, engine: Engine, requests: Workload, b: IntArray, n_max_batched_tokens: int) -> Times:
    """The time that one prompt adds to the steps that compute it.

    An engine that mixes adds the tokens of a prompt, or of a part of it, to those of b sequences, for which weights are
    read in any case. An engine that computes prompts first puts as many into a step as it holds. So does any engine if
    answers have one token, since there are no decode steps then.
    """
    n_computed = requests.computed_tokens
    attention = tables.prompt_attention(n_computed, requests.input_tokens - n_computed)
    if engine.mixes and requests.output_tokens > 1:
        prompt = _mixed(tables, n_computed, b * requests.speculation.step_tokens, n_max_batched_tokens)
    else:
        prompt = _prompts_first(tables, n_computed, b, n_max_batched_tokens)
    return prompt._replace(block=prompt.block + attention)


def _mixed(tables: KernelTables, n_tokens: int, b: IntArray, n_max: int) -> Times:
    """A prompt of `n_tokens` beside b tokens of sequences: full steps of at most `n_max` tokens, then the rest."""
    room = np.maximum(n_max - b, 1)
    n_full, rest = n_tokens // room, n_tokens % room
    steps = tables.prompt_tokens(np.stack([b, np.where(n_full > 0, b + room, b), b + rest]))
    added = []
    for without, full, part in steps:  # of the block, the embedding, and the head
        seconds = n_full * (full - without) + (part - without)
        added.append(np.maximum(seconds, 0.0))  # measured times may be shorter for more tokens
    return Times(*added)


def _prompts_first(tables: KernelTables, n_tokens: int, b: IntArray, n_max: int) -> Times:
    """The share of one prompt in steps without sequences, into which as many prompts go as they hold, up to b."""
    n_together = np.clip(n_max // n_tokens, 1, b)
    n_full, rest = (n_together * n_tokens) // n_max, (n_together * n_tokens) % n_max
    full = tables.prompt_tokens(np.full_like(b, n_max))
    part = tables.prompt_tokens(np.maximum(rest, 1))
    return Times(*((n_full * f + (rest > 0) * p) / n_together for f, p in zip(full, part, strict=True)))


def _rows(blocks: Sequence[Times]) -> FloatArray:
    """One row a layer. The norm behind the blocks costs nothing: the package has none there."""
    ends = blocks[0]
    norm = np.zeros_like(ends.head)
    return np.array([ends.embedding, *(block.block for block in blocks), norm, ends.head], dtype=np.float64)
