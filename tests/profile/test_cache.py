from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from autoauto.profile.cache import ProfileCache
from autoauto.records.errors import BadInput


def test_what_was_written_is_read_by_another_instance(tmp_path: Path) -> None:
    ProfileCache(tmp_path / "deep" / "cache.db").write({"a": {"x": 1}, "b": {"x": 2}})
    assert ProfileCache(tmp_path / "deep" / "cache.db").read(["b", "missing"]) == {"b": {"x": 2}}


def test_an_entry_is_never_overwritten(tmp_path: Path) -> None:
    cache = ProfileCache(tmp_path / "cache.db")
    cache.write({"a": {"x": 1}})
    cache.write({"a": {"x": 2}})
    assert cache.read(["a"]) == {"a": {"x": 1}}


def test_more_digests_than_sqlite_takes_parameters(tmp_path: Path) -> None:
    cache = ProfileCache(tmp_path / "cache.db")
    entries = {str(i): {"i": i} for i in range(40_000)}
    cache.write(entries)
    assert cache.read(entries) == entries


def test_several_writers_at_once(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: ProfileCache(path).write({str(i): {"i": i}}), range(64)))
    assert len(ProfileCache(path).read(map(str, range(64)))) == 64


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    path.write_text("not a database, but long enough to be looked at as one" * 100)
    with pytest.raises(BadInput, match="AUTOAUTO_CACHE_DIR"):
        ProfileCache(path).read(["a"])
