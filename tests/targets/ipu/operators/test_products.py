from collections.abc import Callable
from typing import Any

import pytest

from autoauto.records.units import Precision
from autoauto.targets.ipu.operator_cost import Family, OperatorContext
from autoauto.targets.ipu.operators import products
from autoauto.targets.ipu.operators.registry import forward_cost
from autoauto.targets.ipu.tiling.planner import Bounded, plan

MakeContext = Callable[..., OperatorContext]


def test_a_matrix_on_the_right_makes_one_large_product(context_of: MakeContext, node: Any) -> None:
    context = context_of(node("MatMul", ["x:1x128x768", (768, 3072)], (1, 128, 3072)), batch_size=4)
    assert products.matmul_product(context) == products.matrix_product(context, 1, 512, 768, 3072)


def test_attention_scores_are_one_product_a_head(context_of: MakeContext, node: Any) -> None:
    context = context_of(node("MatMul", ["x:1x12x128x64", "x:1x12x64x128"], (1, 12, 128, 128)), batch_size=2)
    assert products.matmul_product(context) == products.matrix_product(context, 24, 128, 64, 128)


def test_vectors_are_matrices_of_one_row_or_column(context_of: MakeContext, node: Any) -> None:
    context = context_of(node("MatMul", ["x:1x64", (64,)], (1,)))
    assert products.matmul_product(context) == products.matrix_product(context, 1, 1, 64, 1)


def test_gemm_reads_transposed_operands(context_of: MakeContext, node: Any) -> None:
    context = context_of(node("Gemm", ["x:1x2048", (1000, 2048), (1000,)], (1, 1000), transB=1), batch_size=8)
    assert products.gemm_product(context) == products.matrix_product(context, 1, 8, 2048, 1000)
    there = context_of(node("Gemm", [(5, 7), "x:5x3"], (7, 3), transA=1))
    assert products.gemm_product(there) == products.matrix_product(there, 1, 7, 5, 3)


@pytest.mark.parametrize(
    ("equation", "out", "expected"),
    [
        ("bik,bkj->bij", (2, 3, 7), (2, 3, 5, 7)),
        ("...ik, ...kj -> ...ij", (2, 3, 7), (2, 3, 5, 7)),
        ("bik,ckj->icj", (3, 2, 7), (1, 3, 10, 14)),
        ("bik,bkj", (3, 7), (1, 3, 10, 7)),
    ],
)
def test_einsum_finds_rows_inputs_and_outputs(
    context_of: MakeContext, node: Any, equation: str, out: tuple[int, ...], expected: tuple[int, int, int, int]
) -> None:
    context = context_of(node("Einsum", ["x:2x3x5", "x:2x5x7"], out, equation=equation))
    assert products.einsum_product(context) == products.matrix_product(context, *expected)


def test_single_precision_always_regroups_what_it_reads(context_of: MakeContext, node: Any) -> None:
    """It writes channels in sixteens and reads them in eights, so that no neighbour can save it the relayout."""
    matmul = node("MatMul", ["x:1x512x768", (768, 768)], (1, 512, 768))
    for precision, can_be_saved in ((Precision.FP16, True), (Precision.FP32, False)):
        context = context_of(matmul, precision=precision)
        cost = products.multiply(context, products.matmul_product, context.present)
        split = plan(Bounded(products.matmul_product(context), context.bound_bytes), context.n_tiles)
        assert cost.cycles == split.cycles
        assert bool(cost.relayouts) == can_be_saved
        taken = cost.working_bytes
        share = taken / (split.tile_bytes * split.n_tiles)
        assert share == pytest.approx(products.allocated_share(not can_be_saved), rel=1e-3)
    assert products.allocated_share(regroups=True) > products.allocated_share(regroups=False) > 1


@pytest.mark.parametrize("proportion", [0.02, 0.1, 0.6])
@pytest.mark.parametrize(
    ("op", "operands", "shape"),
    [
        ("MatMul", ["x:1x256x768", (768, 3072)], (1, 256, 3072)),
        ("MatMul", ["x:1x12x256x64", "x:1x12x64x256"], (1, 12, 256, 256)),
        ("Conv", ["x:1x64x56x56", (64, 64, 3, 3)], (1, 64, 56, 56)),
        ("Conv", ["x:1x3x224x224", (64, 3, 7, 7)], (1, 64, 224, 224)),
    ],
)
def test_neither_temporaries_nor_code_fall_when_the_batch_grows(
    op: str, operands: list[Any], shape: tuple[int, ...], proportion: float, context_of: MakeContext, node: Any
) -> None:
    layer = node(op, operands, shape)
    costs = [forward_cost(context_of(layer, n, proportion=proportion)) for n in range(1, 70)]
    bytes_a_tile = [cost.working_bytes / cost.n_tiles for cost in costs]
    assert bytes_a_tile == sorted(bytes_a_tile)
    assert bytes_a_tile[0] < bytes_a_tile[-1] or proportion == 0.02  # the bound is met from the first sample on
    sizes = [len(cost.codelets) for cost in costs]
    assert sizes == sorted(sizes)
    assert len({(cost.n_tiles, cost.n_sources) for cost in costs}) == 1


def test_fp8_runs_where_a_layer_is_marked(context_of: MakeContext, node: Any) -> None:
    operands, shape = ["x:1x2048x768", (768, 3072)], (1, 2048, 3072)
    marked = context_of(node("MatMul", operands, shape, precision="fp8"), precision=Precision.FP8)
    plain = context_of(node("MatMul", operands, shape), precision=Precision.FP8)
    assert products.matmul_product(marked).precision is Precision.FP8
    assert products.matmul_product(plain).precision is Precision.FP16
    quarter, half = (
        products.multiply(context, products.matmul_product, context.present) for context in (marked, plain)
    )
    assert 0.5 < quarter.cycles / half.cycles < 0.8


def test_only_activations_need_a_relayout(context_of: MakeContext, node: Any) -> None:
    context = context_of(node("MatMul", ["x:1x128x64", (64, 64)], (1, 128, 64)))
    cost = products.multiply(context, products.matmul_product, context.present)
    assert [relayout.tensor for relayout in cost.relayouts] == [context.layer.operands[0]]


def test_a_recurrent_layer_repeats_its_state_product(context_of: MakeContext, node: Any) -> None:
    def cycles(steps: int) -> int:
        weights = ((1, 512, 64), (1, 512, 128))
        return products.recurrent(context_of(node("LSTM", [f"x:{steps}x1x64", *weights], (steps, 1, 1, 128)))).cycles

    assert 10 * cycles(10) < cycles(100) + 10 * cycles(1) < 30 * cycles(10)
    assert cycles(100) > cycles(10) > cycles(1)


def test_a_product_that_breaks_the_bound_says_so(context_of: MakeContext, node: Any) -> None:
    context = context_of(node("MatMul", ["x:1x128x768", (768, 3072)], (1, 128, 3072)), proportion=0.001)
    assert not products.multiply(context, products.matmul_product).within_bound


def test_a_matrix_product_changes_roles(context_of: MakeContext, node: Any) -> None:
    context = context_of(node("MatMul", ["x:1x128x256", (256, 512)], (1, 128, 512)), batch_size=2)
    left, right = products.matrix_gradients(products.matmul_product)(context)
    assert (left.width, left.inputs, left.outputs) == (256, 512, 256)  # dY (256 x 512) by W^T
    assert (right.width, right.inputs, right.outputs) == (256, 256, 512)  # X^T (256 x 256) by dY


def test_a_square_product_is_its_own_gradients(context_of: MakeContext, node: Any) -> None:
    context = context_of(node("MatMul", ["x:1x512x512", (512, 512)], (1, 512, 512)))
    product = products.matmul_product(context)
    assert products.matrix_gradients(products.matmul_product)(context) == (product, product)


def test_attention_is_more_than_its_softmax(context_of: MakeContext, node: Any) -> None:
    heads = ["x:1x12x128x64"] * 3
    whole = forward_cost(context_of(node("Attention", heads, (1, 12, 128, 64))))
    flat = forward_cost(context_of(node("Attention", ["x:1x128x768"] * 3, (1, 128, 768), q_num_heads=12)))
    softmax = forward_cost(context_of(node("Softmax", ["x:1x12x128x128"], (1, 12, 128, 128))))
    assert whole.family is Family.PRODUCT
    assert whole.cycles == flat.cycles > softmax.cycles
