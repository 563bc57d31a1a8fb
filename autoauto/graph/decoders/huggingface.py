"""Decoders from the `config.json` of Hugging Face: `decoder_of`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from autoauto.graph.decoders.families import FAMILIES, architecture_of
from autoauto.graph.decoders.kinds import blocks_of
from autoauto.graph.decoders.quantisation import stored_formats
from autoauto.graph.decoders.values import Values
from autoauto.records.costs.decoder import BlockPart, Checkpoint, Decoder, PartFormat, WeightFormat
from autoauto.records.errors import UnreadableModel, did_you_mean
from autoauto.records.installation import builtin_decoders, builtin_models, gpu_tables_dir

CONFIG_FILE, QUANTISATION_FILE = "config.json", "hf_quant_config.json"
MAX_LAYERS = 1_000
MAX_CONFIG_BYTES = 10_000_000
_TEXT_CONFIG = "text_config"
_HUB = "https://huggingface.co/"
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)
_SCALED = ("linear", "dynamic", "yarn")
"""Kinds of positions that are scaled."""
_MOST_SCALED = 2**16
_SCALED_ALREADY = "Gemma3"
"""Architectures whose positions are scaled ones begin with it: engines leave their factor out [positions]."""
_CACHES_OF_16_BITS = ("", "none", "auto", "bf16", "bfloat16", "fp16", "float16")
"""What a config calls keys and values that are not quantised."""
_FLOATS = ("auto", "bfloat16", "float16", "float32", "half", "float")
"""What engines load as weights of 16 bits."""
_LISTS = ("layers_block_type", "hybrid_override_pattern")
"""Keys whose list or pattern says the number of blocks, where no number does."""
_DRAFTS = ("num_nextn_predict_layers", "mtp_num_hidden_layers")
"""Keys with the number of layers that predict several tokens."""


def bundled_names() -> tuple[str, ...]:
    """The models whose configs come with autoauto, and with the package of extra gpu where it is installed."""
    names = set(builtin_decoders())
    folder = gpu_tables_dir()
    if folder is not None:
        for file in (folder / "model_configs").glob(f"*_{CONFIG_FILE}"):
            if not file.name.endswith(QUANTISATION_FILE):
                stem = file.name.removesuffix(f"_{CONFIG_FILE}")
                names.add(stem.replace("--", "/", 1))
    return tuple(sorted(names))


def decoder_of(name_or_path: str | Path) -> Decoder:
    """Read a folder with a `config.json`, such a file, or the config of a bundled name.

    Raises UnreadableModel if there is none, or it is not modelled.
    """
    given = Path(name_or_path)
    if given.is_dir():
        return _decoder(given.resolve().name, _read(given / CONFIG_FILE), _quantisation(given / QUANTISATION_FILE))
    if given.suffix == ".json" and given.is_file():
        name = given.resolve().parent.name
        return _decoder(name, _read(given), _quantisation(given.with_name(QUANTISATION_FILE)))
    return _bundled(str(name_or_path).removeprefix(_HUB).rstrip("/"))


@cache
def _bundled(given: str) -> Decoder:
    known, own, folder = bundled_names(), builtin_decoders(), gpu_tables_dir()
    name = given
    if name not in known:
        by_config = {_same_config(each): each for each in known}
        name = by_config.get(_same_config(given), given)
    if name not in known:
        other = "give the folder of the model"
        if name in builtin_models() or name.endswith(".onnx"):
            other = "an ONNX model runs on --cluster c600 or --cluster cpu"
        elif _HUB_NAME.fullmatch(name):
            own_folder = name.rpartition("/")[2]
            file = f"{own_folder}/{CONFIG_FILE}"
            fetched = f"curl -fL --create-dirs -o {file} {_HUB}{name}/resolve/main/{CONFIG_FILE}"
            other = f"try {fetched}, then give ./{own_folder}"
        hint = did_you_mean(name, known, other)
        raise UnreadableModel(f"a decoder is a folder with {CONFIG_FILE} or a bundled name, got {name!r:.80}; {hint}")
    if name in own or folder is None:
        return _decoder(name, own[name], {})
    stem = folder / "model_configs" / name.replace("/", "--")
    config = _read(stem.with_name(f"{stem.name}_{CONFIG_FILE}"))
    return _decoder(name, config, _quantisation(stem.with_name(f"{stem.name}_{QUANTISATION_FILE}")))


def _same_config(name: str) -> str:
    """A key that is equal for models of one config, as a model and its version that follows instructions.

    >>> _same_config("meta-llama/Llama-3.1-70B-Instruct") == _same_config("meta-llama/Meta-Llama-3.1-70B")
    True
    """
    key = name.lower().replace("/meta-", "/").removesuffix("-instruct")
    return key.replace("-instruct-hf", "-hf").replace("-chat-hf", "-hf")


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
    if not path.is_file():
        return {}
    entry = _read(path).get("quantization")
    if not isinstance(entry, dict):
        raise UnreadableModel(f"quantization of {path} must be an object, got {entry!r:.40}; or remove the file")
    return entry


def _decoder(name: str, config: Mapping[str, Any], quantisation: Mapping[str, Any]) -> Decoder:
    inner = config.get(_TEXT_CONFIG)
    text = inner if isinstance(inner, dict) else config
    architecture = architecture_of(name, config, text)
    fields = Values(name, text, FAMILIES[architecture])
    listed = next((text[key] for key in _LISTS if isinstance(text.get(key), list | str)), None)
    if listed is not None and text.get("num_hidden_layers") is None:
        n_layers = min(len(listed), MAX_LAYERS + 1)
    else:
        n_layers = fields.count("num_hidden_layers", most=MAX_LAYERS)
    n_heads, hidden_size = fields.count("num_attention_heads"), fields.count("hidden_size")
    max_length = _max_length(architecture, fields)
    n_drafts = [text.get(key) for key in _DRAFTS]
    drafts = any(isinstance(n, int) and n > 0 for n in n_drafts)
    # Sizes of heads and of the feed-forward layer stand for those of the blocks, which `of_kinds` fills in.
    plain = Decoder(
        name=name,
        architecture=architecture,
        hidden_size=hidden_size,
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        head_size=max(1, hidden_size // n_heads),
        intermediate_size=1,
        vocabulary_size=fields.count("vocab_size"),
        is_tied=fields.flag("tie_word_embeddings", config.get("tie_word_embeddings")),
        checkpoint=Checkpoint(max_length=max_length, notes=fields.assumed(), drafts=drafts),
    )
    decoder = plain.of_kinds(blocks_of(architecture, fields, n_layers, max_length))
    entry = _first_entry(name, config, text)
    if not entry and not quantisation:
        _check_floats(name, text, config)
    if entry and quantisation:
        _refuse_contradiction(_stored(decoder, entry), _stored(decoder, quantisation))
    return _stored(decoder, entry or quantisation) if entry or quantisation else decoder


def _first_entry(name: str, config: Mapping[str, Any], text: Mapping[str, Any]) -> Mapping[str, Any]:
    for key in ("quantization_config", "compression_config"):
        for holder in (config, text):
            entry = holder.get(key)
            if entry is not None and not isinstance(entry, Mapping):
                raise UnreadableModel(f"{key} must be an object, got {entry!r:.40} in {name}")
            if entry:
                return entry
    return {}


def _check_floats(name: str, text: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Refuse weights of 8 bits or fewer of which no entry says how they are stored: they would be priced as bf16."""
    for key in ("dtype", "torch_dtype"):
        stored = text.get(key, config.get(key))
        if str(stored or "auto").removeprefix("torch.") not in _FLOATS:
            raise UnreadableModel(
                f"{key} must be one of {', '.join(_FLOATS)} where no quantization_config says how weights are stored, "
                f"got {stored!r:.40} in {name}"
            )


def _refuse_contradiction(by_config: Decoder, by_file: Decoder) -> None:
    if _stores(by_config) == _stores(by_file):
        return
    said = []
    for decoder in (by_config, by_file):
        stored, text = decoder.checkpoint, str(decoder.checkpoint.weights)
        if stored.group_size is not None:
            text += f" by groups of {stored.group_size}"
        said.append(f"{text} with keys and values in {stored.kv_cache}")
    got = " and ".join(said)
    if said[0] == said[1]:
        got = f"{said[0]} of both, with other formats of some parts of blocks"
    raise UnreadableModel(
        f"{CONFIG_FILE} and {QUANTISATION_FILE} must name the same formats, got {got} in {by_config.name}; remove the "
        "entry or the file that is not of this checkpoint"
    )


def _stores(decoder: Decoder) -> tuple[object, ...]:
    """All formats of a decoder: of keys and values, and by block of its parts, with the bytes of a weight."""
    main = PartFormat(decoder.checkpoint.weights, decoder.checkpoint.group_size)
    by_kind: list[dict[BlockPart, object]] = []
    for kind in decoder.block_kinds:
        formats = dict.fromkeys(kind.part_weights(1, 1), main) | dict(kind.unlike)
        by_kind.append({part: (stored.weights, stored.n_bytes) for part, stored in formats.items()})
    return decoder.checkpoint.kv_cache, [by_kind[number] for number in decoder.block_order]


def _stored(decoder: Decoder, entry: Mapping[str, Any]) -> Decoder:
    stored, checkpoint = stored_formats(decoder, entry), decoder.checkpoint
    published = checkpoint._replace(
        weights=stored.main.weights,
        kv_cache=WeightFormat.FP8 if _has_fp8_cache(decoder.name, entry) else WeightFormat.BF16,
        group_size=stored.main.group_size,
        notes=(*checkpoint.notes, *stored.notes),
    )
    return replace(decoder, checkpoint=published).of_kinds(stored.blocks)


def _max_length(architecture: str, fields: Values) -> int:
    """The longest sequence: positions times a factor, unless the config counts scaled ones [positions].

    `model_max_length` takes the place of `max_position_embeddings` in engines: Command R has more than these.
    """
    n_positions = fields.optional_count("model_max_length") or fields.count("max_position_embeddings")
    scaling = fields.config.get("rope_scaling") or fields.config.get("rope_parameters")
    if not isinstance(scaling, Mapping) or architecture.startswith(_SCALED_ALREADY):
        return n_positions
    kind, factor = scaling.get("rope_type", scaling.get("type")), scaling.get("factor", 1)
    if kind not in _SCALED:
        return n_positions
    base = n_positions
    original = scaling.get("original_max_position_embeddings")
    if kind == "yarn" and isinstance(original, int) and original > 0:
        base = original
    if not isinstance(factor, int | float) or not 0 < factor <= _MOST_SCALED:
        name = fields.name
        raise UnreadableModel(f"positions must be scaled by a number to {_MOST_SCALED:,}, got {factor!r:.40} in {name}")
    return max(1, int(base * factor))


def _has_fp8_cache(name: str, entry: Mapping[str, Any]) -> bool:
    """True if keys and values are fp8, by NVIDIA's file or by a scheme of compressed-tensors."""
    scheme = entry.get("kv_cache_scheme")
    if isinstance(scheme, Mapping):
        stored = f"{scheme.get('type', 'int')}{scheme.get('num_bits', 8)}"
        is_fp8 = stored == "float8"
    else:
        stored = str(scheme or entry.get("kv_cache_quant_algo") or "").lower()
        is_fp8 = stored == "fp8"
    if not is_fp8 and stored not in _CACHES_OF_16_BITS:
        raise UnreadableModel(f"keys and values of a checkpoint must be in bf16 or fp8, got {stored:.40} in {name}")
    return is_fp8
