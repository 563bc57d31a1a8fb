"""How the matrices of a published decoder are stored, by its `quantization_config`: `stored_formats`.

    a matrix of a block ── named by ignore, modules_to_not_convert, exclude_modules, "-:" of dynamic ── bf16
                        ── named by a target of config_groups, quantized_layers, dynamic ────────────── its own format
                        ── any other ────────────────────────────────────────────────────────────────── the default

Rules are those of compressed-tensors, AWQ, GPTQ, fp8 and ModelOpt as engines read them [quantisation-configs].
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from autoauto.graph.decoders.modules import ModuleNames, module_names, shards_of
from autoauto.records.costs.blocks import BlockKind, Experts, LatentAttention
from autoauto.records.costs.decoder import BlockPart, Decoder, PartFormat, PartFormats, WeightFormat
from autoauto.records.errors import UnreadableModel

IN_BF16 = PartFormat()
_EXCLUDED = ("ignore", "ignored_layers", "exclude_modules", "modules_to_not_convert")
"""Keys of lists of modules that are not quantised."""
_ALGORITHMS = {
    "fp8": WeightFormat.FP8,
    "fp8_per_channel_per_token": WeightFormat.FP8_DYNAMIC,
    "nvfp4": WeightFormat.NVFP4,
    "w4a16": WeightFormat.INT4,
    "w4a16_awq": WeightFormat.INT4,
    "w8a16": WeightFormat.INT8,
    "w8a8_sq_per_channel": WeightFormat.INT8_W8A8,
}
"""Formats by their names in ModelOpt."""
_OF_BITS = {4: WeightFormat.INT4, 8: WeightFormat.INT8}
_FP8_BLOCK = [128, 128]
_NVFP4_GROUP = 16
_WHOLE_ROW = -1
_MOST_RANGES = 8
"""Of numbers of blocks in a sentence."""


class StoredFormats(NamedTuple):
    """The formats in which the matrices of blocks are stored."""

    main: PartFormat  # the format of most of those that are quantised
    blocks: tuple[BlockKind, ...]  # the blocks, with the parts that have another one
    notes: tuple[str, ...] = ()  # what was assumed, a sentence each


def stored_formats(decoder: Decoder, entry: Mapping[str, Any]) -> StoredFormats:
    """Read a `quantization_config`, or the content of NVIDIA's file beside a config.

    Raises UnreadableModel if a format is not modelled, or a part has several formats.
    """
    rules = _rules(decoder, entry)
    kinds = [decoder.block_kinds[number] for number in decoder.block_order]
    counted: set[str] = set()  # sentences on modules that are counted in the format of others
    formats = [_of_block(decoder, layer, kind, rules, counted) for layer, kind in enumerate(kinds)]
    n_weights: Counter[PartFormat] = Counter()
    for kind, of_parts in zip(kinds, formats, strict=True):
        for part, n in kind.part_weights(decoder.hidden_size, 1).items():
            # Parts in bf16 count nothing: the main format is bf16 only where no part is quantised.
            stored = of_parts[part]
            n_weights[stored] += 0 if stored == IN_BF16 else n
    main = n_weights.most_common(1)[0][0]
    blocks: list[BlockKind] = []
    for kind, of_parts in zip(kinds, formats, strict=True):
        unlike = [(part, stored) for part, stored in of_parts.items() if stored != main]
        blocks.append(kind._replace(unlike=tuple(unlike)))
    notes = [*_notes(blocks, main), *sorted(counted)]
    if _names_no_weights(entry):
        notes.append("The config names no format of the weights (quant_algo is null); they are counted in bf16.")
    head = rules.of(("lm_head",))
    if rules.may_hold_head and head != IN_BF16 and not decoder.is_tied:
        notes.append(f"The head is counted in bf16; the checkpoint stores it in {head.weights}.")
    return StoredFormats(main, tuple(blocks), tuple(notes))


def _of_block(
    decoder: Decoder, layer: int, kind: BlockKind, rules: _Rules, counted: set[str]
) -> dict[BlockPart, PartFormat]:
    numbers: set[int] = set()
    if isinstance(kind.feed_forward, Experts):
        # Experts that no rule names have one format: the first and the last one stand for them.
        n_experts = kind.feed_forward.n_experts
        numbers = {0, n_experts - 1}
        for rule, _ in rules.rules:
            numbers.update(number for number in rule.experts() if number < n_experts)
    of_parts: dict[BlockPart, PartFormat] = {}
    for part, modules in shards_of(decoder.architecture, kind, sorted(numbers)).items():
        by_module = {module: rules.of(module_names(decoder.architecture, layer, module)) for module in modules}
        formats = {stored: module for module, stored in by_module.items()}
        of_parts[part] = by_module[modules[0]]
        if part is BlockPart.QKV and isinstance(kind.attention, LatentAttention):
            counted.update(_counted_as(by_module, of_parts[part]))
        elif len(formats) > 1:
            said = " and ".join(f"{module} in {stored.weights}" for stored, module in formats.items())
            raise UnreadableModel(
                f"modules that engines compute together must have one format, got {said} in block {layer} of "
                f"{decoder.name}"
            )
    for part, stored in of_parts.items():
        if stored.weights is WeightFormat.MXFP4 and part is not BlockPart.EXPERTS:
            raise _not_modelled(decoder.name, f"{stored.weights} of {part}")
    return of_parts


def _counted_as(by_module: Mapping[str, PartFormat], taken: PartFormat) -> Iterator[str]:
    """A sentence on modules in other formats than the one in which all are counted; none where all have it."""
    unlike: dict[PartFormat, list[str]] = defaultdict(list)
    for module, stored in by_module.items():
        if stored != taken:
            unlike[stored].append(module.rpartition(".")[2])
    for stored, modules in unlike.items():
        yield f"Of latent attention, {', '.join(modules)} are in {stored.weights} and counted in {taken.weights}."


def _notes(blocks: Sequence[BlockKind], main: PartFormat) -> Iterator[str]:
    have: dict[BlockPart, list[int]] = defaultdict(list)  # the blocks that have a part
    differ: dict[tuple[BlockPart, PartFormat], list[int]] = defaultdict(list)
    for layer, kind in enumerate(blocks):
        for part in kind.part_weights(1, 1):
            have[part].append(layer)
        for unlike in kind.unlike:
            differ[unlike].append(layer)
    parts: dict[str, list[tuple[BlockPart, PartFormat]]] = defaultdict(list)  # by the name of their blocks
    for unlike, layers in differ.items():
        is_of_all = layers == have[unlike[0]] and len(layers) > 1
        name = "every block" if is_of_all else _named(layers, len(blocks))
        parts[name].append(unlike)
    for name, formats in parts.items():
        rest = f", the rest is in {main.weights}" if name == "every block" else ""
        yield f"Of {name}, {_said(tuple(formats))}{rest}."


def _named(numbers: Sequence[int], n_layers: int) -> str:
    last = n_layers - 1
    ends = {(0,): "the first block", (last,): "the last block", (0, last): "the first and the last block"}
    return ends.get(tuple(numbers), f"blocks {_ranges(numbers)}")


def _said(formats: PartFormats) -> str:
    """Parts and their formats in words.

    >>> _said(((BlockPart.QKV, IN_BF16), (BlockPart.OUTPUT, IN_BF16)))
    'qkv_proj, o_proj are in bf16'
    """
    parts: dict[PartFormat, list[str]] = defaultdict(list)
    for part, stored in formats:
        parts[stored].append(part)
    texts = [f"{', '.join(names)} are in {stored.weights}" for stored, names in parts.items()]
    return ", ".join(texts)


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
    texts: list[str] = []
    for first, last in ranges[:_MOST_RANGES]:
        texts.append(str(first) if first == last else f"{first}-{last}")
    n_more = sum(last - first + 1 for first, last in ranges[_MOST_RANGES:])
    return ", ".join(texts) + (f" and {n_more} more" if n_more else "")


class _Rules(NamedTuple):
    """Formats of modules: that of the first rule that names one, else the default."""

    rules: tuple[tuple[ModuleNames, PartFormat], ...]
    default: PartFormat
    may_hold_head: bool = False  # the head may be quantised, too

    def of(self, names: Sequence[str]) -> PartFormat:
        return next((stored for rule, stored in self.rules if rule.has(names)), self.default)


def _rules(decoder: Decoder, entry: Mapping[str, Any]) -> _Rules:
    method, algorithm = _text(entry, "quant_method"), _text(entry, "quant_algo")
    listed: list[object] = []
    for key in _EXCLUDED:
        listed += _names(decoder.name, entry, key)
    excluded = (ModuleNames(listed, decoder.name, loose=method == "awq"), IN_BF16)
    if algorithm == "mixed_precision":
        return _Rules((excluded, *_of_layers(decoder.name, entry)), IN_BF16)
    if not algorithm and (method == "compressed-tensors" or entry.get("config_groups")):
        made = _of_groups(decoder.name, entry)
    elif method == "gptq":
        made = _of_gptq(decoder.name, entry)
    elif _names_no_weights(entry):
        made = _Rules((), IN_BF16)
    else:
        made = _Rules((), _method_format(decoder.name, entry))
    return made._replace(rules=(excluded, *made.rules))


def _names_no_weights(entry: Mapping[str, Any]) -> bool:
    """True of an entry of ModelOpt that quantises nothing but keys and values: its algorithm of weights is null."""
    method = _text(entry, "quant_method")
    return "quant_algo" in entry and entry["quant_algo"] is None and method in ("", "modelopt")


def _names(name: str, entry: Mapping[str, Any], key: str) -> list[object]:
    """A list of modules in a config, where a text is a list of one name; empty where there is none."""
    listed = entry.get(key)
    if listed is None:
        return []
    names = [listed] if isinstance(listed, str) else listed
    if isinstance(names, list) and all(isinstance(each, str) for each in names):
        return names
    raise UnreadableModel(f"{key} must be a list of names of modules, got {listed!r:.60} in {name}; leave it out")


def _object(name: str, entry: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    value = entry.get(key)
    if value is None or isinstance(value, Mapping):
        return value
    raise UnreadableModel(f"{key} must be an object, got {value!r:.60} in {name}; leave it out")


def _text(entry: Mapping[str, Any], key: str) -> str:
    return str(entry.get(key) or "").lower()


def _group_size(name: str, entry: Mapping[str, Any], *keys: str) -> int | None:
    """How many weights have a scale in common, by the first key that there is; None where a row or all have."""
    key = next((each for each in keys if each in entry), keys[0])
    size = entry.get(key)
    if size is None or (size == _WHOLE_ROW and isinstance(size, int)):
        return None
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise UnreadableModel(
            f"{key} must be a whole number of weights, or {_WHOLE_ROW} for a whole row, got {size!r:.40} in {name}"
        )
    return size


def _of_layers(name: str, entry: Mapping[str, Any]) -> Iterator[tuple[ModuleNames, PartFormat]]:
    layers = entry.get("quantized_layers")
    if not isinstance(layers, Mapping) or not layers:
        raise UnreadableModel(f"quant_algo MIXED_PRECISION needs quantized_layers, got {layers!r:.40} in {name}")
    by_format: dict[PartFormat, list[str]] = defaultdict(list)
    for module, stored in layers.items():
        by_format[_method_format(name, stored if isinstance(stored, Mapping) else {})].append(module)
    return ((ModuleNames(modules, name), stored) for stored, modules in by_format.items())


def _of_gptq(name: str, entry: Mapping[str, Any]) -> _Rules:
    """GPTQ's overrides by regular expression: "-:" leaves out, others change bits and groups."""
    typical = _method_format(name, entry)
    rules: list[tuple[ModuleNames, PartFormat]] = []
    overrides = _object(name, entry, "dynamic") or {}
    for text in overrides:
        pattern = ModuleNames([f"re:{text.removeprefix('-:').removeprefix('+:')}"], name)
        stored = IN_BF16
        if not text.startswith("-:"):
            stored = _method_format(name, {**entry, **(_object(name, overrides, text) or {})})
        rules.append((pattern, stored))
    listed = entry.get("modules_in_block_to_quantize")
    groups = listed if isinstance(listed, list) else [listed]
    only: list[object] = []
    for group in groups:
        only += _names(name, {"modules_in_block_to_quantize": group}, "modules_in_block_to_quantize")
    if only:
        return _Rules((*rules, (ModuleNames(only, name), typical)), IN_BF16)
    return _Rules(tuple(rules), typical, may_hold_head=bool(entry.get("lm_head")))


def _of_groups(name: str, entry: Mapping[str, Any]) -> _Rules:
    """The schemes of compressed-tensors; one of all linear layers is the default where no scheme names a module."""
    sparsity = _object(name, entry, "sparsity_config") or {}
    if sparsity.get("format", "dense") != "dense":
        raise UnreadableModel(f"weights must be dense, got {sparsity.get('format')!r:.40} in {name}")
    groups = entry.get("config_groups")
    are_schemes = isinstance(groups, Mapping) and all(isinstance(each, Mapping) for each in groups.values())
    if not groups or not are_schemes:
        raise UnreadableModel(f"compressed-tensors needs config_groups of schemes, got {groups!r:.40} in {name}")
    rules: list[tuple[ModuleNames, PartFormat]] = []
    default = IN_BF16
    # From the last scheme to the first: the default is that of the first one of linear layers.
    for group in reversed(list(groups.values())):
        stored = _scheme_format(name, group)
        targets = _names(name, group, "targets") or ["Linear"]
        if any(isinstance(each, str) and each.lower() == "linear" for each in targets):
            default = stored
        rules.insert(0, (ModuleNames(targets, name), stored))
    return _Rules(tuple(rules), default, may_hold_head=True)


def _scheme_format(name: str, group: Mapping[str, Any]) -> PartFormat:
    """The format of a scheme of compressed-tensors; absent values are the defaults of its class."""
    weights, activations = _object(name, group, "weights"), _object(name, group, "input_activations")
    if weights is None:
        return IN_BF16
    kind = (weights.get("type", "int"), weights.get("num_bits", 8))
    of_input = None
    if activations is not None:
        of_input = (activations.get("type", "int"), activations.get("num_bits", 8))
    size = _group_size(name, weights, "group_size")
    strategy = weights.get("strategy") or ("group" if size else "tensor")
    made: WeightFormat | None = None
    if kind == of_input == ("float", 8) and strategy == "block" and weights.get("block_structure") == _FP8_BLOCK:
        made, size = WeightFormat.FP8_BLOCK, None
    elif kind == of_input == ("float", 8) and strategy in ("tensor", "channel"):
        is_static = activations is not None and activations.get("dynamic") is False
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
    method, algorithm = _text(entry, "quant_method"), _text(entry, "quant_algo")
    size = _group_size(name, entry, "group_size", "q_group_size")
    if algorithm:
        if algorithm == "nvfp4" and size not in (None, _NVFP4_GROUP):
            raise _not_modelled(name, f"nvfp4 with a scale for {size} weights instead of {_NVFP4_GROUP}")
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
        if entry.get("bits", 8) != 8:
            raise _not_modelled(name, f"fp8 of {entry['bits']!r:.20} bits")
        scheme = entry.get("activation_scheme") or "dynamic"
        if scheme not in ("static", "dynamic"):
            raise _not_modelled(name, f"fp8 with activations by {scheme!r:.30} instead of static or dynamic")
        return PartFormat(WeightFormat.FP8 if scheme == "static" else WeightFormat.FP8_DYNAMIC)
    if method == "mxfp4":
        return PartFormat(WeightFormat.MXFP4)
    if method == "fbgemm_fp8":
        return PartFormat(WeightFormat.FP8_DYNAMIC)
    raise _not_modelled(name, method or "no quant_method")


def _not_modelled(name: str, given: str) -> UnreadableModel:
    formats = ", ".join(WeightFormat)
    return UnreadableModel(f"weights must be {formats}, got {given:.80} in {name}; try a checkpoint in one of them")
