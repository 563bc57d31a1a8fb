"""Stored forecasts in the database of the profiles: entries, their bound, damage, several writers."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from autoauto.profile import forecasts
from autoauto.profile.cache import ProfileCache
from autoauto.profile.forecasts import ForecastStore


def texts(*names: str, size: int = 10) -> dict[str, str]:
    return {name: name * size for name in names}


def test_forecasts_of_a_subject_are_read_together(cache: ProfileCache) -> None:
    store, other = ForecastStore(cache, "a model"), ForecastStore(cache, "another")
    assert (store.read(), other.read()) == ({}, {})
    store.write(texts("a", "b"))
    other.write(texts("c"))
    assert ForecastStore(cache, "a model").read() == texts("a", "b")
    assert other.read() == texts("c")


def test_a_forecast_is_replaced_only_where_it_is_damaged(cache: ProfileCache) -> None:
    store = ForecastStore(cache, "a model")
    store.write({"a": "1", "b": "1"})
    store.write({"a": "2", "b": "2", "c": "2"}, damaged=["b"])
    assert store.read() == {"a": "1", "b": "2", "c": "2"}


def test_digests_differ_by_subject_and_by_key(file_cache: ProfileCache) -> None:
    store, other = ForecastStore(file_cache, "a model"), ForecastStore(file_cache, "another")
    assert len({store.digest("k"), store.digest("l"), other.digest("k")}) == 3
    assert store.digest(("k", 1)) == ForecastStore(file_cache, "a model").digest(("k", 1))


def test_the_oldest_of_all_subjects_make_room(cache: ProfileCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecasts, "MAX_BYTES", 1000)
    for second, name in enumerate("abcdefghij"):
        monkeypatch.setattr(forecasts, "time", lambda second=second: float(second))
        ForecastStore(cache, f"model {second % 2}").write(texts(name, size=100))
    stored = [ForecastStore(cache, f"model {number}").read() for number in range(2)]
    assert stored[0].keys() | stored[1].keys() == set("abcdefghij")  # 1,000 bytes are no more than the bound
    monkeypatch.setattr(forecasts, "time", lambda: 10.0)
    ForecastStore(cache, "model 0").write(texts("k", size=100))
    left = ForecastStore(cache, "model 0").read() | ForecastStore(cache, "model 1").read()
    assert left == texts(*"efghijk", size=100)  # three quarters of the bound, without one half of a forecast


def test_ten_writers_of_the_same_forecasts(cache: ProfileCache) -> None:
    def write(number: int) -> dict[str, str]:
        store = ForecastStore(cache, "a model")
        store.write({**texts("a", "b", "c"), str(number): "own"})
        return store.read()

    with ThreadPoolExecutor(10) as pool:
        seen = list(pool.map(write, range(10)))
    assert all({**texts("a", "b", "c"), str(number): "own"}.items() <= read.items() for number, read in enumerate(seen))
    assert len(ForecastStore(cache, "a model").read()) == 13
