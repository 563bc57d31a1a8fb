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


ENGINE_RULES: tuple[Rule, ...] = (query_heads, experts)
"""The rules of every engine."""
