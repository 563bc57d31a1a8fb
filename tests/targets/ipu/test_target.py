from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoauto.graph.load import load_graph
from autoauto.records.costs.memory import compiled_bytes
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import CompiledRange
from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.target import CompilingTarget
from autoauto.records.units import Precision
from autoauto.targets.ipu.target import IpuTarget, operator_costs
from tests.drawn import n_examples

SHAPE = (1, 32, 14, 14)
X = "x:1x32x14x14"
OPERATORS: dict[str, tuple[int, list[tuple[int, ...]], dict[str, Any]]] = {
    "Conv": (1, [(32, 32, 3, 3), (32,)], {}),
    "Relu": (1, [], {}),
    "Gelu": (1, [], {}),
    "Add": (2, [], {}),
    "Where": (3, [], {}),
    "Softmax": (1, [], {"axis": -1}),
    "MaxPool": (1, [], {"kernel_shape": (3, 3)}),
    "Transpose": (1, [], {"perm": (0, 1, 3, 2)}),
    "MatMul": (2, [], {}),
    "LayerNormalization": (1, [(14,), (14,)], {}),
    "BatchNormalization": (1, [(32,), (32,), (32,), (32,)], {}),
    "Concat": (1, [], {}),
    "Gather": (2, [], {}),
}


@pytest.fixture(scope="session")
def random_graph(graph_of: Any, node: Any) -> Callable[[list[tuple[str, list[int]]]], LayerGraph]:
    """A model whose layer i applies an operator to tensors made before it; 0 is the input."""

    def make(plan: list[tuple[str, list[int]]]) -> LayerGraph:
        names, nodes = [X], []
        for i, (op, picks) in enumerate(plan):
            n_operands, weights, attributes = OPERATORS[op]
            operands = [names[pick % len(names)] for pick in picks[:n_operands]]
            nodes.append(node(op, [*operands, *weights], SHAPE, f"n{i}", **attributes))
            names.append(f"n{i}")
        graph: LayerGraph = graph_of(nodes)
        return graph

    return make


plans = st.lists(
    st.tuples(st.sampled_from(sorted(OPERATORS)), st.lists(st.integers(0, 20), min_size=3, max_size=3)),
    min_size=2,
    max_size=8,
)


def compile_range(graph: LayerGraph, start: int, stop: int, device: Device, options: CompileOptions) -> CompiledRange:
    return IpuTarget().compile(graph, LayerRange(start, stop), device, options)


def total(compiled: CompiledRange) -> int:
    return sum(compiled_bytes(compiled).values())


@given(plan=plans, batch_size=st.sampled_from([1, 7, 64]), training=st.booleans())
@settings(deadline=None, max_examples=n_examples(60), suppress_health_check=[HealthCheck.differing_executors])
def test_a_layer_more_never_reduces_cycles_or_memory(
    random_graph: Any, device: Device, options: Any, plan: Any, batch_size: int, training: bool
) -> None:
    graph = random_graph(plan)
    n = len(graph)
    endless = replace(device, memory_bytes=2.0**60)  # what does not fit has a subgraph for equal layers
    ranges = {
        (start, stop): compile_range(graph, start, stop, endless, options(batch_size, training=training))
        for start in range(n)
        for stop in range(start + 1, n + 1)
    }
    for (start, stop), whole in ranges.items():
        for part in ((start + 1, stop), (start, stop - 1)):
            if part in ranges:
                assert whole.forward_cycles >= ranges[part].forward_cycles
                assert whole.activation_bytes >= ranges[part].activation_bytes
                assert whole.temporary_bytes >= ranges[part].temporary_bytes
                assert all(n_bytes <= whole.shared[key] for key, n_bytes in ranges[part].shared.items())
                assert all(n_bytes <= whole.exclusive[name] for name, n_bytes in ranges[part].exclusive.items())
        alone = [ranges[i, i + 1] for i in range(start, stop)]
        assert whole.forward_cycles <= sum(layer.forward_cycles for layer in alone)
        assert whole.backward_cycles == sum(layer.backward_cycles for layer in alone)
        assert whole.weight_cycles == sum(layer.weight_cycles for layer in alone) <= whole.backward_cycles
        assert whole.activation_bytes <= sum(layer.activation_bytes for layer in alone)
        always = Counter(compiled_bytes(whole)) - Counter({"temporary": whole.temporary_bytes})
        assert always.total() <= sum(total(layer) - layer.temporary_bytes for layer in alone)


@given(plan=plans, proportions=st.tuples(st.floats(0.1, 1), st.floats(0.1, 1)))
@settings(deadline=None, max_examples=n_examples(30), suppress_health_check=[HealthCheck.differing_executors])
def test_a_looser_bound_is_never_slower(
    random_graph: Any, device: Device, options: Any, plan: Any, proportions: tuple[float, float]
) -> None:
    graph = random_graph(plan)
    tight, loose = (compile_range(graph, 0, len(graph), device, options(8, p)) for p in sorted(proportions))
    assert loose.forward_cycles <= tight.forward_cycles


@given(plan=plans, batch_size=st.sampled_from([1, 7, 64]), training=st.booleans())
@settings(deadline=None, max_examples=n_examples(30), suppress_health_check=[HealthCheck.differing_executors])
def test_a_bound_that_does_not_bind_changes_nothing(
    random_graph: Any, device: Device, options: Any, plan: Any, batch_size: int, training: bool
) -> None:
    graph = random_graph(plan)
    for index in range(len(graph)):
        chosen = [options(batch_size, p, training=training) for p in (0.002, 0.02, 0.1, 0.3, 1.0)]
        compiled = [compile_range(graph, index, index + 1, device, each) for each in chosen]
        free = [
            each
            for each, like in zip(compiled, chosen, strict=True)
            if each.binding_below_bytes <= like.session.bound_bytes(device)
        ]
        assert all(each == free[0] for each in free)
        assert free or graph.layers[index].op in ("Conv", "MatMul", "Gather")


def residual_block(graph_of: Any, node: Any) -> LayerGraph:
    graph: LayerGraph = graph_of(
        [
            node("Conv", [X, (32, 32, 3, 3)], SHAPE, "conv1"),
            node("Relu", ["conv1"], SHAPE, "relu1"),
            node("Conv", ["relu1", (32, 32, 3, 3)], SHAPE, "conv2"),
            node("Add", ["conv2", X], SHAPE, "add"),
            node("Relu", ["add"], SHAPE, "relu2"),
        ]
    )
    return graph


def test_a_whole_range_shares_code_and_saves_relayouts(graph_of: Any, node: Any, device: Device, options: Any) -> None:
    graph = residual_block(graph_of, node)
    whole = compile_range(graph, 0, 5, device, options())
    alone = [compile_range(graph, i, i + 1, device, options()) for i in range(5)]
    assert 0.8 < whole.forward_cycles / sum(layer.forward_cycles for layer in alone) < 1
    assert total(whole) < sum(total(layer) for layer in alone)
    assert sum(whole.shared.values()) < 0.5 * sum(sum(layer.shared.values()) for layer in alone)


def test_steps_are_named_after_layers_and_few(graph_of: Any, node: Any, device: Device, options: Any) -> None:
    steps = compile_range(residual_block(graph_of, node), 0, 5, device, options()).steps
    assert [step.name for step in steps] == [
        "conv1/rearrange",
        "conv1/exchange",
        "conv1/compute",
        "relu1/compute",
        "conv2/exchange",
        "conv2/compute",
        "add/rearrange",
        "add/compute",
        "relu2/compute",
    ]
    assert all(step.cycles > 0 < step.temporary_bytes for step in steps)


def test_memory_falls_and_time_grows_when_the_bound_tightens(
    graph_of: Any, node: Any, device: Device, options: Any
) -> None:
    graph = graph_of([node("MatMul", ["x:1x1024x768", (768, 3072)], (1, 1024, 3072))])
    tight, loose = (compile_range(graph, 0, 1, device, options(16, p)) for p in (0.2, 0.9))
    assert tight.temporary_bytes < loose.temporary_bytes
    assert tight.forward_cycles > loose.forward_cycles


def test_single_precision_takes_more_of_everything(graph_of: Any, node: Any, device: Device, options: Any) -> None:
    graph = residual_block(graph_of, node)
    formats = (Precision.FP16, Precision.FP32)
    half, single = (compile_range(graph, 0, 5, device, options(16, precision=p)) for p in formats)
    assert single.forward_cycles > half.forward_cycles
    assert single.exclusive["parameter"] == 2 * half.exclusive["parameter"]
    assert single.temporary_bytes > half.temporary_bytes


def test_temporaries_are_those_of_the_fullest_tile(graph_of: Any, node: Any, device: Device, options: Any) -> None:
    graph = graph_of([node("MatMul", ["x:1x16x64", (64, 32)], (1, 16, 32))])
    (cost,) = operator_costs(graph, LayerRange(0, 1), device, options())
    assert cost.n_tiles < device.n_tiles
    tensors = 2 * (16 * 64 + 16 * 32)
    full_tile = cost.working_bytes / cost.n_tiles
    compiled = compile_range(graph, 0, 1, device, options())
    assert compiled.temporary_bytes == pytest.approx(tensors + device.n_tiles * full_tile, abs=1)


@pytest.mark.parametrize(
    ("precision", "batch_size", "fits"), [("fp16", 64, True), ("fp32", 8, True), ("fp16", 512, False)]
)
def test_resnet_fits_at_the_batch_sizes_that_were_measured(
    device: Device, options: Any, precision: str, batch_size: int, fits: bool
) -> None:
    """Published up to 64 in fp16 and 8 in fp32 (data/measurements/throughput.json)."""
    graph = load_graph("resnet50")
    whole = compile_range(graph, 0, len(graph), device, options(batch_size, precision=Precision(precision)))
    assert (total(whole) <= device.n_tiles * device.tile_memory_bytes) == fits


def test_bert_large_fills_two_devices_as_its_profile_says(
    device: Device, options: Any, vectors: Callable[[str], Any]
) -> None:
    """The built-in model has three products and biases where the profiled one has a single product [popliner]."""
    graph = load_graph("bert-large-128")
    cut = next(i for i, layer in enumerate(graph.layers) if "layer.12." in layer.name)
    published = vectors("memory_popliner_profiles")["bert_large_seq128_inference"]["greedy_split_2_ipus_limit_350000"]
    for (start, stop), row in zip(((0, cut), (cut, len(graph))), published, strict=True):
        memory = compiled_bytes(compile_range(graph, start, stop, device, options()))
        assert memory["parameter"] + memory["temporary"] == pytest.approx(row["variables"], rel=0.05)
        assert memory["vertexCode"] == pytest.approx(row["vertex_code"], rel=0.2)
        assert memory["vertexInstanceState"] == pytest.approx(row["vertex_state"], rel=0.2)
        assert memory["controlCode"] == pytest.approx(row["control_code"], rel=0.2)
        assert sum(memory.values()) == pytest.approx(row["total"], rel=0.1)
        assert sum(memory.values()) / device.n_tiles == pytest.approx(row["max_tile"], rel=0.05)


def test_inference_has_no_backward_pass(graph_of: Any, node: Any, device: Device, options: Any) -> None:
    target: CompilingTarget = IpuTarget()
    compiled = target.compile(residual_block(graph_of, node), LayerRange(0, 5), device, options())
    assert compiled.backward_cycles == compiled.weight_cycles == compiled.activation_bytes == 0
    assert "gradient" not in compiled.exclusive
    assert target.version == IpuTarget().version


def test_training_adds_a_backward_pass_and_its_memory(graph_of: Any, node: Any, device: Device, options: Any) -> None:
    graph = residual_block(graph_of, node)
    inference, training = (compile_range(graph, 0, 5, device, options(8, training=mode)) for mode in (False, True))
    assert training.forward_cycles == inference.forward_cycles
    assert 0 < training.weight_cycles < training.backward_cycles
    assert training.exclusive["gradient"] == training.exclusive["parameter"] == 2 * 32 * 32 * 9 * 2
    for category in ("vertexCode", "vertexInstanceState", "controlCode", "internalExchangeCode"):
        assert compiled_bytes(training)[category] > compiled_bytes(inference)[category]
    assert training.backward_temporary_bytes > training.activation_bytes > inference.activation_bytes
