"""Stored examples and corrections, in a file and in a shared database."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autoauto.profile.store.cache import ProfileCache
from autoauto.profile.store.ranges import RangeStore, subject_of
from autoauto.profile.store.shared_cache import SharedCache
from autoauto.records.correction import PLAIN_SUM, Correction, PredictionInterval, RangeExample, WholeRange
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.profile import CompileOptions
from autoauto.records.units import Precision

OPTIONS = CompileOptions(4, 0.6, Precision.FP16)


def example(start: int, cycles: int = 90, batch_size: int = 4) -> RangeExample:
    whole = WholeRange(LayerRange(start, start + 2), cycles, 0, {"parameter": 5})
    return RangeExample(whole, batch_size, {"Conv": 60, "Relu after Conv": 40}, {}, {"parameter": 6})


@pytest.fixture(params=["file", "shared"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> RangeStore:
    if request.param == "file":
        return RangeStore(ProfileCache(tmp_path / "deep" / "cache.db"), "subject")
    return RangeStore(SharedCache(f"sqlite:///{tmp_path}/cache.db"), "subject")


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
    store.add(replace(OPTIONS, memory_proportion=0.3), [example(0, cycles=70)])
    assert sorted(stored.whole.forward_cycles for stored in store.examples()) == [70, 90]


def test_subjects_do_not_mix(store: RangeStore) -> None:
    store.add(OPTIONS, [example(0)])
    other = RangeStore(store.cache, "other")
    other.store_correction(Correction(n_examples=3))
    assert (other.examples(), store.correction()) == ([], PLAIN_SUM)


def test_a_correction_replaces_the_last(store: RangeStore) -> None:
    first = Correction(
        {"": 0.9},
        {},
        {"temporary": 0.8},
        ((1, 1.0), (4, 0.9)),
        PredictionInterval(0.9, 1.1),
        PredictionInterval(1.0, 1.05),
        12,
    )
    for correction in (first, replace(first, n_examples=24)):
        store.store_correction(correction)
        assert store.correction() == correction


def test_keys_of_stored_corrections_do_not_change(store: RangeStore) -> None:
    store.store_correction(PLAIN_SUM)
    with store.cache.open(()) as db:
        [(text,)] = db.execute("SELECT correction FROM autoauto_corrections")
    names = ["forward", "backward", "memory", "batch_sizes", "cycles_band", "memory_band", "n_examples"]
    assert list(json.loads(text)) == names


def test_a_broken_file_is_refused(store: RangeStore) -> None:
    store.add(OPTIONS, [])
    with store.cache.open(()) as db:
        db.execute("DROP TABLE autoauto_ranges")
        db.execute("CREATE TABLE autoauto_ranges (other INTEGER)")
    with pytest.raises(BadInput, match=r"no such column.*; (delete it, or set|try another)"):
        store.examples()


@pytest.mark.parametrize("broken", ["{", "[]", "{}", '{"whole": [1]}'])
def test_a_broken_row_is_refused(store: RangeStore, broken: str) -> None:
    store.add(OPTIONS, [example(0)])
    store.store_correction(PLAIN_SUM)
    with store.cache.open(()) as db:
        db.execute("UPDATE autoauto_ranges SET example = ?", (broken,))
        db.execute("UPDATE autoauto_corrections SET correction = ?", (broken,))
    for read, name in ((store.examples, "example"), (store.correction, "correction")):
        with pytest.raises(BadInput, match=rf"^the stored {name}s of subject must be whole: .*; delete"):
            read()


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

    assert subject(OPTIONS) == subject(replace(OPTIONS, batch_size=9, memory_proportion=0.3))
    others = [replace(OPTIONS, training=True), replace(OPTIONS, precision=Precision.FP32)]
    assert len({subject(OPTIONS), *map(subject, others), subject(OPTIONS, chain(kinds=["b"] * 3))}) == 4
