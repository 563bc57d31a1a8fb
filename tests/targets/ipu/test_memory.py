from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from autoauto.records.costs.memory import compiled_bytes
from autoauto.records.costs.options import CompileOptions
from autoauto.records.errors import OutOfMemory
from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.units import Precision
from autoauto.targets.ipu.memory import check_code, program_bytes, shared_bytes, weight_bytes
from autoauto.targets.ipu.operator_cost import PricedRange
from autoauto.targets.ipu.target import IpuTarget, operator_costs

X, SHAPE = "x:1x128x1024", (1, 128, 1024)
Options = Callable[..., CompileOptions]


def memory(graph: LayerGraph, device: Device, options: CompileOptions) -> tuple[dict[str, int], dict[str, int]]:
    layers = LayerRange(0, len(graph))
    costs = operator_costs(graph, layers, device, options)
    shared = shared_bytes([layer.kind for layer in graph.layers], costs, device.n_tiles)
    return shared, program_bytes(costs) | weight_bytes(PricedRange(graph, layers, costs, device, options))


def test_equal_codelets_are_stored_once(graph_of: Any, node: Any, device: Device, options: Options) -> None:
    single = graph_of([node("MatMul", [X, (1024, 1024)], SHAPE, "a")])
    double = graph_of([node("MatMul", [X, (1024, 1024)], SHAPE, "a"), node("MatMul", ["a", (1024, 1024)], SHAPE, "b")])
    (shared, own), (shared_by_both, own_of_both) = (memory(graph, device, options(2)) for graph in (single, double))
    assert shared_by_both == shared
    assert own_of_both == {name: 2 * n_bytes for name, n_bytes in own.items()}


def test_costs_of_a_kind_share_the_largest_of_them(graph_of: Any, node: Any, device: Device, options: Options) -> None:
    graph = graph_of([node("MatMul", [X, (1024, 1024)], SHAPE, "a")])
    (large,) = operator_costs(graph, LayerRange(0, 1), device, options())
    small = large._replace(n_sources=1)
    both = [shared_bytes(["kind", "kind"], costs, device.n_tiles) for costs in ((small, large), (large, small))]
    assert both[0] == both[1] == shared_bytes(["kind"], [large], device.n_tiles)


def test_every_program_has_a_floor(graph_of: Any, node: Any, device: Device, options: Options) -> None:
    shared, own = memory(graph_of([node("Relu", [X], SHAPE, "a")]), device, options())
    assert shared["stack_program"] == 3168 * 1472
    assert {"hostExchangeCode_program", "vertexCode_program"} < shared.keys()
    assert own["parameter"] == own["internalExchangeCode"] == 0


def test_a_weight_counts_once(graph_of: Any, node: Any, device: Device, options: Options) -> None:
    graph = graph_of([node("MatMul", [X, (1024, 1024)], SHAPE, "a")])
    assert memory(graph, device, options())[1]["parameter"] == 2 * 1024 * 1024
    assert memory(graph, device, options(precision=Precision.FP32))[1]["parameter"] == 4 * 1024 * 1024


def bert_layer(node: Any, number: int, x: str) -> list[Any]:
    """One encoder of BERT-large as PopART builds it: queries, keys and values in one product."""
    hidden, wide, scores = (1, 128, 1024), (1, 128, 4096), (1, 16, 128, 128)

    def named(name: str) -> str:
        return f"{name}{number}"

    return [
        node("MatMul", [x, (1024, 3072)], (1, 128, 3072), named("qkv")),
        node("Transpose", [named("qkv")], (1, 128, 3072), named("heads"), perm=(0, 2, 1, 3)),
        node("MatMul", ["x:1x16x128x64", "x:1x16x64x128"], scores, named("scores")),
        node("Mul", [named("scores"), (1,)], scores, named("scaled")),
        node("Add", [named("scaled"), "x:1x1x1x128"], scores, named("masked")),
        node("Softmax", [named("masked")], scores, named("soft"), axis=-1),
        node("MatMul", [named("soft"), "x:1x16x128x64"], (1, 16, 128, 64), named("mixed")),
        node("Transpose", [named("mixed")], hidden, named("joined"), perm=(0, 2, 1, 3)),
        node("MatMul", [named("joined"), (1024, 1024)], hidden, named("out")),
        node("Add", [named("out"), x], hidden, named("sum")),
        node("LayerNormalization", [named("sum"), (1024,), (1024,)], hidden, named("norm")),
        node("MatMul", [named("norm"), (1024, 4096)], wide, named("up")),
        node("Add", [named("up"), (4096,)], wide, named("bias")),
        node("Gelu", [named("bias")], wide, named("gelu")),
        node("MatMul", [named("gelu"), (4096, 1024)], hidden, named("down")),
        node("Add", [named("down"), (1024,)], hidden, named("bias2")),
        node("Add", [named("bias2"), named("norm")], hidden, named("sum2")),
        node("LayerNormalization", [named("sum2"), (1024,), (1024,)], hidden, named("layer")),
    ]


@pytest.fixture(scope="module")
def encoders(graph_of: Any, node: Any) -> LayerGraph:
    """Half of BERT-large, what the profile's second device runs."""
    nodes, x = [], X
    for number in range(12):
        nodes += bert_layer(node, number, x)
        x = f"layer{number}"
    graph: LayerGraph = graph_of(nodes)
    return graph


def test_a_layer_of_bert_large_needs_what_its_profile_says(
    encoders: LayerGraph, device: Device, options: Options, vectors: Callable[[str], Any]
) -> None:
    first, *_, later = vectors("memory_popliner_profiles")["bert_large_seq128_inference"]["layers"][1:5]
    compiled = IpuTarget().compile(encoders, LayerRange(0, 18), device, options(1))
    bytes_of, own = compiled_bytes(compiled), compiled.exclusive
    assert own["vertexInstanceState"] == pytest.approx(later["vertex_state"], rel=0.2)
    assert own["controlCode"] == pytest.approx(later["control_code"], rel=0.2)
    assert own["internalExchangeCode"] == pytest.approx(later["exchange_code"], rel=0.2)
    assert bytes_of["vertexCode"] == pytest.approx(later["vertex_code"], rel=0.2)
    assert bytes_of["parameter"] + bytes_of["temporary"] == pytest.approx(later["variables"], rel=0.1)
    assert own["internalExchangeCode"] < 0.5 * bytes_of["internalExchangeCode"] < 0.5 * first["exchange_code"]


def test_half_of_bert_large_fills_its_fullest_tile_as_its_profile_says(
    encoders: LayerGraph, device: Device, options: Options, vectors: Callable[[str], Any]
) -> None:
    published = vectors("memory_popliner_profiles")["bert_large_seq128_inference"]["greedy_split_2_ipus_limit_350000"][
        1
    ]
    compiled = compiled_bytes(IpuTarget().compile(encoders, LayerRange(0, len(encoders)), device, options(1)))
    assert compiled["vertexInstanceState"] == pytest.approx(published["vertex_state"], rel=0.2)
    assert compiled["vertexCode"] == pytest.approx(published["vertex_code"], rel=0.2)
    assert compiled["internalExchangeCode"] == pytest.approx(published["exchange_code"], rel=0.2)
    assert compiled["controlCode"] == pytest.approx(published["control_code"], rel=0.2)
    assert compiled["parameter"] + compiled["temporary"] == pytest.approx(published["variables"], rel=0.1)
    assert sum(compiled.values()) / device.n_tiles == pytest.approx(published["max_tile"], rel=0.1)


def test_state_counts_edges_and_control_code_counts_steps(
    graph_of: Any, node: Any, device: Device, options: Options
) -> None:
    """In place: a vertex with one pointer and one compute set; a mask: two pointers, and an exchange before it."""
    scores = (1, 16, 128, 128)
    scaled = memory(graph_of([node("Mul", ["x:1x16x128x128", (1,)], scores)]), device, options())[1]
    masked = memory(graph_of([node("Add", ["x:1x16x128x128", "x:1x1x1x128"], scores)]), device, options())[1]
    assert scaled["vertexInstanceState"] == (8 + 4) * 1472
    assert scaled["controlCode"] == 20 * 1472
    assert scaled["internalExchangeCode"] == 0
    assert masked["vertexInstanceState"] == (8 + 2 * 4) * 1472
    assert masked["controlCode"] == (20 + 4) * 1472
    assert masked["internalExchangeCode"] > 0


def test_a_view_needs_no_vertices(graph_of: Any, node: Any, device: Device, options: Options) -> None:
    graph = graph_of([node("Transpose", [X], (1, 1024, 128), perm=(0, 2, 1))])
    assert sum(memory(graph, device, options())[1].values()) == 0


def test_equal_layers_share_most_of_their_exchange_code(
    graph_of: Any, node: Any, device: Device, options: Options
) -> None:
    nodes = [node("MatMul", [X, (1024, 1024)], SHAPE, "a"), node("MatMul", ["a", (1024, 1024)], SHAPE, "b")]
    single, double = (
        compiled_bytes(IpuTarget().compile(graph_of(nodes[:n]), LayerRange(0, n), device, options())) for n in (1, 2)
    )
    assert double["internalExchangeCode"] == pytest.approx(4 / 3 * single["internalExchangeCode"], rel=0.01)


def test_weights_on_some_tiles_leave_the_others_empty(
    graph_of: Any, node: Any, device: Device, options: Options
) -> None:
    """4096 elements in grains of 8 lie on 512 tiles; on a device as full as those, 1472 / 512 times as many would."""
    own = memory(graph_of([node("Mul", ["x:1x64x64", (64, 64)], (1, 64, 64))]), device, options())[1]
    assert own["parameter"] == 2 * 64 * 64
    assert own["imbalance"] == 2 * 64 * 64 * 1472 // 512 - own["parameter"]


def test_more_code_than_a_tile_can_run_does_not_fit(graph_of: Any, node: Any, device: Device, options: Options) -> None:
    names = [X, *map(str, range(1400))]
    graph = graph_of([node("Softmax", [x], SHAPE, y) for x, y in pairwise(names)])
    fitting = IpuTarget().compile(graph, LayerRange(0, 1000), device, options())
    assert sum(compiled_bytes(fitting).values()) < device.memory_bytes
    with pytest.raises(OutOfMemory, match=r"layers \[0, 1400\) need 2\d\d\.\d KiB of code .* 208\.0 KiB") as refused:
        IpuTarget().compile(graph, LayerRange(0, 1400), device, options())
    assert sum(refused.value.memory_bytes.values()) < device.memory_bytes
    assert refused.value.excess_bytes > 0


def test_only_code_counts_towards_the_code_region(device: Device) -> None:
    region = 208 * 1024 * device.n_tiles
    check_code(LayerRange(0, 1), {"parameter": 3 * region, "vertexCode": region}, device)
    with pytest.raises(OutOfMemory):
        check_code(LayerRange(0, 1), {"controlCode": 1, "vertexCode": region}, device)


def test_layers_share_code_as_in_the_profile(graph_of: Any, node: Any, device: Device, options: Options) -> None:
    first, second = bert_layer(node, 0, X), bert_layer(node, 1, "layer0")
    (single, _), (both, _) = (memory(graph_of(nodes), device, options(2)) for nodes in (first, first + second))
    assert both == single


def test_a_dense_layer_needs_the_code_of_its_profile(
    graph_of: Any, node: Any, device: Device, options: Options, vectors: Callable[[str], Any]
) -> None:
    profile = vectors("memory_popliner_profiles")["auto_pipeline_dense_4096x1024_bs16_fp32"]
    graph = graph_of([node("Gemm", ["x:1x4096", (4096, 1024), (1024,)], (1, 1024))])
    shared, own = memory(graph, device, options(16, precision=Precision.FP32))
    code = sum(n for key, n in shared.items() if key.startswith("vertexCode_"))
    assert code == pytest.approx(profile["vertexCode"], rel=profile["tolerance"])
    assert own["parameter"] == pytest.approx(profile["parameter"], rel=profile["tolerance"])


@pytest.mark.parametrize(
    ("op", "codelet", "n_bytes"),
    [
        ("Relu", "relu_fp16", 120 + 60),
        ("Swish", "sigmoid+add_fp16", 120 + 2 * 60),
        ("Softplus", "exponent+add+logarithm_fp16", 120 + 3 * 60),
        ("Elu", "exponent+add+compare+add+select_fp16", 120 + 5 * 60),
        ("Exp", "exponent_fp16", 230),
    ],
)
def test_a_generated_codelet_needs_code_for_every_loop(
    op: str, codelet: str, n_bytes: int, graph_of: Any, node: Any, device: Device, options: Options
) -> None:
    shared, _ = memory(graph_of([node(op, [X], SHAPE)]), device, options())
    assert shared[f"vertexCode_{codelet}"] == n_bytes * 1472


def test_broadcasting_and_precision_are_no_loops(graph_of: Any, node: Any, device: Device, options: Options) -> None:
    graph = graph_of([node("Add", [X, (1024,)], SHAPE)])
    for precision in (Precision.FP16, Precision.FP32):
        shared, _ = memory(graph, device, options(precision=precision))
        assert shared[f"vertexCode_add_broadcast_{precision}"] == (120 + 60) * 1472


def test_exponentials_share_the_codelet_of_softmax(graph_of: Any, node: Any, device: Device, options: Options) -> None:
    apart, both = [node("Softmax", [X], SHAPE, "a")], [node("Softmax", [X], SHAPE, "a"), node("Exp", ["a"], SHAPE, "b")]
    assert memory(graph_of(both), device, options())[0] == memory(graph_of(apart), device, options())[0]
