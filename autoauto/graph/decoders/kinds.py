"""The layers in each block of a decoder, by the keys of its config: `blocks_of`.

attention       kv_lora_rank: latent vectors; layer_types, windows, chunks, patterns: by block; else keys and values
feed-forward    a number of experts, and which blocks are dense; else a dense layer
NemotronH       one of both in a block, by a pattern; DeciLM sizes by block
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autoauto.graph.decoders.values import Values, whole_number
from autoauto.records.costs.blocks import (
    Attention,
    BlockKind,
    Dense,
    Experts,
    Indexer,
    LatentAttention,
    LinearAttention,
    Mixer,
    StateSpace,
)
from autoauto.records.errors import UnreadableModel

_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_CHOSEN = ("num_experts_per_tok", "top_k_experts", "moe_k", "moe_top_k")
_SHARED_COUNTS = ("n_shared_experts", "moe_num_shared_experts")
_SHARED_SIZES = ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "share_expert_dim")
_FULL, _SLIDING, _CHUNKED, _LINEAR = "full_attention", "sliding_attention", "chunked_attention", "linear_attention"
_MAX_FACTOR = 1000
"""Of the width of a feed-forward layer."""
_MOST = 2**31
"""Of numbers of blocks, which may be larger than there are."""
_ZERO = ("num_kv_shared_layers", "hidden_size_per_layer_input")
"""Keys that must be 0: blocks that share keys and values, and an embedding a block, of Gemma 4."""
_OF_SIGNS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
"""The signs of a pattern of blocks of NemotronH."""


def blocks_of(architecture: str, fields: Values, n_layers: int, max_length: int) -> tuple[BlockKind, ...]:
    """The layers of every block; raises `UnreadableModel` for a key that is missing, or says what is not modelled."""
    if architecture.startswith("NemotronH"):
        return _of_nemotron(fields, n_layers)
    if fields.config.get("block_configs"):
        return _of_block_configs(fields, n_layers)
    for key in _ZERO:
        if fields.config.get(key):
            given = fields.config[key]
            raise UnreadableModel(f"{key} must be 0, which is modelled, got {given!r:.20} in {fields.name}")
    attentions = _attentions(architecture, fields, n_layers, max_length)
    dense_blocks = _dense_blocks(fields, n_layers)
    if architecture.startswith("Llama4"):
        dense_size = fields.count("intermediate_size_mlp", otherwise=16_384)
    elif not fields.first_key(_COUNTS):
        dense_size = fields.count("intermediate_size")
    else:
        dense_size = fields.count("intermediate_size", otherwise=fields.count("moe_intermediate_size", otherwise=1))
    dense, experts = Dense(dense_size), _experts(architecture, fields)
    kinds: list[BlockKind] = []
    for attention, is_dense in zip(attentions, dense_blocks, strict=True):
        feed_forward = dense if is_dense or experts is None else experts
        kinds.append(BlockKind(attention, feed_forward))
    return tuple(kinds)


def _experts(architecture: str, fields: Values) -> Experts | None:
    key = fields.first_key(_COUNTS)
    if key is None:
        return None
    if not set(_COUNTS).intersection(fields.defaults):
        raise UnreadableModel(f"{architecture} has no experts here, got {key} in {fields.name}")
    n_experts = fields.count(key)
    size = fields.count("moe_intermediate_size", otherwise=fields.config.get("intermediate_size"))
    shared, counts = fields.first_key(_SHARED_SIZES), fields.first_key(_SHARED_COUNTS)
    shared_size = 0
    if architecture.startswith(("Llama4", "Gemma4")):
        shared_size = fields.count("intermediate_size")
    elif shared:
        shared_size = fields.count(shared)
    elif counts and fields.config.get(counts, True):  # 0 and null are none, also where the class has one
        shared_size = size * fields.count(counts)
    return Experts(
        n_experts=n_experts,
        n_chosen=fields.count(fields.first_key(_CHOSEN) or _CHOSEN[0], most=n_experts),
        intermediate_size=size,
        shared_size=shared_size,
        inner_size=fields.optional_count("moe_latent_size"),
    )


def _dense_blocks(fields: Values, n_layers: int) -> Sequence[bool]:
    every = range(n_layers)
    listed = fields.per_block("mlp_layer_types", n_layers)
    if listed is not None:
        return [each == "dense" for each in _one_of(("dense", "sparse", "moe"), listed, "mlp_layer_types", fields)]
    listed = fields.per_block("moe_layer_freq", n_layers)
    if listed is not None:
        return [not each for each in _one_of((0, 1), listed, "moe_layer_freq", fields)]
    first = fields.value("first_k_dense_replace") or 0
    every_nth = fields.config.get("moe_layer_freq", 1)
    if fields.value("moe_layer_interval"):  # of ERNIE
        first, every_nth = fields.count("moe_layer_start_index"), fields.count("moe_layer_interval")
        last = fields.config.get("moe_layer_end_index")
        stop = n_layers
        if isinstance(last, int) and last >= 0:
            stop = last + 1
        return [not first <= i < stop or bool((i + 1) % every_nth) for i in every]
    only = fields.config.get("mlp_only_layers") or []
    if not isinstance(only, list) or not all(isinstance(each, int) for each in only):
        raise UnreadableModel(f"mlp_only_layers must be a list of whole numbers, got {only!r:.60} in {fields.name}")
    step = fields.config.get("decoder_sparse_step", fields.config.get("interleave_moe_layer_step", 1))
    if not all(isinstance(each, int) and each >= low for each, low in ((first, 0), (every_nth, 1), (step, 1))):
        raise UnreadableModel(
            f"first_k_dense_replace, moe_layer_freq, decoder_sparse_step must be numbers, got {first!r:.20}, "
            f"{every_nth!r:.20} and {step!r:.20} in {fields.name}"
        )
    # DeepSeek counts the blocks with experts from 0 on, Qwen and Llama 4 from 1 on.
    return [i < first or bool(i % every_nth) or i in only or bool((i + 1) % step) for i in every]


def _one_of(known: Sequence[Any], listed: Any, key: str, fields: Values) -> list[Any]:
    """A list of known values.

    Raises:
        UnreadableModel: it is none, or has another value, which would count as one of these.
    """
    if isinstance(listed, list) and all(each in known for each in listed):
        return listed
    shown = " or ".join(map(repr, known))
    raise UnreadableModel(f"{key} must be a list of {shown}, got {listed!r:.60} in {fields.name}")


def _attentions(architecture: str, fields: Values, n_layers: int, max_length: int) -> Sequence[Mixer]:
    if fields.value("kv_lora_rank"):
        return _latent(fields, n_layers)
    kinds = _attention_kinds(architecture, fields, n_layers)
    full = _full(fields)
    of_kind: dict[str, Callable[[], Mixer]] = {
        _FULL: lambda: _global(architecture, fields, full),
        _SLIDING: lambda: _windowed(architecture, fields, full, max_length),
        # A query in a chunk sees half of the chunk in the mean, and all of it at most, which is counted.
        _CHUNKED: lambda: _bounded(full, fields.count("attention_chunk_size"), max_length),
        _LINEAR: lambda: LinearAttention(
            n_key_heads=fields.count("linear_num_key_heads"),
            key_size=fields.count("linear_key_head_dim"),
            n_value_heads=fields.count("linear_num_value_heads"),
            value_size=fields.count("linear_value_head_dim"),
            kernel_size=fields.count("linear_conv_kernel_dim"),
        ),
    }
    # Each kind is made once, and only if a block has it: the keys of other kinds may be missing.
    made = {kind: of_kind[kind]() for kind in dict.fromkeys(kinds)}
    return [made[kind] for kind in kinds]


def _full(fields: Values) -> Attention:
    n_heads = fields.count("num_attention_heads")
    n_kv_heads = fields.count("num_key_value_heads", otherwise=n_heads, most=n_heads)
    if n_heads % n_kv_heads:
        raise UnreadableModel(
            f"num_key_value_heads must divide the {n_heads} num_attention_heads, got {n_kv_heads} in {fields.name}"
        )
    hidden_size = fields.count("hidden_size")
    if fields.value("head_dim") is None and hidden_size % n_heads:
        raise UnreadableModel(
            f"num_attention_heads must divide the hidden_size of {hidden_size} where there is no head_dim, got "
            f"{n_heads} in {fields.name}"
        )
    head_size = fields.count("head_dim", otherwise=max(1, hidden_size // n_heads))
    gate_size = 0
    if fields.flag("attn_output_gate"):
        gate_size = n_heads * head_size
    return Attention(
        n_heads,
        n_kv_heads,
        head_size,
        value_size=_unlike(fields.optional_count("v_head_dim"), head_size),
        gate_size=gate_size,
    )


def _unlike(value_size: int | None, head_size: int) -> int | None:
    return None if value_size == head_size else value_size


def _global(architecture: str, fields: Values, full: Attention) -> Attention:
    """Attention to all tokens; that of Gemma 4 has other heads, and keys that are values too."""
    if not architecture.startswith("Gemma4"):
        return full
    return full._replace(
        n_kv_heads=fields.count("num_global_key_value_heads", otherwise=full.n_kv_heads),
        head_size=fields.count("global_head_dim", otherwise=full.head_size),
        has_values=not fields.flag("attention_k_eq_v"),
    )


def _windowed(architecture: str, fields: Values, full: Attention, max_length: int) -> Attention:
    """Attention to the last tokens; that of MiMo has heads of its own, and that of Step as well."""
    made = full
    if architecture.startswith("MiMoV2"):
        value_size = fields.count("swa_v_head_dim", otherwise=full.value_size or full.head_size)
        head_size = fields.count("swa_head_dim", otherwise=full.head_size)
        made = Attention(
            fields.count("swa_num_attention_heads", otherwise=full.n_heads),
            fields.count("swa_num_key_value_heads", otherwise=full.n_kv_heads),
            head_size,
            value_size=_unlike(value_size, head_size),
        )
    other = fields.config.get("attention_other_setting")
    if isinstance(other, dict):
        own = Values(fields.name, other, {})
        made = full._replace(n_heads=own.count("num_attention_heads", otherwise=full.n_heads))
    return _bounded(made, fields.count("sliding_window"), max_length)


def _bounded(full: Attention, n_tokens: int, max_length: int) -> Attention:
    if n_tokens >= max_length:
        return full
    return full._replace(window=n_tokens)


def _latent(fields: Values, n_layers: int) -> Sequence[LatentAttention]:
    """Latent attention; where blocks have an index, some take that of a block before."""
    query_rank: int | None = None
    if fields.config.get("q_lora_rank") is not None:
        query_rank = fields.count("q_lora_rank")
    made = LatentAttention(
        n_heads=fields.count("num_attention_heads"),
        query_rank=query_rank,
        latent_size=fields.count("kv_lora_rank"),
        rope_size=fields.count("qk_rope_head_dim"),
        head_size=fields.count("qk_nope_head_dim"),
        value_size=fields.count("v_head_dim"),
    )
    if not fields.config.get("index_topk"):
        return [made] * n_layers
    own = Indexer(fields.count("index_n_heads"), fields.count("index_head_dim"), fields.count("index_topk"))
    kinds = fields.per_block("indexer_types", n_layers) or ["full"] * n_layers
    return [made._replace(indexer=own._replace(is_own=kind == "full")) for kind in kinds]


def _attention_kinds(architecture: str, fields: Values, n_layers: int) -> Sequence[str]:
    every = range(n_layers)
    kinds = fields.value("layer_types")
    is_optional = fields.defaults.get("max_window_layers") is not None
    if is_optional and not fields.flag("use_sliding_window"):
        return [_FULL] * n_layers
    if kinds is not None:
        return _listed_kinds(kinds, fields, n_layers)
    pattern = fields.per_block("hybrid_layer_pattern", n_layers)
    if pattern is not None:  # of MiMo
        return [_SLIDING if each else _FULL for each in pattern]
    if fields.defaults.get("chunk_pattern"):
        return [_CHUNKED if (i + 1) % fields.count("chunk_pattern") else _FULL for i in every]
    if architecture.startswith("Qwen3Next"):
        interval = fields.count("full_attention_interval", otherwise=4)
        return [_LINEAR if (i + 1) % interval else _FULL for i in every]
    windowed = _windowed_blocks(fields, every) if fields.value("sliding_window") else ()
    return [_SLIDING if i in windowed else _FULL for i in every]


def _listed_kinds(kinds: Any, fields: Values, n_layers: int) -> Sequence[str]:
    able = [_FULL, _SLIDING]
    if fields.value("attention_chunk_size"):
        able.append(_CHUNKED)
    if fields.config.get("linear_num_key_heads"):
        able.append(_LINEAR)
    n_more = fields.optional_count("num_nextn_predict_layers") or 0  # blocks that predict more tokens are listed, too
    if isinstance(kinds, list) and len(kinds) == n_layers + n_more:
        kinds = kinds[:n_layers]
    if not isinstance(kinds, list) or len(kinds) != n_layers or not set(map(str, kinds)).issubset(able):
        names = " and ".join(able)
        raise UnreadableModel(f"layer_types must be {n_layers} of {names}, got {kinds!r:.60} in {fields.name}")
    if fields.value("sliding_window"):
        return kinds
    return [_FULL if kind == _SLIDING else kind for kind in kinds]  # a window needs a size


def _windowed_blocks(fields: Values, every: range) -> Sequence[int]:
    if "max_window_layers" in fields.defaults:
        if not fields.flag("use_sliding_window"):
            return ()
        first = fields.value("max_window_layers")
        return every[whole_number(first, "max_window_layers", fields.name, _MOST, minimum=0) :]
    if "sliding_window_pattern" in fields.defaults:
        pattern = fields.value("sliding_window_pattern", fields.config.get("_sliding_window_pattern"))
        if pattern is None:
            pattern = fields.defaults["sliding_window_pattern"]
        size = whole_number(pattern, "sliding_window_pattern", fields.name, _MOST)
        return [layer for layer in every if (layer + 1) % size]
    return every if "sliding_window" in fields.defaults else ()


def _of_nemotron(fields: Values, n_layers: int) -> tuple[BlockKind, ...]:
    listed = fields.config.get("layers_block_type")
    pattern = fields.config.get("hybrid_override_pattern")
    if listed is None and isinstance(pattern, str):
        listed = [_OF_SIGNS.get(sign, sign) for sign in pattern]
    kinds = _OF_SIGNS.values()
    if not isinstance(listed, list) or len(listed) != n_layers or not set(map(str, listed)).issubset(kinds):
        raise UnreadableModel(f"blocks must be {n_layers} of {', '.join(kinds)}, got {listed!r:.60} in {fields.name}")
    of_kind: dict[str, Callable[[], BlockKind]] = {
        "mamba": lambda: BlockKind(
            StateSpace(
                n_heads=fields.count("mamba_num_heads"),
                head_size=fields.count("mamba_head_dim"),
                state_size=fields.count("ssm_state_size"),
                n_groups=fields.count("n_groups"),
                kernel_size=fields.count("conv_kernel"),
            ),
            None,
        ),
        "attention": lambda: BlockKind(_nemotron_attention(fields), None),
        "mlp": lambda: BlockKind(None, Dense(fields.count("intermediate_size"), is_gated=False)),
        "moe": lambda: BlockKind(None, _ungated_experts(fields)),
    }
    made = {kind: of_kind[kind]() for kind in dict.fromkeys(listed)}
    return tuple(made[kind] for kind in listed)


def _nemotron_attention(fields: Values) -> Attention:
    full = _full(fields)
    size = fields.config.get("attention_head_dim")  # what some configs have instead of head_dim
    if isinstance(size, int) and "head_dim" not in fields.config:
        return full._replace(head_size=size)
    return full


def _ungated_experts(fields: Values) -> Experts:
    made = _experts("NemotronH", fields)
    if made is None:
        raise UnreadableModel(f"n_routed_experts must be a whole number from 1, got none in {fields.name}")
    return made._replace(is_gated=False)


def _of_block_configs(fields: Values, n_layers: int) -> tuple[BlockKind, ...]:
    hidden_size, n_heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    made: list[BlockKind] = []
    for block in fields.per_block("block_configs", n_layers) or ():
        attention, feed_forward = None, None
        if isinstance(block, dict):
            attention, feed_forward = block.get("attention"), block.get("ffn")
        if not isinstance(attention, dict) or not isinstance(feed_forward, dict):
            raise UnreadableModel(f"block_configs must have attention and ffn, got {block!r:.60} in {fields.name}")
        if attention.get("replace_with_linear") or feed_forward.get("replace_with_linear"):
            raise UnreadableModel(f"block_configs must have no replace_with_linear, {fields.name} has one")
        own: Attention | None = None
        if not attention.get("no_op"):
            group = Values(fields.name, attention, {}).count("n_heads_in_group", most=n_heads)
            own = Attention(n_heads, n_heads // group, hidden_size // n_heads)
        dense: Dense | None = None
        if not feed_forward.get("no_op"):
            factor = feed_forward.get("ffn_mult")
            if not isinstance(factor, int | float) or not 0 < factor < _MAX_FACTOR:
                raise UnreadableModel(f"ffn_mult must be a number above 0, got {factor!r:.40} in {fields.name}")
            size = int(2 * factor * hidden_size / 3)
            dense = Dense(-(-size // 256) * 256)  # the class rounds up to a multiple of 256
        made.append(BlockKind(own, dense))
    return tuple(made)
