from collections.abc import Callable
from math import prod
from typing import Any

import pytest

from autoauto.records.units import Precision
from autoauto.targets.ipu.operator_cost import Site
from autoauto.targets.ipu.operators import products
from autoauto.targets.ipu.operators import products as factors
from autoauto.targets.ipu.tiling.planner import plan
from autoauto.targets.ipu.tiling.split import Engine, Product

MakeSite = Callable[..., Site]


def multiplications(product: Product) -> int:
    cells = product.groups * product.batch * product.height * product.width
    return cells * product.inputs * product.outputs * product.taps[0] * product.taps[1]


def test_a_matrix_on_the_right_makes_one_large_product(site: MakeSite, node: Any) -> None:
    here = site(node("MatMul", ["x:1x128x768", (768, 3072)], (1, 128, 3072)), batch_size=4)
    assert products.matmul(here) == products.gemm(here, 1, 512, 768, 3072)


def test_attention_scores_are_one_product_a_head(site: MakeSite, node: Any) -> None:
    here = site(node("MatMul", ["x:1x12x128x64", "x:1x12x64x128"], (1, 12, 128, 128)), batch_size=2)
    assert products.matmul(here) == products.gemm(here, 24, 128, 64, 128)


def test_vectors_are_matrices_of_one_row_or_column(site: MakeSite, node: Any) -> None:
    here = site(node("MatMul", ["x:1x64", (64,)], (1,)))
    assert products.matmul(here) == products.gemm(here, 1, 1, 64, 1)


def test_gemm_reads_transposed_operands(site: MakeSite, node: Any) -> None:
    here = site(node("Gemm", ["x:1x2048", (1000, 2048), (1000,)], (1, 1000), transB=1), batch_size=8)
    assert products.gemm_of(here) == products.gemm(here, 1, 8, 2048, 1000)
    there = site(node("Gemm", [(5, 7), "x:5x3"], (7, 3), transA=1))
    assert products.gemm_of(there) == products.gemm(there, 1, 7, 5, 3)


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
    site: MakeSite, node: Any, equation: str, out: tuple[int, ...], expected: tuple[int, int, int, int]
) -> None:
    here = site(node("Einsum", ["x:2x3x5", "x:2x5x7"], out, equation=equation))
    assert products.einsum(here) == products.gemm(here, *expected)


def test_a_kernel_of_one_tap_is_a_product_of_rows(site: MakeSite, node: Any) -> None:
    here = site(node("Conv", ["x:1x64x56x56", (256, 64, 1, 1)], (1, 256, 56, 56)), batch_size=2)
    assert products.convolution(here) == products.gemm(here, 1, 2 * 56 * 56, 64, 256)


def test_a_stride_without_a_kernel_picks_rows(site: MakeSite, node: Any) -> None:
    here = site(node("Conv", ["x:1x64x56x56", (128, 64, 1, 1)], (1, 128, 28, 28), strides=(2, 2)))
    assert products.convolution(here) == products.gemm(here, 1, 28 * 28, 64, 128)


def test_single_precision_always_regroups_what_it_reads(site: MakeSite, node: Any) -> None:
    """It writes channels in sixteens and reads them in eights, so that no neighbour can spare it the copy."""
    matmul = node("MatMul", ["x:1x512x768", (768, 768)], (1, 512, 768))
    for precision, is_spared in ((Precision.FP16, True), (Precision.FP32, False)):
        here = site(matmul, precision=precision)
        work = products.multiply(here, products.matmul(here), here.present)
        split = plan(products.matmul(here), here.n_tiles, here.bound_bytes)
        regroup = 0 if is_spared else products.rearrange(here, here.present[0]).cycles
        assert work.cycles == split.cycles + regroup
        assert bool(work.demands) == is_spared


def test_fp8_runs_where_a_layer_is_marked(site: MakeSite, node: Any) -> None:
    operands, shape = ["x:1x2048x768", (768, 3072)], (1, 2048, 3072)
    marked = site(node("MatMul", operands, shape, precision="fp8"), precision=Precision.FP8)
    plain = site(node("MatMul", operands, shape), precision=Precision.FP8)
    assert products.matmul(marked).precision is Precision.FP8
    assert products.matmul(plain).precision is Precision.FP16
    quarter, half = (products.multiply(here, products.matmul(here), here.present) for here in (marked, plain))
    assert 0.5 < quarter.cycles / half.cycles < 0.8


def test_few_channels_are_unrolled_with_the_kernel(site: MakeSite, node: Any) -> None:
    here = site(node("Conv", ["x:1x3x224x224", (64, 3, 7, 7)], (1, 64, 112, 112), strides=(2, 2)))
    assert products.convolution(here) == products.gemm(here, 1, 112 * 112, 147, 64)


def test_a_large_kernel_keeps_its_field(site: MakeSite, node: Any) -> None:
    here = site(node("Conv", ["x:1x64x56x56", (128, 64, 3, 3)], (1, 128, 28, 28), strides=(2, 2)))
    product = products.convolution(here)
    assert (product.engine, product.height, product.width) == (Engine.CONVOLUTION, 28, 28)
    assert (product.taps, product.stride) == ((3, 3), (2, 2))


def test_depthwise_convolutions_avoid_the_matrix_units(site: MakeSite, node: Any) -> None:
    depthwise = node("Conv", ["x:1x32x28x28", (32, 1, 3, 3)], (1, 32, 28, 28), group=32)
    half = products.convolution(site(depthwise))
    single = products.convolution(site(depthwise, precision=Precision.FP32))
    assert (half.engine, half.groups) == (Engine.SLIDING_WINDOW, 8)
    assert (single.engine, single.groups) == (Engine.VECTOR, 8)


def test_one_and_three_spatial_axes(site: MakeSite, node: Any) -> None:
    line = products.convolution(site(node("Conv", ["x:1x32x100", (64, 32, 5)], (1, 64, 100))))
    assert (line.height, line.width, line.taps) == (1, 100, (1, 5))
    solid = products.convolution(site(node("Conv", ["x:1x32x4x6x8", (64, 32, 3, 3, 3)], (1, 64, 4, 6, 8))))
    assert (solid.batch, solid.height, solid.width, solid.inputs) == (4, 6, 8, 96)
    assert multiplications(solid) == 4 * 6 * 8 * 64 * 32 * 27


def test_a_transposed_convolution_multiplies_every_input_with_every_tap(site: MakeSite, node: Any) -> None:
    here = site(node("ConvTranspose", ["x:1x64x14x14", (64, 32, 4, 4)], (1, 32, 28, 28), strides=(2, 2)))
    assert multiplications(products.transposed_convolution(here)) == 14 * 14 * 64 * 32 * 16


def test_only_activations_are_rearranged(site: MakeSite, node: Any) -> None:
    here = site(node("MatMul", ["x:1x128x64", (64, 64)], (1, 128, 64)))
    work = products.multiply(here, products.matmul(here), here.present)
    assert [demand.tensor for demand in work.demands] == [here.layer.operands[0]]


def test_a_recurrent_layer_repeats_its_state_product(site: MakeSite, node: Any) -> None:
    def cycles(steps: int) -> int:
        weights = ((1, 512, 64), (1, 512, 128))
        return products.recurrent(site(node("LSTM", [f"x:{steps}x1x64", *weights], (steps, 1, 1, 128)))).cycles

    assert 10 * cycles(10) < cycles(100) + 10 * cycles(1) < 30 * cycles(10)
    assert cycles(100) > cycles(10) > cycles(1)


def test_a_product_that_breaks_the_bound_says_so(site: MakeSite, node: Any) -> None:
    here = site(node("MatMul", ["x:1x128x768", (768, 3072)], (1, 128, 3072)), proportion=0.001)
    assert not products.multiply(here, products.matmul(here)).within_bound


def n_multiplications(product: Product) -> int:
    field = product.batch * product.height * product.width
    return product.groups * field * product.inputs * product.outputs * prod(product.taps)


def test_a_matrix_product_changes_roles(site: MakeSite, node: Any) -> None:
    product = products.matmul(site(node("MatMul", ["x:1x128x256", (256, 512)], (1, 128, 512)), batch_size=2))
    left, right = factors.of_gemm(product)
    assert (left.width, left.inputs, left.outputs) == (256, 512, 256)  # dY (256 x 512) by W^T
    assert (right.width, right.inputs, right.outputs) == (256, 256, 512)  # X^T (256 x 256) by dY


def test_a_square_product_is_its_own_gradients(site: MakeSite, node: Any) -> None:
    product = products.matmul(site(node("MatMul", ["x:1x512x512", (512, 512)], (1, 512, 512))))
    assert factors.of_gemm(product) == (product, product)


@pytest.mark.parametrize(
    ("kernel", "field", "attributes"),
    [
        ((64, 32, 3, 3), 28, {"strides": (1, 1)}),
        ((64, 32, 3, 3), 14, {"strides": (2, 2)}),
        ((64, 32, 1, 1), 28, {"strides": (1, 1)}),
        ((64, 32, 1, 1), 14, {"strides": (2, 2)}),
        ((64, 16, 3, 3), 28, {"strides": (1, 1), "group": 2}),
    ],
)
def test_the_gradients_of_a_convolution_multiply_as_much_as_it_does(
    site: MakeSite, node: Any, kernel: tuple[int, ...], field: int, attributes: Any
) -> None:
    here = site(node("Conv", ["x:1x32x28x28", kernel], (1, 64, field, field), **attributes), batch_size=3)
    forward, gradients = products.convolution(here), factors.of_convolution(here)
    assert [n_multiplications(product) for product in gradients] == [n_multiplications(forward)] * 2
    assert (gradients.left.inputs, gradients.left.outputs) == (forward.outputs, forward.inputs)
    assert (gradients.right.inputs, gradients.right.outputs) == (3 * field * field, forward.outputs)


def test_all_kernel_positions_look_at_the_same_inputs(site: MakeSite, node: Any) -> None:
    here = site(node("Conv", ["x:1x32x28x28", (64, 32, 5, 5)], (1, 64, 28, 28)))
    right = factors.of_convolution(here).right
    assert (right.batch, right.height, right.width) == (32, 5, 5)
    assert right.reach(right.height, 0) * right.reach(right.width, 1) == 1


def test_narrow_groups_stay_on_the_tiles_vectors(site: MakeSite, node: Any) -> None:
    here = site(node("Conv", ["x:1x32x28x28", (32, 1, 3, 3)], (1, 32, 28, 28), group=32))
    left, right = factors.of_convolution(here)
    assert (left.engine, right.engine) == (Engine.SLIDING_WINDOW, Engine.VECTOR)


def test_a_transposed_convolution_is_the_gradient_of_one(site: MakeSite, node: Any) -> None:
    down = site(node("Conv", ["x:1x32x28x28", (64, 32, 2, 2)], (1, 64, 14, 14), strides=(2, 2)))
    up = site(node("ConvTranspose", ["x:1x64x14x14", (64, 32, 2, 2)], (1, 32, 28, 28), strides=(2, 2)))
    left, right = factors.of_transposed_convolution(up)
    assert left == products.convolution(down)
    assert right == factors.of_convolution(down).right
