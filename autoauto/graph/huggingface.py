"""Decoders from the `config.json` of Hugging Face: `decoder_of` reads one, `graph_of` makes a `LayerGraph` of it.

embedding ── block 0 ── block 1 ── ... ── block n-1 ── norm ── head
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from autoauto.graph.quantisation import stored_formats
from autoauto.records.costs.decoder import Checkpoint, Decoder, Experts, Part, WeightFormat, Window
from autoauto.records.errors import UnreadableModel, did_you_mean
from autoauto.records.installation import gpu_tables_dir
from autoauto.records.layers import Block, Layer, LayerGraph, LayerRange, Tensor
from autoauto.records.units import GIB

CONFIG_FILE, QUANTISATION_FILE = "config.json", "hf_quant_config.json"
MAX_LAYERS = 1_000
MAX_CONFIG_BYTES = 10_000_000
EMBEDDING, BLOCK, NORM, HEAD = "Embedding", "DecoderBlock", "RMSNorm", "Logits"
"""Operators of the layers of a decoder."""


class _Family(NamedTuple):
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
_MISTRAL = _Family(_defaults(32_000, 32, 8, 131_072, **_WINDOW))
_QWEN_2 = _Family(_defaults(151_936, 32, 32, 32_768, **_WINDOW, max_window_layers=28))
_GEMMA_3 = _Family(_defaults(262_208, 8, 4, 131_072, **_GEMMA, **_WINDOW, sliding_window_pattern=6))
_MIXTRAL = _defaults(32_000, 32, 8, 131_072, sliding_window=None, num_local_experts=8, num_experts_per_tok=2)
_QWEN_3_MOE = _defaults(151_936, 32, 4, 32_768, **_WINDOW, max_window_layers=0, num_experts=128, num_experts_per_tok=8)
_FAMILIES = {
    "LlamaForCausalLM": _Family(_defaults(32_000, 32, None, 2048)),
    "MistralForCausalLM": _MISTRAL,
    "Mistral3ForConditionalGeneration": _MISTRAL,
    "Qwen2ForCausalLM": _QWEN_2,
    "Qwen3ForCausalLM": _Family({**_QWEN_2.defaults, "head_dim": 128}),
    "Qwen3VLForConditionalGeneration": _Family(_defaults(151_936, 32, 32, 128_000, head_dim=128)),
    "MiMoForCausalLM": _QWEN_2,
    "Phi3ForCausalLM": _Family(_defaults(32_064, 32, None, 4096, sliding_window=None)),
    "GemmaForCausalLM": _Family(_defaults(256_000, 16, 16, 8192, **_GEMMA)),
    "Gemma2ForCausalLM": _Family(_defaults(256_000, 8, 4, 8192, **_GEMMA, **_WINDOW, sliding_window_pattern=2)),
    "Gemma3ForCausalLM": _GEMMA_3,
    "Gemma3ForConditionalGeneration": _GEMMA_3,
    "MixtralForCausalLM": _Family(_MIXTRAL, has_experts=True),
    "Qwen3MoeForCausalLM": _Family(_QWEN_3_MOE | {"moe_intermediate_size": 768}, has_experts=True),
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
_TEXT_CONFIG = "text_config"
_UNLIKE = ("kv_lora_rank", "layers_block_type", "hybrid_override_pattern", "block_configs", "mlp_only_layers")
"""Keys of models whose blocks are unlike each other, or whose attention is of another form."""
_SCALED = ("linear", "dynamic", "yarn")
"""Kinds of positions that are scaled."""
_MOST_SCALED = 2**16
_FULL, _SLIDING = "full_attention", "sliding_attention"
_SCALED_ALREADY = "Gemma3"
"""Architectures whose positions are scaled ones begin with it: engines leave their factor out [vllm-positions]."""
_ASSUMED = ("vocab_size", "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings")


def bundled_names() -> tuple[str, ...]:
    """The models whose configs come with the package of extra gpu; none without it."""
    folder = gpu_tables_dir()
    files = () if folder is None else sorted((folder / "model_configs").glob(f"*_{CONFIG_FILE}"))
    stems = (file.name.removesuffix(f"_{CONFIG_FILE}") for file in files if not file.name.endswith(QUANTISATION_FILE))
    return tuple(stem.replace("--", "/", 1) for stem in stems)


def decoder_of(name_or_path: str | Path) -> Decoder:
    """Read a folder with a `config.json`, such a file, or the config of a name that the package of extra gpu bundles.

    Raises:
        UnreadableModel: there is none, it lacks what is needed, or its blocks are of a form that is not modelled.
    """
    given = Path(name_or_path)
    if given.is_dir():
        return _decoder(given.resolve().name, _read(given / CONFIG_FILE), _quantisation(given / QUANTISATION_FILE))
    if given.suffix == ".json" and given.is_file():
        name = given.resolve().parent.name
        return _decoder(name, _read(given), _quantisation(given.with_name(QUANTISATION_FILE)))
    return _bundled(str(name_or_path))


def _bundled(given: str) -> Decoder:
    known, folder = bundled_names(), gpu_tables_dir()
    name = given if given in known else {_same_config(each): each for each in known}.get(_same_config(given), given)
    if name not in known or folder is None:
        hint = did_you_mean(name, known, "give the folder of the model") if known else "install the extra gpu for names"
        raise UnreadableModel(f"a decoder is a folder with {CONFIG_FILE} or a bundled name, got {name!r:.80}; {hint}")
    stem = folder / "model_configs" / name.replace("/", "--")
    config = _read(stem.with_name(f"{stem.name}_{CONFIG_FILE}"))
    return _decoder(name, config, _quantisation(stem.with_name(f"{stem.name}_{QUANTISATION_FILE}")))


def _same_config(name: str) -> str:
    """A key that is equal for models of the same config: a later name, or a model trained further on instructions.

    >>> _same_config("meta-llama/Llama-3.1-70B-Instruct") == _same_config("meta-llama/Meta-Llama-3.1-70B")
    True
    """
    return name.lower().replace("/meta-", "/").removesuffix("-instruct")


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise UnreadableModel(f"a config has at most {MAX_CONFIG_BYTES:,} bytes, {path} is larger")
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableModel(f"{path} must be a readable file, got: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UnreadableModel(f"{path} must hold JSON, got: {error!s:.80}") from None
    if not isinstance(content, dict):
        raise UnreadableModel(f"{path} must hold an object, got {type(content).__name__}")
    return content


def _quantisation(path: Path) -> Mapping[str, Any]:
    """The content of NVIDIA's file beside a config; empty where there is none."""
    entry = _read(path).get("quantization", {}) if path.is_file() else {}
    return entry if isinstance(entry, dict) else {}


def _decoder(name: str, config: Mapping[str, Any], quantisation: Mapping[str, Any]) -> Decoder:
    inner = config.get(_TEXT_CONFIG)
    text = inner if isinstance(inner, dict) else config
    architecture = _architecture(name, config, text)
    family = _FAMILIES[architecture]
    _check_like_blocks(name, text)
    fields = _Values(name, text, family.defaults)
    n_heads, hidden_size = fields.count("num_attention_heads"), fields.count("hidden_size")
    decoder = Decoder(
        name=name,
        architecture=architecture,
        hidden_size=hidden_size,
        n_layers=fields.count("num_hidden_layers", most=MAX_LAYERS),
        n_heads=n_heads,
        n_kv_heads=fields.count("num_key_value_heads", otherwise=n_heads, most=n_heads),
        head_size=fields.count("head_dim", otherwise=max(1, hidden_size // n_heads)),
        intermediate_size=fields.count("intermediate_size"),
        vocabulary_size=fields.count("vocab_size"),
        is_tied=bool(fields.value("tie_word_embeddings", config.get("tie_word_embeddings"))),
        experts=_experts(fields) if family.has_experts else None,
    )
    checkpoint = Checkpoint(max_length=_max_length(architecture, fields), notes=fields.assumed())
    decoder = replace(decoder, checkpoint=checkpoint._replace(window=_window(decoder, fields, checkpoint.max_length)))
    entry = _first_entry(name, config, text, quantisation)
    return replace(decoder, checkpoint=_stored(decoder, entry)) if entry else decoder


def _architecture(name: str, config: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    """The class of a decoder.

    Raises:
        UnreadableModel: it is not modelled; the line says which is near.
    """
    listed = config.get("architectures")
    architecture = listed[0] if isinstance(listed, list) and listed else None
    if isinstance(architecture, str) and architecture in _FAMILIES:
        return architecture
    known = ", ".join(_FAMILIES)
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
    able = [each for each, family in _FAMILIES.items() if family.has_experts == has_experts]
    maker = re.match(r"[A-Z]?[a-z]*", architecture)
    related = [each for each in able if maker and maker[0] and each.startswith(maker[0])]
    near = get_close_matches(architecture, related, 1, 0.0)
    return near[0] if near else ("MixtralForCausalLM" if has_experts else None)


def _check_like_blocks(name: str, text: Mapping[str, Any]) -> None:
    """Refuse models whose blocks differ, or whose attention caches other tensors than keys and values."""
    unlike = [key for key in _UNLIKE if text.get(key)]
    if text.get("decoder_sparse_step", 1) != 1:
        unlike.append("decoder_sparse_step")
    if unlike:
        raise UnreadableModel(f"all blocks must be alike, with keys and values in the cache; {name} has {unlike[0]}")


class _Values(NamedTuple):
    """Values of a config, with the defaults of its class."""

    name: str
    config: Mapping[str, Any]
    defaults: Mapping[str, int | None]

    def value(self, key: str, otherwise: object = None) -> Any:
        """What the config says; where it does not say it `otherwise`, or else what its class does."""
        if key in self.config:
            return self.config[key]
        return self.defaults.get(key) if otherwise is None else otherwise

    def count(self, key: str, otherwise: int | None = None, most: int = 2**31) -> int:
        """A positive number; `otherwise` where it is null, or missing and without a default.

        Raises:
            UnreadableModel: it is missing, or no such number.
        """
        value = self.value(key)
        if value is None:
            value = otherwise
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            given = "none" if value is None else repr(value)[:40]
            raise UnreadableModel(f"{key} must be a whole number from 1 to {most:,}, got {given} in {self.name}")
        return value

    def assumed(self) -> tuple[str, ...]:
        """What is taken from the class."""
        taken = [
            f"{key} {self.defaults[key]:,}" for key in _ASSUMED if key not in self.config and self.defaults.get(key)
        ]
        return (f"The config leaves out what its class has: {', '.join(taken)}.",) if taken else ()


def _experts(fields: _Values) -> Experts:
    is_mixtral = "num_local_experts" in fields.config or "num_local_experts" in fields.defaults
    n_experts = fields.count("num_local_experts" if is_mixtral else "num_experts")
    return Experts(
        n_experts=n_experts,
        n_chosen=fields.count("num_experts_per_tok", most=n_experts),
        intermediate_size=fields.count("moe_intermediate_size", otherwise=fields.count("intermediate_size")),
    )


def _window(decoder: Decoder, fields: _Values, longest: int | None) -> Window | None:
    """The blocks whose attention has a window that is shorter than the longest sequence.

    Raises:
        UnreadableModel: attention is of another kind, or the kinds are not as many as the blocks.
    """
    n_windowed = len(_windowed(decoder, fields))
    if not n_windowed or fields.value("sliding_window") is None:
        return None
    n_tokens = fields.count("sliding_window")
    return None if longest is not None and n_tokens >= longest else Window(n_windowed, n_tokens)


def _windowed(decoder: Decoder, fields: _Values) -> Sequence[int]:
    """The numbers of the blocks whose attention has a window, if there is one."""
    kinds, every = fields.value("layer_types"), range(decoder.n_layers)
    if fields.defaults.get("max_window_layers") is not None and not fields.value("use_sliding_window"):
        kinds = None
    if kinds is not None:
        if (
            not isinstance(kinds, list)
            or len(kinds) != decoder.n_layers
            or not {_FULL, _SLIDING}.issuperset(map(str, kinds))
        ):
            raise UnreadableModel(
                f"layer_types must be {decoder.n_layers} of {_FULL} and {_SLIDING}, got {kinds!r:.60} in {decoder.name}"
            )
        return [layer for layer in every if kinds[layer] == _SLIDING]
    if "max_window_layers" in fields.defaults:
        first = fields.value("max_window_layers") if fields.value("use_sliding_window") else None
        return every[first:] if isinstance(first, int) and first >= 0 else ()
    if "sliding_window_pattern" in fields.defaults:
        pattern = fields.value("sliding_window_pattern", fields.config.get("_sliding_window_pattern"))
        return [layer for layer in every if isinstance(pattern, int) and pattern > 0 and (layer + 1) % pattern]
    return every if "sliding_window" in fields.defaults else ()


def _first_entry(
    name: str, config: Mapping[str, Any], text: Mapping[str, Any], quantisation: Mapping[str, Any]
) -> Mapping[str, Any]:
    """What says how the weights are stored; empty where they have 16 bits."""
    keys = ("quantization_config", "compression_config")
    entries = [each.get(key) for key in keys for each in (config, text)]
    entry = next(filter(None, entries), quantisation)
    if not isinstance(entry, Mapping):
        raise UnreadableModel(f"quantization_config must be an object, got {entry!r:.40} in {name}")
    return entry


def _stored(decoder: Decoder, entry: Mapping[str, Any]) -> Checkpoint:
    """The checkpoint of a decoder with the formats of weights and of the KV cache."""
    stored, checkpoint = stored_formats(decoder, entry), decoder.checkpoint
    return checkpoint._replace(
        weights=stored.main.weights,
        kv_cache=WeightFormat.FP8 if _has_fp8_cache(entry) else WeightFormat.BF16,
        group_size=stored.main.group_size,
        unlike=stored.unlike,
        notes=(*checkpoint.notes, *stored.notes),
    )


def _max_length(architecture: str, fields: _Values) -> int:
    """The longest sequence: positions times a factor, unless the config counts scaled ones [vllm-positions].

    Raises:
        UnreadableModel: the factor is none.
    """
    n_positions = fields.count("max_position_embeddings")
    scaling = fields.config.get("rope_scaling") or fields.config.get("rope_parameters")
    if not isinstance(scaling, Mapping) or architecture.startswith(_SCALED_ALREADY):
        return n_positions
    kind, factor = scaling.get("rope_type", scaling.get("type")), scaling.get("factor", 1)
    if kind not in _SCALED or not isinstance(factor, int | float):
        return n_positions
    original = scaling.get("original_max_position_embeddings") if kind == "yarn" else None
    base = original if isinstance(original, int) and original > 0 else n_positions
    if not 0 < factor <= _MOST_SCALED:
        name = fields.name
        raise UnreadableModel(f"positions must be scaled by a number to {_MOST_SCALED:,}, got {factor!r:.40} in {name}")
    return max(1, int(base * factor))


def _has_fp8_cache(entry: Mapping[str, Any]) -> bool:
    """Whether keys and values are fp8, by NVIDIA's file or by a scheme of compressed-tensors."""
    scheme = entry.get("kv_cache_scheme")
    if isinstance(scheme, Mapping):
        return scheme.get("num_bits") == 8 and scheme.get("type") == "float"
    return str(scheme or entry.get("kv_cache_quant_algo") or "").lower() == "fp8"


def graph_of(decoder: Decoder) -> LayerGraph:
    """The layers of a decoder for one sequence of which it computes the next word: embedding, blocks, norm and head.

    Embedding and head of one matrix read the same tensor, and are `tied`.
    """
    layers, tensors = _layers(decoder), _tensors(decoder)
    content = sha256(repr((decoder, layers, tensors)).encode()).hexdigest()
    blocks = tuple(Block(f"model.layers.{i}", LayerRange(i + 1, i + 2)) for i in range(decoder.n_layers))
    return LayerGraph(decoder.name, layers, tensors, None, content, blocks, notes=notes_of(decoder))


def notes_of(decoder: Decoder) -> tuple[str, ...]:
    """What the model of costs assumes of a decoder, a sentence each."""
    notes = list(decoder.checkpoint.notes)
    if decoder.architecture.startswith("Gemma"):
        notes.append("The two norms behind attention and feed-forward layer of Gemma are not counted.")
    if decoder.checkpoint.window is not None:
        notes.append(_window_note(decoder, decoder.checkpoint.window))
    if decoder.architecture.endswith("ForConditionalGeneration"):
        notes.append("Prompts are text only; the encoder of images is neither counted nor held.")
    return tuple(notes)


def _window_note(decoder: Decoder, window: Window) -> str:
    """What is counted too much."""
    n_layers, n_full = decoder.n_layers, decoder.n_layers - window.n_layers
    of_token = decoder.kv_elements(1) * decoder.checkpoint.kv_cache.n_bytes
    length = decoder.checkpoint.max_length or window.n_tokens
    attended = (n_full * length + window.n_layers * min(length, window.n_tokens)) * of_token
    return (
        f"{window.n_layers} of {n_layers} blocks attend to the last {window.n_tokens:,} tokens: time and KV cache are "
        f"counted for all tokens, {n_layers * of_token / 1024:,.1f} KiB each, of which {n_full * of_token / 1024:,.1f} "
        f"are attended to before these; of {n_layers * length * of_token / GIB:,.1f} GiB for {length:,} tokens "
        f"{attended / GIB:,.1f} are."
    )


def _block_weights(decoder: Decoder) -> dict[str, int]:
    """The elements of the weights of one block: of attention, feed-forward layer, norms, and the router of experts."""
    router = {} if decoder.experts is None else {"router": decoder.hidden_size * decoder.experts.n_experts}
    parts = decoder.part_weights(1)
    attention = parts.pop(Part.QKV) + parts.pop(Part.OUTPUT)
    return {"attention": attention, "feed_forward": sum(parts.values()), "norms": 2 * decoder.hidden_size, **router}


def _tensors(decoder: Decoder) -> tuple[Tensor, ...]:
    """Tokens, hidden vectors and logits, then weights: embedding, those of every block, norm, head where it has one."""
    last, hidden = decoder.n_layers + 2, decoder.hidden_size
    activations = [Tensor("tokens", (1,), 0, "int64", -1, 0)]
    activations += [Tensor(f"hidden.{i}", (1, hidden), 0, "float", i, i + 1) for i in range(last)]
    activations.append(Tensor("logits", (1, decoder.vocabulary_size), 0, "float", last, last + 1))
    table_use = last if decoder.is_tied else 0
    weights = [_weight("embed_tokens", decoder.table_weights, table_use)]
    of_block = _block_weights(decoder)
    for i in range(decoder.n_layers):
        weights += [_weight(f"layers.{i}.{name}", n, i + 1) for name, n in of_block.items()]
    weights.append(_weight("norm", hidden, last - 1))
    head = [] if decoder.is_tied else [_weight("lm_head", decoder.table_weights, last)]
    return (*activations, *weights, *head)


def _weight(name: str, n_elements: int, last_use: int) -> Tensor:
    return Tensor(name, (n_elements,), None, "float", -1, last_use)


def _layers(decoder: Decoder) -> tuple[Layer, ...]:
    last = decoder.n_layers + 2
    first_weight = last + 2  # behind tokens, the hidden vectors, and logits
    n_of_block = len(_block_weights(decoder))
    norm = first_weight + 1 + n_of_block * decoder.n_layers
    table = "embed_tokens" if decoder.is_tied else None

    def layer(index: int, name: str, op: str, weights: tuple[int, ...], tied: str | None = None) -> Layer:
        output = index + 1  # the tensor of layer i stands behind the tokens and those of the layers before it
        return Layer(name, op, (), (index,), (output,), weights, (index, *weights), f"{op} {decoder.hidden_size}", tied)

    def block(i: int) -> Layer:
        first = first_weight + 1 + n_of_block * i
        weights = tuple(range(first, first + n_of_block))
        return layer(i + 1, f"model.layers.{i}", BLOCK, weights)

    return (
        layer(0, "model.embed_tokens", EMBEDDING, (first_weight,), table),
        *map(block, range(decoder.n_layers)),
        layer(last - 1, "model.norm", NORM, (norm,)),
        layer(last, "lm_head", HEAD, (first_weight if decoder.is_tied else norm + 1,), table),
    )
