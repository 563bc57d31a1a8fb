"""Matrix products, convolutions, recurrent cells and attention: what a layer multiplies, planned and priced."""

from __future__ import annotations

from autoauto.targets.ipu import kernels
from autoauto.targets.ipu.split import Engine, Product, plan
from autoauto.targets.ipu.work import Demand, Family, Shape, Site, Work, size, together

_ONE = (1, 1)


def gemm(site: Site, groups: int, rows: int, inputs: int, outputs: int) -> Product:
    """`groups` products of (rows x inputs) by (inputs x outputs)."""
    return Product(Engine.GEMM, groups, 1, 1, rows, inputs, outputs, _ONE, _ONE, site.precision)


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
    sizes = {name: n for names, shape in zip(labels, shapes, strict=False) for name, n in zip(names, shape, strict=True)}
    out = set(_labels(result, len(site.out_shape))) if result else {n for n in sizes if terms.count(n) == 1}
    left, right = set(labels[0]), set().union(*labels[1:])
    return gemm(
        site,
        groups=size(tuple(sizes[name] for name in left & right & out)),
        rows=size(tuple(sizes[name] for name in (left - right) & out)),
        inputs=size(tuple(sizes[name] for name in sizes.keys() - out)),
        outputs=size(tuple(sizes[name] for name in (right - left) & out)),
    )


def _labels(term: str, rank: int) -> list[str]:
    """Letters of one term, an ellipsis as numbers counted from the right."""
    before, dots, after = term.partition("...")
    hidden = rank - len(before) - len(after)
    return [*before, *(str(hidden - i) for i in range(hidden if dots else 0)), *after]


def _field(shape: Shape) -> tuple[int, int, int]:
    """Batch, height and width of (batch, channels, ...): one spatial axis is the width, depth joins the batch."""
    spatial = (1, 1, *shape[2:])[-2:]
    return shape[0] * size(shape[2:-2]), spatial[0], spatial[1]


def convolution(site: Site, data: int = 0, weight: int = 1) -> Product:
    """The product of a convolution, on the codelet that suits its channels."""
    kernel = site.shape(weight)
    n_groups = site.integer("group", 1)
    inputs, outputs = kernel[1] * size(kernel[2:-2]), kernel[0] // n_groups
    taps = (1, 1, *kernel[2:])[-2:]
    stride = (1, 1, *site.integers("strides", ()))[-2:]
    return _with_engine(site, n_groups, site.out_shape, inputs, outputs, (taps[0], taps[1]), (stride[0], stride[1]))


def transposed_convolution(site: Site) -> Product:
    """The product of a ConvTranspose: every output sees the taps of its own phase of the stride."""
    kernel = site.shape(1)
    n_groups = site.integer("group", 1)
    stride = (1, 1, *site.integers("strides", ()))[-2:]
    taps = (1, 1, *kernel[2:])[-2:]
    seen = (-(-taps[0] // stride[0]), -(-taps[1] // stride[1]))
    inputs = kernel[0] // n_groups * size(kernel[2:-2])
    return _with_engine(site, n_groups, site.out_shape, inputs, kernel[1], seen, _ONE)


def _with_engine(
    site: Site, groups: int, out: Shape, inputs: int, outputs: int, taps: tuple[int, int], stride: tuple[int, int]
) -> Product:
    batch, height, width = _field(out)
    field = (batch, height, width)
    if groups > 1 and inputs in (1, 2, 4):
        half = site.precision.n_bytes == 2
        engine = Engine.SLIDING_WINDOW if half else Engine.VECTOR
        blocks = -(-groups * outputs // 4)
        return Product(engine, blocks, *field, 4, 4, taps, stride, site.precision)
    if groups == 1 and inputs < 16:  # the kernel is unrolled into the input channels, which alone would leave units idle
        return gemm(site, 1, size(field), inputs * taps[0] * taps[1], outputs)
    if taps == _ONE and stride == _ONE:
        return gemm(site, groups, size(field), inputs, outputs)
    return Product(Engine.CONVOLUTION, groups, *field, inputs, outputs, taps, stride, site.precision)


def multiply(site: Site, product: Product, operands: tuple[int, ...] = ()) -> Work:
    """The work of a product; `operands` are the tensors that it wants in panels of channels."""
    split = plan(product, site.n_tiles, site.bound_bytes)
    codelets = [f"{product.engine.value}_{product.precision.value}", "copy", "transpose"]
    codelets += [f"reduceAdd_{product.precision.value}"] if split.reduces else []
    codelets += ["dynamicSlice"] if split.serial > 1 else []
    return Work(
        family=Family.PRODUCT,
        exchange_cycles=split.exchange_cycles,
        compute_cycles=split.compute_cycles,
        codelets=tuple(codelets),
        n_tiles=split.n_tiles,
        n_sources=split.n_sources,
        working_bytes=split.tile_bytes * split.n_tiles,
        demands=tuple(rearrange(site, index) for index in operands if site.is_activation(index)),
        within_bound=split.within_bound,
    )


def rearrange(site: Site, index: int) -> Demand:
    """Bring a tensor into panels: every tile receives its share and copies it in order."""
    share = site.n_bytes(index) / site.n_tiles
    return Demand(index, round(float(kernels.exchange(share) + kernels.copy(share))))


def add_bias(site: Site, n_elements: int, channels: int) -> Work:
    """Add one value a channel to `n_elements` elements, in place."""
    share = -(-n_elements // site.n_tiles)
    return Work(
        family=Family.ELEMENTWISE,
        exchange_cycles=round(float(kernels.exchange(min(channels, share) * site.precision.n_bytes))),
        compute_cycles=round(kernels.elementwise(share, ("add",), 2, site.precision)),
        codelets=(f"add_{site.precision.value}",),
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
    nonlinear = round(kernels.elementwise(share, ("sigmoid", "add", "add"), 2, site.precision))
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
