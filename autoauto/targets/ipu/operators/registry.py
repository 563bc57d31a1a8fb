"""Every ONNX operator: which work it is on the tiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from autoauto.records.units import Precision
from autoauto.targets.ipu.kernels import codelets as kernels
from autoauto.targets.ipu.kernels.codelets import WORKERS
from autoauto.targets.ipu.kernels.elementwise import ELEMENTWISE
from autoauto.targets.ipu.operator_cost import Demand, Family, Site, Work, size, together
from autoauto.targets.ipu.operators import data_movement as moves
from autoauto.targets.ipu.operators import products, rows

_GRAIN = 8  # elements that stay together when a tensor is spread over tiles


def _share(site: Site, n_elements: int) -> int:
    return -(-n_elements // (site.n_tiles * _GRAIN)) * _GRAIN


def elementwise(site: Site) -> Work:
    """One pass over the output, in place on the layout of the first operand of that size."""
    loops = loops_of(site)
    operands = site.present
    if site.layer.op in ("Sum", "Mean", "Max", "Min"):
        loops = loops * max(1, len(operands) - 1)
    share = _share(site, site.n_out)
    whole = [i for i in operands if site.n_elements(i) >= site.n_out]
    parts = [site.n_bytes(i) for i in operands if 1 < site.n_elements(i) < site.n_out]
    width = site.precision.n_bytes
    broadcast = sum(min(n_bytes, share * width) for n_bytes in parts)
    compute = kernels.elementwise(share, loops, len(operands), site.precision)
    if site.layer.op == "Gelu" and site.precision is Precision.FP16:
        compute = kernels.gelu(share)
    return Work(
        family=Family.ELEMENTWISE,
        exchange_cycles=round(float(kernels.exchange(broadcast, len(parts)))) if parts else 0,
        compute_cycles=round(compute),
        codelets=(f"{'+'.join(loops)}_{'broadcast_' if parts else ''}{site.precision.value}",),
        n_tiles=min(site.n_tiles, -(-site.n_out // _GRAIN)),
        n_sources=len(parts),
        working_bytes=sum(parts),
        follows=whole[0] if whole else -1,
        demands=tuple(Demand(i, round(float(kernels.exchange(share * width)))) for i in whole[1:]),
    )


def loops_of(site: Site) -> tuple[str, ...]:
    """The inner loops of an elementwise operator.

    Pow has those of multiplications when its exponent is a constant of one element, as PopART does for small integers.
    """
    if site.layer.op in ELEMENTWISE:
        return ELEMENTWISE[site.layer.op]
    exponent = site.present[-1]
    constant = site.n_elements(exponent) == 1 and not site.is_activation(exponent)
    return ("square", "add") if constant else ("power",)


def local_response_norm(site: Site) -> Work:
    """LRN: square, add over a window of channels, raise, multiply."""
    share = _share(site, site.n_out)
    loops = ("square", *("add",) * site.integer("size", 5), "logarithm", "add", "exponent", "add")
    compute = kernels.elementwise(share, loops, 2, site.precision)
    exchange = kernels.exchange(share * site.precision.n_bytes)
    return Work(Family.NORM, round(float(exchange)), round(compute), ("lrn",), site.n_tiles, n_sources=2)


def pool(site: Site) -> Work:
    """MaxPool, AveragePool, LpPool: every output reads its window, whose halo comes from other tiles."""
    kernel = site.integers("kernel_shape", (2, 2))
    window = size(tuple(map(min, kernel, site.shape(0)[2:])))  # what lies beyond the field is not read
    step = size(site.integers("strides", (1, 1)))
    share = _share(site, site.n_out)
    vector = 8 // site.precision.n_bytes
    worker = float(kernels.ceil_div(share, WORKERS * vector)) * (10 + 2 * window)  # a load and an operation a tap
    overlap = 1.5 if window > step else 1.0  # halo: an assumption
    read = round(site.n_elements(site.present[0]) / site.n_tiles * overlap) * site.precision.n_bytes
    exchange = kernels.exchange(read, 4)
    compute = round(kernels.UNARY_LAUNCH_CYCLES + WORKERS * worker)
    name = f"pool{'Max' if 'Max' in site.layer.op else 'Sum'}_{site.precision.value}"
    return Work(Family.POOL, round(float(exchange)), compute, (name,), site.n_tiles, 4, read * site.n_tiles)


def matmul(site: Site) -> Work:
    """MatMul of floats or integers."""
    right = 3 if site.layer.op == "QLinearMatMul" else 1
    product = products.matmul(site, 0, right)
    return products.multiply(site, product, _both(site, 0, right))


def _both(site: Site, left: int, right: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys(site.layer.operands[position] for position in (left, right)))


def gemm(site: Site) -> Work:
    """Gemm: a product, and the addition of C."""
    product = products.multiply(site, products.gemm_of(site), _both(site, 0, 1))
    return _biased(site, product, 2, -1)


def einsum(site: Site) -> Work:
    """Einsum: a product of its operands; with one operand a shuffle."""
    if len(site.present) == 1:
        return moves.shuffle(site)
    return products.multiply(site, products.einsum(site), site.present)


def convolution(site: Site) -> Work:
    """Conv of floats or integers, and the addition of its bias."""
    weight = 3 if site.layer.op == "QLinearConv" else 1
    product = products.multiply(site, products.convolution(site, weight), site.present[:1])
    return _biased(site, product, 8 if weight == 3 else 2, 1)


def transposed_convolution(site: Site) -> Work:
    """ConvTranspose, and the addition of its bias."""
    product = products.multiply(site, products.transposed_convolution(site), site.present[:1])
    return _biased(site, product, 2, 1)


def _biased(site: Site, product: Work, bias: int, channel_axis: int) -> Work:
    if site.layer.op.endswith("Integer") or site.tensor(bias) is None:
        return product
    return together(product, products.add_bias(site, site.n_out, site.out_shape[channel_axis]))


def attention(site: Site) -> Work:
    """Attention of queries, keys and values: two batched products around a softmax."""
    scores, mixed = products.attention(site)
    return together(
        products.multiply(site, scores, _both(site, 0, 1)),
        rows.softmax_rows(site, scores.groups * scores.width, scores.outputs),
        products.multiply(site, mixed, site.present[2:3]),
    )


def _table(work: Callable[[Site], Work], operators: str) -> dict[str, Callable[[Site], Work]]:
    return dict.fromkeys(operators.split(), work)


WORKS: dict[str, Callable[[Site], Work]] = {
    **dict.fromkeys(ELEMENTWISE, elementwise),
    **_table(attention, "Attention"),
    **_table(convolution, "Conv ConvInteger QLinearConv"),
    **_table(einsum, "Einsum"),
    **_table(elementwise, "Pow"),
    **_table(gemm, "Gemm"),
    **_table(local_response_norm, "LRN"),
    **_table(matmul, "MatMul MatMulInteger QLinearMatMul"),
    **_table(moves.interpolate, "Resize Upsample GridSample"),
    **_table(moves.look_up, "Gather GatherND GatherElements ScatterND ScatterElements Scatter Embedding"),
    **_table(moves.move, "Concat Slice Split Pad Expand Tile Reshape Flatten Squeeze Unsqueeze ConstantOfShape Range"),
    **_table(moves.move, "OneHot Trilu EyeLike Compress ReverseSequence MaxUnpool"),
    **_table(moves.scan, "CumSum CumProd"),
    **_table(moves.shuffle, "Transpose DepthToSpace SpaceToDepth"),
    **_table(moves.sort, "TopK Unique NonMaxSuppression"),
    **_table(pool, "MaxPool AveragePool LpPool MaxRoiPool RoiAlign"),
    **_table(products.recurrent, "LSTM GRU RNN"),
    **_table(rows.field_norm, "LpNormalization MeanVarianceNormalization"),
    **_table(rows.group_norm, "GroupNormalization InstanceNormalization"),
    **_table(rows.layer_norm, "LayerNormalization RMSNormalization SimplifiedLayerNormalization"),
    **_table(rows.reduction, "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum"),
    **_table(
        rows.reduction, "ReduceLogSumExp ReduceSumSquare ArgMax ArgMin GlobalAveragePool GlobalMaxPool GlobalLpPool"
    ),
    **_table(rows.softmax, "Softmax LogSoftmax Hardmax"),
    **_table(transposed_convolution, "ConvTranspose"),
}


def work(site: Site) -> Work:
    """The work of one layer; an operator that is not known moves all that it reads and writes."""
    if site.layer.op in site.settings.float_operators and site.precision is not Precision.FP32:
        return _in_single_precision(site)
    return WORKS.get(site.layer.op, moves.anything)(site)


def _in_single_precision(site: Site) -> Work:
    """A layer in fp32 between casts of its first operand and of what it writes."""
    single = work(replace(site, options=replace(site.options, precision=Precision.FP32)))
    shares = (-(-n // site.n_tiles) for n in (site.n_elements(site.present[0]), site.n_out))
    casts = sum(round(kernels.elementwise(share, ("cast",), 1, site.precision)) for share in shares)
    return replace(single, compute_cycles=single.compute_cycles + casts, codelets=(*single.codelets, "cast_fp16"))
