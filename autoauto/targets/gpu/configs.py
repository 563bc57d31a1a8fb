"""The models by which the package of kernel times stands for a decoder whose blocks are alike: `sources_of`.

A block is described as one of the package's own families. Where no family has both its attention and its feed-forward
layer, two families are used, and of each the operations of one side of the block:

    attention of keys and values    Llama, Mixtral; gated: Qwen3.5           windows: see `tables.py`
    latent                          DeepSeek-V3; sparse: DeepSeek-V3.2, GLM-5
    linear; Mamba 2                 Qwen3.5; NemotronH
    experts, with shared ones       Mixtral, Qwen3; DeepSeek-V3, which computes one shared expert beside the others
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, NamedTuple

from autoauto.records.costs.blocks import Attention, Experts, LatentAttention, LinearAttention, StateSpace
from autoauto.records.costs.decoder import Decoder

_NORMED_QUERIES = ("Qwen3", "Gemma3", "MiniMaxM2", "Olmo", "Step3p", "Glm4Moe")
"""Architectures that normalise queries and keys begin with these."""
_SPARSE_CLASSES = ("DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM")
"""Classes by which the package names times of sparse attention; other classes count as the first."""
_OTHER_EXPERTS = Experts(256, 8, 2048)
"""Experts of a block of latent attention and a dense layer: in the package's families all such blocks have experts."""


class Side(Enum):
    """The operations of a source that are taken."""

    ALL = "all"
    ATTENTION = "attention"
    """Norm, products and attention."""
    FEED_FORWARD = "feed_forward"
    """All others, with all-reduces of experts, which are behind the attention and behind them."""
    WITH_REDUCES = "with_reduces"
    """The same of a dense layer, with the all-reduce behind the attention."""
    DENSE = "dense"
    """The products of a dense layer alone."""


class Described(NamedTuple):
    """The config of a model that the package knows, and which of its operations count."""

    config: Mapping[str, Any]
    side: Side = Side.ALL


def sources_of(decoder: Decoder) -> Sequence[Described]:
    """The models that together have the operations of a block; the last one has the embedding and the head."""
    attention, feed_forward = decoder.kind.attention, decoder.kind.feed_forward
    if decoder.architecture.startswith("NemotronH"):
        return [Described(_nemotron(decoder))]
    if isinstance(attention, LinearAttention) or (isinstance(attention, Attention) and attention.gate_size):
        return [Described(_qwen_3_5(decoder))]
    if isinstance(attention, LatentAttention):
        return _with_latent(decoder, attention)
    if attention is None or feed_forward is None:
        side = Side.FEED_FORWARD if attention is None else Side.ATTENTION
        return [Described(config_of(decoder), side)]
    if isinstance(feed_forward, Experts) and feed_forward.shared_size:
        before = Described(config_of(_dense(decoder, feed_forward.shared_size)), Side.ATTENTION)
        shared = Described(_latent(decoder, _OTHER_ATTENTION), Side.FEED_FORWARD)
        return [*_more_shared(decoder, feed_forward), before, shared]
    return [Described(config_of(decoder))]


def _with_latent(decoder: Decoder, attention: LatentAttention) -> Sequence[Described]:
    latent = _latent(decoder, attention)
    if decoder.experts is None:
        return [Described(latent, Side.ATTENTION), Described(config_of(decoder), Side.WITH_REDUCES)]
    return [*_more_shared(decoder, decoder.experts), Described(latent)]


_OTHER_ATTENTION = LatentAttention(128, 1536, 512, 64, 128, 128)
"""Beside experts whose attention is another."""


def _dense(decoder: Decoder, size: int) -> Decoder:
    return replace(decoder, experts=None, intermediate_size=size)


def _more_shared(decoder: Decoder, experts: Experts) -> Sequence[Described]:
    """A dense layer for the part by which shared experts are larger than one expert; nothing if they are not."""
    more = experts.shared_size - experts.intermediate_size
    if more <= 0:
        return []
    return [Described(config_of(_dense(decoder, more)), Side.DENSE)]


def config_of(decoder: Decoder) -> dict[str, object]:
    """The config of a decoder as one of the families of the package, without formats, which are said apart."""
    is_normed = decoder.architecture.startswith(_NORMED_QUERIES)
    if decoder.experts is None:
        return _common(decoder, "Qwen3ForCausalLM" if is_normed else "LlamaForCausalLM")
    architecture = "Qwen3MoeForCausalLM" if is_normed else "MixtralForCausalLM"
    return _common(decoder, architecture) | _of_experts(decoder.experts)


def _of_experts(experts: Experts) -> dict[str, object]:
    return {
        "num_experts": experts.n_experts,
        "num_experts_per_tok": experts.n_chosen,
        "moe_intermediate_size": experts.intermediate_size,
    }


def _common(decoder: Decoder, architecture: str) -> dict[str, object]:
    return {
        "architectures": [architecture],
        "hidden_size": decoder.hidden_size,
        "num_hidden_layers": decoder.n_layers,
        "num_attention_heads": decoder.n_heads,
        "num_key_value_heads": decoder.n_kv_heads,
        "head_dim": decoder.head_size,
        "intermediate_size": decoder.intermediate_size,
        "vocab_size": decoder.vocabulary_size,
        "tie_word_embeddings": decoder.is_tied,
        "max_position_embeddings": 131_072,
    }


def _latent(decoder: Decoder, attention: LatentAttention) -> dict[str, object]:
    """A model of DeepSeek's, whose blocks all have experts."""
    experts = decoder.experts or _OTHER_EXPERTS
    indexer = attention.indexer
    if indexer is None:
        architecture = "DeepseekV3ForCausalLM"
    elif decoder.architecture in _SPARSE_CLASSES:
        architecture = decoder.architecture
    else:
        architecture = _SPARSE_CLASSES[0]
    entries = _common(decoder, architecture) | {
        "num_attention_heads": attention.n_heads,
        "num_key_value_heads": attention.n_heads,
        "head_dim": attention.value_size,
        "q_lora_rank": attention.query_rank or 0,
        "kv_lora_rank": attention.latent_size,
        "qk_rope_head_dim": attention.rope_size,
        "qk_nope_head_dim": attention.head_size,
        "v_head_dim": attention.value_size,
        "n_routed_experts": experts.n_experts,
        "n_shared_experts": 1,
        "num_experts_per_tok": experts.n_chosen,
        "moe_intermediate_size": experts.intermediate_size,
        "first_k_dense_replace": 0,
    }
    if indexer is not None:
        entries |= {
            "index_n_heads": indexer.n_heads,
            "index_head_dim": indexer.head_size,
            "index_topk": indexer.n_chosen,
        }
        if not indexer.is_own:
            entries |= {"index_topk_freq": 2, "index_topk_pattern": "S" * decoder.n_layers}
    return entries


def _qwen_3_5(decoder: Decoder) -> dict[str, object]:
    """A model of Qwen3.5 whose blocks all have linear, or all gated attention."""
    attention, experts = decoder.kind.attention, decoder.experts
    entries: dict[str, object] = _common(decoder, "")
    del entries["architectures"]
    if isinstance(attention, LinearAttention):
        layer_type, linear = "linear_attention", attention
    else:  # the config needs some linear attention, though no block has it
        layer_type, linear = "full_attention", LinearAttention(16, 128, 32, 128, 4)
    entries |= {
        "layer_types": [layer_type] * decoder.n_layers,
        "linear_num_key_heads": linear.n_key_heads,
        "linear_key_head_dim": linear.key_size,
        "linear_num_value_heads": linear.n_value_heads,
        "linear_value_head_dim": linear.value_size,
        "linear_conv_kernel_dim": linear.kernel_size,
    }
    if experts is not None:
        entries |= _of_experts(experts) | {"shared_expert_intermediate_size": experts.shared_size}
    name = "Qwen3_5ForConditionalGeneration" if experts is None else "Qwen3_5MoeForConditionalGeneration"
    return {"architectures": [name], "text_config": entries, "vision_config": {}}


def _nemotron(decoder: Decoder) -> dict[str, object]:
    attention, feed_forward = decoder.kind.attention, decoder.kind.feed_forward
    # The config needs sizes of all kinds of blocks, also of those that it does not have.
    space = attention if isinstance(attention, StateSpace) else StateSpace(64, 64, 128, 8, 4)
    experts = feed_forward if isinstance(feed_forward, Experts) else None
    if isinstance(attention, StateSpace):
        sign = "M"
    elif attention is not None:
        sign = "*"
    else:
        sign = "E" if experts else "-"
    return _common(decoder, "NemotronHForCausalLM") | {
        "hybrid_override_pattern": sign * decoder.n_layers,
        "mamba_num_heads": space.n_heads,
        "mamba_head_dim": space.head_size,
        "ssm_state_size": space.state_size,
        "conv_kernel": space.kernel_size,
        "n_groups": space.n_groups,
        "chunk_size": 128,
        "n_routed_experts": experts.n_experts if experts else 0,
        "num_experts_per_tok": experts.n_chosen if experts else 0,
        "moe_intermediate_size": experts.intermediate_size if experts else 0,
        "moe_shared_expert_intermediate_size": experts.shared_size if experts else 0,
        "moe_latent_size": experts.inner_size if experts else None,
    }
