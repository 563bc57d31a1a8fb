"""Memory of a GPU of a group, worked out by hand."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from autoauto.engines.engine import ConstantShare
from autoauto.engines.registry import engine_named
from autoauto.records.costs.decoder import BlockPart, Checkpoint, Decoder, Experts, PartFormat, WeightFormat
from autoauto.records.errors import BadInput
from autoauto.records.units import GIB, MIB
from autoauto.targets.gpu.memory import (
    activation_bytes,
    block_cache_bytes,
    block_weight_bytes,
    memory_rule,
    table_bytes,
)
from autoauto.targets.gpu.systems import GpuSystem, usable_bytes
from autoauto.targets.gpu.tables import Serving
from studies.gpu_memory import error_of, forecast
from tests.targets.gpu.conftest import engine_by_hand

VLLM, SGLANG, TENSORRT_LLM = map(engine_named, ("vllm", "sglang", "trtllm"))


@pytest.mark.parametrize(("n_gpus", "kv_heads"), [(1, 2), (2, 1), (4, 1), (8, 1)])
def test_every_gpu_holds_one_head_of_keys_and_values_or_more(small: Decoder, n_gpus: int, kv_heads: int) -> None:
    assert block_cache_bytes(small, Serving("hand", "vllm", n_gpus), 1) == 2 * kv_heads * 8 * 2
    assert block_cache_bytes(small, Serving("hand", "vllm", n_gpus, kv_cache=WeightFormat.FP8), 1) == 2 * kv_heads * 8


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


def test_ranks_of_the_attention_have_its_weights_and_keys_each_and_share_experts(small: Decoder) -> None:
    """64 x 64 of queries, as many behind, and 64 x 16 twice, all on each of four ranks; of 12 x 64 x 32 a quarter."""
    experts = replace(small, experts=Experts(4, 2, 32))
    of_ranks = Serving("hand", "vllm", attention_data_parallel=4)
    n_weights = 2 * 64 * 64 + 2 * 64 * 16 + 3 * 64 * 32
    assert block_weight_bytes(experts, of_ranks) == 2 * n_weights + 2 * (128 + 64 * 4)
    assert block_weight_bytes(experts, of_ranks._replace(expert_parallel=4)) == block_weight_bytes(experts, of_ranks)
    assert block_cache_bytes(experts, of_ranks, 10) == block_cache_bytes(experts, Serving("hand", "vllm"), 10)
    assert table_bytes(experts, of_ranks) == table_bytes(experts, Serving("hand", "vllm"))


def test_activations_grow_with_the_tokens_of_a_step(small: Decoder) -> None:
    serving, engine = Serving("hand", "vllm", 2), engine_by_hand()
    assert activation_bytes(small, serving, engine, 1000) == 2 * 1000 * 64 * 5
    assert activation_bytes(small, serving, TENSORRT_LLM, 1000) == TENSORRT_LLM.memory.min_activation_bytes


def test_where_sampling_holds_more_it_counts_instead(small: Decoder) -> None:
    """20 bytes for each of 100 words and each sequence, beside the vectors of 1,000 tokens; at most 1,000 sequences."""
    engine = engine_by_hand()
    sampling = replace(engine, memory=engine.memory._replace(logit_bytes=20.0))
    n_bytes = activation_bytes(small, Serving("hand", "vllm"), sampling, 1000, np.array([1, 700, 5000]))
    assert n_bytes.tolist() == [2 * 1000 * 64 * 10, 2 * 1000 * 64 + 20 * 100 * 700, 2 * 1000 * 64 + 20 * 100 * 1000]


def test_experts_take_and_give_every_token_once_each(small: Decoder) -> None:
    """Vectors of 64, and of 32 / 2 between the matrices, 1.5 times for 2 experts; in fp8 a byte more of each."""
    decoder, engine = replace(small, experts=Experts(4, 2, 32)), engine_by_hand()
    plain = 2 * 1000 * 64 * 5
    bf16, fp8 = (Serving("hand", "vllm", 2, weights=weights) for weights in (WeightFormat.BF16, WeightFormat.FP8))
    assert activation_bytes(decoder, bf16, engine, 1000) == plain + 1.5 * 1000 * 2 * 2 * (64 + 16)
    assert activation_bytes(decoder, fp8, engine, 1000) == plain + 1.5 * 1000 * 2 * 3 * (64 + 16)


def test_an_engine_takes_a_share_of_all_memory_for_everything(small: Decoder, system: GpuSystem) -> None:
    rule = memory_rule(small, Serving("hand", "vllm", 2), system, engine_by_hand(), 1, 1000)
    fixed = 2 * 1000 * 64 * 5 + 100 + GIB
    assert rule.excess_bytes(7.0, 5.0) == pytest.approx(12 + fixed - 9 * GIB)
    assert rule.max_kv_bytes(GIB) == pytest.approx(8 * GIB - fixed)
    assert rule.max_kv_bytes(9 * GIB) == 0.0


def test_graphs_of_the_blocks_of_a_stage_count_twice_in_a_group(small: Decoder, system: GpuSystem) -> None:
    engine = engine_by_hand()
    engine = replace(engine, memory=engine.memory._replace(graph_bytes=MIB))
    held = [
        memory_rule(small, Serving("hand", "vllm", n_gpus), system, engine, n_stages, 1000).other_bytes
        for n_gpus, n_stages in ((1, 1), (1, 2), (2, 2))
    ]
    assert held == [GIB + 4 * MIB, GIB + 2 * MIB, GIB + 100 + 4 * MIB]


def test_tensorrt_llm_takes_a_share_of_what_is_free_for_the_cache(small: Decoder, system: GpuSystem) -> None:
    rule = memory_rule(small, Serving("hand", "trtllm"), system, TENSORRT_LLM, 1, 1000)
    free = 10 * GIB - 2 * GIB - rule.fixed_bytes.item()
    assert rule.max_kv_bytes(2 * GIB) == pytest.approx(0.9 * free)
    assert rule.excess_bytes(2 * GIB, 0.9 * free) == pytest.approx(0.0, abs=10)


def test_sglang_takes_a_share_of_what_libraries_leave_for_weights_and_cache(small: Decoder, system: GpuSystem) -> None:
    large = replace(system, memory_bytes=80 * GIB)
    rule = memory_rule(small, Serving("hand", "sglang"), large, SGLANG, 1, 1000)
    share, left = SGLANG.memory.share(80 * GIB, 1, 1), 80 * GIB - SGLANG.memory.base_bytes
    assert rule.max_kv_bytes(2 * GIB) == pytest.approx(share * left - 2 * GIB)


def test_a_published_start_of_sglang_has_as_many_tokens() -> None:
    """Qwen3-235B-A22B-FP8 on four H100 at a share of 0.93: 367,404 tokens (vllm#21348)."""
    qwen = Decoder("", "Qwen3MoeForCausalLM", 4096, 94, 64, 4, 128, 12288, 151936, False, experts=Experts(128, 8, 1536))
    serving = Serving("h100_sxm", "sglang", 4, weights=WeightFormat.FP8_BLOCK)
    h100 = GpuSystem("h100_sxm", usable_bytes(81_559 * MIB), 8, 1e9, 1e8, 1e7, 1e-5, ("sglang",))
    engine = replace(SGLANG, memory=SGLANG.memory._replace(share=ConstantShare(0.93)))
    weights = 94 * block_weight_bytes(qwen, serving) + 2 * table_bytes(qwen, serving)
    n_bytes = memory_rule(qwen, serving, h100, engine, 1, 8192).max_kv_bytes(weights).item()
    assert n_bytes / (94 * block_cache_bytes(qwen, serving, 1)) == pytest.approx(367_404, rel=0.02)


def test_releases_held_what_they_held() -> None:
    held = [VLLM.memory.of(release).logit_bytes for release in ((0, 9, 2), (0, 11, 0), (0, 17, 1), (0, 18, 0))]
    assert held == [34, 10, 34, 14]
    assert VLLM.memory.of((0, 33, 0)) == VLLM.memory
    assert VLLM.memory.of((0, 19, 0)).graph_bytes == 0 < VLLM.memory.graph_bytes


@pytest.fixture(scope="module")
def logs() -> list[dict[str, str]]:
    pytest.importorskip("aiconfigurator_core", reason="it has the systems and the models")
    with (Path(__file__).parent / "kv_cache_logs.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_cache_is_as_large_as_engines_print(logs: list[dict[str, str]]) -> None:
    errors = [error_of(row) for row in logs]
    assert median(map(abs, errors)) <= 0.01
    assert abs(median(errors)) <= 0.005
    assert max(map(abs, errors)) <= 0.05


def test_of_a_gpu_without_measured_kernels_the_memory_is_known(logs: list[dict[str, str]]) -> None:
    """Llama-3.1-8B on 24 GB: 0.92 x 23.5 GiB less 15.0 of weights and about 1.6 are held."""
    small = {**logs[0], "shape": "meta-llama/Meta-Llama-3.1-8B", "weights": "bf16", "tensor_parallel": "1"}
    assert forecast({**small, "system": "rtx_a5000"}).tokens == pytest.approx(5.0 * GIB / 2**17, rel=0.05)
    with pytest.raises(BadInput, match=r"a GPU must be a100_sxm, .* got 'k80'"):
        forecast({**small, "system": "k80"})
