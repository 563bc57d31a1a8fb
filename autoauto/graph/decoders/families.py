"""Classes of Hugging Face whose decoders are modelled, `FAMILIES`: what they say that a config need not repeat.

Other classes are refused in a line that says which is near: `architecture_of`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from autoauto.records.errors import UnreadableModel


class DecoderClass(NamedTuple):
    """What a class of Hugging Face says that a config need not repeat.

    Attributes:
        defaults: its values by their keys. Where a class has none, num_key_value_heads is num_attention_heads, and
            head_dim hidden_size / num_attention_heads. A class with sliding_window may have windows in all blocks, with
            sliding_window_pattern n in all but every n-th, with max_window_layers in those after as many.
        has_experts: whether its feed-forward layers are mixtures of experts.
    """

    defaults: Mapping[str, int | None]
    has_experts: bool = False


def _defaults(
    vocabulary_size: int, n_heads: int, n_kv_heads: int | None, n_positions: int, **others: int | None
) -> dict[str, int | None]:
    heads = {"num_attention_heads": n_heads, "num_key_value_heads": n_kv_heads}
    return {"vocab_size": vocabulary_size, "max_position_embeddings": n_positions, **heads, **others}


_WINDOW = {"sliding_window": 4096}
_GEMMA = {"head_dim": 256, "tie_word_embeddings": 1}
_MISTRAL = DecoderClass(_defaults(32_000, 32, 8, 131_072, **_WINDOW))
_QWEN_2 = DecoderClass(_defaults(151_936, 32, 32, 32_768, **_WINDOW, max_window_layers=28))
_GEMMA_3 = DecoderClass(_defaults(262_208, 8, 4, 131_072, **_GEMMA, **_WINDOW, sliding_window_pattern=6))
_MIXTRAL = _defaults(32_000, 32, 8, 131_072, sliding_window=None, num_local_experts=8, num_experts_per_tok=2)
_QWEN_3_MOE = _defaults(151_936, 32, 4, 32_768, **_WINDOW, max_window_layers=0, num_experts=128, num_experts_per_tok=8)
FAMILIES = {
    "LlamaForCausalLM": DecoderClass(_defaults(32_000, 32, None, 2048)),
    "MistralForCausalLM": _MISTRAL,
    "Mistral3ForConditionalGeneration": _MISTRAL,
    "Qwen2ForCausalLM": _QWEN_2,
    "Qwen3ForCausalLM": DecoderClass({**_QWEN_2.defaults, "head_dim": 128}),
    "Qwen3VLForConditionalGeneration": DecoderClass(_defaults(151_936, 32, 32, 128_000, head_dim=128)),
    "MiMoForCausalLM": _QWEN_2,
    "Phi3ForCausalLM": DecoderClass(_defaults(32_064, 32, None, 4096, sliding_window=None)),
    "GemmaForCausalLM": DecoderClass(_defaults(256_000, 16, 16, 8192, **_GEMMA)),
    "Gemma2ForCausalLM": DecoderClass(_defaults(256_000, 8, 4, 8192, **_GEMMA, **_WINDOW, sliding_window_pattern=2)),
    "Gemma3ForCausalLM": _GEMMA_3,
    "Gemma3ForConditionalGeneration": _GEMMA_3,
    "MixtralForCausalLM": DecoderClass(_MIXTRAL, has_experts=True),
    "Qwen3MoeForCausalLM": DecoderClass(_QWEN_3_MOE | {"moe_intermediate_size": 768}, has_experts=True),
}
"""Defaults are those of the classes [transformers]; sizes of layers and their number must be given."""
_SHARED_EXPERTS = "it has shared experts"
_EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts")
_FORMS = {
    "kv_lora_rank": "it has multi-head latent attention",
    "layers_block_type": "its blocks are unlike each other",
    "hybrid_override_pattern": "its blocks are unlike each other",
    "block_configs": "its blocks are unlike each other",
    "linear_num_key_heads": "it has linear attention",
    "n_shared_experts": _SHARED_EXPERTS,
    "shared_expert_intermediate_size": _SHARED_EXPERTS,
    "is_encoder_decoder": "it has an encoder",
}
"""Keys of forms that are not modelled."""
_UNLIKE = ("kv_lora_rank", "layers_block_type", "hybrid_override_pattern", "block_configs", "mlp_only_layers")
"""Keys of models whose blocks are unlike each other, or whose attention is of another form."""


def architecture_of(name: str, config: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    """The class of a decoder.

    Raises:
        UnreadableModel: it is not modelled; the line says which is near.
    """
    listed = config.get("architectures")
    architecture = listed[0] if isinstance(listed, list) and listed else None
    if isinstance(architecture, str) and architecture in FAMILIES:
        return architecture
    known = ", ".join(FAMILIES)
    if not isinstance(architecture, str):
        raise UnreadableModel(f"architectures must name one of {known}, got {architecture!r:.60} in {name}")
    form = next((form for key, form in _FORMS.items() if text.get(key)), "")
    near = None if form and form != _SHARED_EXPERTS else _nearest(architecture, text)
    hint = f"decoders of equal blocks are {known}"
    if near:
        hint = f"near it is {near}; a copy of the config that names it is priced as such a model, without what differs"
    raise UnreadableModel(f"{architecture!r:.60} of {name} is not modelled{form and f': {form}'}; {hint}")


def _nearest(architecture: str, text: Mapping[str, Any]) -> str | None:
    """A modelled class of the same makers, dense or of experts as this one; of other makers only one of experts."""
    has_experts = any(text.get(key) for key in _EXPERT_COUNTS)
    able = [each for each, family in FAMILIES.items() if family.has_experts == has_experts]
    maker = re.match(r"[A-Z]?[a-z]*", architecture)
    related = [each for each in able if maker and maker[0] and each.startswith(maker[0])]
    near = get_close_matches(architecture, related, 1, 0.0)
    return near[0] if near else ("MixtralForCausalLM" if has_experts else None)


def check_like_blocks(name: str, text: Mapping[str, Any]) -> None:
    """Refuse models whose blocks differ, or whose attention caches other tensors than keys and values."""
    unlike = [key for key in _UNLIKE if text.get(key)]
    if text.get("decoder_sparse_step", 1) != 1:
        unlike.append("decoder_sparse_step")
    if unlike:
        raise UnreadableModel(f"all blocks must be alike, with keys and values in the cache; {name} has {unlike[0]}")
