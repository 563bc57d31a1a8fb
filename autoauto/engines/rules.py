"""What engines take of models, groups and formats, a function a rule: `ENGINE_RULES`.

A rule says in one line which dimension of the model does not fit, or nothing. It is asked before any table is opened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from autoauto.records.costs.decoder import Decoder, WeightFormat


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
    size = _SHARED.get(weights)
    if weights is decoder.checkpoint.weights and weights in _IN_GROUPS:
        size = decoder.checkpoint.group_size
    if size is None:
        return None
    n_gpus = split.tensor_parallel
    dimensions = [("heads x head_dim", decoder.attention_size, n_gpus)]
    if weights is WeightFormat.FP8_BLOCK:
        n_parts = min(n_gpus, decoder.n_kv_heads)
        dimensions.append(("key/value heads x head_dim", decoder.n_kv_heads * decoder.head_size, n_parts))
    if decoder.experts is None:
        dimensions.append(("intermediate_size", decoder.intermediate_size, n_gpus))
    else:
        n_parts = n_gpus // split.expert_parallel
        dimensions.append(("moe_intermediate_size", decoder.experts.intermediate_size, n_parts))
    for name, length, n_parts in dimensions:
        if n_parts > 1 and length % (n_parts * size):
            return (
                f"{name} {length} of {decoder.name} must be a multiple of {n_parts} GPUs x {size} weights with one "
                f"scale in {weights}, got {length / n_parts / size:g} of them a GPU; try a smaller tensor_parallel"
            )
    return None


_SHARED = {WeightFormat.FP8_BLOCK: 128}
"""Weights in a row of a block that have one scale."""
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
