"""The cache in a shared database, an SQLite file or a PostgreSQL server."""

from __future__ import annotations

import os
import resource
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from autoauto.profile.store.ranges import RangeStore
from autoauto.profile.store.shared_cache import SharedCache, SharedTable
from autoauto.records.correction import PLAIN_SUM, RangeExample, WholeRange
from autoauto.records.errors import BadInput
from autoauto.records.layers import LayerRange
from autoauto.records.profile import CompileOptions, LayerProfile
from autoauto.records.units import Precision

POSTGRES = os.environ.get("AUTOAUTO_TEST_POSTGRES", "postgresql+psycopg2://postgres@127.0.0.1:5432/test")


@pytest.fixture(params=["sqlite", "postgresql"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SharedTable]:
    name = f"autoauto_test_{uuid.uuid4().hex}"
    if request.param == "sqlite":
        yield SharedTable(f"sqlite:///{tmp_path}/cache.db", name)
        return
    try:
        with create_engine(POSTGRES).connect():
            pass
    except (ImportError, OperationalError) as error:
        if os.environ.get("AUTOAUTO_REQUIRE_POSTGRES"):
            raise
        pytest.skip(f"no PostgreSQL server: {error}")
    yield SharedTable(POSTGRES, name)
    engine = create_engine(POSTGRES)
    with engine.begin() as connection:
        connection.execute(text(f"DROP TABLE IF EXISTS {name}"))
    engine.dispose()


def test_values_are_read_by_another_instance(table: SharedTable) -> None:
    assert table.read(["a"]) == {}
    table.write({"a": {"cycles": 1}, "b": [1.5, None]})
    assert SharedTable(table.url, table.name).read(["b", "missing"]) == {"b": [1.5, None]}


def test_a_value_is_never_overwritten(table: SharedTable) -> None:
    table.write({"a": 1})
    table.write({"a": 2, "b": 3})
    assert table.read(["a", "b"]) == {"a": 1, "b": 3}


def test_more_digests_than_a_query_takes(table: SharedTable) -> None:
    table.write({str(i): i for i in range(1200)})
    assert len(table.read(map(str, range(40_000)))) == 1200


def test_sixteen_writers_of_the_same_and_of_other_values_at_once(table: SharedTable) -> None:
    def use(i: int) -> dict[str, int]:
        SharedTable(table.url, table.name).write({str(i): i, **{f"all {j}": j for j in range(10)}})
        return SharedTable(table.url, table.name).read([str(i)])

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(use, range(64))) == [{str(i): i} for i in range(64)]
    assert len(table.read([f"all {j}" for j in range(10)])) == 10


def test_layers_are_stored_as_in_the_cache_file(tmp_path: Path) -> None:
    cache = SharedCache(f"sqlite:///{tmp_path}/cache.db")
    entry = LayerProfile(1, 0, {"vertexCode_k": 5}, {"parameter": 7}, 11, 1, 2, 3, 0)
    cache.write({"a": entry})
    assert cache.read(["a", "b"]) == {"a": entry}


def test_measured_ranges_are_stored_too(table: SharedTable) -> None:
    subject = table.name
    store = RangeStore(SharedCache(table.url), subject)
    example = RangeExample(WholeRange(LayerRange(0, 2), 90, 0, {"parameter": 5}), 4, {"Conv": 60}, {}, {"parameter": 6})
    store.add(CompileOptions(4, 0.6, Precision.FP16), [example])
    store.add(CompileOptions(4, 0.6, Precision.FP16), [example])
    for correction in (PLAIN_SUM, replace(PLAIN_SUM, n_examples=1)):
        store.store_correction(correction)
        assert RangeStore(SharedCache(table.url), subject).correction() == correction
    assert (store.examples(), store.batch_sizes()) == ([example], {4: 1})
    with store.cache.open(()) as db:
        for name in ("autoauto_ranges", "autoauto_corrections"):
            db.execute(f"DELETE FROM {name} WHERE subject = ?", (subject,))


def test_a_broken_entry_is_refused(tmp_path: Path) -> None:
    cache = SharedCache(f"sqlite:///{tmp_path}/cache.db")
    SharedTable(cache.url, "autoauto_profiles").write({"a": {"forward_cycles": "many"}})
    with pytest.raises(BadInput, match=r"entry a.forward_cycles must be a whole number"):
        cache.read(["a"])


def test_a_database_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database, but longer than a header of SQLite would be, " * 20)
    table = SharedTable(f"sqlite:///{tmp_path}/notes.txt", "t")
    for use in (lambda: table.read(["a"]), lambda: table.write({"a": 1})):
        with pytest.raises(BadInput, match=r"cannot hold what was compiled: file is not a database; try") as refused:
            use()
        assert "\n" not in str(refused.value)


def test_a_full_disk_is_refused_in_one_line_and_loses_no_value(tmp_path: Path) -> None:
    table = SharedTable(f"sqlite:///{tmp_path}/cache.db", "t")
    table.write({"a": 1})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "cache.db").stat().st_size, hard))
    try:
        with pytest.raises(BadInput, match="disk"):
            table.write({str(i): "x" * 1000 for i in range(1000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert table.read(["a", "1"]) == {"a": 1}


def test_reads_wait_for_a_server_that_restarts(table: SharedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    if not table.url.startswith("postgresql"):
        pytest.skip("a file is not started again")
    psycopg2 = pytest.importorskip("psycopg2")
    connect, refusals = psycopg2.connect, [2]

    def refuse_at_first(*arguments: object, **options: object) -> object:
        if refusals[0]:
            refusals[0] -= 1
            raise psycopg2.OperationalError("connection refused")
        return connect(*arguments, **options)

    table.write({"a": 1})
    monkeypatch.setattr(psycopg2, "connect", refuse_at_first)
    assert table.read(["a"]) == {"a": 1}
    assert refusals == [0]


def test_a_server_that_was_never_reached_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg2")
    monkeypatch.setattr("autoauto.profile.store.shared_cache.sleep", lambda _: pytest.fail("it waits"))
    with pytest.raises(BadInput, match="cannot hold what was compiled"):
        SharedTable("postgresql+psycopg2://postgres@127.0.0.1:1/none", "t").read(["a"])
