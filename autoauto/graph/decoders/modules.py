"""Names of modules of decoders: of a part of a block, `shards_of`, and in the lists of a config, `ModuleNames`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import translate

from autoauto.records.costs.blocks import BlockKind, BlockPart, Experts, LatentAttention, LinearAttention, StateSpace
from autoauto.records.errors import UnreadableModel

Shards = Mapping[BlockPart, tuple[str, ...]]
"""The modules of parts of a block; {} is the number of an expert."""
_GATED = ("gate_proj", "up_proj", "down_proj")


def _in(folder: str, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{folder}.{name}" for name in names)


_COMMON: Shards = {
    BlockPart.QKV: _in("self_attn", ("q_proj", "k_proj", "v_proj")),
    BlockPart.OUTPUT: ("self_attn.o_proj",),
    BlockPart.GATE_UP: _in("mlp", _GATED[:2]),
    BlockPart.DOWN: ("mlp.down_proj",),
    BlockPart.EXPERTS: _in("mlp.experts.{}", _GATED),
    BlockPart.SHARED: _in("mlp.shared_experts", _GATED),
}
_BLOCK_SPARSE: Shards = {BlockPart.EXPERTS: _in("block_sparse_moe.experts.{}", ("w1", "w2", "w3"))}
_OF_QWEN: Shards = {BlockPart.SHARED: _in("mlp.shared_expert", _GATED)}
_OF_CLASSES: Mapping[str, Shards] = {
    "Mixtral": _BLOCK_SPARSE,
    "MiniMaxM2": _BLOCK_SPARSE,
    "Phi3": {BlockPart.QKV: ("self_attn.qkv_proj",), BlockPart.GATE_UP: ("mlp.gate_up_proj",)},
    "Qwen2Moe": _OF_QWEN,
    "Qwen3Next": _OF_QWEN,
    "Qwen3_5": _OF_QWEN,
    "GptOss": {BlockPart.EXPERTS: ("mlp.experts.gate_up_proj", "mlp.experts.down_proj")},
    "Gemma4": {BlockPart.EXPERTS: _in("experts.{}", _GATED), BlockPart.SHARED: _in("mlp", _GATED)},
    "Step3p": {
        BlockPart.EXPERTS: _in("moe.experts.{}", _GATED),
        BlockPart.SHARED: _in("share_expert", _GATED),
    },
    "Llama4": {
        BlockPart.GATE_UP: _in("feed_forward", _GATED[:2]),
        BlockPart.DOWN: ("feed_forward.down_proj",),
        BlockPart.EXPERTS: _in("feed_forward.experts.{}", _GATED),
        BlockPart.SHARED: _in("feed_forward.shared_expert", _GATED),
    },
    "NemotronH": {
        BlockPart.QKV: _in("mixer", ("q_proj", "k_proj", "v_proj")),
        BlockPart.OUTPUT: ("mixer.o_proj",),
        BlockPart.GATE_UP: ("mixer.up_proj",),
        BlockPart.DOWN: ("mixer.down_proj",),
        BlockPart.EXPERTS: _in("mixer.experts.{}", _GATED[1:]),
        BlockPart.SHARED: _in("mixer.shared_experts", _GATED[1:]),
    },
}
"""Names that differ in classes, by the beginning of the name of the class."""
_PREFIXES = {False: ("model.", "backbone."), True: ("model.", "model.language_model.", "language_model.model.")}
"""Of the names of blocks, by whether the model has other parts besides text."""
_FUSED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "in_proj_qkvz": ("in_proj_qkv", "in_proj_z"),
}
"""Modules that engines compute as one, by the name of the fused module."""
_NOT_IN_PARTS = ("mlp.gate", "block_sparse_moe.gate", "input_layernorm", "post_attention_layernorm", "lm_head")
"""Modules that have 16 bits in any case."""
_MAX_PATTERN = 2_000
_MAX_REPEATS = 4
_DIGITS = re.compile(r"(\\d|\[0-9\]|\[\\d\])[+*]")
"""Repeats that cost nothing."""
_REPEATED_GROUP = re.compile(r"\)[*+{]")


def shards_of(architecture: str, kind: BlockKind, numbers: Sequence[int]) -> dict[BlockPart, Sequence[str]]:
    """The modules of every part of a block; of its experts only those with the given numbers."""
    own = next((shards for name, shards in _OF_CLASSES.items() if architecture.startswith(name)), {})
    named = dict(_COMMON) | dict(own) | dict(_of_attention(kind))
    shards: dict[BlockPart, Sequence[str]] = {part: named[part] for part in kind.part_weights(1, 1)}
    if isinstance(kind.feed_forward, Experts):
        modules: list[str] = []
        for number in numbers:
            modules += [module.format(number) for module in shards[BlockPart.EXPERTS]]
        shards[BlockPart.EXPERTS] = tuple(dict.fromkeys(modules))  # of a module of all experts once
    return shards


def _of_attention(kind: BlockKind) -> Shards:
    attention = kind.attention
    if isinstance(attention, LatentAttention):
        # The largest first. Engines compute no two of them as one but q_a_proj and kv_a_proj_with_mqa.
        queries = ("q_proj",) if attention.query_rank is None else ("q_b_proj", "q_a_proj")
        return {BlockPart.QKV: _in("self_attn", (*queries, "kv_b_proj", "kv_a_proj_with_mqa"))}
    if isinstance(attention, LinearAttention):
        return {BlockPart.QKV: ("linear_attn.in_proj_qkv",), BlockPart.OUTPUT: ("linear_attn.out_proj",)}
    if isinstance(attention, StateSpace):
        return {BlockPart.QKV: ("mixer.in_proj",), BlockPart.OUTPUT: ("mixer.out_proj",)}
    return {}


def module_names(architecture: str, layer: int, shard: str) -> Sequence[str]:
    """The names that checkpoints and engines have for a module."""
    prefixes = _PREFIXES[architecture.endswith("ForConditionalGeneration")]
    return [f"{prefix}layers.{layer}.{shard}" for prefix in prefixes]


class ModuleNames:
    """Modules by name, by a part of it (`self_attn`), by a regular expression (`re:.*mlp.*`) or with stars."""

    def __init__(self, listed: Iterable[object], where: str, *, loose: bool = False) -> None:
        """Take the list of a config. A `loose` name, as in lists of AWQ, may be any part of the name of a module."""
        self._literals: set[str] = set()
        self._patterns: list[re.Pattern[str]] = []
        self._loose: set[str] = set()
        texts: list[str] = []
        for each in listed:
            if isinstance(each, str) and each:
                texts += _unfused(each)
        for text in texts:
            if text.startswith("re:") or any(sign in text for sign in "*?[(^$\\"):
                self._patterns += _patterns(text, where)
            else:
                self._literals.add(text.strip("."))
        if loose:
            # "mlp.gate" must not mean every module whose name holds it: "mlp.gate_proj" is another one.
            self._loose = self._literals.difference(*map(_parts, _NOT_IN_PARTS))

    def has(self, names: Iterable[str]) -> bool:
        """True if the list has a module that is called by any of these names."""
        for name in names:
            if self._literals and not self._literals.isdisjoint(_parts(name)):
                return True
            if any(text in name for text in self._loose) or any(pattern.match(name) for pattern in self._patterns):
                return True
        return False

    def experts(self) -> Iterator[int]:
        """Numbers of experts that are named."""
        for text in [*self._literals, *(pattern.pattern for pattern in self._patterns)]:
            yield from map(int, re.findall(r"experts\W{1,4}(\d{1,6})", text))


def _unfused(text: str) -> Sequence[str]:
    """A name, and the names of the modules that an engine fuses under it.

    >>> _unfused("mlp.gate_up_proj")
    ['mlp.gate_up_proj', 'mlp.gate_proj', 'mlp.up_proj']
    """
    names = [text]
    for fused, modules in _FUSED.items():
        if fused in text:
            names += [text.replace(fused, each) for each in modules]
    return names


def _parts(name: str) -> Iterator[str]:
    """All parts of a dotted name that are whole words.

    >>> list(_parts("mlp.gate"))
    ['mlp', 'mlp.gate', 'gate']
    """
    words = name.split(".")
    for start in range(len(words)):
        for stop in range(start + 1, len(words) + 1):
            yield ".".join(words[start:stop])


def _patterns(text: str, where: str) -> list[re.Pattern[str]]:
    """The regular expression after `re:`. Another text is read with stars, and as a regular expression if it is one."""
    if text.startswith("re:"):
        return [_compiled(text.removeprefix("re:"), where)]
    with_stars = re.compile(f"{translate(text)}|{translate(f'{text}.*')}")
    if not any(sign in text for sign in "?[(^$\\"):
        return [with_stars]
    try:
        return [with_stars, _compiled(text, where)]
    except UnreadableModel:
        return [with_stars]


def _compiled(text: str, where: str) -> re.Pattern[str]:
    """A regular expression that ends soon: groups do not repeat, and little else does."""
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
