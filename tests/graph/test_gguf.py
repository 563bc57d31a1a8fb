"""The header of a GGUF file: what is read of it, and files that are refused in one line."""

import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from autoauto.graph.decoders.gguf import graph_of_file, is_gguf, read_gguf
from autoauto.records.costs.decoder import Experts
from autoauto.records.errors import UnreadableModel

U32, TEXT, LIST, I32 = 4, 8, 9, 5
Q8_0, F32 = 8, 0
ENTRIES = {
    "llama.context_length": 4096,
    "llama.embedding_length": 64,
    "llama.block_count": 3,
    "llama.feed_forward_length": 96,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
}
TENSORS = {
    "token_embd.weight": (64, 100),
    "blk.0.attn_q.weight": (64, 64),
    "blk.2.ffn_down.weight": (96, 64),
    "output.weight": (64, 100),
}


def text(given: str) -> bytes:
    return struct.pack("<Q", len(given)) + given.encode()


def value(given: object) -> bytes:
    if isinstance(given, str):
        return struct.pack("<I", TEXT) + text(given)
    if isinstance(given, list):
        kind = TEXT if isinstance(given[0], str) else I32
        items = b"".join(text(item) if kind == TEXT else struct.pack("<i", item) for item in given)
        return struct.pack("<IIQ", LIST, kind, len(given)) + items
    return struct.pack("<II", U32, given)


def gguf_bytes(entries: Mapping[str, object], tensors: Mapping[str, tuple[int, ...]], version: int = 3) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries))
    body = b"".join(text(key) + value(given) for key, given in entries.items())
    for number, (name, shape) in enumerate(tensors.items()):
        axes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        body += text(name) + axes + struct.pack("<IQ", Q8_0, 32 * number)
    return head + body + bytes(32 * len(tensors) + 64)


def written(tmp_path: Path, changes: Mapping[str, object] | None = None, version: int = 3) -> Path:
    path = tmp_path / "tiny.gguf"
    entries = {"general.architecture": "llama", "tokenizer.ggml.tokens": ["a", "bc"], **ENTRIES, **(changes or {})}
    path.write_bytes(gguf_bytes({key: each for key, each in entries.items() if each is not None}, TENSORS, version))
    return path


def test_the_decoder_is_that_of_the_header(tmp_path: Path) -> None:
    file = read_gguf(written(tmp_path))
    decoder = file.decoder
    assert (decoder.name, decoder.architecture, decoder.hidden_size, decoder.n_layers) == ("tiny", "llama", 64, 3)
    assert (decoder.n_heads, decoder.n_kv_heads, decoder.head_size, decoder.intermediate_size) == (4, 2, 16, 96)
    assert (decoder.vocabulary_size, decoder.is_tied, decoder.checkpoint.max_length) == (100, False, 4096)
    assert (file.weights, file.n_bytes) == ("Q8_0", Path(file.path).stat().st_size)
    assert len(graph_of_file(file).layers) == 3 + 3  # embedding, norm and head


def test_numbers_that_differ_between_blocks_count_with_the_largest(tmp_path: Path) -> None:
    file = read_gguf(written(tmp_path, {"llama.attention.head_count_kv": [1, 2, 1]}))
    assert file.decoder.n_kv_heads == 2


def test_a_mixture_has_experts(tmp_path: Path) -> None:
    entries = {"llama.expert_count": 8, "llama.expert_used_count": 2, "llama.expert_feed_forward_length": 32}
    assert read_gguf(written(tmp_path, entries)).decoder.experts == Experts(8, 2, 32)


def test_the_content_changes_with_the_header_alone(tmp_path: Path) -> None:
    first = read_gguf(written(tmp_path))
    assert read_gguf(written(tmp_path, {"llama.block_count": 4})).content != first.content
    path = written(tmp_path)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert read_gguf(path).content == first.content


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"general.architecture": None}, "general.architecture must be a text"),
        ({"llama.block_count": None}, "llama.block_count must be a whole number"),
        ({"llama.block_count": 0}, "llama.block_count must be a whole number"),
        ({"llama.block_count": 2}, "block_count must be that of the tensors, got 2 and a tensor of block 2, from 0"),
        ({"llama.embedding_length": 128}, "length must be that of the tensors, got 128 and an embedding of 64 in"),
        ({"llama.feed_forward_length": 9}, "length must be that of the tensors, got 9 and a matrix ffn_down of 96 in"),
        ({"llama.embedding_length": "wide"}, "llama.embedding_length must be a whole number"),
    ],
)
def test_a_header_without_what_is_needed_is_refused(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    with pytest.raises(UnreadableModel, match=said):
        read_gguf(written(tmp_path, changes))


def parts(tmp_path: Path, n_parts: int = 3) -> list[Path]:
    """A model as gguf-split writes it with --no-tensor-first-split: the first part has the entries and no tensors."""
    paths = [tmp_path / f"big-{number + 1:05}-of-{n_parts:05}.gguf" for number in range(n_parts)]
    names = list(TENSORS)
    for number, path in enumerate(paths):
        entries: dict[str, object] = {"split.no": number, "split.count": n_parts, "split.tensors.count": len(TENSORS)}
        if number == 0:
            entries |= {"general.architecture": "llama", **ENTRIES}
        own = names[number - 1 :: n_parts - 1] if number else []
        path.write_bytes(gguf_bytes(entries, {name: TENSORS[name] for name in own}))
    return paths


def test_a_model_in_parts_has_the_tensors_and_bytes_of_all(tmp_path: Path) -> None:
    first, *later = parts(tmp_path)
    file, whole = read_gguf(first), read_gguf(written(tmp_path))
    assert file.decoder == replace(whole.decoder, name="big")
    assert (file.path, file.weights) == (str(first), "Q8_0")
    assert file.n_bytes == sum(path.stat().st_size for path in (first, *later))
    for path in later:
        path.write_bytes(path.read_bytes().replace(b"blk.0.attn_q", b"blk.1.attn_q"))
    assert read_gguf(first).content != file.content


def test_parts_that_are_links_are_opened_by_their_own_names(tmp_path: Path) -> None:
    """The cache of Hugging Face has files by their digests, and links with their names."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    for path in parts(tmp_path):
        (snapshot / path.name).symlink_to(path.rename(blobs / f"digest-{path.stem[4:9]}"))
    first = snapshot / "big-00001-of-00003.gguf"
    assert read_gguf(first).path == str(first)


def test_a_model_that_lacks_a_part_is_refused(tmp_path: Path) -> None:
    first, second, third = parts(tmp_path)
    with pytest.raises(UnreadableModel, match=rf"3 parts is opened by its first, got {second}; give {first}"):
        read_gguf(second)
    content = third.read_bytes()
    third.unlink()
    with pytest.raises(UnreadableModel, match=rf"must be in one folder, {third.name} is missing beside {first}"):
        read_gguf(first)
    third.write_bytes(second.read_bytes())
    with pytest.raises(UnreadableModel, match="must be part 3 of a model, its header says otherwise"):
        read_gguf(first)
    third.write_bytes(content[:-100])
    with pytest.raises(UnreadableModel, match="must be a whole GGUF file"):
        read_gguf(first)
    other = tmp_path / "other.gguf"
    first.rename(other)
    with pytest.raises(UnreadableModel, match=rf"got {other}; give .*other-00001-of-00003\.gguf"):
        read_gguf(other)


def test_parts_of_two_models_are_refused(tmp_path: Path) -> None:
    first, _, third = parts(tmp_path)
    entries = {"split.no": 2, "split.count": 3, "split.tensors.count": 4}
    third.write_bytes(gguf_bytes(entries, {"output.weight": (64, 100)}))
    with pytest.raises(UnreadableModel, match=r"parts of .* must have 4 tensors, they have 3; copy them again"):
        read_gguf(first)


def test_no_beginning_of_a_file_is_read_as_a_whole(tmp_path: Path) -> None:
    path = written(tmp_path)
    content = path.read_bytes()
    for n_bytes in range(0, len(content) - 128, 7):
        path.write_bytes(content[:n_bytes])
        with pytest.raises(UnreadableModel):
            read_gguf(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    path.write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(UnreadableModel, match="begins with GGUF"):
        read_gguf(path)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 2**60, 1))
    with pytest.raises(UnreadableModel, match="at most"):
        read_gguf(path)
    with pytest.raises(UnreadableModel, match="version"):
        read_gguf(written(tmp_path, version=1))
    with pytest.raises(UnreadableModel, match="readable"):
        read_gguf(tmp_path / "missing.gguf")


def test_a_file_is_known_by_its_suffix() -> None:
    names = ("x/y.GGUF", Path("y.gguf"), "y.onnx", None)
    assert list(map(is_gguf, names)) == [True, True, False, False]
