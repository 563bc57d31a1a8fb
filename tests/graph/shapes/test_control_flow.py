"""If, Loop and Scan: shapes as ONNX Runtime has them, layers with bodies, and stages cut around them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from autoauto.graph.batch.rebatch import resolve_batch
from autoauto.graph.cut import onnx_source
from autoauto.graph.load import load_graph
from autoauto.graph.shapes.trace import trace
from autoauto.records.errors import UnreadableModel
from autoauto.records.layers import LayerRange
from autoauto.records.model_inputs import model_inputs

IF = """<ir_version: 8, opset_import: ["": 17]>
m (float[N, 4] x, bool c) => (float[N, M] y) {
    r = Relu(x)
    b = If (c) <
        then_branch = t () => (float[N, 4] o) { w = Constant <value_float = 2.0> () o = Mul(r, w) },
        else_branch = e () => (float[N, 4] o) { s = Sigmoid(r) q = Sqrt(s) o = Add(q, x) }>
    y = Tanh(b)
}"""
BY_SHAPE = """<ir_version: 8, opset_import: ["": 17]>
m (float[N, 4] x) => (float[N, M] y) {
    s = Shape <start = 1, end = 2> (x)
    four = Constant <value_ints = [4]> ()
    c = Equal(s, four)
    b = If (c) <
        then_branch = t () => (float[N, M] o) { o = Relu(x) },
        else_branch = e () => (float[N, M] o) { p = Exp(x) o = Sigmoid(p) }>
    y = Tanh(b)
}"""
ONLY_ONE_FITS = """<ir_version: 8, opset_import: ["": 17]>
m (float[N, 4] x, bool c) => (float[N, M] y) {
    b = If (c) <
        then_branch = t () => (float[N, M] o) { k = Constant <value_floats = [1.0, 2.0, 3.0]> () o = Add(x, k) },
        else_branch = e () => (float[N, M] o) { o = Sigmoid(x) }>
    y = Tanh(b)
}"""
LOOP = """<ir_version: 8, opset_import: ["": 17]>
m (float[N, 4] x) => (float[N, 4] y, float[R, N, 4] all) {
    r = Relu(x)
    n = Constant <value = int64 {3}> ()
    true = Constant <value = bool {1}> ()
    y, all = Loop (n, true, r) <
        body = b (int64 i, bool go, float[N, 4] s) => (bool on, float[N, 4] next, float[N, 4] added) {
            on = Identity(go) next = Add(s, x) added = Exp(next) }>
}"""
SCAN = """<ir_version: 8, opset_import: ["": 17]>
m (float[N, 5, 4] x) => (float[N, 4] y, float[5, N, 4] all) {
    t = Transpose <perm = [1, 0, 2]> (x)
    first = Constant <value_ints = [0]> ()
    zeros = ReduceSum <keepdims = 0> (x, axis)
    y, all = Scan <num_scan_inputs = 1,
        body = b (float[N, 4] s, float[N, 4] e) => (float[N, 4] next, float[N, 4] out) {
            next = Add(s, e) out = Relu(next) }> (zeros, t)
}"""


def parsed(text: str, **constants: Any) -> onnx.ModelProto:
    model = onnx.parser.parse_model(text)
    for name, value in constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value, np.int64), name))
    return model


def scan() -> onnx.ModelProto:
    return parsed(SCAN, axis=[1])


@pytest.mark.parametrize("build", [lambda: parsed(IF), lambda: parsed(LOOP), scan], ids=["If", "Loop", "Scan"])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_shapes_are_those_of_onnx_runtime(build: Any, batch_size: int, execute: Callable[..., Any]) -> None:
    model = resolve_batch(build()).at(batch_size).model
    values = trace(model)
    feeds = {
        entry.name: np.ones(values[entry.name].shape, bool if entry.name == "c" else np.float32)
        for entry in model.graph.input
    }
    for entry, result in zip(model.graph.output, execute(model, feeds), strict=True):
        assert values[entry.name].shape == result.shape


def test_a_body_is_a_graph_of_a_layer_and_reads_what_it_captures() -> None:
    graph = load_graph(parsed(IF))
    assert [layer.op for layer in graph.layers] == ["Relu", "If", "Tanh"]
    branch = graph.layers[1]
    assert [[layer.op for layer in body.graph.layers] for body in branch.bodies] == [
        ["Mul"],
        ["Sigmoid", "Sqrt", "Add"],
    ]
    assert {graph.tensors[i].name for i in branch.inputs} == {"c", "r", "x"}
    assert [graph.tensors[i].name for i in branch.weights] == ["b/then_branch/w"]
    assert "If 'b' takes its dearer branch" in graph.notes


def test_a_branch_that_a_constant_decides_stands_in_place_of_its_if() -> None:
    graph = load_graph(parsed(BY_SHAPE))
    assert [layer.op for layer in graph.layers] == ["Relu", "Tanh"]


BY_BATCH = """<ir_version: 8, opset_import: ["": 17]>
m (float[N, 4] x, float[N, 4] z) => (float[N, 4] y) <int64 zero = {0}> {
    s = Shape(x) b = Gather(s, zero) more = Greater(b, limit) c = Cast <to = 9> (more)
    b0 = If (c) <then_branch = t () => (float[M, 4] o) { o = Mul(x, x) },
                 else_branch = e () => (float[M, 4] o) { o = Add(x, z) }>
    y = Tanh(b0)
}"""


@pytest.mark.parametrize("limit", [1, 2, 4])
def test_a_branch_that_the_batch_size_decides_is_decided_when_the_model_runs(
    limit: int, save: Callable[[onnx.ModelProto], str], execute: Callable[..., Any]
) -> None:
    model = parsed(BY_BATCH, limit=limit)
    source = onnx_source(save(model))
    assert "If 'b0' takes its dearer branch" in source.graph.notes
    for batch_size in (1, 2, 3, 5):
        feeds = {name: np.full((batch_size, 4), 0.3, np.float32) for name in ("x", "z")}
        cut = source.cut(source.graph, LayerRange(0, len(source.graph)), batch_size)
        (result,) = execute(onnx.load_model_from_string(cut.content), feeds)
        np.testing.assert_allclose(result, execute(model, feeds)[0])


def test_a_branch_that_alone_fits_the_lengths_stands_in_place_of_its_if() -> None:
    graph = load_graph(parsed(ONLY_ONE_FITS))
    assert [layer.op for layer in graph.layers] == ["Sigmoid", "Tanh"]
    assert "branches that run, as others do not fit the lengths: else_branch of 'b'" in graph.notes


def test_how_often_a_body_runs() -> None:
    (_, loop), (_, _, layer) = load_graph(parsed(LOOP)).layers, load_graph(scan()).layers
    assert [(body.n_runs, body.runs_per_sample) for body in (*loop.bodies, *layer.bodies)] == [(3, False), (5, False)]


def test_a_loop_over_samples_runs_for_every_sample() -> None:
    text = SCAN.replace("t = Transpose <perm = [1, 0, 2]> (x)", "t = ReduceMax <axes = [1], keepdims = 0> (x)").replace(
        "zeros = ReduceSum <keepdims = 0> (x, axis)", "zeros = ConstantOfShape (four)"
    )
    text = text.replace("float[N, 4] s, float[N, 4] e", "float[4] s, float[4] e").replace(
        "float[5, N, 4]", "float[N, 4]"
    )
    text = text.replace("=> (float[N, 4] next, float[N, 4] out)", "=> (float[4] next, float[4] out)")
    graph = load_graph(parsed(text.replace("(float[N, 4] y,", "(float[4] y,"), four=[4]))
    assert [(body.n_runs, body.runs_per_sample) for layer in graph.layers for body in layer.bodies] == [(1, True)]


def test_a_count_that_depends_on_data_is_asked_for() -> None:
    text = LOOP.replace("(float[N, 4] x)", "(float[N, 4] x, int64 n)").replace(
        "n = Constant <value = int64 {3}> ()", ""
    )
    with pytest.raises(UnreadableModel, match=r"how often the body of node 'y' \(Loop\) runs .*, try --shape y=10"):
        load_graph(parsed(text))
    graph = load_graph(parsed(text), model_inputs({"y": 7}))
    assert graph.layers[-1].bodies[0].n_runs == 7


@pytest.mark.parametrize("build", [lambda: parsed(IF), lambda: parsed(LOOP), scan], ids=["If", "Loop", "Scan"])
def test_stages_around_control_flow_compute_what_the_model_does(
    build: Any, tmp_path: Path, execute: Callable[..., Any]
) -> None:
    model, path = build(), tmp_path / "model.onnx"
    onnx.save(model, path)
    source, generator = onnx_source(str(path)), np.random.default_rng(0)
    graph = source.graph
    tensors = {
        port.name: np.ones(port.shape, bool) if port.dtype == "bool" else generator.random(port.shape, np.float32)
        for port in source.carried(graph, 0, 2)
    }
    whole = source.cut(graph, LayerRange(0, len(graph)), 2)
    expected = execute(onnx.load_from_string(whole.content), tensors)
    for index in range(len(graph)):
        stage = source.cut(graph, LayerRange(index, index + 1), 2)
        results = execute(
            onnx.load_from_string(stage.content), {port.name: tensors[port.name] for port in stage.inputs}
        )
        tensors |= dict(zip((port.name for port in stage.outputs), results, strict=True))
    for port, result in zip(whole.outputs, expected, strict=True):
        np.testing.assert_allclose(tensors[port.name], result, rtol=1e-6)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("else_branch = e", "other = e"),
        ("(int64 i, bool go, float[N, 4] s)", "(int64 i, float[N, 4] s)"),
        ("num_scan_inputs = 1,", ""),
    ],
)
def test_bodies_without_the_ends_that_onnx_asks_for_are_one_line(wrong: str, right: str) -> None:
    text = next(each for each in (IF, LOOP, SCAN) if wrong in each)
    with pytest.raises(UnreadableModel, match=r"the bodies of (If|Loop|Scan) '.*' lack the ends that ONNX asks for"):
        load_graph(parsed(text.replace(wrong, right)))
