"""What engines take of models, groups and formats, a function a rule: `ENGINE_RULES`.

A rule says in one line which dimension of the model does not fit, or nothing. It is asked before any table is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from autoauto.records.costs.decoder import BlockPart, Decoder, PartFormat, WeightFormat


class GroupSplit(NamedTuple):
    """How a group of GPUs splits a model.

    Attributes:
        tensor_parallel: GPUs of the group; every matrix is split among them.
        expert_parallel: among how many of them whole experts are dealt; the rest splits every expert.
    """

    tensor_parallel: int = 1
    expert_parallel: int = 1


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


def whole_scales(decoder: Decoder, split: GroupSplit, weights: WeightFormat) -> str | None:
    """Weights that share a scale are on one GPU: every dimension that is split is a multiple of GPUs x their number.

    Blocks of fp8 are squares, so both dimensions of a matrix count; groups of AWQ and GPTQ lie in rows, so only inputs
    that are split do: of the projection behind the attention, and of the last matrix of the feed-forward layer.
    """
    formats = decoder.part_formats(weights)
    for name, length, n_parts, part in _split_dimensions(decoder, split, formats):
        shared = _shared(formats[part])
        if shared > 1 and n_parts > 1 and length % (n_parts * shared):
            return (
                f"{name} {length} of {decoder.name} must be a multiple of {n_parts} GPUs x {shared} weights with one "
                f"scale in {formats[part].weights}, got {length / n_parts / shared:g} of them a GPU; try a smaller "
                "tensor_parallel"
            )
    return None


def _split_dimensions(
    decoder: Decoder, split: GroupSplit, formats: Mapping[BlockPart, PartFormat]
) -> Iterator[tuple[str, int, int, BlockPart]]:
    """Dimensions in which scales are split: name, length, among how many GPUs, and of what."""
    n_gpus = split.tensor_parallel
    yield "heads x head_dim", decoder.attention_size, n_gpus, BlockPart.OUTPUT
    if formats[BlockPart.QKV].weights is WeightFormat.FP8_BLOCK:
        n_kv = decoder.n_kv_heads
        yield "key/value heads x head_dim", n_kv * decoder.head_size, min(n_gpus, n_kv), BlockPart.QKV
    if decoder.experts is not None:
        n_parts = n_gpus // split.expert_parallel
        yield "moe_intermediate_size", decoder.experts.intermediate_size, n_parts, BlockPart.EXPERTS
        return
    yield "intermediate_size", decoder.intermediate_size, n_gpus, BlockPart.DOWN
    if formats[BlockPart.GATE_UP].weights is WeightFormat.FP8_BLOCK:
        yield "intermediate_size", decoder.intermediate_size, n_gpus, BlockPart.GATE_UP


def _shared(stored: PartFormat) -> int:
    """Weights in a row that have one scale; 1 where a row has one, or none."""
    if stored.weights is WeightFormat.FP8_BLOCK:
        return 128
    return stored.group_size or 1 if stored.weights in _IN_GROUPS else 1


_IN_GROUPS = (WeightFormat.INT4, WeightFormat.INT8)


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


ENGINE_RULES: tuple[Rule, ...] = (query_heads, kv_heads, experts, whole_scales)
"""The rules of every engine."""
