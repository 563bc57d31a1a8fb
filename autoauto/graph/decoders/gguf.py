"""Decoders from files of llama.cpp: `read_gguf` reads the header of a GGUF file [gguf].

    "GGUF" | version | n tensors | n entries | entries: key, type, value ... | tensors: name, shape, type, offset ...

A large model is several files, NAME-00001-of-00003.gguf and so on: the first has the entries, each has some tensors.
Weights are not read. The engine reads the file itself; the forecast and the report need a few numbers of the header.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import IO, Any, NamedTuple

from autoauto.graph.decoders.huggingface import MAX_LAYERS
from autoauto.graph.decoders.layers import graph_of
from autoauto.graph.decoders.values import whole_number
from autoauto.records.costs.decoder import Checkpoint, Decoder, DecoderFile, Experts
from autoauto.records.errors import UnreadableModel
from autoauto.records.layers import LayerGraph

SUFFIX = ".gguf"
_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MAX_ENTRIES = 10_000
_MAX_TENSORS = 1_000_000
_MAX_ITEMS = 10_000_000
_MAX_TEXT = 100_000_000
_MAX_AXES = 4
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""The types of entries that are numbers, as `struct` calls them."""
_TEXT, _LIST = 8, 9
_MAX_PARTS = 2**16 - 1
"""The number of parts is stored in 16 bits [gguf]."""
_PART = re.compile(r"-\d{5}-of-\d{5}\Z")
"""The end of the name of a part."""
_OF_BLOCK = re.compile(r"blk\.(\d{1,4})\.")
_FORMATS = {
    **{0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K"},
    **{13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL"},
    **{21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4"},
}
"""The formats of tensors, by their numbers [gguf]."""


class _Listed(NamedTuple):
    """A list of an entry; its items are stored where they are a few numbers."""

    n_items: int
    items: tuple[int | float, ...]


def is_gguf(name: object) -> bool:
    """True if a model is named as a GGUF file."""
    return isinstance(name, str | Path) and Path(name).suffix.lower() == SUFFIX


def read_gguf(path: Path) -> DecoderFile:
    """The decoder in a GGUF file, with the tensors of all its parts.

    Raises:
        UnreadableModel: it is none, is cut short, or lacks a number that is needed; or it is a later part of a model,
            or lacks one.
    """
    first = _read_part(path)
    parts = [first, *_later_parts(path, first.metadata)]
    tensors: dict[str, _StoredTensor] = {}
    for part in parts:
        tensors |= part.tensors
    n_tensors = first.metadata.get("split.tensors.count")
    if len(parts) > 1 and n_tensors != len(tensors):
        raise UnreadableModel(
            f"the {len(parts)} parts of {path} must have {n_tensors} tensors, they have {len(tensors)}; copy them again"
        )
    formats = Counter[int]()
    for tensor in tensors.values():
        formats[tensor.format] += prod(tensor.shape)
    number = formats.most_common(1)[0][0] if formats else 0
    content = "".join(part.content for part in parts)
    return DecoderFile(
        path=str(opened_path(path)),
        decoder=_decoder(path, first.metadata, tensors),
        weights=_FORMATS.get(number, f"type {number}"),
        n_bytes=sum(part.n_bytes for part in parts),
        content=content if len(parts) == 1 else sha256(content.encode()).hexdigest(),
    )


def opened_path(path: Path) -> Path:
    """The path by which llama.cpp opens a file: a link of a part stays, for the names of parts follow from its name."""
    return path.absolute() if _PART.search(path.stem) else path.resolve()


def graph_of_file(file: DecoderFile) -> LayerGraph:
    """The layers of the decoder of a file; its content is that of the header."""
    return replace(graph_of(file.decoder), content=file.content)


class _StoredTensor(NamedTuple):
    shape: tuple[int, ...]
    format: int
    offset: int


class _FilePart(NamedTuple):
    """The header of a file; `content` is its digest."""

    metadata: dict[str, Any]
    tensors: dict[str, _StoredTensor]
    content: str
    n_bytes: int


def _read_part(path: Path) -> _FilePart:
    try:
        with path.open("rb") as file:
            header = _Header(file, path)
            metadata, tensors = header.read()
            content = header.digest.hexdigest()
        n_bytes = path.stat().st_size
    except OSError as error:
        raise UnreadableModel(f"{path} must be a readable file, got: {error.strerror}") from None
    except struct.error:
        raise UnreadableModel(f"{path} must be a whole GGUF file, it ends within its header") from None
    # Offsets count from the end of the header on. The first part of several may have no tensors.
    last = max((tensor.offset for tensor in tensors.values()), default=-1)
    if header.n_read + last >= n_bytes:
        raise UnreadableModel(f"{path} must be a whole GGUF file, it ends at byte {n_bytes:,}, before its last tensor")
    return _FilePart(metadata, tensors, content, n_bytes)


def _later_parts(path: Path, metadata: Mapping[str, Any]) -> Iterator[_FilePart]:
    """The parts beside the first, which llama.cpp finds by their names."""
    n_parts = whole_number(metadata.get("split.count", 1), "split.count", path, _MAX_PARTS, minimum=0)
    if n_parts <= 1:
        return

    def named(number: int) -> Path:
        return path.with_name(f"{_PART.sub('', path.stem)}-{number + 1:05}-of-{n_parts:05}{SUFFIX}")

    if metadata.get("split.no") != 0 or path != named(0):
        raise UnreadableModel(f"a model of {n_parts} parts is opened by its first, got {path}; give {named(0)}")
    for number in range(1, n_parts):
        if not named(number).exists():
            raise UnreadableModel(
                f"the {n_parts} parts of a model must be in one folder, {named(number).name} is missing beside {path}; "
                "copy it there"
            )
        part = _read_part(named(number))
        if part.metadata.get("split.no") != number:
            raise UnreadableModel(f"{named(number)} must be part {number + 1} of a model, its header says otherwise")
        yield part


class _Header:
    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file, self._path = file, path
        self.digest, self.n_read = sha256(), 0

    def read(self) -> tuple[dict[str, Any], dict[str, _StoredTensor]]:
        """All entries and all tensors, by their names."""
        if self._bytes(4) != _MAGIC:
            raise UnreadableModel(f"a GGUF file begins with {_MAGIC.decode()}, {self._path} does not; try another file")
        version = self._number("I")
        if version not in _VERSIONS:
            raise UnreadableModel(f"the version of GGUF must be 2 or 3, got {version} in {self._path}")
        n_tensors, n_entries = self._count(_MAX_TENSORS, "tensors"), self._count(_MAX_ENTRIES, "entries")
        metadata: dict[str, Any] = {}
        for _ in range(n_entries):
            key = self._text()
            metadata[key] = self._value(self._number("I"))
        tensors: dict[str, _StoredTensor] = {}
        for _ in range(n_tensors):
            name, n_axes = self._text(), self._number("I")
            if n_axes > _MAX_AXES:
                raise UnreadableModel(f"a tensor has at most {_MAX_AXES} axes, {name!r:.40} in {self._path} {n_axes}")
            shape = tuple(self._number("Q") for _ in range(n_axes))
            tensors[name] = _StoredTensor(shape, self._number("I"), self._number("Q"))
        return metadata, tensors

    def _value(self, kind: int) -> Any:
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])
        if kind == _TEXT:
            return self._text()
        if kind != _LIST:
            raise UnreadableModel(f"a value must have a type of GGUF, got {kind} in {self._path}")
        kind, n_items = self._number("I"), self._count(_MAX_ITEMS, "items of a list")
        if kind not in _NUMBERS:
            for _ in range(n_items):  # the vocabulary, of which only the length counts
                self._value(kind)
            return _Listed(n_items, ())
        code = f"<{n_items}{_NUMBERS[kind]}"
        content = self._bytes(struct.calcsize(code))
        if n_items > MAX_LAYERS:  # no list of numbers by block
            return _Listed(n_items, ())
        return _Listed(n_items, struct.unpack(code, content))

    def _count(self, most: int, what: str) -> int:
        number = int(self._number("Q"))
        if number > most:
            raise UnreadableModel(f"{self._path} must have at most {most:,} {what}, its header says {number:,}")
        return number

    def _text(self) -> str:
        return self._bytes(self._count(_MAX_TEXT, "bytes in a text")).decode("utf-8", "replace")

    def _number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self._bytes(struct.calcsize(f"<{code}")))[0]

    def _bytes(self, n_bytes: int) -> bytes:
        """The next bytes. The end of the file raises `struct.error`, as `struct` does for a number that is cut."""
        content = self._file.read(n_bytes)
        if len(content) < n_bytes:
            raise struct.error("the end of the file")
        self.digest.update(content)
        self.n_read += n_bytes
        return content


def _decoder(path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, _StoredTensor]) -> Decoder:
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise UnreadableModel(f"general.architecture must be a text, got {architecture!r:.40} in {path}")

    def count(key: str, default: int | None = None, most: int = 2**31, minimum: int = 1) -> int:
        """A whole number; where blocks differ, the largest of all."""
        name = f"{architecture}.{key}"
        value = metadata.get(name, default)
        if isinstance(value, _Listed) and value.items:
            value = max(value.items)
        return whole_number(value, name, path, most, minimum)

    def contradiction(key: str, value: int, other: str) -> UnreadableModel:
        """The error of a number that the tensors contradict."""
        said = f"{architecture}.{key} must be that of the tensors, got {value:,} and {other} in {path}"
        return UnreadableModel(f"{said}; convert it again")

    hidden_size, n_heads = count("embedding_length"), count("attention.head_count")
    embedding = tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise UnreadableModel(f"a decoder has the matrix token_embd.weight, {path} has none; give one that makes text")
    n_experts = count("expert_count", default=0, minimum=0)
    width = count("feed_forward_length", default=count("expert_feed_forward_length", default=1))
    experts = None
    if n_experts:
        of_expert = count("expert_feed_forward_length", default=width)
        experts = Experts(n_experts, count("expert_used_count", most=n_experts), of_expert)
    n_layers = count("block_count", most=MAX_LAYERS)
    blocks = {int(match[1]) for match in map(_OF_BLOCK.match, tensors) if match}
    if max(blocks, default=0) >= n_layers:
        raise contradiction("block_count", n_layers, f"a tensor of block {max(blocks)}, from 0")
    if embedding.shape[0] != hidden_size:
        raise contradiction("embedding_length", hidden_size, f"an embedding of {embedding.shape[0]}")
    widths = [tensors[f"blk.{i}.ffn_down.weight"].shape[0] for i in blocks if f"blk.{i}.ffn_down.weight" in tensors]
    if widths and max(widths) != width:
        raise contradiction("feed_forward_length", width, f"a matrix ffn_down of {max(widths)}")
    return Decoder(
        name=_PART.sub("", path.stem),
        architecture=architecture,
        hidden_size=hidden_size,
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=count("attention.head_count_kv", default=n_heads, most=n_heads),
        head_size=count("attention.key_length", default=max(hidden_size // n_heads, 1)),
        intermediate_size=width,
        vocabulary_size=embedding.shape[1],
        is_tied="output.weight" not in tensors,
        checkpoint=Checkpoint(max_length=count("context_length")),
        experts=experts,
    )
