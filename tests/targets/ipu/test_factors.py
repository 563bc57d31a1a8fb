from collections.abc import Callable
from math import prod
from typing import Any

import pytest

from autoauto.targets.ipu import factors, products
from autoauto.targets.ipu.split import Engine, Product
from autoauto.targets.ipu.work import Site

MakeSite = Callable[..., Site]


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
