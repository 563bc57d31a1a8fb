"""Decoders from the `config.json` of Hugging Face: `decoder_of` reads one, `graph_of` makes a `LayerGraph` of it.

embedding ── block 0 ── block 1 ── ... ── block n-1 ── norm ── head
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from autoauto.records.costs.decoder import Checkpoint, Decoder, Experts, WeightFormat
from autoauto.records.errors import UnreadableModel, did_you_mean
from autoauto.records.installation import gpu_tables_dir
from autoauto.records.layers import Block, Layer, LayerGraph, LayerRange, Tensor

CONFIG_FILE, QUANTISATION_FILE = "config.json", "hf_quant_config.json"
MAX_LAYERS = 1_000
MAX_CONFIG_BYTES = 10_000_000
EMBEDDING, BLOCK, NORM, HEAD = "Embedding", "DecoderBlock", "RMSNorm", "Logits"
"""Operators of the layers of a decoder."""


class _Family(NamedTuple):
    """What a class of Hugging Face says that a config need not repeat.

    Attributes:
        is_tied: whether embedding and head are one matrix where the config does not say it.
        has_experts: whether its feed-forward layers are mixtures of experts.
    """

    is_tied: bool = False
    has_experts: bool = False


_FAMILIES = {
    "LlamaForCausalLM": _Family(),
    "MistralForCausalLM": _Family(),
    "Mistral3ForConditionalGeneration": _Family(),
    "Qwen2ForCausalLM": _Family(),
    "Qwen3ForCausalLM": _Family(),
    "Qwen3VLForConditionalGeneration": _Family(),
    "MiMoForCausalLM": _Family(),
    "Phi3ForCausalLM": _Family(),
    "GemmaForCausalLM": _Family(is_tied=True),
    "Gemma2ForCausalLM": _Family(is_tied=True),
    "Gemma3ForCausalLM": _Family(is_tied=True),
    "Gemma3ForConditionalGeneration": _Family(is_tied=True),
    "MixtralForCausalLM": _Family(has_experts=True),
    "Qwen3MoeForCausalLM": _Family(has_experts=True),
}
_TEXT_CONFIG = "text_config"
_UNLIKE = ("kv_lora_rank", "layers_block_type", "hybrid_override_pattern", "block_configs", "mlp_only_layers")
"""Keys of models whose blocks are unlike each other, or whose attention is of another form."""
_PACKED = {
    "float-quantized": WeightFormat.FP8_DYNAMIC,
    "pack-quantized": WeightFormat.INT4,
    "nvfp4-pack-quantized": WeightFormat.NVFP4,
}
_SCALED = ("linear", "dynamic", "yarn")
"""Kinds of positions that are scaled."""
_MOST_SCALED = 2**16
_ONE_SCALE = {"fp8": WeightFormat.FP8, "nvfp4": WeightFormat.NVFP4, "w4a16": WeightFormat.INT4}


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
    architecture = _architecture(name, config)
    family = _FAMILIES[architecture]
    inner = config.get(_TEXT_CONFIG)
    text = inner if isinstance(inner, dict) else config
    _check_like_blocks(name, text)
    fields = _Numbers(name, text)
    n_heads = fields.count("num_attention_heads")
    hidden_size = fields.count("hidden_size")
    return Decoder(
        name=name,
        architecture=architecture,
        hidden_size=hidden_size,
        n_layers=fields.count("num_hidden_layers", most=MAX_LAYERS),
        n_heads=n_heads,
        n_kv_heads=fields.count("num_key_value_heads", default=n_heads, most=n_heads),
        head_size=fields.count("head_dim", default=hidden_size // n_heads),
        intermediate_size=fields.count("intermediate_size"),
        vocabulary_size=fields.count("vocab_size"),
        is_tied=bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", family.is_tied))),
        checkpoint=_checkpoint(name, config, text, quantisation),
        experts=_experts(fields) if family.has_experts else None,
    )


def _architecture(name: str, config: Mapping[str, Any]) -> str:
    listed = config.get("architectures")
    architecture = listed[0] if isinstance(listed, list) and listed else None
    if not isinstance(architecture, str) or architecture not in _FAMILIES:
        known = ", ".join(_FAMILIES)
        raise UnreadableModel(f"architectures must name one of {known}, got {architecture!r:.60} in {name}")
    return architecture


def _check_like_blocks(name: str, text: Mapping[str, Any]) -> None:
    """Refuse models whose blocks differ, or whose attention caches other tensors than keys and values."""
    unlike = [key for key in _UNLIKE if text.get(key)]
    if text.get("decoder_sparse_step", 1) != 1:
        unlike.append("decoder_sparse_step")
    if unlike:
        raise UnreadableModel(f"all blocks must be alike, with keys and values in the cache; {name} has {unlike[0]}")


class _Numbers(NamedTuple):
    """Whole numbers of a config."""

    name: str
    config: Mapping[str, Any]

    def count(self, key: str, default: int | None = None, most: int = 2**31) -> int:
        """A positive number; `default` where it is missing or null.

        Raises:
            UnreadableModel: it is missing, or no such number.
        """
        value = self.config.get(key)
        if value is None:
            value = default
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            given = "none" if value is None else repr(value)[:40]
            raise UnreadableModel(f"{key} must be a whole number from 1 to {most:,}, got {given} in {self.name}")
        return value


def _experts(fields: _Numbers) -> Experts:
    is_mixtral = "num_local_experts" in fields.config
    n_experts = fields.count("num_local_experts" if is_mixtral else "num_experts")
    dense_size = fields.count("intermediate_size")
    return Experts(
        n_experts=n_experts,
        n_chosen=fields.count("num_experts_per_tok", most=n_experts),
        intermediate_size=fields.count("moe_intermediate_size", default=dense_size),
    )


def _checkpoint(
    name: str, config: Mapping[str, Any], text: Mapping[str, Any], quantisation: Mapping[str, Any]
) -> Checkpoint:
    """The formats of the weights and of the KV cache, and the longest sequence.

    Raises:
        UnreadableModel: they are of a form that is not modelled.
    """
    max_length = _max_length(_Numbers(name, text))
    entry = config.get("quantization_config") or text.get("quantization_config") or quantisation
    if not entry:
        return Checkpoint(max_length=max_length)
    if not isinstance(entry, Mapping):
        raise UnreadableModel(f"quantization_config must be an object, got {entry!r:.40} in {name}")
    weights = _weight_format(entry)
    if weights is None:
        method = entry.get("quant_algo") or entry.get("quant_method")
        raise UnreadableModel(f"weights must be {', '.join(WeightFormat)}, got {method!r:.40} in {name}")
    kv_cache = WeightFormat.FP8 if _has_fp8_cache(entry) else WeightFormat.BF16
    return Checkpoint(weights, kv_cache, max_length, _group_size(entry))


def _group_size(entry: Mapping[str, Any]) -> int | None:
    """Weights of a row with one scale, as AWQ and GPTQ say it, or the first scheme of compressed-tensors."""
    size = entry.get("group_size", entry.get("q_group_size"))
    groups = entry.get("config_groups")
    if isinstance(groups, Mapping) and groups:
        first = next(iter(groups.values()))
        scheme = first.get("weights") if isinstance(first, Mapping) else None
        size = scheme.get("group_size") if isinstance(scheme, Mapping) else None
    return size if isinstance(size, int) and size > 0 else None


def _max_length(fields: _Numbers) -> int | None:
    """The longest sequence: positions are scaled by a factor, unless the config counts scaled ones."""
    if fields.config.get("max_position_embeddings") is None:
        return None
    n_positions = fields.count("max_position_embeddings")
    scaling = fields.config.get("rope_scaling") or fields.config.get("rope_parameters")
    if not isinstance(scaling, Mapping) or scaling.get("rope_type", scaling.get("type")) not in _SCALED:
        return n_positions
    original, factor = scaling.get("original_max_position_embeddings"), scaling.get("factor", 1)
    base = original if isinstance(original, int) and original > 0 else n_positions
    if not isinstance(factor, int | float):
        return n_positions
    if not 0 < factor <= _MOST_SCALED:
        name = fields.name
        raise UnreadableModel(f"positions must be scaled by a number to {_MOST_SCALED:,}, got {factor!r:.40} in {name}")
    return max(n_positions, int(base * factor))


def _has_fp8_cache(entry: Mapping[str, Any]) -> bool:
    """Whether keys and values are fp8, by NVIDIA's file or by a scheme of compressed-tensors."""
    scheme = entry.get("kv_cache_scheme")
    if isinstance(scheme, Mapping):
        return scheme.get("num_bits") == 8 and scheme.get("type") == "float"
    return str(entry.get("kv_cache_quant_algo") or "").lower() == "fp8"


def _weight_format(entry: Mapping[str, Any]) -> WeightFormat | None:
    """The format that a `quantization_config` names, or NVIDIA's file; None where it is another."""
    method = str(entry.get("quant_method") or "").lower()
    algorithm = str(entry.get("quant_algo") or "").lower() or method
    if entry.get("weight_block_size") and algorithm == "fp8":
        return WeightFormat.FP8_BLOCK
    if algorithm == "fp8" and entry.get("activation_scheme") == "dynamic":
        return WeightFormat.FP8_DYNAMIC
    if method in ("awq", "gptq"):
        bits = entry.get("bits", entry.get("w_bit"))
        return {4: WeightFormat.INT4, 8: WeightFormat.INT8}.get(bits) if isinstance(bits, int) else None
    if method == "compressed-tensors":
        return _PACKED.get(str(entry.get("format")))
    return _ONE_SCALE.get(algorithm)


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
    notes = []
    if decoder.architecture.startswith("Gemma"):
        notes.append("The two norms behind attention and feed-forward layer of Gemma are not counted.")
    if decoder.architecture.startswith(("Gemma2", "Gemma3", "Mistral", "Phi3")):
        notes.append("Every block attends to the whole sequence; blocks with a sliding window cost and cache less.")
    if decoder.architecture.endswith("ForConditionalGeneration"):
        notes.append("Prompts are text only; the encoder of images is neither counted nor held.")
    return tuple(notes)


def _block_weights(decoder: Decoder) -> dict[str, int]:
    """The elements of the weights of one block: of attention, feed-forward layer, norms, and the router of experts."""
    router = {} if decoder.experts is None else {"router": decoder.hidden_size * decoder.experts.n_experts}
    attention, feed_forward = decoder.attention_weights(1), decoder.feed_forward_weights(1)
    return {"attention": attention, "feed_forward": feed_forward, "norms": 2 * decoder.hidden_size, **router}


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
