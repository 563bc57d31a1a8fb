"""Stored examples, in a file and on a server."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from autoauto.database.registry import driver_url
from autoauto.profile.cache import ProfileCache, RangeStore, subject_of
from autoauto.records.costs.correction import RangeExample, RangeFeature, WholeRange
from autoauto.records.costs.options import CompileOptions
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.units import Precision
from autoauto.targets.ipu.session import IpuSession

OPTIONS = CompileOptions(4, Precision.FP16, session=IpuSession())


def example(start: int, cycles: int = 90, batch_size: int = 4) -> RangeExample:
    whole = WholeRange(LayerRange(start, start + 2), cycles, 0, {"parameter": 5})
    by_class, features = {"Conv": 60, "Relu after Conv": 40}, {RangeFeature.WEIGHTS: 7, RangeFeature.ENTRY: 2}
    return RangeExample(whole, batch_size, by_class, {}, {"parameter": 6}, features)


@pytest.fixture
def store(cache: ProfileCache) -> RangeStore:
    return RangeStore(cache, "subject")


def test_examples_come_back(store: RangeStore) -> None:
    assert (store.examples(), store.batch_sizes()) == ([], {})
    store.add(OPTIONS, [example(0), example(3)])
    store.add(replace(OPTIONS, batch_size=8), [example(0, batch_size=8)])
    again = RangeStore(store.cache, "subject")
    assert sorted(again.examples()) == sorted([example(0), example(3), example(0, batch_size=8)])
    assert again.batch_sizes() == {4: 2, 8: 1}


def test_the_first_measurement_of_a_range_is_not_replaced(store: RangeStore) -> None:
    store.add(OPTIONS, [example(0, cycles=90)])
    store.add(OPTIONS, [example(0, cycles=99)])
    store.add(replace(OPTIONS, session=IpuSession(0.3)), [example(0, cycles=70)])
    assert sorted(stored.whole.forward_cycles for stored in store.examples()) == [70, 90]


def test_subjects_do_not_mix(store: RangeStore) -> None:
    store.add(OPTIONS, [example(0)])
    assert RangeStore(store.cache, "other").examples() == []


def test_examples_of_some_batch_sizes(store: RangeStore) -> None:
    for size in (1, 4, 16):
        store.add(replace(OPTIONS, batch_size=size), [example(0, batch_size=size)])
    assert [each.batch_size for each in store.examples((4,))] == [4]
    assert sorted(each.batch_size for each in store.examples((1, 16))) == [1, 16]
    assert len(store.examples()) == 3


def change(cache: ProfileCache, *statements: str, **values: str) -> list[Any]:
    """Runs SQL in the database of a cache; returns the rows of the last statement."""
    url = cache.location if isinstance(cache.location, str) else f"sqlite:///{cache.location}"
    engine = create_engine(driver_url(make_url(url)))
    with engine.begin() as connection:
        for statement in statements:
            result = connection.execute(text(statement), values)
        rows = list(result) if result.returns_rows else []
    engine.dispose()
    return rows


def test_the_tables_of_the_version_before_are_used(store: RangeStore) -> None:
    path = store.cache.location
    if isinstance(path, Path):
        path.parent.mkdir()
    change(
        store.cache,
        "CREATE TABLE autoauto_ranges (digest VARCHAR(64) PRIMARY KEY, subject VARCHAR(64) NOT NULL, "
        "batch_size INTEGER NOT NULL, example TEXT NOT NULL)",
    )
    store.add(OPTIONS, [example(0)])
    assert store.examples() == [example(0)]


def test_a_broken_database_is_refused(store: RangeStore) -> None:
    store.add(OPTIONS, [example(0)])
    change(store.cache, "DROP TABLE autoauto_ranges", "CREATE TABLE autoauto_ranges (other INTEGER)")
    with pytest.raises(BadInput, match=r"(no such column|does not exist).*; (delete it, or set|try another)"):
        store.examples()


@pytest.mark.parametrize("broken", ["{", "[]", "{}", '{"whole": [1]}'])
def test_a_broken_row_is_refused(store: RangeStore, broken: str) -> None:
    store.add(OPTIONS, [example(0)])
    change(store.cache, "UPDATE autoauto_ranges SET example = :broken", broken=broken)
    with pytest.raises(BadInput, match=r"^the stored examples of subject must be whole: .*; delete"):
        store.examples()


def test_batch_size_and_proportion_do_not_change_the_subject(chain: Callable[..., LayerGraph]) -> None:
    class Fake:
        version = "fake 1"

        def profiled(self, batch_size: int) -> tuple[int, ...]:
            return (batch_size,)

        def depends_on(self, device: Device, options: CompileOptions) -> object:
            return device, options

        compile = None

    graph, device = chain(kinds=["a"] * 3), Device("small", 1e6, 10**8, 1, 10**8)

    def subject(options: CompileOptions, graph: LayerGraph = graph) -> str:
        return subject_of(graph, Fake(), device, options)  # type: ignore[arg-type]

    assert subject(OPTIONS) == subject(replace(OPTIONS, batch_size=9, session=IpuSession(0.3)))
    others = [replace(OPTIONS, training=True), replace(OPTIONS, precision=Precision.FP32)]
    assert len({subject(OPTIONS), *map(subject, others), subject(OPTIONS, chain(kinds=["b"] * 3))}) == 4
