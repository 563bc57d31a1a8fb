"""Uploaded files lie in the cache under their digest, and are refused unless they are as they were uploaded."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from autoauto.records.errors import BadInput
from autoauto.records.files.uploads import (
    is_intact,
    named_uploads,
    upload_title,
    uploaded_file,
    uploaded_path,
    uploads_called,
)

DIGEST = hashlib.sha256(b"content").hexdigest()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize(("what", "suffix"), [("model", ".onnx"), ("cluster", ".toml")])
def test_a_file_is_found_by_its_digest_while_it_is_intact(cache: Path, what: str, suffix: str) -> None:
    path = cache / "uploads" / DIGEST / f"{what}{suffix}"
    assert uploaded_path(what, DIGEST) == path
    name = f"sha256:{DIGEST}"
    for content in (None, b"conten"):  # not there, and cut off
        if content is not None:
            path.parent.mkdir(parents=True)
            path.write_bytes(content)
        assert not is_intact(path, DIGEST)
        with pytest.raises(BadInput, match=f"the uploaded {what} must be on this machine .* {name} is not"):
            uploaded_file(what, name)
    path.write_bytes(b"content")
    assert is_intact(path, DIGEST)
    assert uploaded_file(what, name) == str(path)


@pytest.mark.parametrize("name", ["", "resnet50", f"sha256:{DIGEST[:-1]}", f"sha256:{DIGEST}0", DIGEST])
def test_other_names_stay(cache: Path, name: str) -> None:
    assert uploaded_file("model", name) == name
    assert upload_title(name) is None


def test_people_see_the_name_that_a_file_had(cache: Path) -> None:
    name = f"sha256:{DIGEST}"
    with uploads_called({DIGEST: "net.v2.onnx"}):
        assert upload_title(name) == "net.v2"
        assert named_uploads(f"measure {name} --out {name}") == "measure net.v2.onnx --out net.v2.onnx"
    assert upload_title(name) == f"upload-{DIGEST[:8]}"
    assert named_uploads(f"measure {name}") == f"measure {name}"
