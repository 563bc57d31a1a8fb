"""Decoders from the `config.json` of Hugging Face: `decoder_of`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from autoauto.graph.decoders.families import FAMILIES, architecture_of, check_like_blocks
from autoauto.graph.decoders.quantisation import stored_formats
from autoauto.records.costs.decoder import Checkpoint, Decoder, Experts, WeightFormat, Window
from autoauto.records.errors import UnreadableModel, did_you_mean
from autoauto.records.installation import gpu_tables_dir

CONFIG_FILE, QUANTISATION_FILE = "config.json", "hf_quant_config.json"
MAX_LAYERS = 1_000
MAX_CONFIG_BYTES = 10_000_000
_TEXT_CONFIG = "text_config"
_SCALED = ("linear", "dynamic", "yarn")
"""Kinds of positions that are scaled."""
_MOST_SCALED = 2**16
_FULL, _SLIDING = "full_attention", "sliding_attention"
_SCALED_ALREADY = "Gemma3"
"""Architectures whose positions are scaled ones begin with it: engines leave their factor out [positions]."""
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
    architecture = architecture_of(name, config, text)
    family = FAMILIES[architecture]
    check_like_blocks(name, text)
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
    if not n_windowed or not fields.value("sliding_window"):
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
        first=stored.first,
        last=stored.last,
        notes=(*checkpoint.notes, *stored.notes),
    )


def _max_length(architecture: str, fields: _Values) -> int:
    """The longest sequence: positions times a factor, unless the config counts scaled ones [positions].

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
