"""What steps of one replica take, as a function of what is in them: `Steps`, made by `steps_of`.

    step of b sequences with s tokens each in the mean, and parts of prompts with x tokens together:

        products of b tokens + attention of b sequences to s tokens      `decode_s`
      + products of b + x tokens - those of b                            `token_s`
      + attention of every part to its prompt so far                     `attention_s`

A replica of several stages has as many micro-batches. A cycle, in which each of them takes a step, is a step here: all
sequences get a token in it, and a prompt is computed in one of the micro-batches. Times are those of the slowest stage.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from autoauto.engines.registry import engine_named
from autoauto.records.costs.decoder import Decoder, Speculation
from autoauto.records.hardware import Link
from autoauto.records.units import FloatArray, IntArray
from autoauto.targets.gpu.costs import attention_reads, serving_by_kind
from autoauto.targets.gpu.memory import BF16_BYTES
from autoauto.targets.gpu.systems import CLOCK_HZ
from autoauto.targets.gpu.tables import Serving, open_tables

_SIZES_A_DOUBLING = 4
"""Points a doubling of the grids over sequences and tokens, between which times are interpolated."""
_DENSE_SIZES = 16
"""Up to this number a grid has every one."""


_MAX_STEPS = 256
"""Tables that are cached."""


class StageBlocks(NamedTuple):
    """The blocks of a stage, and how GPUs serve them."""

    serving: Serving
    n_blocks: tuple[int, ...]  # by kind
    is_first: bool  # it has the embedding
    is_last: bool  # it has norm and head
    link: Link | None = None  # to the next stage; None behind the last

    def send_s(self, hidden_size: int, n_tokens: IntArray) -> FloatArray:
        """Seconds of a transfer of the hidden vectors of so many tokens, each an array."""
        if self.link is None:
            return np.zeros(len(n_tokens))
        return np.asarray(self.link.cycles(n_tokens * hidden_size * BF16_BYTES, CLOCK_HZ) / CLOCK_HZ)


class Steps(NamedTuple):
    """Seconds of steps of a replica; between points of the grids they are linear.

    Attributes:
        sequences: a grid of sequences that decode, over all micro-batches, from 0.
        lengths: a grid of tokens that a sequence has, in the mean.
        decode_s: of a step without prompts, host included, shape (sequences, lengths).
        token_s: of a step over so many without attention, shape (tokens,).
        before: a grid of tokens of the prompt before the part.
        attention_s: of a part, shape (parts, before).
        through: times a prompt takes through all stages, over what it takes in the slowest.
        host_s: that a step takes besides kernels, whatever is in it.
        n_ranks: of the attention, which compute parts of prompts side by side.
    """

    sequences: IntArray
    lengths: IntArray
    decode_s: FloatArray
    tokens: IntArray
    token_s: FloatArray
    parts: IntArray
    before: IntArray
    attention_s: FloatArray
    n_stages: int = 1
    through: float = 1.0
    host_s: float = 0.0
    n_ranks: int = 1

    def slower(self, factor: float) -> Steps:
        """Steps that take so many times as long."""
        return self._replace(
            decode_s=self.decode_s * factor,
            token_s=self.token_s * factor,
            attention_s=self.attention_s * factor,
            host_s=self.host_s * factor,
        )


class Grids(NamedTuple):
    """How far grids reach."""

    n_sequences: int  # in flight in a replica
    n_tokens: int  # of a step of a micro-batch
    length: int  # of the longest sequence, in tokens


@lru_cache(_MAX_STEPS)
def steps_of(
    decoder: Decoder, stages: tuple[StageBlocks, ...], grids: Grids, speculation: Speculation, *, hides_host: bool
) -> Steps:
    """The steps of a replica of these stages; raises as `open_tables`.

    With `hides_host` what the host does for sequences is hidden behind kernels: a step takes the longer of both.
    """
    n_stages, engine = len(stages), engine_named(stages[0].serving.engine)
    split = stages[0].serving.split
    # Micro-batches of one size are points of the grid, so sequences are multiples of the stages.
    sequences = np.unique(np.concatenate([[0], n_stages * sizes_up_to(-(-grids.n_sequences // n_stages))]))
    of_micro_batch = split.of_rank(-(-sequences // n_stages))
    n_most = max(grids.n_tokens, int(of_micro_batch[-1]) * speculation.step_tokens)
    tokens = sizes_up_to(n_most)
    lengths = sizes_up_to(grids.length, of_doubling=2, dense=1)
    parts = sizes_up_to(grids.n_tokens, of_doubling=2, dense=1)
    before = np.concatenate([[0], lengths])
    made = [_of_stage(decoder, stage, speculation, of_micro_batch, lengths, tokens, parts, before) for stage in stages]
    # All stages take as long as the slowest.
    decode, token, attention = (np.max(column, axis=0) for column in zip(*made, strict=True))
    host = engine.host.of_step(of_micro_batch.astype(np.float64), n_stages)[:, None]
    with_host = decode + host
    if hides_host:
        with_host = np.maximum(decode, host - engine.host.step_s) + engine.host.step_s
    with_host[0] = 0.0  # no sequences
    totals = [stage_token[-1] for _, stage_token, _ in made]
    return Steps(
        sequences,
        lengths,
        n_stages * with_host,
        tokens,
        token,
        parts,
        before,
        attention,
        n_stages=n_stages,
        through=float(np.sum(totals) / np.max(totals)),
        host_s=n_stages * engine.host.step_s,
        n_ranks=split.attention_data_parallel,
    )


def _of_stage(
    decoder: Decoder,
    stage: StageBlocks,
    speculation: Speculation,
    of_micro_batch: IntArray,
    lengths: IntArray,
    tokens: IntArray,
    parts: IntArray,
    before: IntArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    n_verified = of_micro_batch * speculation.step_tokens
    decode, token = np.zeros((len(of_micro_batch), len(lengths))), np.zeros(len(tokens))
    attention = np.zeros((len(parts), len(before)))
    for kind, (alike, serving) in enumerate(serving_by_kind(decoder, stage.serving)):
        tables, n = open_tables(alike, serving), float(stage.n_blocks[kind])
        decoded, prompted = tables.decode_tokens(n_verified), tables.prompt_tokens(tokens)
        reads = attention_reads(alike, serving, speculation.step_tokens)
        read = _decode_attention(alike, serving, tuple(of_micro_batch.tolist()), tuple(lengths.tolist()))
        decode += n * (decoded.block[:, None] + reads * read)
        token += n * prompted.block
        attention += n * _prompt_attention(alike, serving, tuple(parts.tolist()), tuple(before.tolist()))
        if kind == 0:  # embedding and head are alike for all kinds of blocks
            has_embedding, has_head = float(stage.is_first), float(stage.is_last)
            decode += (has_embedding * decoded.embedding + has_head * decoded.head)[:, None]
            token += has_embedding * prompted.embedding + has_head * prompted.head
    decode = decode * (1 + speculation.draft_cost)
    decode += stage.send_s(decoder.hidden_size, n_verified)[:, None]
    token += stage.send_s(decoder.hidden_size, tokens)
    decode[of_micro_batch == 0] = 0.0
    return decode, token, attention


@lru_cache(_MAX_STEPS)
def _prompt_attention(
    decoder: Decoder, serving: Serving, parts: tuple[int, ...], before: tuple[int, ...]
) -> FloatArray:
    """Seconds of a block, shape (parts, before); other stages and batch sizes have the same ones."""
    tables = open_tables(decoder, serving)
    return np.array([[tables.prompt_attention(part, cached) for cached in before] for part in parts])


@lru_cache(_MAX_STEPS)
def _decode_attention(
    decoder: Decoder, serving: Serving, n_sequences: tuple[int, ...], lengths: tuple[int, ...]
) -> FloatArray:
    """Seconds of a block, shape (sequences, lengths)."""
    tables = open_tables(decoder, serving)
    return np.array([tables.decode_attention(np.array(n_sequences), length) for length in lengths]).T


def sizes_up_to(n: int, of_doubling: int = _SIZES_A_DOUBLING, dense: int = _DENSE_SIZES) -> IntArray:
    """A grid from 1 to n: every number up to `dense`, then so many a doubling.

    >>> sizes_up_to(40, 2, 4).tolist()
    [1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 40]
    """
    n_more = max(0, int(np.ceil(of_doubling * np.log2(max(n, 1) / dense))))
    spread = dense * 2.0 ** (np.arange(1, n_more + 1) / of_doubling)
    every = np.concatenate([np.arange(1, dense + 1), np.round(spread).astype(np.int64)])
    return np.unique(np.append(every[every < n], n))
