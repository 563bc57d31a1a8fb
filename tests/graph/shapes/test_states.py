from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autoauto.graph.load import load_graph
from autoauto.profile.liveness import carried
from autoauto.records.costs.options import CompileOptions
from autoauto.records.errors import BadInput
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.model_inputs import model_inputs
from autoauto.records.units import Precision
from autoauto.targets.clusters import load_cluster
from autoauto.targets.ipu.target import IpuTarget

DECODER = (
    "Concat past_key_values.0.key k > present.0.key axis=1; ReduceSum present.0.key axes > s keepdims=0; Add x s > y"
)
INPUTS = {"x": ["batch", 8], "k": ["batch", 1, 8], "past_key_values.0.key": ["batch", "past", 8]}


def decoder(make: Any, **given: Any) -> LayerGraph:
    model = make(DECODER, INPUTS, "y present.0.key", {"axes": [1]})
    return load_graph(model, model_inputs({"past": 127}, **given))


def test_a_cache_is_a_weight_of_its_reader_and_moves_nowhere(make: Any) -> None:
    graph = decoder(make)
    cache, read = (next(t for t in graph.tensors if t.name == name) for name in ("past_key_values.0.key", "k"))
    assert cache.is_state
    assert not read.is_state
    assert [graph.tensors[i].name for i in graph.layers[0].weights] == ["past_key_values.0.key"]
    assert "past_key_values.0.key" not in [graph.tensors[i].name for layer in graph.layers for i in layer.inputs]
    alive = carried(graph, 2, Precision.FP16)
    assert alive.input_bytes[0] == 2 * 2 * (8 + 8)  # x and k of two samples
    assert alive.output_bytes[-1] == 2 * 2 * 8
    assert "states that stay on their device" in " ".join(graph.notes)


def test_memory_holds_the_state_of_every_sample(make: Any) -> None:
    graph, device = decoder(make), load_cluster("c600").devices[0]
    whole = LayerRange(0, len(graph))
    of_one, of_four = (
        IpuTarget().compile(graph, whole, device, CompileOptions(batch_size, Precision.FP16)).exclusive
        for batch_size in (1, 4)
    )
    assert of_four["parameter"] - of_one["parameter"] == 3 * 2 * 127 * 8


def test_the_layers_of_a_state_share_a_stage(make: Any) -> None:
    nodes = "Mul h a > z; Relu x > r; Add r z > b; Add b a > hn; Relu hn > s; Exp s > t; Tanh t > y"
    graph = load_graph(
        make(nodes, {"x": ["batch", 8], "h": ["batch", 8]}, "y hn", {"a": np.full((1, 8), 2, np.float32)})
    )
    tied = [layer.tied for layer in graph.layers]
    assert tied[0] == tied[3] is not None
    assert tied[1] is tied[2] is tied[4] is None


def test_a_state_across_the_whole_model_travels_unless_it_must_stay(make: Any) -> None:
    model = make("Add x h > a; Exp a > b; Tanh b > hn", {"x": ["batch", 8], "h": ["batch", 8]}, "hn")
    graph = load_graph(model)
    assert not any(tensor.is_state for tensor in graph.tensors)
    assert "states that travel, as they span many layers: 'h' from 'hn'" in graph.notes
    assert all(layer.tied for layer in load_graph(model, model_inputs(states={"h": "hn"})).layers[::2])


@pytest.mark.parametrize(
    ("before", "after", "is_pair"),
    [
        ("state", "stateN", True),
        ("h0", "hn", True),
        ("cache_in", "cache_out", True),
        ("past_0", "present_0", True),
        ("image_in", "image_out", False),
        ("x", "y", False),
        ("hidden", "logits", False),
    ],
)
def test_names_say_what_is_a_state(before: str, after: str, is_pair: bool, make: Any) -> None:
    graph = load_graph(make(f"Relu {before} > {after}", {before: ["batch", 8]}, after))
    assert graph.tensors[0].is_state is is_pair


def test_a_state_may_be_given(make: Any) -> None:
    model = make("Relu x > y", {"x": ["batch", 8]}, "y")
    assert load_graph(model, model_inputs(states={"x": "y"})).tensors[0].is_state
    with pytest.raises(BadInput, match="--state takes INPUT=OUTPUT of the model, it has no 'z'; there are y"):
        load_graph(model, model_inputs(states={"x": "z"}))


def test_a_state_of_another_shape_is_none(make: Any) -> None:
    graph = load_graph(make("ReduceSum state > stateN", {"state": ["batch", 8, 4]}, "stateN"))
    assert not graph.tensors[0].is_state
