"""Matrix products, convolutions, recurrent cells and attention: what a layer multiplies, planned and priced."""

from __future__ import annotations

from typing import NamedTuple

from autoauto.records.units import Precision
from autoauto.targets.ipu.kernels import codelets as kernels
from autoauto.targets.ipu.operator_cost import Demand, Family, Shape, Site, Work, size, together
from autoauto.targets.ipu.tiling.planner import plan
from autoauto.targets.ipu.tiling.split import Engine, Product

_ONE = (1, 1)


def gemm(site: Site, groups: int, rows: int, inputs: int, outputs: int) -> Product:
    """`groups` products of (rows x inputs) by (inputs x outputs)."""
    groups, rows, inputs, outputs = (max(n, 1) for n in (groups, rows, inputs, outputs))
    formats = (site.precision, site.settings.partials)
    return Product(Engine.GEMM, groups, 1, 1, rows, inputs, outputs, _ONE, _ONE, *formats)


def matmul(site: Site, left: int = 0, right: int = 1) -> Product:
    """The product of a MatMul: batched when both operands are, one large product when the right one is a matrix."""
    a, b = site.shape(left), site.shape(right)
    rows, inputs = (a[-2] if len(a) > 1 else 1), a[-1]
    outputs = b[-1] if len(b) > 1 else 1
    if size(b[:-2]) == 1:
        return gemm(site, 1, size(a[:-2]) * rows, inputs, outputs)
    groups = size(site.out_shape) // (rows * outputs)
    return gemm(site, groups, rows, inputs, outputs)


def gemm_of(site: Site) -> Product:
    """The product of a Gemm."""
    a, b = site.shape(0), site.shape(1)
    rows, inputs = a[::-1] if site.integer("transA", 0) else a
    return gemm(site, 1, rows, inputs, size(b) // inputs)


def einsum(site: Site) -> Product:
    """The product of an Einsum: letters of both operands and the output are groups, letters summed are inputs."""
    terms, _, result = site.text("equation").replace(" ", "").partition("->")
    shapes = [site.shape(position) for position in range(len(site.layer.operands))]
    labels = [_labels(term, len(shape)) for term, shape in zip(terms.split(","), shapes, strict=False)]
    sizes = {
        name: n for names, shape in zip(labels, shapes, strict=False) for name, n in zip(names, shape, strict=True)
    }
    out = set(_labels(result, len(site.out_shape))) if result else {n for n in sizes if terms.count(n) == 1}
    left, right = set(labels[0]), set().union(*labels[1:])
    return gemm(
        site,
        groups=size(tuple(sizes[name] for name in left & right & out)),
        rows=size(tuple(sizes[name] for name in (left - right) & out)),
        inputs=size(tuple(sizes[name] for name in sizes.keys() - out)),
        outputs=size(tuple(sizes[name] for name in (right - left) & out)),
    )


def attention(site: Site) -> tuple[Product, Product]:
    """The two products of an Attention: queries by keys, and what the softmax makes of it by values."""
    queries, keys, values = (site.shape(position) for position in range(3))
    heads = queries[1] if len(queries) == 4 else site.integer("q_num_heads", 1)
    width, value = (s[-1] if len(queries) == 4 else s[-1] // heads for s in (queries, values))
    groups = queries[0] * heads
    return (
        gemm(site, groups, queries[-2], width, keys[-2]),
        gemm(site, groups, queries[-2], keys[-2], value),
    )


def _labels(term: str, rank: int) -> list[str]:
    """Letters of one term, an ellipsis as numbers counted from the right."""
    before, dots, after = term.partition("...")
    hidden = rank - len(before) - len(after)
    return [*before, *(str(hidden - i) for i in range(hidden if dots else 0)), *after]


def convolution(site: Site, weight: int = 1) -> Product:
    """The product of a convolution whose weights are the operand at `weight`, on the codelet that suits it."""
    kernel, n_groups = site.shape(weight), site.integer("group", 1)
    inputs, outputs = kernel[1] * size(kernel[2:-2]), kernel[0] // n_groups
    return suited(over_field(site, site.out_shape, n_groups, inputs, outputs, plane(kernel[2:])))


def transposed_convolution(site: Site) -> Product:
    """The product of a ConvTranspose: every output sees the taps of its own phase of the stride."""
    kernel, n_groups = site.shape(1), site.integer("group", 1)
    taps, stride = plane(kernel[2:]), plane(site.integers("strides", ()))
    inputs = kernel[0] // n_groups * size(kernel[2:-2])
    seen = (-(-taps[0] // stride[0]), -(-taps[1] // stride[1]))
    return suited(over_field(site, site.out_shape, n_groups, inputs, kernel[1], seen)._replace(stride=_ONE))


def plane(spatial: Shape) -> tuple[int, int]:
    """Height and width of a spatial shape; one axis is the width, further axes in front are left out."""
    height, width = (1, 1, *spatial)[-2:]
    return height, width


def over_field(site: Site, shape: Shape, n_groups: int, inputs: int, outputs: int, taps: tuple[int, int]) -> Product:
    """A convolution onto the field of a tensor of `shape`; depth joins the batch."""
    batch, _, *spatial = shape
    height, width = plane(tuple(spatial))
    return Product(
        engine=Engine.CONVOLUTION,
        groups=n_groups,
        batch=batch * size(tuple(spatial[:-2])),
        height=height,
        width=width,
        inputs=inputs,
        outputs=outputs,
        taps=taps,
        stride=plane(site.integers("strides", ())),
        precision=site.precision,
        partials=site.settings.partials,
    )


def suited(product: Product) -> Product:
    """A convolution as the codelet that suits its channels takes it.

    Narrow groups go four output channels at a time without matrix units, or through sliding windows; neither takes
    fp8. Few channels of one group are unrolled with the kernel, because alone they leave units idle. A kernel of one
    tap is a product of the rows that its stride picks.
    """
    if product.groups > 1 and product.inputs in (1, 2, 4):
        single = product.precision is Precision.FP32
        engine, wide = (Engine.VECTOR, Precision.FP32) if single else (Engine.SLIDING_WINDOW, Precision.FP16)
        blocks = -(-product.groups * product.outputs // 4)
        return product._replace(engine=engine, groups=blocks, inputs=4, outputs=4, precision=wide)
    if product.groups == 1 and product.inputs < 16:
        product = product._replace(inputs=product.inputs * size(product.taps), taps=_ONE)
    if product.taps != _ONE:
        return product
    product = product._replace(stride=_ONE)
    rows = product.batch * product.height * product.width
    return product._replace(engine=Engine.GEMM, batch=1, height=1, width=rows)


def multiply(site: Site, product: Product, operands: tuple[int, ...] = ()) -> Work:
    """The work of a product; `operands` are the tensors that it wants in panels of channels.

    It writes channels in groups of 16 and reads them in groups as deep as a panel of weights. In fp32 that is 8, so
    operands are always regrouped, whoever wrote them (poplibs: outputs come in multiples of the 16 units).
    """
    split = plan(product, site.n_tiles, site.bound_bytes)
    codelets = [f"{product.engine.value}_{product.precision.value}", "copy", "transpose"]
    codelets += [f"reduceAdd_{product.precision.value}"] if split.reduces else []
    codelets += ["dynamicSlice"] if split.serial > 1 else []
    read = [rearrange(site, index) for index in operands if site.is_activation(index)]
    single = product.precision is Precision.FP32
    regroup = sum(demand.cycles for demand in read) if single else 0
    return Work(
        family=Family.PRODUCT,
        exchange_cycles=split.exchange_cycles,
        compute_cycles=split.compute_cycles + regroup + _narrow(site, product, operands),
        codelets=tuple(codelets),
        n_tiles=split.n_tiles,
        n_sources=split.n_sources,
        working_bytes=split.tile_bytes * split.n_tiles,
        demands=() if single else tuple(read),
        within_bound=split.within_bound,
    )


def _narrow(site: Site, product: Product, operands: tuple[int, ...]) -> int:
    """Cycles to cast what a product reads to fp8."""
    if product.precision is not Precision.FP8:
        return 0
    shares = (-(-site.n_elements(index) // site.n_tiles) for index in operands if site.is_activation(index))
    return sum(round(kernels.elementwise(share, ("cast",), 1, Precision.FP16)) for share in shares)


def rearrange(site: Site, index: int) -> Demand:
    """Bring a tensor into panels: every tile receives its share and copies it in order."""
    share = site.n_bytes(index) / site.n_tiles
    return Demand(index, round(float(kernels.exchange(share) + kernels.copy(share))))


def add_bias(site: Site, n_elements: int, channels: int) -> Work:
    """Add one value a channel to `n_elements` elements, in place."""
    share = -(-n_elements // site.n_tiles)
    return Work(
        family=Family.ELEMENTWISE,
        exchange_cycles=round(float(kernels.exchange(min(channels, share) * site.out_precision.n_bytes))),
        compute_cycles=round(kernels.elementwise(share, ("add",), 2, site.out_precision)),
        codelets=(f"add_{site.out_precision.value}",),
        n_tiles=site.n_tiles,
        n_sources=1,
    )


def recurrent(site: Site) -> Work:
    """LSTM, GRU or RNN: the inputs of all steps at once, then step by step the state and the gates."""
    steps, batch, inputs = (*site.shape(0), 1, 1)[:3]
    directions, gates, hidden = (*site.shape(2), 1, 1)[:3]
    feed = multiply(site, gemm(site, directions, steps * batch, inputs, gates), site.present[:1])
    step = multiply(site, gemm(site, directions, batch, hidden, gates))
    share = -(-batch * directions * gates // site.n_tiles)
    nonlinear = round(kernels.elementwise(share, ("sigmoid", "add", "add"), 2, site.out_precision))
    repeated = Work(
        family=Family.PRODUCT,
        exchange_cycles=steps * step.exchange_cycles,
        compute_cycles=steps * (step.compute_cycles + nonlinear),
        codelets=(*step.codelets, "gates"),
        n_tiles=step.n_tiles,
        n_sources=step.n_sources,
        working_bytes=step.working_bytes,
        within_bound=step.within_bound,
    )
    return together(feed, repeated)


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
