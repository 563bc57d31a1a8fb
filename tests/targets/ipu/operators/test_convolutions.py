from collections.abc import Callable
from math import prod
from typing import Any

import pytest

from autoauto.records.units import Precision
from autoauto.targets.ipu.operator_cost import OperatorContext
from autoauto.targets.ipu.operators import convolutions, products
from autoauto.targets.ipu.operators.registry import forward_cost
from autoauto.targets.ipu.tiling.split import Product, ProductCodelet

MakeContext = Callable[..., OperatorContext]

IMAGE = "x:1x32x28x28"


def multiplications(product: Product) -> int:
    field = product.batch * product.height * product.width
    return product.groups * field * product.inputs * product.outputs * prod(product.taps)


def test_a_kernel_of_one_tap_is_a_product_of_rows(context_of: MakeContext, node: Any) -> None:
    context = context_of(node("Conv", ["x:1x64x56x56", (256, 64, 1, 1)], (1, 256, 56, 56)), batch_size=2)
    assert convolutions.convolution_product(context) == products.matrix_product(context, 1, 2 * 56 * 56, 64, 256)


def test_a_stride_without_a_kernel_picks_rows(context_of: MakeContext, node: Any) -> None:
    context = context_of(node("Conv", ["x:1x64x56x56", (128, 64, 1, 1)], (1, 128, 28, 28), strides=(2, 2)))
    assert convolutions.convolution_product(context) == products.matrix_product(context, 1, 28 * 28, 64, 128)


def test_few_channels_are_unrolled_with_the_kernel(context_of: MakeContext, node: Any) -> None:
    context = context_of(node("Conv", ["x:1x3x224x224", (64, 3, 7, 7)], (1, 64, 112, 112), strides=(2, 2)))
    assert convolutions.convolution_product(context) == products.matrix_product(context, 1, 112 * 112, 147, 64)


def test_a_large_kernel_keeps_its_field(context_of: MakeContext, node: Any) -> None:
    context = context_of(node("Conv", ["x:1x64x56x56", (128, 64, 3, 3)], (1, 128, 28, 28), strides=(2, 2)))
    product = convolutions.convolution_product(context)
    assert (product.engine, product.height, product.width) == (ProductCodelet.CONVOLUTION, 28, 28)
    assert (product.taps, product.stride) == ((3, 3), (2, 2))


def test_depthwise_convolutions_avoid_the_matrix_units(context_of: MakeContext, node: Any) -> None:
    depthwise = node("Conv", ["x:1x32x28x28", (32, 1, 3, 3)], (1, 32, 28, 28), group=32)
    half = convolutions.convolution_product(context_of(depthwise))
    single = convolutions.convolution_product(context_of(depthwise, precision=Precision.FP32))
    assert (half.engine, half.groups) == (ProductCodelet.SLIDING_WINDOW, 8)
    assert (single.engine, single.groups) == (ProductCodelet.VECTOR, 8)


def test_one_and_three_spatial_axes(context_of: MakeContext, node: Any) -> None:
    line = convolutions.convolution_product(context_of(node("Conv", ["x:1x32x100", (64, 32, 5)], (1, 64, 100))))
    assert (line.height, line.width, line.taps) == (1, 100, (1, 5))
    solid = convolutions.convolution_product(
        context_of(node("Conv", ["x:1x32x4x6x8", (64, 32, 3, 3, 3)], (1, 64, 4, 6, 8)))
    )
    assert (solid.batch, solid.height, solid.width, solid.inputs) == (4, 6, 8, 96)
    assert multiplications(solid) == 4 * 6 * 8 * 64 * 32 * 27


def test_a_transposed_convolution_multiplies_every_input_with_every_tap(context_of: MakeContext, node: Any) -> None:
    context = context_of(node("ConvTranspose", ["x:1x64x14x14", (64, 32, 4, 4)], (1, 32, 28, 28), strides=(2, 2)))
    assert multiplications(convolutions.transposed_convolution_product(context)) == 14 * 14 * 64 * 32 * 16


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
    context_of: MakeContext, node: Any, kernel: tuple[int, ...], field: int, attributes: Any
) -> None:
    context = context_of(node("Conv", ["x:1x32x28x28", kernel], (1, 64, field, field), **attributes), batch_size=3)
    forward, gradients = convolutions.convolution_product(context), convolutions.convolution_gradients(context)
    assert [multiplications(product) for product in gradients] == [multiplications(forward)] * 2
    assert (gradients.left.inputs, gradients.left.outputs) == (forward.outputs, forward.inputs)
    assert (gradients.right.inputs, gradients.right.outputs) == (3 * field * field, forward.outputs)


def test_all_kernel_positions_look_at_the_same_inputs(context_of: MakeContext, node: Any) -> None:
    context = context_of(node("Conv", ["x:1x32x28x28", (64, 32, 5, 5)], (1, 64, 28, 28)))
    right = convolutions.convolution_gradients(context).right
    assert (right.batch, right.height, right.width) == (32, 5, 5)
    assert right.reach(right.height, 0) * right.reach(right.width, 1) == 1


def test_narrow_groups_stay_on_the_tiles_vectors(context_of: MakeContext, node: Any) -> None:
    context = context_of(node("Conv", ["x:1x32x28x28", (32, 1, 3, 3)], (1, 32, 28, 28), group=32))
    left, right = convolutions.convolution_gradients(context)
    assert (left.engine, right.engine) == (ProductCodelet.SLIDING_WINDOW, ProductCodelet.VECTOR)


def test_a_transposed_convolution_is_the_gradient_of_one(context_of: MakeContext, node: Any) -> None:
    down = context_of(node("Conv", ["x:1x32x28x28", (64, 32, 2, 2)], (1, 64, 14, 14), strides=(2, 2)))
    up = context_of(node("ConvTranspose", ["x:1x64x14x14", (64, 32, 2, 2)], (1, 32, 28, 28), strides=(2, 2)))
    left, right = convolutions.transposed_convolution_gradients(up)
    assert left == convolutions.convolution_product(down)
    assert right == convolutions.convolution_gradients(down).right


def test_a_bias_is_added_after_a_convolution(context_of: MakeContext, node: Any) -> None:
    plain = forward_cost(context_of(node("Conv", [IMAGE, (64, 32, 3, 3)], (1, 64, 28, 28))))
    biased = forward_cost(context_of(node("Conv", [IMAGE, (64, 32, 3, 3), (64,)], (1, 64, 28, 28))))
    assert biased.cycles > plain.cycles
    assert set(biased.codelets) > set(plain.codelets)


def test_a_pooling_window_ends_where_the_field_ends(context_of: MakeContext, node: Any) -> None:
    whole, beyond = (
        forward_cost(context_of(node("AveragePool", [IMAGE], (1, 32, 1, 1), kernel_shape=kernel, strides=(1, 1))))
        for kernel in ((28, 28), (1280, 1280))
    )
    assert beyond == whole
