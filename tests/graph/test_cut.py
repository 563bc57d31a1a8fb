from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from autoauto.graph.batch import rebatch as rebatch_module
from autoauto.graph.batch.rebatch import rebatch
from autoauto.graph.cut import OnnxSource, onnx_source
from autoauto.graph.load import load_graph
from autoauto.graph.plain import assemble, flatten
from autoauto.graph.shapes.trace import trace
from autoauto.profile.variants import isolate
from autoauto.records.errors import BadInput, UnreadableModel
from autoauto.records.installation import builtin_models
from autoauto.records.layers import Derivative, LayerGraph, LayerRange, Port, SubModel, derivative
from autoauto.records.units import Array
from tests.drawn import n_examples

Arrays = Mapping[str, Array]


def run(part: SubModel, feeds: Arrays) -> dict[str, Any]:
    """Outputs of a sub-model, written to memory that is bound before the run, as a stage does."""
    runtime = pytest.importorskip("onnxruntime", reason="sub-models are compared in ONNX Runtime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(part.content, options, providers=["CPUExecutionProvider"])
    assert [entry.name for entry in session.get_inputs()] == [port.name for port in part.inputs]
    assert [(entry.name, tuple(entry.shape)) for entry in session.get_outputs()] == [port[:2] for port in part.outputs]
    results = {port.name: np.full(port.shape, 7, port.dtype) for port in part.outputs}
    binding = session.io_binding()
    for port in part.inputs:
        assert (feeds[port.name].shape, str(feeds[port.name].dtype)) == (port.shape, port.dtype)
        binding.bind_cpu_input(port.name, feeds[port.name])
    for name, array in results.items():
        binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
    session.run_with_iobinding(binding)
    return results


def chain(source: OnnxSource, graph: LayerGraph, cuts: Sequence[int], batch_size: int, feeds: Arrays) -> Arrays:
    """Run stages one after the other; each gets the message of the stage before and nothing else."""
    message = dict(feeds)
    for start, stop in pairwise(cuts):
        received, sent = (source.carried(graph, cut, batch_size) for cut in (start, stop))
        part = source.cut(graph, LayerRange(start, stop), batch_size)
        assert set(part.inputs) <= set(received)
        assert set(part.outputs) <= set(sent)
        assert set(sent) <= {*received, *part.outputs}
        message |= run(part, {port.name: message[port.name] for port in part.inputs})
        message = {port.name: message[port.name] for port in sent}
    return message


def random_feeds(ports: Iterable[Port], generator: np.random.Generator) -> dict[str, Any]:
    return {
        port.name: (
            generator.standard_normal(port.shape)
            if port.dtype.startswith("float")
            else generator.integers(0, 2, port.shape)
        ).astype(port.dtype)
        for port in ports
    }


def check(
    path: str,
    partitions: Iterable[Sequence[int]] | None = None,
    batch_sizes: Sequence[int] = (1, 3),
    tolerance: float = 1e-4,
) -> None:
    """Hold chains of sub-models against the whole file in one session.

    Differences of up to `tolerance` of the largest element come from what the runtime fuses.
    """
    graph, source, generator = load_graph(path), onnx_source(path), np.random.default_rng(0)
    file = onnx.load(builtin_models().get(path, path))
    for batch_size in batch_sizes:
        inputs, outputs = (source.carried(graph, cut, batch_size) for cut in (0, len(graph)))
        feeds = random_feeds(inputs, generator)
        expected = plain_run(rebatch(file, batch_size).SerializeToString(), feeds)
        assert [port.name for port in outputs] == [entry.name for entry in file.graph.output]
        for cuts in partitions or [range(len(graph) + 1), *random_partitions(len(graph), generator)]:
            results = chain(source, graph, cuts, batch_size, feeds)
            for (name, result), right in zip(results.items(), expected, strict=True):
                largest = float(np.abs(right).max(initial=1e-3))
                assert np.allclose(result, right, rtol=0, atol=tolerance * largest), (name, list(cuts), batch_size)


def plain_run(content: bytes, feeds: Arrays) -> list[Any]:
    runtime = pytest.importorskip("onnxruntime", reason="sub-models are compared in ONNX Runtime")
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return [np.asarray(result) for result in session.run(None, feeds)]


def random_partitions(n_layers: int, generator: np.random.Generator) -> list[list[int]]:
    """One stage, two, and as many as a third of the layers."""
    counts = sorted({1, min(2, n_layers), max(n_layers // 3, 1)})
    drawn = [generator.permutation(np.arange(1, n_layers))[: count - 1] for count in counts]
    return [[0, *sorted(map(int, cuts)), n_layers] for cuts in drawn]


W = np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32)
CASES = {
    "a skip connection over several stages": ("Relu x > a; MatMul a w > b; Tanh b > c; Neg c > d; Add d a > y", "y"),
    "an input that a late layer reads": ("Relu x > a; Tanh a > b; Neg b > c; Add c x > y", "y"),
    "an output that is made early": ("Relu x > y; Tanh y > b; Neg b > z", "y z"),
    "an output that is a view of an early layer": ("Relu x > a; Flatten a > y; Tanh a > b; Neg b > z", "y z"),
    "an output that is a view of an input": ("Flatten x > y; Tanh x > b; Neg b > z", "y z"),
    "outputs in another order than they are made": ("Relu x > z; Tanh z > b; Neg b > y", "y z"),
    "views at a cut": (
        "Relu x > a; Unsqueeze a one > b; Squeeze b one > c; Tanh c > d; Identity d > e; Add e c > y",
        "y",
    ),
    "a view that two stages read": ("Relu x > a; Unsqueeze a one > b; Tanh b > c; Neg c > d; Add d b > y", "y"),
    "weights that two layers share": (
        "MatMul x w > a; Tanh a > b; Transpose w > t; MatMul b t > c; MatMul c w > y",
        "y",
    ),
    "a layer with two outputs": ("Split x > a b axis=1; Tanh a > c; Neg c > d; Add d b > y", "y"),
    "an output that nothing reads": ("TopK x one > v i axis=1; Tanh v > b; Add b x > y", "y"),
    "a shape that is read far away": (
        "Relu x > a; MatMul a w > b; Tanh b > c; Shape a > s; Reshape c s > d; Neg d > y",
        "y",
    ),
    "a constant as large as the batch": (
        "Shape x > s; ConstantOfShape s > k; Cos k > l; Tanh x > a; Add l a > b; Sub b k > y",
        "y l",
    ),
    "outputs that are constants": ("Tanh x > a; Neg a > y; Identity w > v; Shape a > s; Cast s > z to=1", "y v z w"),
    "an output that is an input": ("Tanh x > a; Neg a > y", "y x"),
    "an input that nothing reads": ("Tanh x > a; Neg a > y", "y"),
    "inputs that are read one after the other": ("Tanh x > a; Add a u > b; Neg b > c; Mul c x > y; Tanh u > z", "y z"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_chain_of_sub_models_is_the_model(case: str, make: Any, save: Any) -> None:
    program, outputs = CASES[case]
    check(save(make(program, {"x": ["n", 4], "u": ["n", 1]}, outputs, {"w": W, "one": [1]}, 13)))


def test_halves_stay_halves_at_a_cut(make: Any, save: Any) -> None:
    program = "Cast x > h to=10; MatMul h w > a; Tanh a > b; Cast b > c to=1; Add c x > y"
    path = save(make(program, {"x": ["n", 4]}, "y", {"w": W.astype(np.float16)}))
    source, graph = onnx_source(path), load_graph(path)
    assert source.carried(graph, 1, 2) == (Port("x", (2, 4), "float32"), Port("a", (2, 4), "float16"))
    check(path, tolerance=1e-2)  # the whole model multiplies in single precision where it can


def test_indices_and_masks_keep_their_types(make: Any, save: Any) -> None:
    program = "Gather w i > a; Greater a zero > m; Tanh a > t; Where m t a > y"
    path = save(make(program, {"int:i": ["n", 3]}, "y", {"w": W, "zero": np.float32(0)}))
    graph = load_graph(path)
    assert [port.dtype for port in onnx_source(path).carried(graph, 0, 1)] == ["int64"]
    assert [port.dtype for port in onnx_source(path).carried(graph, 2, 1)] == ["float32", "bool"]
    check(path)


def test_a_file_that_fixes_the_batch_is_cut_at_any(make: Any, save: Any) -> None:
    program = "MatMul x w > a; Reshape a s > b; Tanh b > c; Concat k c > d axis=1; Neg d > y"
    constants = {"w": W, "s": [1, 2, 2], "k": np.ones((1, 1, 2), np.float32)}
    check(save(make(program, {"x": [1, 4]}, "y", constants)))


def test_a_model_that_runs_at_its_own_batch_only(make: Any, save: Any) -> None:
    path = save(make("Tanh x > a; Softmax a > b axis=0; Neg b > y", {"x": [2, 4]}, "y"))
    graph, source = load_graph(path), onnx_source(path)
    assert source.carried(graph, 1, 1) == (Port("a", (2, 4), "float32"),)
    feeds = random_feeds(source.carried(graph, 0, 1), np.random.default_rng(0))
    results = chain(source, graph, [0, 1, 3], 1, feeds)
    assert np.allclose(results["y"], plain_run(Path(path).read_bytes(), feeds)[0])
    with pytest.raises(BadInput, match=r"batch_size must be 1, .* got 2"):
        source.cut(graph, LayerRange(0, 1), 2)


def test_what_enters_and_leaves_by_hand(make: Any, save: Any) -> None:
    path = save(make(*CASES["a skip connection over several stages"][:1], {"x": ["n", 4]}, "y", {"w": W}))
    graph, source = load_graph(path), onnx_source(path)
    messages = [[port.name for port in source.carried(graph, cut, 1)] for cut in range(6)]
    assert messages == [["x"], ["a"], ["a", "b"], ["a", "c"], ["a", "d"], ["y"]]
    part = source.cut(graph, LayerRange(1, 3), 5)
    assert (part.inputs, part.outputs) == ((Port("a", (5, 4), "float32"),), (Port("c", (5, 4), "float32"),))
    model = onnx.load_model_from_string(part.content)
    onnx.checker.check_model(model, full_check=True)
    assert [node.op_type for node in model.graph.node] == ["MatMul", "Tanh"]
    assert [entry.version for entry in model.opset_import] == [17]


def test_vectors_of_equal_elements_stay_nodes_and_only_constants_that_are_read_come_along() -> None:
    """The bias of the convolution is such a vector, with its shape as an initializer; the other is the weight."""
    graph, source = load_graph("resnet50"), onnx_source("resnet50")
    model = onnx.load_model_from_string(source.cut(graph, LayerRange(0, 1), 1).content)
    assert sorted(node.op_type for node in model.graph.node) == ["ConstantOfShape", "Conv"]
    assert sorted(len(tensor.dims) for tensor in model.graph.initializer) == [1, 4]


def test_a_layer_alone_is_the_stage_of_that_layer() -> None:
    graph, source = load_graph("bert-base-128"), onnx_source("bert-base-128")
    for index in range(0, len(graph), 10):
        stage = source.cut(graph, LayerRange(index, index + 1), 2)
        for passes in (Derivative(graph, frozenset()), derivative(graph)):
            alone = isolate(graph, index, passes)
            assert source.cut(alone, LayerRange(len(alone) - 1, len(alone)), 2) == stage


def test_the_last_layer_alone_returns_what_it_writes(make: Any, save: Any) -> None:
    path = save(make("Tanh x > a; Neg a > b; Flatten b > y; Identity a > z", {"x": ["n", 4]}, "y z"))
    graph, source = load_graph(path), onnx_source(path)
    stage = source.cut(graph, LayerRange(1, 2), 1)
    alone = source.cut(isolate(graph, 1, Derivative(graph, frozenset())), LayerRange(0, 1), 1)
    assert [port.name for port in stage.outputs] == ["y", "z"]
    assert [port.name for port in alone.outputs] == ["b"]
    run(alone, random_feeds(alone.inputs, np.random.default_rng(0)))


def test_a_batch_size_is_written_into_the_model_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, source = load_graph("resnet50"), onnx_source("resnet50")
    counted = Mock(wraps=trace)
    monkeypatch.setattr(rebatch_module, "trace", counted)
    for batch_size in (1, 8, 1, 8):
        source.carried(graph, 5, batch_size)
        source.cut(graph, LayerRange(0, 5), batch_size)
    inputs = (call.args[0].graph.input[0] for call in counted.call_args_list)
    lengths = [entry.type.tensor_type.shape.dim[0].dim_value for entry in inputs]
    assert lengths == [1, 2, 8]  # at 2 it is tried whether the batch is open


def test_a_file_that_has_changed_is_one_clear_line() -> None:
    source, graph = onnx_source("resnet50"), load_graph("vit-b16")
    with pytest.raises(UnreadableModel, match="nothing there writes 'conv2d'; it may have changed"):
        source.cut(graph, LayerRange(0, 1), 1)
    with pytest.raises(UnreadableModel, match="nothing there writes 'conv2d'; it may have changed"):
        source.carried(graph, 1, 1)


def test_a_name_that_is_no_model() -> None:
    with pytest.raises(UnreadableModel, match="got 'resnet51', which is neither; did you mean 'resnet50'"):
        onnx_source("resnet51")


STEPS = (
    "Relu {a} > {o}",
    "Tanh {a} > {o}",
    "Add {a} {b} > {o}",
    "Max {a} {b} > {o}",
    "MatMul {a} w > m{o}; Tanh m{o} > {o}",
    "Identity {a} > {o}",
    "Unsqueeze {a} one > u{o}; Squeeze u{o} one > {o}",
    "Shape {a} > s{o}; Reshape {b} s{o} > {o}",
    "Shape {a} > s{o}; ConstantOfShape s{o} > k{o}; Cos k{o} > c{o}; Sub c{o} {b} > {o}",
    "Split {a} > p{o} q{o} axis=1; Concat q{o} {b} p{o} > r{o} axis=1; MatMul r{o} v > {o}",
)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A program in which any step reads any earlier tensors, and any of them are outputs."""
    names, lines = ["x", "z"], []
    for number in range(draw(st.integers(1, 9))):
        a, b = draw(st.sampled_from(names)), draw(st.sampled_from(names))
        lines.append(draw(st.sampled_from(STEPS)).format(a=a, b=b, o=f"t{number}"))
        names.append(f"t{number}")
    ends = draw(st.lists(st.sampled_from(names), unique=True, max_size=3))
    return "; ".join([*lines, f"Neg {names[-1]} > y"]), ["y", *ends]


@given(drawn=graphs(), data=st.data())
@settings(deadline=None, derandomize=True, max_examples=n_examples(60))
def test_any_graph_can_be_cut_anywhere(drawn: Any, data: Any, make: Any, tmp_path_factory: Any) -> None:
    program, ends = drawn
    constants = {"w": W, "v": np.concatenate([W, W]), "one": [1]}
    path = tmp_path_factory.mktemp("drawn") / "model.onnx"
    onnx.save_model(make(program, {"x": ["n", 4], "z": ["n", 4]}, " ".join(ends), constants, 13), path)
    n_layers = len(load_graph(str(path)))
    inner = data.draw(st.sets(st.integers(1, n_layers - 1))) if n_layers > 1 else set()
    check(str(path), [[0, *sorted(inner), n_layers]], [2])


def with_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Random weights where a model has ConstantOfShape: samples give different results."""
    plain, generator = flatten(model), np.random.default_rng(0)
    sizes = {tensor.name: tensor for tensor in plain.graph.initializer}
    nodes, weights = [], []
    for node in plain.graph.node:
        if node.op_type != "ConstantOfShape" or node.input[0] not in sizes:
            nodes.append(node)
            continue
        shape = numpy_helper.to_array(sizes[node.input[0]])
        values = generator.standard_normal(shape, np.float32)
        values = values * np.float32(prod(shape[1:]) ** -0.5) if len(shape) > 1 else np.abs(values) + 1
        weights.append(numpy_helper.from_array(values, node.output[0]))
    return assemble(plain, nodes, list(plain.graph.input), list(plain.graph.output), [*sizes.values(), *weights])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet50", "gpt2-small"])
def test_a_builtin_model_with_weights(name: str, builtin: Any, save: Any) -> None:
    check(save(with_weights(builtin(name))), batch_sizes=(3,))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["densenet121", "inception_v1", "inception_v2", "shufflenet", "squeezenet"])
def test_a_light_model_with_weights(name: str, light: Any, save: Any) -> None:
    check(save(with_weights(onnx.load(light(name)))), batch_sizes=(3,))


def test_a_builtin_model_as_it_comes() -> None:
    graph, source = load_graph("resnet50"), onnx_source("resnet50")
    feeds = random_feeds(source.carried(graph, 0, 1), np.random.default_rng(0))
    whole = run(source.cut(graph, LayerRange(0, len(graph)), 1), feeds)
    results = chain(source, graph, [0, 50, 100, len(graph)], 1, feeds)
    assert np.allclose(results["logits"], whole["logits"], rtol=1e-4)


def test_another_process_cuts_the_same(make: Any, save: Any) -> None:
    path = save(make("Tanh x > a; Neg a > y", {"x": ["n", 4]}, "y"))
    graph, source = load_graph(path), onnx_source(path)
    whole = LayerRange(0, len(graph))
    expected = source.cut(graph, whole, 2)  # what it keeps for the next cut does not travel
    assert pickle.loads(pickle.dumps(source)).cut(graph, whole, 2) == expected


def test_every_node_of_a_sub_model_has_a_name_of_its_own(make: Any, save: Any) -> None:
    """Without one, or with that of another node or of what another writes, it has the name of what it writes itself."""
    model = make("Tanh x > a; Neg a > b; Abs b > c; Exp c > d; Sin d > y", {"x": ["n", 4]}, "y")
    for node, name in zip(model.graph.node, ("mine", "twice", "twice", "", "c"), strict=True):
        node.name = name
    path = save(model)
    source, graph = onnx_source(path), load_graph(path)
    part = onnx.load_model_from_string(source.cut(graph, LayerRange(0, 5), 1).content)
    assert [node.name for node in part.graph.node] == ["mine", "b", "c", "d", "y"]
