"""Memory of a GPU of a group, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoauto.engines.registry import engine_named
from autoauto.records.costs.decoder import BlockPart, Checkpoint, Decoder, Experts, PartFormat, WeightFormat
from autoauto.records.units import GIB
from autoauto.targets.gpu.memory import activation_bytes, block_kv_bytes, block_weight_bytes, memory_rule, table_bytes
from autoauto.targets.gpu.systems import GpuSystem
from autoauto.targets.gpu.tables import Serving
from tests.targets.gpu.conftest import engine_by_hand

VLLM, SGLANG, TENSORRT_LLM = map(engine_named, ("vllm", "sglang", "trtllm"))


@pytest.mark.parametrize(("n_gpus", "kv_heads"), [(1, 2), (2, 1), (4, 1), (8, 1)])
def test_every_gpu_holds_one_head_of_keys_and_values_or_more(small: Decoder, n_gpus: int, kv_heads: int) -> None:
    assert block_kv_bytes(small, Serving("hand", "vllm", n_gpus)) == 2 * kv_heads * 8 * 2
    assert block_kv_bytes(small, Serving("hand", "vllm", n_gpus, kv_cache=WeightFormat.FP8)) == 2 * kv_heads * 8


def test_a_block_has_its_matrices_in_their_format_and_two_norms(small: Decoder) -> None:
    """64 x 64 of queries, as many of the projection, 64 x 16 twice, 3 x 64 x 96; split in two where heads are."""
    n_weights = 2 * 64 * 64 + 2 * 64 * 16 + 3 * 64 * 96
    assert block_weight_bytes(small, Serving("hand", "vllm")) == 2 * n_weights + 2 * 128
    of_two = Serving("hand", "vllm", 2, weights=WeightFormat.NVFP4)
    assert block_weight_bytes(small, of_two) == n_weights / 2 * 9 / 16 + 2 * 128
    assert table_bytes(small, of_two) == 100 * 64


def test_parts_of_a_block_have_their_own_formats(small: Decoder) -> None:
    """Attention of 64 x (64 + 16 + 16 + 64) weights of 4 bits with 2 bytes of scale for 32, 3 x 64 x 96 of 2 bytes."""
    feed_forward = tuple((part, PartFormat()) for part in (BlockPart.GATE_UP, BlockPart.DOWN))
    mixed = replace(small, checkpoint=Checkpoint(WeightFormat.INT4, group_size=32, unlike=feed_forward))
    serving = Serving("hand", "vllm", weights=WeightFormat.INT4)
    assert block_weight_bytes(mixed, serving) == 64 * 160 * (0.5 + 2 / 32) + 2 * 3 * 64 * 96 + 2 * 128
    of_all = serving._replace(weights=WeightFormat.FP8)
    assert block_weight_bytes(mixed, of_all) == 64 * 160 + 3 * 64 * 96 + 2 * 128


def test_experts_are_all_held_and_their_router_is_not_split(small: Decoder) -> None:
    experts = replace(small, experts=Experts(4, 2, 32))
    n_weights = 2 * 64 * 64 + 2 * 64 * 16 + 4 * 3 * 64 * 32
    assert block_weight_bytes(experts, Serving("hand", "vllm")) == 2 * n_weights + 2 * (128 + 64 * 4)


def test_activations_grow_with_the_tokens_of_a_step(small: Decoder) -> None:
    serving, engine = Serving("hand", "vllm", 2), engine_by_hand()
    assert activation_bytes(small, serving, engine, 1000) == 2 * 1000 * 64 * 5
    assert activation_bytes(small, serving, VLLM, 1000) == VLLM.memory.min_activation_bytes


def test_an_engine_takes_a_share_of_all_memory_for_everything(small: Decoder, system: GpuSystem) -> None:
    rule = memory_rule(small, Serving("hand", "vllm", 2), system, engine_by_hand(), 1, 1000)
    fixed = 2 * 1000 * 64 * 5 + 100 + GIB
    assert rule.excess_bytes(7.0, 5.0) == pytest.approx(12 + fixed - 9 * GIB)
    assert rule.max_kv_bytes(GIB) == pytest.approx(8 * GIB - fixed)
    assert rule.max_kv_bytes(9 * GIB) == 0.0


def test_tensorrt_llm_takes_a_share_of_what_is_free_for_the_cache(small: Decoder, system: GpuSystem) -> None:
    rule = memory_rule(small, Serving("hand", "trtllm"), system, TENSORRT_LLM, 1, 1000)
    free = 10 * GIB - 2 * GIB - rule.fixed_bytes
    assert rule.max_kv_bytes(2 * GIB) == pytest.approx(0.9 * free)
    assert rule.excess_bytes(2 * GIB, 0.9 * free) == pytest.approx(0.0, abs=10)


def test_sglang_leaves_activations_outside_its_share(small: Decoder, system: GpuSystem) -> None:
    rule = memory_rule(small, Serving("hand", "sglang"), system, SGLANG, 1, 1000)
    share = SGLANG.memory.share(10 * GIB, 1, 1)
    assert rule.max_kv_bytes(2 * GIB) <= share * 10 * GIB - 2 * GIB
    large = replace(system, memory_bytes=80 * GIB)
    rule = memory_rule(small, Serving("hand", "sglang"), large, SGLANG, 1, 1000)
    assert rule.max_kv_bytes(2 * GIB) == pytest.approx(SGLANG.memory.share(80 * GIB, 1, 1) * 80 * GIB - 2 * GIB)
