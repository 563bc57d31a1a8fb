"""The cache file: entries, several processes at once, and broken files."""

import os
import resource
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from autoauto.profile.store.cache import ProfileCache
from autoauto.records.errors import BadInput
from autoauto.records.profile import LayerProfile


def entry(cycles: int) -> LayerProfile:
    return LayerProfile(cycles, 0, {"vertexCode_k": 5}, {"parameter": 7}, 11, 1, 2, 3, 0)


def run_sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        for statement in statements:
            db.execute(statement)


@pytest.fixture
def cache(tmp_path: Path) -> ProfileCache:
    return ProfileCache(tmp_path / "deep" / "cache.db")


def test_entries_are_read_by_another_instance(cache: ProfileCache) -> None:
    cache.write({"a": entry(1), "b": entry(2)})
    assert ProfileCache(cache.path).read(["b", "missing"]) == {"b": entry(2)}


def test_a_new_cache_is_empty(cache: ProfileCache) -> None:
    assert cache.read(["a"]) == {}


def test_an_entry_is_never_overwritten(cache: ProfileCache) -> None:
    cache.write({"a": entry(1)})
    cache.write({"a": entry(2)})
    assert cache.read(["a"]) == {"a": entry(1)}


def test_more_digests_than_sqlite_takes_parameters(cache: ProfileCache) -> None:
    cache.write({str(i): entry(i) for i in range(100)})
    assert len(cache.read(map(str, range(40_000)))) == 100


def test_several_writers_and_readers_at_once(cache: ProfileCache) -> None:
    def use(i: int) -> dict[str, LayerProfile]:
        ProfileCache(cache.path).write({str(i): entry(i)})
        return ProfileCache(cache.path).read([str(i)])

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(use, range(64))) == [{str(i): entry(i)} for i in range(64)]
    assert len(cache.read(map(str, range(64)))) == 64


@contextmanager
def refused(cache: ProfileCache, reason: str) -> Iterator[None]:
    """An error with the problem, the path and the remedy in one line."""
    with pytest.raises(BadInput, match=reason) as refusal:
        yield
    message = str(refusal.value)
    assert str(cache.path) in message
    assert "delete it, or set AUTOAUTO_CACHE_DIR" in message
    assert "\n" not in message


def test_a_file_that_is_no_database_is_refused(cache: ProfileCache) -> None:
    cache.path.parent.mkdir()
    cache.path.write_text("not a database, but longer than the header of one" * 100)
    with refused(cache, "not a database"):
        cache.read(["a"])


def test_a_folder_is_refused(cache: ProfileCache) -> None:
    cache.path.mkdir(parents=True)
    with refused(cache, "unable to open"):
        cache.read(["a"])


def test_another_table_of_that_name_is_refused(cache: ProfileCache) -> None:
    cache.path.parent.mkdir()
    run_sql(cache.path, "CREATE TABLE entries (x)")
    with refused(cache, "digest"):
        cache.read(["a"])
    with refused(cache, "digest"):
        cache.write({"a": entry(1)})


def test_a_damaged_page_is_refused(cache: ProfileCache) -> None:
    cache.write({str(i): entry(i) for i in range(1000)})
    content = cache.path.read_bytes()
    cache.path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    with refused(cache, "malformed"):
        cache.read(map(str, range(1000)))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Expecting property name"),
        ("7", "entry must be an object"),
        ("{}", "field forward_cycles"),
        ('{"forward_cycles": "many"}', "entry.forward_cycles must be a whole number"),
    ],
)
def test_a_broken_entry_is_refused(cache: ProfileCache, text: str, reason: str) -> None:
    cache.write({"a": entry(1), "b": entry(2)})
    run_sql(cache.path, f"UPDATE entries SET entry = '{text}' WHERE digest = 'a'")
    with refused(cache, reason):
        cache.read(["a", "b"])
    assert cache.read(["b"]) == {"b": entry(2)}


def test_a_full_disk_is_refused_in_one_line_and_loses_no_entry(cache: ProfileCache) -> None:
    cache.write({"a": entry(1)})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (cache.path.stat().st_size, hard))
    try:
        with refused(cache, "disk"):
            cache.write({str(i): entry(i) for i in range(1000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert cache.read(["a", "1"]) == {"a": entry(1)}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_read_only_cache_serves_reads_and_refuses_writes(cache: ProfileCache) -> None:
    cache.write({"a": entry(1)})
    cache.path.chmod(0o400)
    cache.path.parent.chmod(0o500)
    try:
        assert cache.read(["a"]) == {"a": entry(1)}
        with refused(cache, "readonly"):
            cache.write({"b": entry(2)})
    finally:
        cache.path.parent.chmod(0o700)
