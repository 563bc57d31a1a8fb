"""What every layer of a decoder costs on a GPU of a group, at many batch sizes: `layer_costs`.

embedding ── block 0 ── ... ── block n-1 ── norm ── head          one row a layer, one column a batch size

All blocks have the same row. What the first block costs more than others, since it is stored otherwise, is in the row
of the embedding, and what the last one does in that of the norm: the first and the last stage have these in any case.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autoauto.engines.engine import Engine
from autoauto.records.costs.decoder import Decoder, Workload
from autoauto.records.errors import Unsupported
from autoauto.records.units import FloatArray, IntArray
from autoauto.targets.gpu.memory import BF16_BYTES, block_kv_bytes, block_weight_bytes, table_bytes
from autoauto.targets.gpu.systems import GpuSystem, check_group
from autoauto.targets.gpu.tables import KernelTables, Serving, Times, open_tables


class DecoderCosts(NamedTuple):
    """Costs of the layers of a decoder on one GPU of a group.

    Attributes:
        decode_s: of a decode step of b sequences, shape (layers, batch sizes).
        prompt_s: that one prompt adds to the steps that compute it, of the same shape.
        weight_bytes: shape (layers,). Embedding and head of one matrix are two: the last stage has a copy.
        kv_bytes: of one token of one sequence, shape (layers,).
        send_bytes: from every GPU of a stage to the next, of b hidden vectors and their share of prompts, shape
            (batch sizes,).
        is_tied: whether embedding and head are one matrix.
    """

    decode_s: FloatArray
    prompt_s: FloatArray
    weight_bytes: FloatArray
    kv_bytes: FloatArray
    send_bytes: FloatArray
    is_tied: bool


def layer_costs(
    decoder: Decoder,
    serving: Serving,
    system: GpuSystem,
    engine: Engine,
    requests: Workload,
    n_sequences: IntArray,
    n_max_batched_tokens: int,
) -> DecoderCosts:
    """The costs of every layer at every batch size b of `n_sequences`.

    Raises:
        MissingExtra: the package of measured times is not installed.
        Unsupported: the group cannot split the model, does not fit a node, or there are no times.
    """
    check_group(system, engine, serving.tensor_parallel)
    check_length(decoder, requests)
    b = np.asarray(n_sequences, dtype=np.int64)
    typical = _model_costs(decoder, serving, engine, requests, b, n_max_batched_tokens)
    of_token = block_kv_bytes(decoder, serving)
    costs = DecoderCosts(
        decode_s=_rows(decoder, typical.decode),
        prompt_s=_rows(decoder, typical.prompt),
        weight_bytes=_column(decoder, typical.table_bytes, typical.block_bytes, typical.table_bytes),
        kv_bytes=_column(decoder, 0.0, of_token, 0.0),
        send_bytes=_send_bytes(decoder, requests, b),
        is_tied=decoder.is_tied,
    )
    if serving.weights is decoder.checkpoint.weights:
        ends = ((0, decoder.with_blocks_like_the_first()), (-2, decoder.with_blocks_like_the_last()))
        for row, alike in ends:
            if alike.checkpoint.unlike != decoder.checkpoint.unlike:
                end = _model_costs(alike, serving, engine, requests, b, n_max_batched_tokens)
                costs.decode_s[row] += end.decode.block - typical.decode.block
                costs.prompt_s[row] += end.prompt.block - typical.prompt.block
                costs.weight_bytes[row] += end.block_bytes - typical.block_bytes
    return costs


class _ModelCosts(NamedTuple):
    """What a model of equal blocks costs: steps that decode, prompts, bytes of a block, and of the embedding."""

    decode: Times
    prompt: Times
    block_bytes: float
    table_bytes: float


def _model_costs(
    decoder: Decoder, serving: Serving, engine: Engine, requests: Workload, b: IntArray, n_max_batched_tokens: int
) -> _ModelCosts:
    tables = open_tables(decoder, serving)
    attention = tables.decode_attention(b, requests.mean_length)
    decode = tables.decode_tokens(b)
    return _ModelCosts(
        decode=decode._replace(block=decode.block + attention),
        prompt=_prompt(tables, engine, requests, b, n_max_batched_tokens),
        block_bytes=block_weight_bytes(decoder, serving),
        table_bytes=table_bytes(decoder, serving),
    )


def check_length(decoder: Decoder, requests: Workload) -> None:
    """Make sure that the model has a position for every token of a sequence: engines refuse longer ones.

    Raises:
        Unsupported: it has fewer.
    """
    most = decoder.checkpoint.max_length
    if most is not None and requests.max_length > most:
        raise Unsupported(
            f"{decoder.name} has {most:,} positions, got {requests.input_tokens:,} input tokens and "
            f"{requests.output_tokens:,} output tokens; try fewer, or a config with other max_position_embeddings"
        )


def _prompt(tables: KernelTables, engine: Engine, requests: Workload, b: IntArray, n_max_batched_tokens: int) -> Times:
    """What one prompt adds to the steps that compute it.

    An engine that mixes adds the tokens of a prompt, or of a part of it, to those of b sequences, whose weights are
    read in any case. One whose prompts come first computes as many as a step holds.
    """
    attention = tables.prompt_attention(requests.input_tokens)
    times = _mixed if engine.mixes else _prompts_first
    prompt = times(tables, requests.input_tokens, b, n_max_batched_tokens)
    return prompt._replace(block=prompt.block + attention)


def _mixed(tables: KernelTables, n_tokens: int, b: IntArray, n_max: int) -> Times:
    room = np.maximum(n_max - b, 1)
    n_full, rest = n_tokens // room, n_tokens % room
    steps = tables.prompt_tokens(np.stack([b, np.where(n_full > 0, b + room, b), b + rest]))
    added = (n_full * (full - without) + (part - without) for without, full, part in steps)
    return Times(*(np.maximum(seconds, 0.0) for seconds in added))


def _prompts_first(tables: KernelTables, n_tokens: int, b: IntArray, n_max: int) -> Times:
    n_together = np.clip(n_max // n_tokens, 1, b)
    n_full, rest = (n_together * n_tokens) // n_max, (n_together * n_tokens) % n_max
    full = tables.prompt_tokens(np.full_like(b, n_max))
    part = tables.prompt_tokens(np.maximum(rest, 1))
    return Times(*((n_full * f + (rest > 0) * p) / n_together for f, p in zip(full, part, strict=True)))


def _rows(decoder: Decoder, times: Times) -> FloatArray:
    """One row a layer. The norm behind the blocks costs nothing: the package has none there."""
    rows = [times.embedding, *(times.block for _ in range(decoder.n_layers)), np.zeros_like(times.head), times.head]
    return np.array(rows, dtype=np.float64)


def _column(decoder: Decoder, embedding: float, block: float, head: float) -> FloatArray:
    return np.array([embedding, *([block] * decoder.n_layers), 0.0, head], dtype=np.float64)


def _send_bytes(decoder: Decoder, requests: Workload, b: IntArray) -> FloatArray:
    """Hidden vectors of b sequences, and of the prompts that a step has in the mean."""
    n_tokens = b * (1 + requests.input_tokens / requests.output_tokens)
    return np.asarray(n_tokens * decoder.hidden_size * BF16_BYTES, dtype=np.float64)
