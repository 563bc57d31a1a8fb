"""The layers of a model that another command read are not read again, and are the same."""

from __future__ import annotations

import gc
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import convert_model_to_external_data

from autoauto.evaluate.costs import forecasts
from autoauto.evaluate.costs.forecasts import stored_graph
from autoauto.graph.load import load_graph
from autoauto.profile.cache import ProfileCache
from autoauto.profile.last_writes import write_waiting
from autoauto.records.errors import UnreadableModel
from autoauto.records.installation import builtin_models
from autoauto.records.layers import AS_IN_FILE, LayerGraph, ModelInputs

Asked = Callable[..., LayerGraph]


@pytest.fixture
def cache(tmp_path: Path) -> ProfileCache:
    return ProfileCache(tmp_path / "profiles.db")


@pytest.fixture
def n_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models that were read from their files."""
    read: list[str] = []

    def counted(model: str, given: ModelInputs) -> LayerGraph:
        read.append(model)
        return load_graph(model, given)

    monkeypatch.setattr(forecasts, "load_graph", counted)
    return read


@pytest.fixture
def asked(cache: ProfileCache, n_read: list[str]) -> Asked:
    """What a command of its own gets."""

    def ask(model: object, given: ModelInputs = AS_IN_FILE) -> LayerGraph:
        forecasts._stored.cache_clear()
        graph = stored_graph(str(model), given, cache)
        gc.collect()
        write_waiting()
        return graph

    return ask


def a_model(path: Path, *, high: float = 1.0, scale: float = 2.0, n_weights: int = 3) -> Path:
    """A product, and a layer with a number among its attributes."""
    weight = numpy_helper.from_array(np.full((3, n_weights), scale, np.float32), "weight")
    nodes = [
        helper.make_node("MatMul", ["x", "weight"], ["product"]),
        helper.make_node("Elu", ["product"], ["y"], alpha=high),
    ]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", n]) for name, n in (("x", 3), ("y", n_weights))
    )
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y], [weight]))
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("name", sorted(builtin_models()))
def test_the_layers_of_another_command_are_the_same_and_not_read_again(
    name: str, asked: Asked, n_read: list[str]
) -> None:
    first, again = asked(name), asked(name)
    assert n_read == [name]
    assert again == first == load_graph(name)
    assert again is not first
    assert repr(again) == repr(first)  # whole numbers stay whole


def test_one_command_has_one_object(cache: ProfileCache, n_read: list[str]) -> None:
    forecasts._stored.cache_clear()
    assert stored_graph("resnet50", AS_IN_FILE, cache) is stored_graph("resnet50", AS_IN_FILE, cache)
    assert len(n_read) == 1


def test_a_file_that_changed_and_other_inputs_are_read(asked: Asked, n_read: list[str], tmp_path: Path) -> None:
    path = a_model(tmp_path / "model.onnx")
    batched, single = asked(path), asked(path, ModelInputs(batch_axes=(("x", None),), shapes=(("x", (1, 3)),)))
    assert single.tensors != batched.tensors
    a_model(path, n_weights=5)
    assert asked(path).tensors[-1].shape == (1, 5)
    assert len(n_read) == 3
    path.rename(tmp_path / "other.onnx")
    assert asked(tmp_path / "other.onnx").name == "other"


def test_a_file_with_weights_elsewhere_is_read_again(asked: Asked, n_read: list[str], tmp_path: Path) -> None:
    path = a_model(tmp_path / "model.onnx")
    model = onnx.load(path)
    convert_model_to_external_data(model, location="weights", size_threshold=0)
    onnx.save(model, path)
    assert asked(path) == asked(path)
    assert len(n_read) == 2


def test_infinite_numbers_are_read_again_without_a_word(
    asked: Asked, n_read: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = a_model(tmp_path / "model.onnx", high=float("inf"))
    assert asked(path) == asked(path)
    assert asked(path).layers[1].attributes == (("alpha", float("inf")),)
    assert len(n_read) == 3
    assert capfd.readouterr().err == ""


def test_a_damaged_entry_costs_one_line(
    asked: Asked, cache: ProfileCache, n_read: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    first = asked("resnet50")
    assert isinstance(cache.location, Path)
    with closing(sqlite3.connect(cache.location)) as database, database:
        database.execute('UPDATE autoauto_forecasts SET forecast = \'{"value": {"name": 1}}\'')
    assert asked("resnet50") == first
    assert len(capfd.readouterr().err.splitlines()) == 1
    assert asked("resnet50") == first
    assert len(n_read) == 2


def test_a_model_that_is_missing_or_none_is_refused_as_ever(asked: Asked, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.onnx"
    wrong.write_bytes(b"no model")
    for path in (tmp_path / "missing.onnx", wrong):
        messages = set()
        for read in (asked, load_graph, asked):
            with pytest.raises(UnreadableModel) as caught:
                read(str(path))
            messages.add(str(caught.value))
        assert len(messages) == 1
