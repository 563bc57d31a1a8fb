"""The products that make the gradients of a product's factors: the same multiplications, other roles.

With Y = X W: dX = dY W^T and dW = X^T dY. A convolution is a product at every kernel position, so its gradients are the
convolution of dY with the kernel turned around, and for every kernel position the product of the inputs under it and
dY, summed over the samples and the field.
"""

from __future__ import annotations

from typing import NamedTuple

from autoauto.targets.ipu.products import over_field, plane, suited
from autoauto.targets.ipu.split import Engine, Product
from autoauto.targets.ipu.work import Site, size

_ONE = (1, 1)


class Factors(NamedTuple):
    """The products that make the gradients of the left and of the right factor."""

    left: Product
    right: Product


def of_gemm(product: Product) -> Factors:
    """For (rows x inputs) by (inputs x outputs): dY W^T and X^T dY.

    >>> from autoauto.records.units import Precision
    >>> product = Product(Engine.GEMM, 1, 1, 1, 2, 3, 5, (1, 1), (1, 1), Precision.FP16)
    >>> [(f.width, f.inputs, f.outputs) for f in of_gemm(product)]
    [(2, 5, 3), (3, 2, 5)]
    """
    left = product._replace(inputs=product.outputs, outputs=product.inputs)
    return Factors(left, product._replace(width=product.inputs, inputs=product.width))


def of_convolution(site: Site) -> Factors:
    """For a Conv: of its inputs and of its kernel; where it strides, dY is spread out and most inputs see few taps."""
    kernel, n_groups = site.shape(1), site.integer("group", 1)
    taps, depth, outputs = plane(kernel[2:]), size(kernel[2:-2]), kernel[0] // n_groups
    inputs = over_field(site, site.out_shape, n_groups, outputs * depth, kernel[1], taps)._replace(stride=_ONE)
    forward = over_field(site, site.out_shape, n_groups, kernel[1] * depth, outputs, taps)
    return Factors(suited(inputs), _of_kernel(forward))


def of_transposed_convolution(site: Site) -> Factors:
    """For a ConvTranspose, which is what a Conv does to gradients: the Conv itself, and the gradient of its kernel."""
    kernel, n_groups = site.shape(1), site.integer("group", 1)
    depth, outputs = size(kernel[2:-2]), kernel[0] // n_groups
    conv = over_field(site, site.shape(0), n_groups, kernel[1] * depth, outputs, plane(kernel[2:]))
    return Factors(suited(conv), _of_kernel(conv))


def _of_kernel(conv: Product) -> Product:
    """Every kernel position and input channel is a row, every sample and place of the field a summand.

    All positions look at the same inputs (a stride of 0), the edges of the field left out. Narrow groups multiply what
    they multiply in the forward pass, without sliding windows.
    """
    if conv.groups > 1 and conv.inputs in (1, 2, 4):
        return suited(conv)._replace(engine=Engine.VECTOR)
    product = conv._replace(engine=Engine.GEMM, inputs=conv.batch * conv.height * conv.width, taps=_ONE)
    if conv.taps == _ONE:
        return product._replace(batch=1, height=1, width=conv.inputs, stride=_ONE)
    return product._replace(batch=conv.inputs, height=conv.taps[0], width=conv.taps[1], stride=(0, 0))
