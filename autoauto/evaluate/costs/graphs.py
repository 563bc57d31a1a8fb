"""The layers of model files that an earlier command read, beside the profiles: `stored_graph`."""

from __future__ import annotations

import hashlib
from functools import cache, lru_cache
from math import isfinite

from autoauto.evaluate.costs.forecasts import StoredForecasts
from autoauto.graph.load import find_model, load_graph
from autoauto.profile.cache import ProfileCache
from autoauto.profile.forecasts import ForecastStore
from autoauto.records.installation import code_version
from autoauto.records.layers import LayerGraph, ModelInputs

SCHEMA = 1
"""Version of stored graphs; graphs of other versions are not read."""
_ELSEWHERE = b"location"
"""A file of ONNX has this word where weights lie in files beside it, of which its own bytes do not tell."""


def stored_graph(model: str, given: ModelInputs, cache: ProfileCache) -> LayerGraph:
    """The layers of a model file as `load_graph` reads them, which takes long; those of equal bytes are read once."""
    path = find_model(model)
    try:
        content = path.read_bytes()
    except OSError:
        return load_graph(model, given)  # which says what is wrong
    if _ELSEWHERE in content:
        return load_graph(model, given)
    key = SCHEMA, code_version(), path.stem, hashlib.sha256(content).hexdigest(), given
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
