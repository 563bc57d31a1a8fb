"""Forecasts that earlier commands made, stored beside the profiles: `StoredForecasts`, `forecasts_of`.

A search asks a few hundred forecasts; another one of the same model asks most of them again, whatever it optimises and
bounds. What takes long to compute of them is stored: plans, whether there is one, phases, steps. So are the layers of
model files, `stored_graph`.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache, cached_property, lru_cache, partial
from math import isfinite
from time import monotonic
from typing import Any, Generic, TypeVar, cast

import msgspec

from autoauto.evaluate.setting import Setting
from autoauto.graph.load import find_model, load_graph
from autoauto.profile.cache import ProfileCache
from autoauto.profile.forecasts import ForecastStore
from autoauto.profile.last_writes import write_waiting, write_when_gone
from autoauto.records.costs.profile import PROFILE_SCHEMA
from autoauto.records.errors import BadInput, Infeasible
from autoauto.records.files.json import from_json, to_json
from autoauto.records.installation import code_version
from autoauto.records.layers import LayerGraph, LayerRange, ModelInputs

Value = TypeVar("Value")
SCHEMA = 1
"""Version of stored forecasts; forecasts of other versions are not read."""
WRITE_EVERY_S = 5.0
"""Forecasts are written this often, so that a killed process loses no more; the rest at its end."""


class _Failure(msgspec.Struct, frozen=True):
    message: str
    excess_bytes: int
    layers: LayerRange | None
    memory_bytes: dict[str, int]


class _StoredOutcome(msgspec.Struct, Generic[Value], frozen=True, omit_defaults=True):
    """A result, or the reason why there is none."""

    value: Value | None = None
    failure: _Failure | None = None


class StoredForecasts:
    """Forecasts in the database of the profiles, which are read when the first is asked for.

    They are written now and then and at the end. A database that cannot be read or written, and forecasts in it that
    are damaged, cost time and at most one line on stderr.
    """

    def __init__(self, store: ForecastStore | None) -> None:
        """Take where they are; None for real devices, of which nothing is stored: all that ran changes them."""
        self._store = store
        self._new: dict[str, str] = {}  # not written yet
        self._damaged: set[str] = set()
        self._has_warned = False
        self._written_s = monotonic()
        if store is not None:
            write_when_gone(self, partial(_write, store, self._new, self._damaged))

    def __reduce__(self) -> tuple[type[StoredForecasts], tuple[ForecastStore | None]]:
        """Another process reads and writes by itself."""
        return type(self), (self._store,)

    @cached_property
    def _texts(self) -> dict[str, str]:
        write_waiting()
        try:
            return {} if self._store is None else self._store.read()
        except BadInput as error:
            self._warn(error)
            return {}

    def of(self, name: str, key: object, kind: Any, make: Callable[[], Value]) -> Value:
        """A forecast, made if there is none.

        Args:
            key: everything that it depends on besides the setting; its `repr` tells it from others.
            kind: its type, in whose form msgspec writes and reads it exactly.

        Raises:
            Infeasible: `make` raises it, or did before.
        """
        if self._store is None:
            return make()
        digest, form = self._store.digest((name, key)), _form(kind)
        outcome = self._stored(digest, form)
        if outcome is None:
            try:
                outcome = _StoredOutcome(make())
            except Infeasible as failure:
                reason = _Failure(str(failure), failure.excess_bytes, failure.layers, dict(failure.memory_bytes))
                outcome = _StoredOutcome(failure=reason)
            self._new[digest] = to_json(outcome).decode()
            if monotonic() - self._written_s > WRITE_EVERY_S:
                _write(self._store, self._new, self._damaged)
                self._written_s = monotonic()
        if outcome.failure is not None:
            raise Infeasible(*(getattr(outcome.failure, field) for field in _Failure.__struct_fields__))
        return cast(Value, outcome.value)

    def _stored(self, digest: str, form: Any) -> _StoredOutcome[Any] | None:
        text = self._texts.get(digest) or self._new.get(digest)
        if text is None:
            return None
        try:
            return cast(_StoredOutcome[Any], from_json(form, text, "a stored forecast"))
        except BadInput as error:
            self._warn(error)
            self._damaged.add(digest)
            self._texts.pop(digest, None)
            self._new.pop(digest, None)
            return None

    def _warn(self, error: BadInput) -> None:
        if not self._has_warned:
            print(f"autoauto: forecasts are made anew: {error}", file=sys.stderr)
        self._has_warned = True


@lru_cache(maxsize=64)
def _form(kind: Any) -> Any:
    return _StoredOutcome[kind]


def _write(store: ForecastStore, new: dict[str, str], damaged: set[str]) -> None:
    """Write new forecasts, and leave none; where that is impossible only time is lost, later."""
    forecasts, broken = dict(new), set(damaged)
    new.clear()
    damaged.clear()
    with suppress(BadInput):
        store.write(forecasts, broken)


def forecasts_of(setting: Setting) -> StoredForecasts:
    """The store of the forecasts of a setting: beside the profiles for cost models, none for real devices.

    By a cost model a forecast depends on the model, the devices, the target and how estimates are made alone: also the
    samples to which they are fitted follow from these (`LayerwiseCosts`). Constraints change none.
    """
    if setting.traits.runs_plans:
        return StoredForecasts(None)
    about = {name: text for name, text in setting.fingerprint().items() if name != "constraints"}
    kind = f"{type(setting.target).__module__}.{type(setting.target).__qualname__}"
    content = SCHEMA, PROFILE_SCHEMA, code_version(), kind, setting.traits, sorted(about.items())
    return StoredForecasts(ForecastStore(setting.cache, hashlib.sha256(repr(content).encode()).hexdigest()))


_GRAPH_SCHEMA = 1
"""Version of stored graphs; graphs of other versions are not read."""
_ELSEWHERE = b"location"
"""A file of ONNX has this word where weights lie in files beside it, of which its own bytes do not tell."""


def stored_graph(model: str, given: ModelInputs, cache: ProfileCache) -> LayerGraph:
    """The layers of a model file as `load_graph` reads them, which takes long; those of equal bytes are read once.

    Raises as `load_graph`.
    """
    path = find_model(model)
    try:
        content = path.read_bytes()
    except OSError:
        return load_graph(model, given)  # which says what is wrong
    if _ELSEWHERE in content:
        return load_graph(model, given)
    key = _GRAPH_SCHEMA, code_version(), path.stem, hashlib.sha256(content).hexdigest(), given
    subject = hashlib.sha256(repr(key).encode()).hexdigest()  # one of its own, since all of a subject is read at once
    return _stored(ForecastStore(cache, subject), model, given)


@lru_cache(maxsize=16)
def _stored(store: ForecastStore, model: str, given: ModelInputs) -> LayerGraph:
    """Read a graph once in a process: all callers get one object, since equal graphs take long to compare."""
    read = cache(lambda: load_graph(model, given))

    def make() -> LayerGraph | None:
        return read() if _has_finite_numbers(read()) else None  # JSON has no others

    return StoredForecasts(store).of("graph", (), LayerGraph | None, make) or read()


def _has_finite_numbers(graph: LayerGraph) -> bool:
    for layer in graph.all_layers():
        for _, value in layer.attributes:
            numbers = value if isinstance(value, tuple) else (value,)
            if any(isinstance(number, float) and not isfinite(number) for number in numbers):
                return False
    return True
