"""Classes of Hugging Face whose decoders are modelled, with the defaults that a config may leave out: `FAMILIES`.

What their blocks compute is read by `kinds.py` from keys that many classes have. Other classes are refused in a line
that says what is missing: `architecture_of`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import SequenceMatcher
from typing import Any

from autoauto.records.errors import UnreadableModel

Defaults = Mapping[str, int | None]
"""Values of a class by their keys. Where it has none, num_key_value_heads is num_attention_heads, and head_dim
hidden_size / num_attention_heads. A class with sliding_window may have windows in all blocks, with
sliding_window_pattern n in all but every n-th, with max_window_layers in those after as many, with chunk_pattern n
chunks of attention in all but every n-th. Only a class with a number of experts has some."""


def _defaults(
    vocabulary_size: int, n_heads: int, n_kv_heads: int | None, n_positions: int, **others: int | None
) -> dict[str, int | None]:
    heads = {"num_attention_heads": n_heads, "num_key_value_heads": n_kv_heads}
    return {"vocab_size": vocabulary_size, "max_position_embeddings": n_positions, **heads, **others}


_WINDOW = {"sliding_window": 4096}
_TIED = {"tie_word_embeddings": 1}
_GEMMA = {"head_dim": 256, **_TIED}
_MISTRAL = _defaults(32_000, 32, 8, 131_072, **_WINDOW)
_QWEN_2 = _defaults(151_936, 32, 32, 32_768, **_WINDOW, max_window_layers=28)
_QWEN_3_VL = _defaults(151_936, 32, 32, 128_000, head_dim=128)
_GEMMA_3 = _defaults(262_208, 8, 4, 131_072, **_GEMMA, **_WINDOW, sliding_window_pattern=6)
_CHOSEN = {"num_experts_per_tok": 8}
_MIXTRAL = _defaults(32_000, 32, 8, 131_072, sliding_window=None, num_local_experts=8, num_experts_per_tok=2)
_QWEN_3_MOE = _defaults(
    151_936, 32, 4, 32_768, **_WINDOW, **_CHOSEN, max_window_layers=0, num_experts=128, moe_intermediate_size=768
)
_QWEN_3_5 = _defaults(248_320, 16, 4, 32_768, head_dim=256, attn_output_gate=1, linear_conv_kernel_dim=4)
_QWEN_3_5_MOE = {**_QWEN_3_5, **_CHOSEN, "num_experts": 256}
_DEEPSEEK = _defaults(129_280, 128, 128, 4096, **_CHOSEN, n_routed_experts=256, n_shared_experts=1)
_LLAMA_4 = _defaults(
    202_048, 40, 8, 131_072, num_local_experts=16, num_experts_per_tok=1, attention_chunk_size=8192, chunk_pattern=4
)
_GLM_4_MOE = _defaults(
    151_552, 96, 8, 131_072, **_CHOSEN, n_routed_experts=128, n_shared_experts=1, first_k_dense_replace=1
)
_ERNIE = _defaults(103_424, 16, 2, 131_072, head_dim=128, **_TIED)
_STEP = _defaults(128_896, 64, 8, 65_536, **_CHOSEN, num_experts=288, **_WINDOW)
FAMILIES: Mapping[str, Defaults] = {
    "LlamaForCausalLM": _defaults(32_000, 32, None, 2048),
    "MistralForCausalLM": _MISTRAL,
    "Mistral3ForConditionalGeneration": _MISTRAL,
    "Qwen2ForCausalLM": _QWEN_2,
    "Qwen3ForCausalLM": {**_QWEN_2, "head_dim": 128},
    "Qwen3VLForConditionalGeneration": _QWEN_3_VL,
    "MiMoForCausalLM": _QWEN_2,
    "Phi3ForCausalLM": _defaults(32_064, 32, None, 4096, sliding_window=None),
    "GemmaForCausalLM": _defaults(256_000, 16, 16, 8192, **_GEMMA),
    "Gemma2ForCausalLM": _defaults(256_000, 8, 4, 8192, **_GEMMA, **_WINDOW, sliding_window_pattern=2),
    "Gemma3ForCausalLM": _GEMMA_3,
    "Gemma3ForConditionalGeneration": _GEMMA_3,
    "Gemma4ForConditionalGeneration": _defaults(
        262_144, 8, 4, 131_072, **_GEMMA, sliding_window=512, num_experts=None, top_k_experts=None
    ),
    "GraniteForCausalLM": _defaults(32_000, 32, None, 2048),
    "CohereForCausalLM": _defaults(256_000, 64, None, 8192, **_TIED),
    "Cohere2ForCausalLM": _defaults(256_000, 64, None, 8192, **_TIED, **_WINDOW, sliding_window_pattern=4),
    "Olmo2ForCausalLM": _defaults(50_304, 32, None, 2048),
    "Olmo3ForCausalLM": _defaults(50_304, 32, None, 2048, **_WINDOW, sliding_window_pattern=4),
    "SmolLM3ForCausalLM": _defaults(128_256, 16, 4, 32_768, **_TIED),
    "SeedOssForCausalLM": _defaults(155_136, 80, 8, 524_288, head_dim=128),
    "Ernie4_5ForCausalLM": _ERNIE,
    "Ernie4_5_MoeForCausalLM": {
        **_defaults(103_424, 20, 4, 131_072, **_TIED),
        **{"moe_num_experts": 64, "moe_k": 6, "moe_num_shared_experts": 2, "moe_intermediate_size": 1536},
        **{"moe_layer_start_index": 1, "moe_layer_interval": 1},
    },
    "DeciLMForCausalLM": _defaults(128_256, 64, None, 131_072),
    "MixtralForCausalLM": _MIXTRAL,
    "Qwen3MoeForCausalLM": _QWEN_3_MOE,
    "Qwen3VLMoeForConditionalGeneration": {
        **_defaults(151_936, 16, 16, 128_000, **_CHOSEN, num_experts=60, moe_intermediate_size=1408)
    },
    "Qwen2MoeForCausalLM": _defaults(
        151_936, 16, 16, 32_768, num_experts=60, num_experts_per_tok=4, shared_expert_intermediate_size=5632
    ),
    "GraniteMoeForCausalLM": _defaults(32_000, 32, None, 2048, num_local_experts=8, num_experts_per_tok=2),
    "MiniMaxM2ForCausalLM": _defaults(200_064, 48, 8, 196_608, **_CHOSEN, num_local_experts=256),
    "GptOssForCausalLM": _defaults(
        201_088, 64, 8, 131_072, head_dim=64, num_local_experts=128, num_experts_per_tok=4, sliding_window=128
    )
    | {"sliding_window_pattern": 2},
    "Glm4MoeForCausalLM": _GLM_4_MOE,
    "Llama4ForConditionalGeneration": _LLAMA_4,
    "Llama4ForCausalLM": _LLAMA_4,
    "MiMoV2FlashForCausalLM": _defaults(152_576, 64, 4, 262_144, **_CHOSEN, n_routed_experts=256, sliding_window=128),
    "Step3p7FlashForCausalLM": _STEP,
    "Step3p5ForCausalLM": _STEP,
    "DeepseekV2ForCausalLM": {**_DEEPSEEK, "vocab_size": 102_400, "n_routed_experts": 64, "num_experts_per_tok": 6},
    "DeepseekV3ForCausalLM": _DEEPSEEK,
    "DeepseekV32ForCausalLM": _DEEPSEEK,
    "GlmMoeDsaForCausalLM": _defaults(
        154_880, 64, 64, 202_752, **_CHOSEN, n_routed_experts=256, n_shared_experts=1, first_k_dense_replace=3
    ),
    "KimiK25ForConditionalGeneration": {**_DEEPSEEK, "n_routed_experts": 384},
    "Qwen3NextForCausalLM": {**_QWEN_3_5_MOE, "vocab_size": 151_936, "num_experts": 512, "num_key_value_heads": 2},
    "Qwen3_5ForConditionalGeneration": _QWEN_3_5,
    "Qwen3_5MoeForConditionalGeneration": _QWEN_3_5_MOE,
    "NemotronHForCausalLM": _defaults(
        131_072, 32, 8, 4096, head_dim=128, n_routed_experts=None, num_experts_per_tok=2, conv_kernel=4
    ),
}
"""Defaults are those of the classes [transformers]; sizes of layers and their number must be given."""
_EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_FORMS = {
    "compress_ratios": "its attention reads compressed tokens, and its blocks have several residual streams",
    "linear_attn_config": "it has linear attention with a rate a channel (Kimi Delta Attention)",
    "sparse_attention_config": "its attention chooses blocks of tokens (MiniMax sparse attention)",
    "attn_type_list": "it has lightning attention, of which no kernels were measured",
    "mamba_d_state": "it has layers of Mamba beside others",
    "is_encoder_decoder": "it has an encoder",
    "kv_lora_rank": "it has multi-head latent attention",
    "layers_block_type": "its blocks are unlike each other",
    "hybrid_override_pattern": "its blocks are unlike each other",
    "block_configs": "its blocks are unlike each other",
    "linear_num_key_heads": "it has linear attention",
}
"""Keys of forms that not every class has: those before the last five are not modelled."""


def architecture_of(name: str, config: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    """The class of a decoder; raises UnreadableModel for one that is not modelled."""
    listed = config.get("architectures")
    architecture = listed[0] if isinstance(listed, list) and listed else None
    if isinstance(architecture, str) and architecture in FAMILIES:
        return architecture
    known = ", ".join(FAMILIES)
    if not isinstance(architecture, str):
        raise UnreadableModel(f"architectures must name one of {known}, got {architecture!r:.60} in {name}")
    refused = f"{architecture!r:.60} of {name} is not modelled"
    form = next((form for key, form in _FORMS.items() if text.get(key)), "")
    if form:
        raise UnreadableModel(f"{refused}: {form}; modelled decoders are {known}")
    near = _nearest(architecture, text)
    hint = f"modelled decoders are {known}"
    if near:
        hint = f"near it is {near}; a copy of the config that names it is priced as such a model, without what differs"
    raise UnreadableModel(f"{refused}; {hint}")


def _nearest(architecture: str, text: Mapping[str, Any]) -> str | None:
    """The class of the same makers with the most similar name; Mixtral for a class of experts of other makers.

    The longest beginning in common counts first: a Qwen2_5_VL is a Qwen2, and no Qwen3_5.
    """
    has_experts = any(text.get(key) for key in _EXPERT_COUNTS)
    able = [each for each, defaults in FAMILIES.items() if any(map(defaults.get, _EXPERT_COUNTS)) == has_experts]
    maker = re.match(r"[A-Z]?[a-z]*", architecture)
    related = [each for each in able if maker and maker[0] and each.startswith(maker[0])]
    if related:
        return max(related, key=lambda name: _likeness(architecture, name))
    return "MixtralForCausalLM" if has_experts else None


def _likeness(first: str, second: str) -> tuple[int, float]:
    unlike = (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    return next(unlike, min(len(first), len(second))), SequenceMatcher(None, first, second).ratio()
