"""What engines take of models, groups and formats, a function a rule: `ENGINE_RULES`.

A rule says in one line which dimension of the model does not fit, or nothing. It is asked before any table is opened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from autoauto.records.costs.decoder import BlockPart, Decoder, Experts, PartFormat, WeightFormat
from autoauto.records.units import IntArray


class GroupSplit(NamedTuple):
    """How a group of GPUs splits a model.

    Attributes:
        tensor_parallel: GPUs that split the attention of a sequence.
        expert_parallel: among how many GPUs of the group whole experts are dealt; the rest splits every expert.
        attention_data_parallel: ranks, each of `tensor_parallel` GPUs with the attention of sequences of its own.
    """

    tensor_parallel: int = 1
    expert_parallel: int = 1
    attention_data_parallel: int = 1

    @property
    def n_gpus(self) -> int:
        """GPUs of the group, which compute experts together."""
        return self.tensor_parallel * self.attention_data_parallel

    def of_rank(self, n_sequences: IntArray) -> IntArray:
        """The sequences of the fullest rank of the attention, of so many of a group."""
        return np.asarray(-(-n_sequences // self.attention_data_parallel), dtype=np.int64)

    def __str__(self) -> str:
        text = f"tensor_parallel {self.tensor_parallel}"
        if self.attention_data_parallel > 1:
            text += f" x attention_data_parallel {self.attention_data_parallel}"
        return text


Rule = Callable[[Decoder, GroupSplit, WeightFormat], str | None]
"""Why an engine refuses a decoder, or None."""


def divisors(n: int) -> list[int]:
    """The numbers that divide n.

    >>> divisors(8)
    [1, 2, 4, 8]
    """
    return [each for each in range(1, n + 1) if n % each == 0]


def query_heads(decoder: Decoder, split: GroupSplit, _: WeightFormat) -> str | None:
    """Every GPU of a group has as many heads of queries."""
    if decoder.n_heads % split.tensor_parallel == 0:
        return None
    return f"tensor_parallel must divide the {decoder.n_heads} heads of {decoder.name}, got {split.tensor_parallel}"


def kv_heads(decoder: Decoder, split: GroupSplit, _: WeightFormat) -> str | None:
    """Every GPU has as many heads of keys and values, or several GPUs have a copy of one; engines assert it."""
    n_heads, n_gpus = decoder.n_kv_heads, split.tensor_parallel
    if n_heads % n_gpus == 0 or n_gpus % n_heads == 0:
        return None
    return (
        f"tensor_parallel must divide the {n_heads} heads of keys and values of {decoder.name}, or be a multiple of "
        f"them, got {n_gpus}"
    )


def even_parts(decoder: Decoder, split: GroupSplit, weights: WeightFormat) -> str | None:
    """GPUs have equal parts of every input that is split, and weights that share a scale are on one GPU.

    Inputs that are split are those of the projection behind the attention, and of the last matrix of the feed-forward
    layer or of an expert; every GPU has all of the others. Blocks of fp8 and groups of AWQ and GPTQ share a scale: the
    last block of a row may be a part of one, on a GPU that has whole rows, but no engine loads a part of a group.
    Vocabularies are padded.
    """
    formats = decoder.part_formats(weights)
    n_gpus = split.tensor_parallel
    inputs = [("hidden_size", decoder.hidden_size, 1, part) for part in _READS_HIDDEN]
    inputs.append(("heads x head_dim", decoder.attention_size, n_gpus, BlockPart.OUTPUT))
    if decoder.experts is None:
        inputs.append(("intermediate_size", decoder.intermediate_size, n_gpus, BlockPart.DOWN))
    else:
        inputs.append(_of_experts(decoder.experts, split))
        inputs.append(("shared expert size", decoder.experts.shared_size, n_gpus, BlockPart.SHARED))
    for name, length, n_parts, part in inputs:
        if part in formats and (n_parts > 1 or formats[part].weights in _IN_GROUPS):
            conflict = _uneven(decoder, formats[part], name, length, n_parts)
            if conflict is not None:
                return conflict
    return None


def joined_blocks(decoder: Decoder, split: GroupSplit, weights: WeightFormat) -> str | None:
    """Matrices that are computed as one, of queries, keys and values, or gate and up, begin with a block of fp8."""
    formats, n_gpus = decoder.part_formats(weights), split.tensor_parallel
    n_kv = decoder.n_kv_heads
    outputs = [
        ("heads x head_dim", decoder.attention_size, n_gpus, BlockPart.QKV),
        ("key/value heads x head_dim", n_kv * decoder.head_size, min(n_gpus, n_kv), BlockPart.QKV),
    ]
    if decoder.experts is None:
        outputs.append(("intermediate_size", decoder.intermediate_size, n_gpus, BlockPart.GATE_UP))
    else:
        outputs.append(_of_experts(decoder.experts, split))
    for name, length, n_parts, part in outputs:
        if part in formats and formats[part].weights is WeightFormat.FP8_BLOCK:
            conflict = _uneven(decoder, formats[part], name, length, n_parts)
            if conflict is not None:
                return conflict
    return None


def _of_experts(experts: Experts, split: GroupSplit) -> tuple[str, int, int, BlockPart]:
    """The dimension of experts that is split: its name, its length, its parts, and of what it is."""
    n_parts = split.n_gpus // split.expert_parallel
    return "moe_intermediate_size", experts.intermediate_size, n_parts, BlockPart.EXPERTS


def _uneven(decoder: Decoder, stored: PartFormat, name: str, length: int, n_parts: int) -> str | None:
    """Why so many GPUs cannot have whole groups of weights of a length, or None if they can."""
    size = _shared(stored)
    if length % (n_parts * size) == 0:
        return None
    gpus, advice = ("GPU", "another format") if n_parts == 1 else ("GPUs", "a smaller tensor_parallel")
    got, shared = f"{length / n_parts / size:g}", ""
    if size > 1:
        got, shared = f"{got} of them", f" x {size} weights with one scale in {stored.weights}"
    return (
        f"{name} {length} of {decoder.name} must be a multiple of {n_parts} {gpus}{shared}, got {got} a GPU; "
        f"try {advice}"
    )


def _shared(stored: PartFormat) -> int:
    """Weights in a row that have one scale; 1 where a row has one, or none."""
    if stored.weights is WeightFormat.FP8_BLOCK:
        return 128
    if stored.weights in _IN_GROUPS and stored.group_size:
        return stored.group_size
    return 1


_IN_GROUPS = (WeightFormat.INT4, WeightFormat.INT8)
_READS_HIDDEN = (BlockPart.QKV, BlockPart.GATE_UP, BlockPart.EXPERTS, BlockPart.SHARED)
"""Parts with a matrix that reads the vector between blocks."""


def experts(decoder: Decoder, split: GroupSplit, _: WeightFormat) -> str | None:
    """Only experts are dealt, and every GPU that has some has as many."""
    if split.expert_parallel == 1:
        return None
    if decoder.experts is None:
        return f"expert_parallel is for mixtures of experts, {decoder.name} is dense; leave it out"
    if decoder.experts.n_experts % split.expert_parallel == 0:
        return None
    return (
        f"expert_parallel must divide the {decoder.experts.n_experts} experts of {decoder.name}, "
        f"got {split.expert_parallel}"
    )


def attention_ranks(decoder: Decoder, split: GroupSplit, _: WeightFormat) -> str | None:
    """Only groups that share experts have ranks: those of a dense model share nothing, so they are replicas."""
    if split.attention_data_parallel == 1 or decoder.experts is not None:
        return None
    return (
        f"attention_data_parallel is for mixtures of experts, {decoder.name} is dense; leave it out, and try more "
        "--replicas, which give the same"
    )


ENGINE_RULES: tuple[Rule, ...] = (query_heads, kv_heads, attention_ranks, experts, even_parts)
"""The rules of every engine. The sources of [vllm-serve] and [sglang-serve] assert them."""
