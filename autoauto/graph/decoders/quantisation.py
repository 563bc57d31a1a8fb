"""How the matrices of a published decoder are stored, by its `quantization_config`: `stored_formats`.

    a matrix of a block ── named by ignore, modules_to_not_convert, exclude_modules, "-:" of dynamic ── bf16
                        ── named by a target of config_groups, quantized_layers, dynamic ────────────── its own format
                        ── any other ────────────────────────────────────────────────────────────────── the usual one

Rules are those of compressed-tensors, AWQ, GPTQ, fp8 and ModelOpt as engines read them [quantisation-configs].
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from typing import Any, NamedTuple

from autoauto.records.costs.decoder import BlockPart, Decoder, PartFormat, PartFormats, WeightFormat
from autoauto.records.errors import UnreadableModel

IN_BF16 = PartFormat()
_EXCLUDED = ("ignore", "ignored_layers", "exclude_modules", "modules_to_not_convert")
"""Keys of lists of modules that are not quantised."""
_SHARDS = {
    BlockPart.QKV: ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    BlockPart.OUTPUT: ("self_attn.o_proj",),
    BlockPart.GATE_UP: ("mlp.gate_proj", "mlp.up_proj"),
    BlockPart.DOWN: ("mlp.down_proj",),
    BlockPart.EXPERTS: ("mlp.experts.{}.gate_proj", "mlp.experts.{}.up_proj", "mlp.experts.{}.down_proj"),
}
"""The modules of a part as checkpoints have them."""
_SHARDS_OF: Mapping[str, Mapping[BlockPart, tuple[str, ...]]] = {
    "MixtralForCausalLM": {BlockPart.EXPERTS: tuple(f"block_sparse_moe.experts.{{}}.w{i}" for i in (1, 2, 3))},
    "Phi3ForCausalLM": {BlockPart.QKV: ("self_attn.qkv_proj",), BlockPart.GATE_UP: ("mlp.gate_up_proj",)},
}
_FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
"""What engines call modules that they compute as one."""
_PREFIXES = {False: ("model.",), True: ("model.", "model.language_model.", "language_model.model.")}
"""Of the names of blocks, of models of text and of others."""
_NOT_IN_PARTS = ("mlp.gate", "block_sparse_moe.gate", "input_layernorm", "post_attention_layernorm", "lm_head")
"""Modules that have 16 bits in any case."""
_ALGORITHMS = {
    "fp8": WeightFormat.FP8,
    "fp8_per_channel_per_token": WeightFormat.FP8_DYNAMIC,
    "nvfp4": WeightFormat.NVFP4,
    "w4a16": WeightFormat.INT4,
    "w4a16_awq": WeightFormat.INT4,
    "w8a16": WeightFormat.INT8,
    "w8a8_sq_per_channel": WeightFormat.INT8_W8A8,
}
"""What ModelOpt calls formats."""
_OF_BITS = {4: WeightFormat.INT4, 8: WeightFormat.INT8}
_FP8_BLOCK = [128, 128]
_MAX_PATTERN = 2_000
_MAX_REPEATS = 4
_DIGITS = re.compile(r"(\\d|\[0-9\]|\[\\d\])[+*]")
"""Repeats that cost nothing."""
_REPEATED_GROUP = re.compile(r"\)[*+{]")


class StoredFormats(NamedTuple):
    """How the matrices of every block are stored.

    Attributes:
        main: the format of most of those that are quantised.
        unlike: the parts that have another one.
        first: the parts of the first block that have another one than in other blocks.
        last: the same of the last block.
        notes: what was assumed, a sentence each.
    """

    main: PartFormat
    unlike: PartFormats = ()
    first: PartFormats = ()
    last: PartFormats = ()
    notes: tuple[str, ...] = ()


def stored_formats(decoder: Decoder, entry: Mapping[str, Any]) -> StoredFormats:
    """Read a `quantization_config`, or the content of NVIDIA's file beside a config.

    Raises:
        UnreadableModel: a format is not modelled, blocks are unlike each other, or a part has several formats.
    """
    rules = _rules(decoder, entry)
    shards = _shards(decoder, rules)
    blocks: dict[tuple[PartFormat, ...], list[int]] = defaultdict(list)
    for layer in range(decoder.n_layers):
        formats = tuple(_format_of(decoder, layer, modules, rules) for modules in shards.values())
        blocks[formats].append(layer)
    parts = tuple(shards)
    typical = max(blocks, key=lambda formats: len(blocks[formats]))
    of_layer = {layer: dict(zip(parts, formats, strict=True)) for formats, layers in blocks.items() for layer in layers}
    stored = _of_block(decoder, dict(zip(parts, typical, strict=True)), rules)
    ends = {layer: formats for layer, formats in of_layer.items() if layer not in blocks[typical]}
    if not {0, decoder.n_layers - 1}.issuperset(ends):
        raise _unlike_blocks(decoder, parts, blocks)
    first, last = (
        tuple((part, each) for part, each in ends.get(layer, {}).items() if each != typical[parts.index(part)])
        for layer in (0, decoder.n_layers - 1)
    )
    return stored._replace(first=first, last=last, notes=(*stored.notes, *_end_notes(first, last)))


def _end_notes(first: PartFormats, last: PartFormats) -> Iterator[str]:
    if first == last and first:
        yield f"Of the first and the last block, {_said(first)}."
        return
    for name, formats in (("first", first), ("last", last)):
        if formats:
            yield f"Of the {name} block, {_said(formats)}."


def _said(formats: PartFormats) -> str:
    """Parts and their formats.

    >>> _said(((BlockPart.QKV, IN_BF16), (BlockPart.OUTPUT, IN_BF16)))
    'qkv_proj, o_proj are in bf16'
    """
    parts: dict[PartFormat, list[str]] = defaultdict(list)
    for part, stored in formats:
        parts[stored].append(part)
    return ", ".join(f"{', '.join(names)} are in {stored.weights}" for stored, names in parts.items())


def _of_block(decoder: Decoder, formats: Mapping[BlockPart, PartFormat], rules: _Rules) -> StoredFormats:
    weights: Counter[PartFormat] = Counter()
    for part, n in decoder.part_weights(1).items():
        weights[formats[part]] += n * (formats[part] != IN_BF16)
    main = weights.most_common(1)[0][0]
    unlike = tuple((part, stored) for part, stored in formats.items() if stored != main)
    notes = [f"Of every block, {_said(unlike)}, the rest is in {main.weights}."] if unlike else []
    if rules.may_hold_head and rules.of(("lm_head",)) != IN_BF16 and not decoder.is_tied:
        notes.append(f"The head is counted in bf16; the checkpoint stores it in {rules.of(('lm_head',)).weights}.")
    return StoredFormats(main, unlike, notes=tuple(notes))


def _unlike_blocks(
    decoder: Decoder, parts: Sequence[BlockPart], blocks: Mapping[tuple[PartFormat, ...], Sequence[int]]
) -> UnreadableModel:
    typical, *others = sorted(blocks, key=lambda formats: -len(blocks[formats]))
    layers = blocks[others[0]]
    said = _said(tuple((parts[i], others[0][i]) for i in range(len(parts)) if others[0][i] != typical[i]))
    return UnreadableModel(
        f"all blocks but the first and the last must be stored alike, {len(layers)} of {decoder.n_layers} of "
        f"{decoder.name} ({_ranges(layers)}) are not: their {said}; try another checkpoint"
    )


def _ranges(numbers: Sequence[int]) -> str:
    """Numbers in order, neighbours as ranges.

    >>> _ranges([0, 1, 2, 31])
    '0-2, 31'
    """
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in ranges[:8])


def _shards(decoder: Decoder, rules: _Rules) -> dict[BlockPart, Sequence[str]]:
    """The modules of every part; of experts the first, the last, and all that rules name."""
    shards: dict[BlockPart, Sequence[str]] = {
        part: _SHARDS_OF.get(decoder.architecture, {}).get(part, _SHARDS[part]) for part in decoder.part_weights(1)
    }
    if decoder.experts is not None:
        numbers = {0, decoder.experts.n_experts - 1, *rules.named_experts(decoder.experts.n_experts)}
        of_one = shards[BlockPart.EXPERTS]
        shards[BlockPart.EXPERTS] = tuple(module.format(number) for number in sorted(numbers) for module in of_one)
    return shards


def _format_of(decoder: Decoder, layer: int, shards: Sequence[str], rules: _Rules) -> PartFormat:
    """The format of a part of a block, whose modules must have one: engines compute them together."""
    formats = {rules.of(_names(decoder, layer, shard)): shard for shard in shards}
    if len(formats) == 1:
        return next(iter(formats))
    said = " and ".join(f"{shard} in {stored.weights}" for stored, shard in formats.items())
    raise UnreadableModel(
        f"modules that engines compute together must have one format, got {said} in block {layer} of {decoder.name}"
    )


def _names(decoder: Decoder, layer: int, shard: str) -> Sequence[str]:
    """What checkpoints and engines call a module."""
    prefixes = _PREFIXES[decoder.architecture.endswith("ForConditionalGeneration")]
    return [f"{prefix}layers.{layer}.{shard}" for prefix in prefixes]


class _Names:
    """Modules by name, by a part of it (`self_attn`), by a regular expression (`re:.*mlp.*`) or with stars."""

    def __init__(self, listed: Iterable[object], where: str, *, loose: bool = False) -> None:
        """Take a list as a config has it; `loose` names stand anywhere in the name of a module, as those of AWQ."""
        texts = [text for each in listed if isinstance(each, str) and each for text in _unfused(each)]
        self._literals = {text.strip(".") for text in texts if not _is_pattern(text)}
        self._patterns = [pattern for text in texts if _is_pattern(text) for pattern in _patterns(text, where)]
        known = {part for name in _NOT_IN_PARTS for part in _parts(name)} if loose else set()
        self._loose = [text for text in self._literals if text not in known] if loose else []

    def has(self, names: Iterable[str]) -> bool:
        """Whether a module is meant that has any of these names."""
        return any(self._has(name) for name in names)

    def _has(self, name: str) -> bool:
        if any(part in self._literals for part in _parts(name)):
            return True
        return any(text in name for text in self._loose) or any(pattern.match(name) for pattern in self._patterns)

    def experts(self) -> Iterator[int]:
        """Numbers of experts that are named."""
        for text in (*self._literals, *(pattern.pattern for pattern in self._patterns)):
            yield from map(int, re.findall(r"experts\W{1,4}(\d{1,6})", text))


def _unfused(text: str) -> Sequence[str]:
    """A name, and those of the modules that an engine computes as this one.

    >>> _unfused("mlp.gate_up_proj")
    ['mlp.gate_up_proj', 'mlp.gate_proj', 'mlp.up_proj']
    """
    return [
        text,
        *(text.replace(fused, each) for fused, modules in _FUSED.items() if fused in text for each in modules),
    ]


def _parts(name: str) -> Iterator[str]:
    """All parts of a dotted name that are whole words.

    >>> list(_parts("mlp.gate"))
    ['mlp', 'mlp.gate', 'gate']
    """
    words = name.split(".")
    for start in range(len(words)):
        for stop in range(start + 1, len(words) + 1):
            yield ".".join(words[start:stop])


def _is_pattern(text: str) -> bool:
    return text.startswith("re:") or any(sign in text for sign in "*?[(^$\\")


def _patterns(text: str, where: str) -> list[re.Pattern[str]]:
    """The regular expression after `re:`; of other texts with signs, what they mean with stars and as an expression."""
    if text.startswith("re:"):
        return [_compiled(text.removeprefix("re:"), where)]
    with_stars = re.compile(translate(text))
    try:
        return [with_stars, _compiled(text, where)]
    except UnreadableModel:
        return [with_stars]


def _compiled(text: str, where: str) -> re.Pattern[str]:
    """A regular expression that ends soon: groups do not repeat, and little else does.

    Raises:
        UnreadableModel: it is too long, repeats groups, or is none.
    """
    try:
        n_repeats = sum(_DIGITS.sub("", text).count(sign) for sign in "*+{")
        if len(text) <= _MAX_PATTERN and n_repeats <= _MAX_REPEATS and not _REPEATED_GROUP.search(text):
            return re.compile(text)
    except (re.error, RecursionError, OverflowError):
        pass
    raise UnreadableModel(
        f"names of modules must be regular expressions of at most {_MAX_PATTERN:,} signs and {_MAX_REPEATS} repeats, "
        f"none of groups, got {text!r:.60} in {where}"
    )


class _Rules(NamedTuple):
    """Formats of modules: that of the first rule that names one, else the default.

    Attributes:
        rules: names and their format, in order.
        default: of modules that no rule names.
        may_hold_head: whether the head may be quantised, too.
    """

    rules: tuple[tuple[_Names, PartFormat], ...]
    default: PartFormat
    may_hold_head: bool = False

    def of(self, names: Sequence[str]) -> PartFormat:
        """The format of a module that has any of these names."""
        return next((stored for rule, stored in self.rules if rule.has(names)), self.default)

    def named_experts(self, n_experts: int) -> set[int]:
        """Numbers of experts that rules name."""
        return {number for rule, _ in self.rules for number in rule.experts() if number < n_experts}


def _rules(decoder: Decoder, entry: Mapping[str, Any]) -> _Rules:
    method = str(entry.get("quant_method") or "").lower()
    listed = [each for key in _EXCLUDED for each in _list(entry.get(key))]
    excluded = (_Names(listed, decoder.name, loose=method == "awq"), IN_BF16)
    algorithm = str(entry.get("quant_algo") or "").lower()
    if algorithm == "mixed_precision":
        return _Rules((excluded, *_of_layers(decoder.name, entry)), IN_BF16)
    if not algorithm and (method == "compressed-tensors" or entry.get("config_groups")):
        made = _of_groups(decoder.name, entry)
    elif method == "gptq":
        made = _of_gptq(decoder.name, entry)
    else:
        made = _Rules((), _method_format(decoder.name, entry))
    return made._replace(rules=(excluded, *made.rules))


def _list(value: object) -> Sequence[object]:
    """A list of a config; one name alone is a list of it."""
    return value if isinstance(value, list) else [value] if isinstance(value, str) else ()


def _of_layers(name: str, entry: Mapping[str, Any]) -> Iterator[tuple[_Names, PartFormat]]:
    """ModelOpt's formats of every module."""
    layers = entry.get("quantized_layers")
    if not isinstance(layers, Mapping) or not layers:
        raise UnreadableModel(f"quant_algo MIXED_PRECISION needs quantized_layers, got {layers!r:.40} in {name}")
    by_format: dict[PartFormat, list[str]] = defaultdict(list)
    for module, stored in layers.items():
        by_format[_method_format(name, stored if isinstance(stored, Mapping) else {})].append(module)
    return ((_Names(modules, name), stored) for stored, modules in by_format.items())


def _of_gptq(name: str, entry: Mapping[str, Any]) -> _Rules:
    """GPTQ's overrides by regular expression: "-:" leaves out, others change bits and groups."""
    typical = _method_format(name, entry)
    rules: list[tuple[_Names, PartFormat]] = []
    dynamic = entry.get("dynamic")
    for text, change in dynamic.items() if isinstance(dynamic, Mapping) else ():
        pattern = _Names([f"re:{text.removeprefix('-:').removeprefix('+:')}"], name)
        changed = {**entry, **(change if isinstance(change, Mapping) else {})}
        rules.append((pattern, IN_BF16 if text.startswith("-:") else _method_format(name, changed)))
    only = [each for group in _list(entry.get("modules_in_block_to_quantize")) for each in _list(group) or [group]]
    if only:
        return _Rules((*rules, (_Names(only, name), typical)), IN_BF16)
    return _Rules(tuple(rules), typical, may_hold_head=bool(entry.get("lm_head")))


def _of_groups(name: str, entry: Mapping[str, Any]) -> _Rules:
    """The schemes of compressed-tensors: one that names a module comes before one of all linear layers."""
    sparsity = entry.get("sparsity_config")
    if isinstance(sparsity, Mapping) and sparsity.get("format", "dense") != "dense":
        raise UnreadableModel(f"weights must be dense, got {sparsity.get('format')!r:.40} in {name}")
    groups = entry.get("config_groups")
    if not isinstance(groups, Mapping) or not groups or not all(isinstance(each, Mapping) for each in groups.values()):
        raise UnreadableModel(f"compressed-tensors needs config_groups of schemes, got {groups!r:.40} in {name}")
    rules: list[tuple[_Names, PartFormat]] = []
    default = IN_BF16
    for group in reversed(list(groups.values())):
        stored = _scheme_format(name, group)
        targets = _list(group.get("targets")) or ["Linear"]
        if any(isinstance(each, str) and each.lower() == "linear" for each in targets):
            default = stored
        rules.insert(0, (_Names(targets, name), stored))
    return _Rules(tuple(rules), default, may_hold_head=True)


def _scheme_format(name: str, group: Mapping[str, Any]) -> PartFormat:
    """The format of a scheme of compressed-tensors; absent values are the defaults of its class."""
    weights, activations = group.get("weights"), group.get("input_activations")
    if not isinstance(weights, Mapping):
        return IN_BF16
    kind = (weights.get("type", "int"), weights.get("num_bits", 8))
    of_input = None
    if isinstance(activations, Mapping):
        of_input = (activations.get("type", "int"), activations.get("num_bits", 8))
    size = weights.get("group_size")
    size = size if isinstance(size, int) and size > 0 else None
    strategy = weights.get("strategy") or ("group" if size else "tensor")
    made: WeightFormat | None = None
    if kind == of_input == ("float", 8) and strategy == "block" and weights.get("block_structure") == _FP8_BLOCK:
        made, size = WeightFormat.FP8_BLOCK, None
    elif kind == of_input == ("float", 8) and strategy in ("tensor", "channel"):
        is_static = isinstance(activations, Mapping) and activations.get("dynamic") is False
        made = WeightFormat.FP8 if is_static else WeightFormat.FP8_DYNAMIC
    elif kind == of_input == ("float", 4) and size == 16:
        made = WeightFormat.NVFP4
    elif (kind, of_input) == (("float", 8), None) and strategy in ("tensor", "channel"):
        made = WeightFormat.FP8_W8A16
    elif kind == of_input == ("int", 8):
        made = WeightFormat.INT8_W8A8
    elif kind[0] == "int" and of_input is None:
        made = _OF_BITS.get(kind[1]) if isinstance(kind[1], int) else None
    if made is None:
        of_inputs = "16 bits" if of_input is None else "{}{}".format(*of_input)
        raise _not_modelled(name, f"{kind[0]}{kind[1]} by {strategy} with activations of {of_inputs}")
    return PartFormat(made, size)


def _method_format(name: str, entry: Mapping[str, Any]) -> PartFormat:
    """The format that a method or an algorithm has for all modules."""
    method = str(entry.get("quant_method") or "").lower()
    algorithm = str(entry.get("quant_algo") or "").lower()
    size = entry.get("group_size", entry.get("q_group_size"))
    size = size if isinstance(size, int) and size > 0 else None
    if algorithm:
        if algorithm in _ALGORITHMS:
            return PartFormat(_ALGORITHMS[algorithm], size)
        raise _not_modelled(name, algorithm)
    if method in ("awq", "gptq"):
        bits = entry.get("bits", entry.get("w_bit"))
        if isinstance(bits, int) and bits in _OF_BITS:
            return PartFormat(_OF_BITS[bits], size)
        raise _not_modelled(name, f"{method} of {bits!r:.20} bits")
    if method == "fp8":
        block = entry.get("weight_block_size")
        if block:
            if block == _FP8_BLOCK:
                return PartFormat(WeightFormat.FP8_BLOCK)
            raise _not_modelled(name, f"fp8 in blocks of {block!r:.30}")
        is_static = entry.get("activation_scheme") == "static"
        return PartFormat(WeightFormat.FP8 if is_static else WeightFormat.FP8_DYNAMIC)
    if method == "fbgemm_fp8":
        return PartFormat(WeightFormat.FP8_DYNAMIC)
    raise _not_modelled(name, method or "no quant_method")


def _not_modelled(name: str, given: str) -> UnreadableModel:
    formats = ", ".join(WeightFormat)
    return UnreadableModel(f"weights must be {formats}, got {given:.80} in {name}; try a checkpoint in one of them")
