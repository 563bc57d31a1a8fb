"""Operators of ONNX Runtime cost what the standard operators in them cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from autoauto.targets.ipu.operator_cost import OperatorContext, together
from autoauto.targets.ipu.operators.elementwise import one_pass
from autoauto.targets.ipu.operators.registry import forward_cost

MakeContext = Callable[..., OperatorContext]

IMAGE, KERNEL = "x:4x32x28x28", (64, 32, 3, 3)
TOKENS = "x:1x128x768"


def cycles(context: OperatorContext) -> int:
    return forward_cost(context).cycles


def test_a_fused_convolution_is_a_convolution_and_a_pass(context_of: MakeContext, node: Any) -> None:
    operands, shape = [IMAGE, KERNEL, (64,)], (4, 64, 28, 28)
    plain = context_of(node("Conv", operands, shape))
    fused = context_of(node("FusedConv", operands, shape, activation="Relu"))
    relu = one_pass(plain, plain.n_out, ("relu",), 1)
    assert cycles(fused) == together(forward_cost(plain), relu).cycles
    assert cycles(context_of(node("FusedConv", operands, shape))) == cycles(plain)
    in_blocks = context_of(node("com.microsoft.nchwc.Conv", operands, shape, activation="Relu"))
    assert cycles(in_blocks) == cycles(fused)


def test_channels_may_lie_last(context_of: MakeContext, node: Any) -> None:
    plain = context_of(node("Conv", [IMAGE, KERNEL], (4, 64, 28, 28)))
    last = context_of(node("NhwcConv", ["x:4x28x28x32", KERNEL], (4, 28, 28, 64)))
    assert cycles(last) == cycles(plain)
    pooled = context_of(node("MaxPool", [IMAGE], (4, 32, 14, 14), kernel_shape=(2, 2), strides=(2, 2)))
    pooled_last = context_of(
        node("NhwcMaxPool", ["x:4x28x28x32"], (4, 14, 14, 32), kernel_shape=(2, 2), strides=(2, 2))
    )
    assert cycles(pooled_last) == cycles(pooled)


def test_turned_factors_cost_no_more(context_of: MakeContext, node: Any) -> None:
    plain = context_of(node("MatMul", [TOKENS, (768, 3072)], (1, 128, 3072)))
    turned = context_of(node("FusedMatMul", [TOKENS, (3072, 768)], (1, 128, 3072), transB=1))
    assert cycles(turned) == cycles(plain)


def test_packed_weights_are_unpacked_first(context_of: MakeContext, node: Any) -> None:
    plain = context_of(node("MatMul", [TOKENS, (768, 3072)], (1, 128, 3072)))
    packed = context_of(node("MatMulNBits", [TOKENS, (3072, 24, 16), (73728,)], (1, 128, 3072), K=768, N=3072))
    unpacking = one_pass(plain, 768 * 3072, ("cast", "add", "add"))
    assert cycles(packed) == together(forward_cost(plain), unpacking).cycles


def test_a_sum_and_its_norm(context_of: MakeContext, node: Any) -> None:
    norm = context_of(node("LayerNormalization", [TOKENS, (768,), (768,)], (1, 128, 768)))
    fused = context_of(node("SkipLayerNormalization", [TOKENS, TOKENS, (768,), (768,)], (1, 128, 768)))
    assert cycles(fused) == cycles(norm) + one_pass(norm, norm.n_out, ("add",)).cycles
    simple = context_of(node("SimplifiedLayerNormalization", [TOKENS, (768,)], (1, 128, 768)))
    assert cycles(simple) == cycles(context_of(node("RMSNormalization", [TOKENS, (768,)], (1, 128, 768))))


def test_attention_of_one_input_has_its_projection(context_of: MakeContext, node: Any) -> None:
    heads = "x:1x12x128x64"
    apart = context_of(node("Attention", [heads, heads, heads], (1, 12, 128, 64)))
    projection = context_of(node("MatMul", [TOKENS, (768, 2304)], (1, 128, 2304)))
    merged = context_of(node("com.microsoft.Attention", [TOKENS, (768, 2304), (2304,)], (1, 128, 768), num_heads=12))
    bias = one_pass(projection, 128 * 2304, ("add",))
    assert cycles(merged) == cycles(apart) + cycles(projection) + bias.cycles
    several = context_of(node("MultiHeadAttention", [TOKENS] * 3, (1, 128, 768), num_heads=12))
    assert cycles(several) == cycles(apart)


@pytest.mark.parametrize("op", ["GroupQueryAttention", "DecoderMaskedMultiHeadAttention"])
def test_a_longer_past_costs_more(op: str, context_of: MakeContext, node: Any) -> None:
    position = 3 if op.startswith("Group") else 5
    made = []
    for length in (128, 1024):
        operands: list[Any] = [TOKENS, TOKENS, TOKENS, "", "", ""]
        operands[position] = f"x:1x12x{length}x64"
        made.append(context_of(node(op, operands, (1, 128, 768), num_heads=12, kv_num_heads=12)))
    few, many = map(cycles, made)
    assert few < many


def test_quantised_products_cost_their_scales_more(context_of: MakeContext, node: Any) -> None:
    integers = context_of(node("MatMulInteger", [TOKENS, (768, 768)], (1, 128, 768)))
    scaled = context_of(node("MatMulIntegerToFloat", [TOKENS, (768, 768), (1,), (1,)], (1, 128, 768)))
    dynamic = context_of(node("DynamicQuantizeMatMul", [TOKENS, (768, 768), (1,)], (1, 128, 768)))
    assert cycles(integers) < cycles(scaled) < cycles(dynamic)


def test_a_namesake_of_another_domain_has_a_price_of_its_own(context_of: MakeContext, node: Any) -> None:
    for op in ("Gelu", "RotaryEmbedding", "QuantizeLinear"):
        plain, other = (context_of(node(name, [TOKENS], (1, 128, 768))) for name in (op, f"com.microsoft.{op}"))
        assert cycles(plain) == cycles(other)


def test_long_transforms_take_two_products(context_of: MakeContext, node: Any) -> None:
    short, long = (context_of(node("DFT", [f"x:1x4x{length}x2"], (1, 4, length, 2))) for length in (1000, 16000))
    whole = context_of(node("MatMul", ["x:1x4x32000", (32000, 32000)], (1, 4, 32000)))
    assert cycles(short) < cycles(long) < cycles(whole)


def test_more_trees_cost_more(context_of: MakeContext, node: Any) -> None:
    few, many = (
        context_of(
            node(
                "TreeEnsembleRegressor",
                ["x:1000x64"],
                (1000, 1),
                nodes_treeids=tuple(range(n_trees)) * 15,
                nodes_featureids=(0,) * 15 * n_trees,
            )
        )
        for n_trees in (10, 1000)
    )
    assert cycles(few) < cycles(many)
