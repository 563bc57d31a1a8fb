"""Files that gzip packed are read as they were before."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from autoauto.records.errors import BadInput
from autoauto.records.files.json import read_json
from autoauto.records.files.packed import unpacked

CONTENT = b'{"a": [1, 2, 3]}'


def test_a_packed_file_is_read_by_its_content_whatever_its_name(tmp_path: Path) -> None:
    for name, content in (("a.json", CONTENT), ("b.json.gz", gzip.compress(CONTENT)), ("c", gzip.compress(CONTENT))):
        path = tmp_path / name
        path.write_bytes(content)
        assert (unpacked(path), unpacked(path, 5)) == (CONTENT, CONTENT[:5])
        assert read_json(path) == {"a": [1, 2, 3]}
    path.write_bytes(b"")
    assert unpacked(path) == b""


@pytest.mark.parametrize("content", [CONTENT, gzip.compress(CONTENT)])
def test_a_pipe_is_read_once(content: bytes) -> None:
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    assert unpacked(Path(f"/dev/fd/{reading}")) == CONTENT
    os.close(reading)


@pytest.mark.parametrize("change", [lambda packed: packed[:-9], lambda packed: packed[:12] + b"\xff" * 20])
def test_a_damaged_file_is_refused_in_a_line(change: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "damaged.json.gz"
    path.write_bytes(change(gzip.compress(CONTENT)))
    with pytest.raises(BadInput, match=r"a JSON file must be readable, .*damaged\.json\.gz: damaged, as gzip says: "):
        read_json(path)
