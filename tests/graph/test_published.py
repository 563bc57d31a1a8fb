"""Published figures of models: weights within 0.5 %, what a token holds in the cache to the byte.

Billions of weights are those of model cards and reports, of the text tower, without blocks that predict more words:
gpt-oss (arXiv 2508.10925, table 1), DeepSeek-V2 (arXiv 2405.04434), V3 (arXiv 2412.19437), Qwen3 (arXiv 2505.09388),
others: the cards of their repositories on Hugging Face.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autoauto.graph.decoders.huggingface import bundled_names, decoder_of
from autoauto.graph.decoders.layers import graph_of
from autoauto.records.costs.decoder import WeightFormat
from autoauto.records.errors import UnreadableModel
from autoauto.records.units import Precision

BF16, FP8 = WeightFormat.BF16, WeightFormat.FP8
BUNDLED = {
    "openai/gpt-oss-120b": 116.83,
    "openai/gpt-oss-20b": 20.91,
    "deepseek-ai/DeepSeek-V3": 671.0,
    "MiniMaxAI/MiniMax-M2.5": 229.0,
    "Qwen/Qwen3-235B-A22B": 235.0,
    "Qwen/Qwen3-Coder-480B-A35B-Instruct": 480.0,
    "Qwen/Qwen3-30B-A3B": 30.5,
    "Qwen/Qwen3-32B": 32.8,
    "Qwen/Qwen3-8B": 8.19,
    "Qwen/Qwen3.5-397B-A17B": 397.0,
    "Qwen/Qwen3.5-122B-A10B": 122.0,
    "Qwen/Qwen3.5-27B": 27.0,
    "meta-llama/Meta-Llama-3.1-8B": 8.03,
    "meta-llama/Meta-Llama-3.1-70B": 70.6,
    "meta-llama/Meta-Llama-3.1-405B": 405.9,
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct": 400.0,
    "mistralai/Mixtral-8x7B-v0.1": 46.7,
    "mistralai/Mixtral-8x22B-v0.1": 140.6,
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": 31.6,
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8": 120.6,
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": 550.0,
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1": 49.9,
    "zai-org/GLM-5": 744.0,
    "XiaomiMiMo/MiMo-V2-Flash": 309.0,
    "stepfun-ai/Step-3.7-Flash": 196.0,
    "google/gemma-4-26B-A4B": 25.2,
    "nvidia/Gemma-4-31B-IT-NVFP4": 30.7,
}


def config(architecture: str, layers: int, hidden: int, inner: int, heads: int, **others: Any) -> dict[str, Any]:
    return {
        "architectures": [architecture],
        **{"num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": inner},
        **{"num_attention_heads": heads, "max_position_embeddings": 32_768, **others},
    }


_LATENT = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
_V2 = {"n_shared_experts": 2, "first_k_dense_replace": 1, "num_experts_per_tok": 6, **_LATENT}
WRITTEN = {
    "DeepSeek-V2": (
        config("DeepseekV2ForCausalLM", 60, 5120, 12_288, 128, q_lora_rank=1536, n_routed_experts=160, **_V2)
        | {"moe_intermediate_size": 1536},
        235.74,
    ),
    "DeepSeek-V2-Lite": (
        config("DeepseekV2ForCausalLM", 27, 2048, 10_944, 16, q_lora_rank=None, n_routed_experts=64, **_V2)
        | {"moe_intermediate_size": 1408},
        15.7,
    ),
    "Command-R": (config("CohereForCausalLM", 40, 8192, 22_528, 64), 35.0),
    "OLMo-2-7B": (config("Olmo2ForCausalLM", 32, 4096, 11_008, 32, vocab_size=100_352), 7.3),
    "SmolLM3-3B": (config("SmolLM3ForCausalLM", 36, 2048, 11_008, 16), 3.08),
    "Seed-OSS-36B": (config("SeedOssForCausalLM", 64, 5120, 27_648, 80), 36.15),
    "ERNIE-4.5-21B-A3B": (config("Ernie4_5_MoeForCausalLM", 28, 2560, 12_288, 20), 21.83),
    "Granite-3.3-8B": (
        config("GraniteForCausalLM", 40, 4096, 12_800, 32, num_key_value_heads=8, vocab_size=49_159)
        | {"tie_word_embeddings": True},
        8.17,
    ),
    "Gemma-2-9B": (config("Gemma2ForCausalLM", 42, 3584, 14_336, 16, num_key_value_heads=8), 9.24),
}


@pytest.fixture(scope="module")
def package() -> None:
    pytest.importorskip("aiconfigurator_core", reason="it bundles the configs")


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(("name", "billions"), BUNDLED.items())
def test_bundled_models_have_the_published_weights(name: str, billions: float) -> None:
    assert decoder_of(name).n_weights == pytest.approx(billions * 1e9, rel=0.005)


def test_decoders_that_come_with_autoauto_have_the_published_weights() -> None:
    """Of model cards; without the package of measured times, too."""
    published = {
        "meta-llama/Llama-2-7b-hf": 6.74,
        "meta-llama/Llama-2-13b-chat-hf": 13.02,
        "meta-llama/Llama-2-70b-hf": 68.98,
        "codellama/CodeLlama-7b-hf": 6.74,
        "codellama/CodeLlama-13b-hf": 13.02,
        "codellama/CodeLlama-34b-Instruct-hf": 33.74,
        "01-ai/Yi-34B": 34.39,
        "meta-llama/Llama-3.2-1B-Instruct": 1.24,
        "meta-llama/Llama-3.2-3B": 3.21,
        "meta-llama/Meta-Llama-3-8B-Instruct": 8.03,
        "meta-llama/Llama-3.3-70B-Instruct": 70.55,
        "mistralai/Mistral-7B-Instruct-v0.2": 7.24,
        "mistralai/Mistral-7B-v0.3": 7.25,
        "mistralai/Mistral-Nemo-Instruct-2407": 12.25,
        "mistralai/Mistral-Small-24B-Instruct-2501": 23.57,
        "mistralai/Mixtral-8x7B-Instruct-v0.1": 46.7,
        "mistralai/Mixtral-8x22B-Instruct-v0.1": 140.62,
        "Qwen/Qwen2.5-1.5B": 1.54,
        "Qwen/Qwen2.5-3B": 3.09,
        "Qwen/Qwen2.5-7B-Instruct": 7.62,
        "Qwen/Qwen2.5-14B": 14.77,
        "Qwen/Qwen2.5-32B-Instruct": 32.76,
        "Qwen/Qwen2.5-72B-Instruct": 72.71,
        "Qwen/Qwen3-4B": 4.02,
        "Qwen/Qwen3-14B": 14.77,
        "microsoft/phi-4": 14.66,
    }
    for name, billions in published.items():
        assert decoder_of(name).n_weights == pytest.approx(billions * 1e9, rel=0.005), name


@pytest.mark.parametrize(
    ("name", "n_windowed", "of_a_token"),
    [
        ("mistralai/Mistral-7B-v0.1", 32, 0),
        ("mistralai/Mistral-7B-Instruct-v0.2", 0, 131_072),  # sliding_window is null from v0.2 on
        ("mistralai/Mistral-Nemo-Instruct-2407", 0, 163_840),
        ("mistralai/Mistral-Small-24B-Instruct-2501", 0, 163_840),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", 0, 131_072),
        ("Qwen/Qwen2.5-72B-Instruct", 0, 327_680),
    ],
)
def test_decoders_that_come_with_autoauto_have_the_windows_of_their_cards(
    name: str, n_windowed: int, of_a_token: int
) -> None:
    decoder = decoder_of(name)
    assert decoder.n_windowed == n_windowed
    assert decoder.cached_bytes(1, BF16, 20_001) - decoder.cached_bytes(1, BF16, 20_000) == of_a_token


@pytest.mark.parametrize("name", WRITTEN)
def test_other_models_have_the_published_weights(tmp_path: Path, name: str) -> None:
    entries, billions = WRITTEN[name]
    (tmp_path / "config.json").write_text(json.dumps(entries))
    decoder = decoder_of(tmp_path)
    assert decoder.n_weights == pytest.approx(billions * 1e9, rel=0.005)
    assert graph_of(decoder).n_weight_bytes(Precision.BF16) == 2 * decoder.n_weights


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("name", "kv_cache", "n_bytes"),
    [
        ("deepseek-ai/DeepSeek-V3", BF16, 70_272),  # arXiv 2505.09343, table 1
        ("meta-llama/Meta-Llama-3.1-405B", BF16, 516_096),  # the same
        ("deepseek-ai/DeepSeek-V3", FP8, 61 * 576),
        ("moonshotai/Kimi-K2-Instruct", BF16, 70_272),  # the same latent vectors, arXiv 2507.20534
        ("deepseek-ai/DeepSeek-V3.2", FP8, 61 * (656 + 132)),  # blog.vllm.ai, 2025-09-29, and keys of the index
        ("openai/gpt-oss-120b", BF16, 18 * 2 * 8 * 64 * 2),  # every second of 36 blocks has no window
        ("Qwen/Qwen3.5-397B-A17B", BF16, 15 * 2 * 2 * 256 * 2),  # every fourth of 60 blocks
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", BF16, 6 * 2 * 2 * 128 * 2),  # 6 of 52 blocks
        ("XiaomiMiMo/MiMo-V2-Flash", BF16, 9 * 4 * (192 + 128) * 2),  # 9 of 48 blocks, its card
        ("google/gemma-4-26B-A4B", BF16, 5 * 2 * 2 * 512 * 2),  # every sixth of 30 blocks
    ],
)
def test_a_token_of_a_long_sequence_holds_the_published_bytes(name: str, kv_cache: WeightFormat, n_bytes: int) -> None:
    decoder = decoder_of(name)
    assert decoder.cached_bytes(1, kv_cache, 20_001) - decoder.cached_bytes(1, kv_cache, 20_000) == n_bytes


@pytest.mark.usefixtures("package")
def test_states_and_windows_have_a_constant_size() -> None:
    """45 blocks of 64 heads with 128 x 128 in 4 bytes, and 3 tokens of 12,288 elements; 18 windows of 128 tokens."""
    qwen, oss = decoder_of("Qwen/Qwen3.5-397B-A17B"), decoder_of("openai/gpt-oss-120b")
    assert qwen.cached_bytes(1, BF16, 0) == 45 * (64 * 128 * 128 * 4 + 3 * 12_288 * 2)
    assert oss.cached_bytes(1, BF16, 128) == 36 * 128 * 2048
    assert oss.cached_bytes(1, BF16, 1_128) == (36 * 128 + 18 * 1000) * 2048


@pytest.mark.usefixtures("package")
def test_what_the_package_bundles_is_read_or_says_what_is_missing() -> None:
    reasons = {}
    for name in bundled_names():
        try:
            decoder_of(name)
        except UnreadableModel as reason:
            reasons[name] = str(reason)
    assert len(bundled_names()) - len(reasons) >= 75
    said = ("its attention reads", "its attention chooses", "it has linear attention", "got w4a16_nvfp4")
    assert [name for name, reason in reasons.items() if not any(each in reason for each in said)] == []
