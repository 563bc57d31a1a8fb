from collections.abc import Callable
from typing import Any

import pytest

from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.profile import CompileOptions
from autoauto.records.units import Precision
from autoauto.targets.ipu.compile import works_of
from autoauto.targets.ipu.memory import exclusive_bytes, shared_bytes

X, SHAPE = "x:1x128x1024", (1, 128, 1024)
Options = Callable[..., CompileOptions]


def memory(graph: LayerGraph, device: Device, options: CompileOptions) -> tuple[dict[str, int], dict[str, int]]:
    layers = LayerRange(0, len(graph))
    works = works_of(graph, layers, device, options)
    return shared_bytes(works, device.n_tiles), exclusive_bytes(graph, layers, works, options)


def test_equal_codelets_are_stored_once(graph_of: Any, node: Any, device: Device, options: Options) -> None:
    one = graph_of([node("MatMul", [X, (1024, 1024)], SHAPE, "a")])
    two = graph_of([node("MatMul", [X, (1024, 1024)], SHAPE, "a"), node("MatMul", ["a", (1024, 1024)], SHAPE, "b")])
    (shared_one, own_one), (shared_two, own_two) = (memory(graph, device, options(2)) for graph in (one, two))
    assert shared_two == shared_one
    assert own_two == {name: 2 * n_bytes for name, n_bytes in own_one.items()}


def test_every_program_has_a_floor(graph_of: Any, node: Any, device: Device, options: Options) -> None:
    shared, own = memory(graph_of([node("Relu", [X], SHAPE, "a")]), device, options())
    assert shared["stack_program"] == 3168 * 1472
    assert {"controlCode_program", "vertexCode_program"} < shared.keys()
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


def test_a_layer_of_bert_large_needs_what_its_profile_says(
    graph_of: Any, node: Any, device: Device, options: Options, vectors: Callable[[str], Any]
) -> None:
    profile = vectors("memory_popliner_profiles")["bert_large_seq128_inference"]["layers"][3]
    shared, own = memory(graph_of(bert_layer(node, 0, X)), device, options(2))
    code = sum(n for key, n in shared.items() if key.startswith("vertexCode_"))
    assert own["vertexInstanceState"] == pytest.approx(profile["vertex_state"], rel=0.2)
    assert own["controlCode"] == pytest.approx(profile["control_code"], rel=0.2)
    assert own["internalExchangeCode"] == pytest.approx(profile["exchange_code"], rel=0.25)
    assert code == pytest.approx(profile["vertex_code"], rel=0.2)


def test_layers_share_code_as_in_the_profile(graph_of: Any, node: Any, device: Device, options: Options) -> None:
    first, second = bert_layer(node, 0, X), bert_layer(node, 1, "layer0")
    (one, _), (both, _) = (memory(graph_of(nodes), device, options(2)) for nodes in (first, first + second))
    assert both == one


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
