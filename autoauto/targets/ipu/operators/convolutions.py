"""Windows that slide over a field: convolutions, their gradients, and pooling."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod

from autoauto.records.units import Precision
from autoauto.targets.ipu import kernels
from autoauto.targets.ipu.kernels import WORKERS
from autoauto.targets.ipu.operator_cost import (
    CostRule,
    Family,
    OperatorContext,
    OperatorCost,
    Shape,
    by_operator,
    together,
)
from autoauto.targets.ipu.operators import data_movement, rows
from autoauto.targets.ipu.operators.elementwise import grain_share, one_pass
from autoauto.targets.ipu.operators.products import FactorGradients, GradientsOf, ProductOf, multiply, with_bias
from autoauto.targets.ipu.tiling.split import Product, ProductCodelet

_ONE = (1, 1)
_LARGE_WINDOW = 64  # elements of a window of which several tiles can reduce parts


def convolution(context: OperatorContext) -> OperatorCost:
    """Conv of floats or integers, and the addition of its bias."""
    weight, bias = 1, 2
    if context.layer.op.endswith("QLinearConv"):
        weight, bias = 3, 8
    product = multiply(context, partial(convolution_product, weight=weight), context.present[:1])
    channel_axis = -1 if is_channels_last(context) else 1
    return with_bias(context, product, bias, channel_axis)


def deformed_convolution(context: OperatorContext) -> OperatorCost:
    """DeformConv: every tap is interpolated between four neighbours, then a convolution, and the addition of a bias."""
    product = multiply(context, convolution_product, context.present[:1])
    sampled = prod(context.out_shape) // max(context.out_shape[1], 1) * prod(context.shape(1)[1:])
    weighed = one_pass(context, sampled * context.integer("group", 1), ("add", "add") * 4)
    return with_bias(context, together(product, weighed), 3, 1)


def convolution_product(context: OperatorContext, weight: int = 1) -> Product:
    """The product of a convolution whose weights are the operand at `weight`, on the codelet that suits it."""
    kernel, n_groups = context.shape(weight), context.integer("group", 1)
    inputs, outputs = kernel[1] * prod(kernel[2:-2]), kernel[0] // n_groups
    field = channels_second(context, context.out_shape)
    return _on_best_codelet(_over_field(context, field, n_groups, inputs, outputs, _plane(kernel[2:])))


def is_channels_last(context: OperatorContext) -> bool:
    """True if the channels of a field lie on the last axis, by the name or an attribute of the operator."""
    return "Nhwc" in context.layer.op or context.integer("channels_last", 0) == 1


def channels_second(context: OperatorContext, shape: Shape) -> Shape:
    """The shape of a field as (samples, channels, ...)."""
    if not is_channels_last(context):
        return shape
    return (shape[0], shape[-1], *shape[1:-1])


def causal_convolution(context: OperatorContext) -> OperatorCost:
    """CausalConvWithState: a convolution of every channel by itself; its last inputs are stored."""
    product = multiply(context, causal_product, context.present[:1])
    state = data_movement.move_bytes(context, sum(map(context.n_bytes, context.layer.outputs[1:])), per_element=False)
    return with_bias(context, together(product, state), 2, 1)


def causal_product(context: OperatorContext) -> Product:
    """The product of a convolution of every channel by itself."""
    channels = context.shape(1)[0] if context.shape(1) else 1
    layer = replace(context.layer, attributes=(*context.layer.attributes, ("group", channels)))
    return convolution_product(context._replace(layer=layer))


def transposed_convolution(context: OperatorContext) -> OperatorCost:
    """ConvTranspose, and the addition of its bias."""
    product = multiply(context, transposed_convolution_product, context.present[:1])
    return with_bias(context, product, 2, 1)


def transposed_convolution_product(context: OperatorContext) -> Product:
    """The product of a ConvTranspose: every output sees the taps of its own phase of the stride."""
    kernel, n_groups = context.shape(1), context.integer("group", 1)
    taps, stride = _plane(kernel[2:]), _plane(context.integers("strides", ()))
    inputs = kernel[0] // n_groups * prod(kernel[2:-2])
    seen = (-(-taps[0] // stride[0]), -(-taps[1] // stride[1]))
    return _on_best_codelet(
        _over_field(context, context.out_shape, n_groups, inputs, kernel[1], seen)._replace(stride=_ONE)
    )


def convolution_gradients(context: OperatorContext) -> FactorGradients:
    """The gradients of inputs and kernel of a Conv; with a stride dY is spread out, and most inputs see few taps."""
    kernel, n_groups = context.shape(1), context.integer("group", 1)
    taps, depth, outputs = _plane(kernel[2:]), prod(kernel[2:-2]), kernel[0] // n_groups
    inputs = _over_field(context, context.out_shape, n_groups, outputs * depth, kernel[1], taps)._replace(stride=_ONE)
    forward = _over_field(context, context.out_shape, n_groups, kernel[1] * depth, outputs, taps)
    return FactorGradients(_on_best_codelet(inputs), _kernel_gradient(forward))


def transposed_convolution_gradients(context: OperatorContext) -> FactorGradients:
    """The gradients of a ConvTranspose, which is a Conv backward: the Conv itself, and the gradient of its kernel."""
    kernel, n_groups = context.shape(1), context.integer("group", 1)
    depth, outputs = prod(kernel[2:-2]), kernel[0] // n_groups
    conv = _over_field(context, context.shape(0), n_groups, kernel[1] * depth, outputs, _plane(kernel[2:]))
    return FactorGradients(_on_best_codelet(conv), _kernel_gradient(conv))


def _kernel_gradient(conv: Product) -> Product:
    """Every kernel position and input channel is a row, every sample and position of the field a summand.

    All positions look at the same inputs (a stride of 0), the edges of the field left out. Narrow groups multiply what
    they multiply in the forward pass, without sliding windows.
    """
    if conv.groups > 1 and conv.inputs in (1, 2, 4):
        return _on_best_codelet(conv)._replace(engine=ProductCodelet.VECTOR)
    product = conv._replace(engine=ProductCodelet.GEMM, inputs=conv.batch * conv.height * conv.width, taps=_ONE)
    if conv.taps == _ONE:
        return product._replace(batch=1, height=1, width=conv.inputs, stride=_ONE)
    return product._replace(batch=conv.inputs, height=conv.taps[0], width=conv.taps[1], stride=(0, 0))


def _over_field(
    context: OperatorContext, shape: Shape, n_groups: int, inputs: int, outputs: int, taps: tuple[int, int]
) -> Product:
    """A convolution onto the field of a tensor of `shape`; depth joins the batch, and nothing is shorter than 1."""
    batch, _, *spatial = shape
    height, width = _plane(tuple(spatial))
    return Product(
        engine=ProductCodelet.CONVOLUTION,
        groups=max(n_groups, 1),
        batch=max(batch * prod(tuple(spatial[:-2])), 1),
        height=max(height, 1),
        width=max(width, 1),
        inputs=max(inputs, 1),
        outputs=max(outputs, 1),
        taps=(max(taps[0], 1), max(taps[1], 1)),
        stride=_plane(context.integers("strides", ())),
        precision=context.precision,
        partials=context.settings.partials,
    )


def _on_best_codelet(product: Product) -> Product:
    """A convolution as the codelet that suits its channels takes it.

    Narrow groups go four output channels at a time without matrix units, or through sliding windows; neither takes
    fp8. Few channels of one group are unrolled with the kernel, because alone they leave units idle. A kernel of one
    tap is a product of the rows that its stride picks.
    """
    if product.groups > 1 and product.inputs in (1, 2, 4):
        engine, precision = ProductCodelet.SLIDING_WINDOW, Precision.FP16
        if product.precision is Precision.FP32:
            engine, precision = ProductCodelet.VECTOR, Precision.FP32
        blocks = -(-product.groups * product.outputs // 4)
        return product._replace(engine=engine, groups=blocks, inputs=4, outputs=4, precision=precision)
    if product.groups == 1 and product.inputs < 16:
        product = product._replace(inputs=product.inputs * prod(product.taps), taps=_ONE)
    if product.taps != _ONE:
        return product
    product = product._replace(stride=_ONE)
    rows = product.batch * product.height * product.width
    return product._replace(engine=ProductCodelet.GEMM, batch=1, height=1, width=rows)


def _plane(spatial: Shape) -> tuple[int, int]:
    """Height and width of a spatial shape; one axis is the width, further axes in front are left out."""
    height, width = (1, 1, *spatial)[-2:]
    return height, width


def pool(context: OperatorContext) -> OperatorCost:
    """MaxPool, AveragePool, LpPool: windows on the tiles of the outputs; large ones may be cut over several tiles."""
    windows = _whole_windows(context)
    field = channels_second(context, context.shape(0))[2:]
    window = prod(tuple(map(min, context.integers("kernel_shape", ()), field)))
    if window < _LARGE_WINDOW:
        return windows
    read = context.n_out * window
    codelet, n_samples = windows.codelets[0].partition("_")[0], context.options.batch_size
    cut = rows.reduce_to(context, read, max(context.n_out, 1), codelet, n_samples=n_samples)
    gathered = float(kernels.exchange(read * context.precision.n_bytes / context.n_tiles, 4))
    cut = cut._replace(family=Family.POOL, exchange_cycles=cut.exchange_cycles + round(gathered))
    return min(windows, cut, key=lambda cost: cost.cycles)


def _whole_windows(context: OperatorContext) -> OperatorCost:
    """Every output reads its window, whose halo comes from other tiles."""
    kernel = context.integers("kernel_shape", (2, 2))
    field = channels_second(context, context.shape(0))[2:]
    window = prod(tuple(map(min, kernel, field)))  # nothing beyond the field is read
    step = prod(context.integers("strides", (1, 1)))
    share = grain_share(context, context.n_out)
    vector = 8 // context.precision.n_bytes
    worker = float(kernels.ceil_div(share, WORKERS * vector)) * (10 + 2 * window)  # a load and an operation a tap
    overlap = 1.5 if window > step else 1.0  # halo: an assumption
    read = round(context.n_elements(context.present[0]) / context.n_tiles * overlap) * context.precision.n_bytes
    exchange = kernels.exchange(read, 4)
    compute = round(kernels.UNARY_LAUNCH_CYCLES + WORKERS * worker)
    codelet = "poolMax" if "Max" in context.layer.op else "poolSum"
    return OperatorCost(
        family=Family.POOL,
        exchange_cycles=round(float(exchange)),
        compute_cycles=compute,
        codelets=(f"{codelet}_{context.precision.value}",),
        n_tiles=context.n_tiles,
        n_sources=4,
        working_bytes=read * context.n_tiles,
    )


COST_RULES: dict[str, CostRule] = by_operator(
    {
        convolution: "Conv ConvInteger QLinearConv",
        causal_convolution: "CausalConvWithState",
        deformed_convolution: "DeformConv",
        transposed_convolution: "ConvTranspose",
        pool: "MaxPool AveragePool LpPool MaxRoiPool RoiAlign",
    }
)

PRODUCTS: dict[str, tuple[ProductOf, ...]] = {
    "Conv": (convolution_product,),
    "ConvInteger": (convolution_product,),
    "ConvTranspose": (transposed_convolution_product,),
}
"""As in `products`."""

GRADIENTS: dict[str, tuple[GradientsOf, ...]] = {
    "Conv": (convolution_gradients,),
    "ConvTranspose": (transposed_convolution_gradients,),
}
"""As in `products`."""
