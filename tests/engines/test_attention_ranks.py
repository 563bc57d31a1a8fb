"""Which groups engines form where ranks of the attention have sequences of their own.

vLLM 0.33.0: experts are split over tensor-parallel times data-parallel size, or all dealt (`FusedMoEParallelConfig`).
SGLang 0.5.23: the tensor-parallel size is of the group, and divides by that of the ranks. TensorRT-LLM (`Mapping`): all
GPUs of a group are ranks or none, and its tensor-parallel size is moe_tp_size x moe_ep_size.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from autoauto.engines.engine import NodePart
from autoauto.engines.registry import engine_named
from autoauto.engines.rules import GroupSplit
from autoauto.records.costs.decoder import Decoder, Experts, WeightFormat

MIXTURE = Decoder(
    "mixture", "Qwen3MoeForCausalLM", 2048, 48, 32, 4, 128, 6144, 151936, is_tied=False, experts=Experts(128, 8, 768)
)
BF16 = WeightFormat.BF16


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ("vllm", {(1, 1, 8), (1, 8, 8), (2, 1, 4), (2, 8, 4), (4, 1, 2), (4, 8, 2)}),
        ("sglang", {(n, dealt, 8 // n) for n in (1, 2, 4) for dealt in (1, 2, 4, 8)}),
        ("trtllm", {(1, dealt, 8) for dealt in (1, 2, 4, 8)}),
    ],
)
def test_an_engine_takes_these_ranks_in_a_group_of_eight(engine: str, expected: set[tuple[int, ...]]) -> None:
    every = (GroupSplit(n, dealt, 8 // n) for n, dealt in product((1, 2, 4), (1, 2, 3, 4, 8)))
    assert {split for split in every if not engine_named(engine).takes(MIXTURE, split, BF16)} == expected


def test_a_refusal_says_what_to_try() -> None:
    refused = {
        "trtllm": (GroupSplit(2, 1, 4), "trtllm has ranks of one GPU each where attention is data-parallel, got "),
        "vllm": (GroupSplit(2, 2, 4), "vllm deals experts among 1 or 8 of 8 GPUs of a group, got 2"),
        "sglang": (GroupSplit(1, 3, 8), "sglang deals experts among 1 or 2 or 4 or 8 of 8 GPUs of a group, got 3"),
    }
    for engine, (split, reason) in refused.items():
        assert (engine_named(engine).takes(MIXTURE, split, BF16) or "").startswith(reason)


def test_ranks_of_a_dense_model_are_replicas() -> None:
    dense = replace(MIXTURE, experts=None)
    assert engine_named("vllm").takes(dense, GroupSplit(1, 1, 2), BF16) == (
        "attention_data_parallel is for mixtures of experts, mixture is dense; leave it out, and try more --replicas, "
        "which give the same"
    )


def test_heads_are_split_in_a_rank_and_experts_in_the_group() -> None:
    """Six ranks of one GPU need no heads that six divides, and experts of 768 / 6 are whole numbers of 128."""
    assert engine_named("sglang").takes(MIXTURE, GroupSplit(1, 1, 6), BF16) is None
    assert "must divide the 32 heads" in (engine_named("sglang").takes(MIXTURE, GroupSplit(6), BF16) or "")
    narrow = replace(MIXTURE, experts=Experts(128, 8, 770))
    assert "moe_intermediate_size 770" in (engine_named("sglang").takes(narrow, GroupSplit(1, 1, 4), BF16) or "")
    assert engine_named("sglang").takes(narrow, GroupSplit(1, 4, 4), BF16) is None


def test_a_group_is_of_whole_nodes_where_an_engine_counts_ranks_so() -> None:
    """vLLM counts a rank's stages before the next rank, so those of several ranks are on one node."""
    split, nodes = GroupSplit(1, 16, 16), [NodePart(node, 8) for node in range(2)]
    able = {name: not engine_named(name).nodes_conflict(nodes, split) for name in ("vllm", "sglang", "trtllm")}
    assert able == {"vllm": True, "sglang": True, "trtllm": False}
    stages, ranks = [NodePart(node, 8) for node in range(2)], GroupSplit(1, 8, 8)
    assert engine_named("vllm").nodes_conflict(stages, ranks).endswith("with data-parallel attention in one node")
    assert engine_named("sglang").nodes_conflict(stages, ranks) == ""
    assert engine_named("vllm").nodes_conflict(stages, GroupSplit(8)) == ""
