"""The cache in a file and on a server: entries, several processes at once, broken files, and servers that are away."""

import fcntl
import multiprocessing
import os
import resource
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from sqlalchemy import Column, Engine, Inspector, MetaData, Table, Text, inspect, text
from sqlalchemy.exc import OperationalError

from autoauto.profile import cache as cache_module
from autoauto.profile.cache import ProfileCache, local_cache
from autoauto.profile.codec import layer_to_json
from autoauto.records.costs.profile import LayerProfile
from autoauto.records.errors import BadInput


def entry(cycles: int) -> LayerProfile:
    return LayerProfile(cycles, 0, {"vertexCode_k": 5}, {"parameter": 7}, 11, 1, 2, 3, 0)


def run_sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        for statement in statements:
            db.execute(statement)


def test_entries_are_read_by_another_instance(cache: ProfileCache) -> None:
    cache.write({"a": entry(1), "b": entry(2)})
    assert ProfileCache(cache.location).read(["b", "missing"]) == {"b": entry(2)}


def test_a_new_cache_is_empty(cache: ProfileCache) -> None:
    assert (cache.read(["a"]), cache.read([])) == ({}, {})
    cache.write({})
    assert cache.read(["a"]) == {}


def test_an_entry_is_never_overwritten(cache: ProfileCache) -> None:
    cache.write({"a": entry(1)})
    cache.write({"a": entry(2), "b": entry(3)})
    assert cache.read(["a", "b"]) == {"a": entry(1), "b": entry(3)}


def test_more_digests_than_a_query_takes(cache: ProfileCache) -> None:
    cache.write({str(i): entry(i) for i in range(1200)})
    assert len(cache.read(map(str, range(40_000)))) == 1200


def test_a_table_that_another_process_makes_meanwhile_is_read(
    cache: ProfileCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made_meanwhile(engine: Engine) -> Inspector:
        monkeypatch.setattr(cache_module, "inspect", inspect)
        cache.write({"a": entry(1)})
        return inspect(engine)

    monkeypatch.setattr(cache_module, "inspect", made_meanwhile)
    assert cache.read(["a"]) == {"a": entry(1)}


def write_together(cache: ProfileCache, i: int) -> dict[str, LayerProfile]:
    """Entries of its own and entries that all write."""
    cache.write({str(i): entry(i), **{f"all {j}": entry(j) for j in range(10)}})
    return cache.read([str(i)])


def test_sixteen_writers_of_a_new_cache_at_once(cache: ProfileCache) -> None:
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(partial(write_together, cache), range(64))) == [{str(i): entry(i)} for i in range(64)]
    assert len(cache.read(f"all {j}" for j in range(10))) == 10


def write_forever(cache: ProfileCache, written: Connection) -> None:
    for i in count():
        cache.write({f"{i} {j}": entry(j) for j in range(50)})
        written.send(i)


def test_processes_that_are_killed_leave_whole_transactions(cache: ProfileCache) -> None:
    start = multiprocessing.get_context("spawn")
    mine, theirs = start.Pipe(duplex=False)
    writers = [start.Process(target=write_forever, args=(cache, theirs)) for _ in range(2)]
    for writer in writers:
        writer.start()
    for _ in range(6):
        assert mine.poll(60)
        last = mine.recv()
    for writer in writers:
        writer.kill()
        writer.join()
    n_entries = [len(cache.read(f"{i} {j}" for j in range(50))) for i in range(last + 3)]
    assert n_entries[: last + 1] == [50] * (last + 1)
    assert set(n_entries) <= {0, 50}
    assert write_together(cache, 1) == {"1": entry(1)}


def test_the_table_of_the_version_before_is_read_and_written(file_cache: ProfileCache, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    text = layer_to_json(entry(1))
    run_sql(
        tmp_path / "deep" / "cache.db",
        "CREATE TABLE entries (digest TEXT PRIMARY KEY, entry TEXT NOT NULL)",
        f"INSERT INTO entries VALUES ('a', '{text}')",
    )
    file_cache.write({"a": entry(2), "b": entry(2)})
    assert file_cache.read(["a", "b"]) == {"a": entry(1), "b": entry(2)}


def path_of(cache: ProfileCache) -> Path:
    assert isinstance(cache.location, Path)
    return cache.location


@contextmanager
def refused(file_cache: ProfileCache, reason: str) -> Iterator[None]:
    """An error with the problem, the path and the remedy in one line."""
    with pytest.raises(BadInput, match=reason) as refusal:
        yield
    message = str(refusal.value)
    assert str(path_of(file_cache)) in message
    assert "delete it, or set AUTOAUTO_CACHE_DIR" in message
    assert "\n" not in message


def test_a_file_that_is_no_database_is_set_aside(file_cache: ProfileCache, capsys: pytest.CaptureFixture[str]) -> None:
    path, text = path_of(file_cache), "not a database, but longer than the header of one" * 100
    path.parent.mkdir()
    path.write_text(text)
    assert file_cache.read(["a"]) == {}
    file_cache.write({"a": entry(1)})
    assert file_cache.read(["a"]) == {"a": entry(1)}
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"autoauto: the profile cache {path} was damaged (file is not a database)")
    assert path.with_name("cache.db.damaged").read_text() == text


def test_a_folder_is_refused(file_cache: ProfileCache) -> None:
    path_of(file_cache).mkdir(parents=True)
    with refused(file_cache, "unable to open"):
        file_cache.read(["a"])


def test_another_table_of_that_name_is_refused(file_cache: ProfileCache) -> None:
    path_of(file_cache).parent.mkdir()
    run_sql(path_of(file_cache), "CREATE TABLE entries (x)")
    with refused(file_cache, "digest"):
        file_cache.read(["a"])
    with refused(file_cache, "digest"):
        file_cache.write({"a": entry(1)})


def damage_pages(file_cache: ProfileCache) -> None:
    file_cache.write({str(i): entry(i) for i in range(1000)})
    content = path_of(file_cache).read_bytes()
    path_of(file_cache).write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))


def test_a_file_with_damaged_pages_is_set_aside(file_cache: ProfileCache, capsys: pytest.CaptureFixture[str]) -> None:
    damage_pages(file_cache)
    assert file_cache.read(map(str, range(1000))) == {}
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_ten_readers_of_a_damaged_file_leave_a_whole_one(file_cache: ProfileCache) -> None:
    damage_pages(file_cache)
    damaged = path_of(file_cache).read_bytes()
    for _ in range(10):  # one round in forty failed when a transaction on the old file deleted the new one's journal
        path_of(file_cache).write_bytes(damaged)
        with ThreadPoolExecutor(10) as pool:
            written = list(pool.map(partial(write_together, file_cache), range(10)))
        assert written == [{str(i): entry(i)} for i in range(10)]
    file_cache.write({"after": entry(1)})
    assert file_cache.read(["after"]) == {"after": entry(1)}


def test_nobody_replaces_a_file_while_another_works_on_it(file_cache: ProfileCache) -> None:
    file_cache.write({"a": entry(1)})
    with path_of(file_cache).with_name("cache.db.lock").open("ab") as lock:

        def work(_: Engine) -> bool:
            with pytest.raises(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True

        assert file_cache.work(work)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_work_on_a_file_that_is_set_aside_meanwhile_is_done_on_the_new_one(file_cache: ProfileCache) -> None:
    file_cache.write({"a": entry(1)})
    errors: list[Exception] = []

    def work(engine: Engine) -> int:
        with engine.begin() as connection:
            connection.execute(text("DELETE FROM entries"))
            if not errors:
                for file in path_of(file_cache).parent.iterdir():
                    file.rename(file.with_name(f"{file.name}.damaged"))
                file_cache.write({"b": entry(2), "c": entry(3)})
                try:
                    connection.commit()
                except OperationalError as error:
                    errors.append(error)
                    raise
        return len(errors)

    assert file_cache.work(work) == 1
    assert file_cache.read(["a", "b", "c"]) == {}


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("{", "entry a must be JSON"),
        ("7", "entry a: the top level must be an object"),
        ("{}", "field forward_cycles"),
        ('{"forward_cycles": "many"}', "entry a: forward_cycles must be a whole number"),
    ],
)
def test_a_broken_entry_is_refused(file_cache: ProfileCache, broken: str, reason: str) -> None:
    file_cache.write({"a": entry(1), "b": entry(2)})
    run_sql(path_of(file_cache), f"UPDATE entries SET entry = '{broken}' WHERE digest = 'a'")
    with refused(file_cache, reason):
        file_cache.read(["a", "b"])
    assert file_cache.read(["b"]) == {"b": entry(2)}


def test_a_full_disk_is_refused_in_one_line_and_loses_no_entry(file_cache: ProfileCache) -> None:
    file_cache.write({"a": entry(1)})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path_of(file_cache).stat().st_size, hard))
    try:
        with refused(file_cache, "disk"):
            file_cache.write({str(i): entry(i) for i in range(1000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert file_cache.read(["a", "1"]) == {"a": entry(1)}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_read_only_cache_serves_reads_and_refuses_writes(file_cache: ProfileCache) -> None:
    file_cache.write({"a": entry(1)})
    path_of(file_cache).chmod(0o400)
    path_of(file_cache).parent.chmod(0o500)
    try:
        assert file_cache.read(["a"]) == {"a": entry(1)}
        with refused(file_cache, "readonly"):
            file_cache.write({"b": entry(2)})
    finally:
        path_of(file_cache).parent.chmod(0o700)


@pytest.fixture
def forget_folders() -> Iterator[None]:
    """Every call of `local_cache` looks at the folder anew."""
    cache_module._writable_folder.cache_clear()
    yield
    cache_module._writable_folder.cache_clear()


def no_folder(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("in its place")
    return tmp_path / "file"


def nowhere(_: Path) -> Path:
    return Path("/proc/nowhere")


@pytest.mark.usefixtures("forget_folders")
@pytest.mark.parametrize("folder_of", [no_folder, nowhere])
def test_without_a_folder_that_can_be_written_a_temporary_one_is_used(
    folder_of: Callable[[Path], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(folder_of(tmp_path)))
    local_cache().write({"a": entry(1)})
    assert local_cache().read(["a"]) == {"a": entry(1)}
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"autoauto: the cache folder {str(folder_of(tmp_path))!r} cannot be written (")


@pytest.mark.usefixtures("forget_folders")
def test_what_a_folder_that_cannot_be_written_holds_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path))
    local_cache().write({"a": entry(1)})
    cache_module._writable_folder.cache_clear()
    original = tempfile.TemporaryFile

    def full(*, dir: Path) -> object:
        raise OSError(28, f"No space left on {dir}")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    temporary = local_cache()
    monkeypatch.setattr(tempfile, "TemporaryFile", original)
    temporary.write({"b": entry(2)})
    assert temporary.read(["a", "b"]) == {"a": entry(1), "b": entry(2)}
    assert ProfileCache(tmp_path / "profiles.db").read(["b"]) == {}


def test_a_layer_beyond_exact_numbers_is_refused_by_its_size(file_cache: ProfileCache) -> None:
    with pytest.raises(BadInput, match=r"exclusive\.b must be .*, got 9223372036854775808; try a smaller batch"):
        file_cache.write({"a": replace(entry(1), exclusive={"a": 1, "b": 2**63})})


def test_a_relative_path_is_of_the_folder_of_the_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        assert ProfileCache(Path("a?b%20#.db")).read(["a"]) == {}
        ProfileCache(Path("a?b%20#.db")).write({"a": entry(1)})
    assert (tmp_path / "there" / "a?b%20#.db").exists()


def test_a_deleted_cache_is_made_again(file_cache: ProfileCache, tmp_path: Path) -> None:
    file_cache.write({"a": entry(1)})
    shutil.rmtree(tmp_path / "deep")
    file_cache.write({"b": entry(2)})
    assert file_cache.read(["a", "b"]) == {"b": entry(2)}


def test_a_broken_entry_on_a_server_is_refused(server_cache: ProfileCache) -> None:
    broken = Table("autoauto_profiles", MetaData(), Column("digest", Text, primary_key=True), Column("entry", Text))
    server_cache.insert(broken, [{"digest": "a", "entry": '{"forward_cycles": "many"}'}])
    with pytest.raises(BadInput, match=r"cannot hold what was compiled: entry a: forward_cycles must be a whole"):
        server_cache.read(["a"])


def test_a_server_that_restarts_is_waited_for(server_cache: ProfileCache, monkeypatch: pytest.MonkeyPatch) -> None:
    psycopg = pytest.importorskip("psycopg")
    connect, refusals = psycopg.connect, [2]

    def refuse_at_first(*arguments: object, **options: object) -> object:
        if refusals[0]:
            refusals[0] -= 1
            raise psycopg.OperationalError("connection refused")
        return connect(*arguments, **options)

    server_cache.write({"a": entry(1)})
    monkeypatch.setattr(psycopg, "connect", refuse_at_first)
    assert server_cache.read(["a"]) == {"a": entry(1)}
    assert refusals == [0]


def test_a_server_that_was_never_reached_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.setattr("autoauto.database.retries.sleep", lambda _: pytest.fail("it waits"))
    with pytest.raises(BadInput, match=r"^postgresql://me:\*\*\*@.* cannot hold what was compiled") as refusal:
        ProfileCache("postgresql://me:secret@127.0.0.1:1/none").read(["a"])
    assert "secret" not in str(refusal.value)
    assert "\n" not in str(refusal.value)
