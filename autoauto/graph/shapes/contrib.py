"""Shape rules of operators that ONNX Runtime's optimiser fuses, and of its layouts of convolutions: `RULES`.

Operators of the domain `com.microsoft.nchwc` hold channels in whole blocks: (samples, channels, height, width), where
channels are those of the model, rounded up to a block [onnxruntime-contrib]. A block has 16 channels on processors with
AVX-512 or NEON and 8 on others; which of them a file was made for, the weights of its convolutions tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np
import onnx
from onnx import TensorProto, helper

from autoauto.graph.onnx_file import all_nodes
from autoauto.graph.shapes.shape_rule import (
    Operands,
    Output,
    Shape,
    ShapeRule,
    as_standard,
    axis_of,
    broadcast,
    channels_last,
    checked,
    count,
    elements,
    given,
    integer,
    integers,
    like_first,
    needed,
    number,
    ranked,
    standard_shape,
)

MICROSOFT, NCHWC = "com.microsoft", "com.microsoft.nchwc"
IN_STANDARD_DOMAIN = ("LayerNormalization", "SimplifiedLayerNormalization")
"""Operators that ONNX Runtime writes into the standard domain, in operator sets that do not have them."""


def normalised(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """LayerNormalization and its simplified form: the output, then statistics of every row in float."""
    first = needed(operands, 0)
    axis = axis_of(node, "axis", -1, first.shape)
    statistics = (TensorProto.FLOAT, first.shape[:axis] + (1,) * (len(first.shape) - axis))
    return [(first.dtype, first.shape), statistics, statistics]


def skip_normalised(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """A sum and its normalisation: the output, statistics of every row, and the sum."""
    first = needed(operands, 0)
    statistics = (TensorProto.FLOAT, (*first.shape[:-1], 1))
    return [(first.dtype, first.shape), statistics, statistics, (first.dtype, first.shape)]


def product(left: Shape, right: Shape) -> Shape:
    """The shape of a matrix product, batched as NumPy's `matmul`."""
    a, b = left, right
    if len(left) < 2:  # a vector on the left is one row, which the product does not have
        a = (1, *left)
    if len(right) < 2:  # and one on the right is one column
        b = (*right, 1)
    if a[-1] != b[-2]:
        raise ValueError(f"{a[-1]} is not {b[-2]} in {list(left)} and {list(right)}")
    shape: Shape = tuple(np.broadcast_shapes(a[:-2], b[:-2]))
    if len(left) > 1:
        shape += a[-2:-1]
    if len(right) > 1:
        shape += b[-1:]
    return shape


def fused_matmul(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """FusedMatMul: each operand may be transposed, after its leading axis has moved behind the other batch axes."""
    left, right = needed(operands, 0), needed(operands, 1)
    return [(left.dtype, product(_turned(node, left.shape, "A"), _turned(node, right.shape, "B")))]


def _turned(node: onnx.NodeProto, shape: Shape, side: str) -> Shape:
    if integer(node, f"transBatch{side}", 0) and len(shape) > 2:
        shape = (*shape[1:-1], shape[0], shape[-1])
    if integer(node, f"trans{side}", 0) and len(shape) > 1:
        shape = (*shape[:-2], shape[-1], shape[-2])
    return shape


def matmul(left: int, right: int, dtype_of: int = 0, dtype: int | None = None) -> ShapeRule:
    """The product of the operands at `left` and `right`, in `dtype` or else the type of the operand at `dtype_of`."""

    def rule(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
        shape = product(needed(operands, left).shape, needed(operands, right).shape)
        if dtype is not None:
            return [(dtype, shape)]
        return [(needed(operands, dtype_of).dtype, shape)]

    return rule


def packed_matmul(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """A product with a weight of K rows and N columns that are packed."""
    first = needed(operands, 0)
    depth, width = count(node, "K"), count(node, "N")
    if not integer(node, "transB", 1):  # an attribute of MatMulBnb4 alone
        depth, width = width, depth
    if first.shape[-1] != depth:
        raise ValueError(f"{first.shape[-1]} is not {depth} in {list(first.shape)} and the weight")
    return [(first.dtype, (*first.shape[:-1], width))]


def causal(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """CausalConvWithState, channels first: the output, and as many inputs as the next call needs."""
    first, weight = needed(operands, 0), needed(operands, 1)
    if integer(node, "channels_last", 0) or integer(node, "state_window", 0) or integer(node, "input_channels", 0):
        raise ValueError("only channels on the second axis and one state are known")
    state = checked(((weight.shape[2] - 1) * count(node, "dilation", 1),))
    return [(first.dtype, first.shape), (first.dtype, first.shape[:2] + state + first.shape[3:])]


def halved(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """BiasSplitGelu and the like: one half of the last axis gates the other half, which is the output."""
    first = needed(operands, 0)
    return [(first.dtype, (*first.shape[:-1], first.shape[-1] // 2))]


def gated(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """SwiGLU: two halves, as two operands or as one."""
    if given(operands, 1):
        return like_first(node, operands)
    return halved(node, operands)


def dropped(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """Dropout fused with a sum: the output, and its mask."""
    first = needed(operands, 0)
    return [(first.dtype, first.shape), (TensorProto.BOOL, first.shape)]


def dropped_by_bits(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """BitmaskDropout, also fused with a sum: the output, and a mask that has 32 elements in every integer."""
    first = needed(operands, 0)
    n_integers = ceil(int(np.prod(first.shape, dtype=np.int64)) / 32)
    return [(first.dtype, first.shape), (TensorProto.UINT32, (n_integers,))]


def transposed_with_pads(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """ConvTranspose whose pads are an operand."""
    attributes = list(node.attribute)
    if given(operands, 2):
        attributes.append(helper.make_attribute("pads", elements(operands, 2).reshape(-1).tolist()))
    first = needed(operands, 0)
    return [(first.dtype, standard_shape("ConvTranspose", operands[:2], attributes))]


def padded(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """Pad: operand 1 counts the elements to add in front of every axis, then those to add behind it."""
    first = needed(operands, 0)
    pads = elements(operands, 1).reshape(2, -1)
    if pads.shape[1] != len(first.shape):
        raise ValueError(f"{pads.size} pads do not fit {list(first.shape)}")
    added = pads.sum(axis=0).tolist()
    return [(first.dtype, checked(tuple(length + int(n) for length, n in zip(first.shape, added, strict=True))))]


def expanded(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """ExpandDims: an axis of length 1."""
    first = needed(operands, 0)
    axis = number(operands, 1)
    n_axes = len(first.shape) + 1
    if not -n_axes <= axis < n_axes:
        raise ValueError(f"axis {axis} does not fit {list(first.shape)}")
    axis %= n_axes
    return [(first.dtype, (*first.shape[:axis], 1, *first.shape[axis:]))]


def counted(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """Range: as many elements as steps lie between the ends."""
    start = elements(operands, 0).reshape(-1)[0]
    limit = elements(operands, 1).reshape(-1)[0]
    n_steps = limit - start
    if given(operands, 2):
        step = elements(operands, 2).reshape(-1)[0]
        if not step:
            raise ValueError("the step of a range must not be 0")
        n_steps = n_steps / step
    return [(needed(operands, 0).dtype, (max(ceil(n_steps), 0),))]


def distances(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """CDist: the distance of every row of A from every row of B."""
    left, right = needed(operands, 0), needed(operands, 1)
    return [(left.dtype, (ranked(left, 2)[0], ranked(right, 2)[0]))]


def spectrum(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """Rfft: the first half of the bins of the last axis, real and imaginary."""
    first = needed(operands, 0)
    n_bins = first.shape[-1]
    if integer(node, "onesided", 1):
        n_bins = n_bins // 2 + 1
    return [(first.dtype, (*first.shape[:-1], n_bins, 2))]


def signal(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """Irfft: the real signal of bins in the layout of `spectrum`."""
    first = needed(operands, 0)
    *front, length, _ = first.shape
    if integer(node, "onesided", 1):
        length = 2 * (length - 1)
    return [(first.dtype, checked((*front, length)))]


def looked_up(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """TorchEmbedding: a row for every index."""
    table, indices = needed(operands, 0), needed(operands, 1)
    return [(table.dtype, (*indices.shape, *table.shape[1:]))]


def cropped(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """CropAndResize: every region of a field at one size."""
    first, regions = needed(operands, 0), needed(operands, 1)
    height, width = elements(operands, 3).reshape(-1).tolist()
    return [(first.dtype, checked((regions.shape[0], first.shape[1], height, width)))]


def unfolded(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """UnfoldTensor: windows along an axis, their positions on a new last axis."""
    first = needed(operands, 0)
    axis = axis_of(node, "dim", -1, first.shape)
    size = count(node, "size")
    n_windows = max((first.shape[axis] - size) // count(node, "step", 1) + 1, 0)
    return [(first.dtype, checked((*first.shape[:axis], n_windows, *first.shape[axis + 1 :], size)))]


def into_blocks(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """ReorderInput: the channels in whole blocks, at least as many as the weight of the convolution that reads them.

    That weight is operand 1 (`weight_of_reader`). There is none for a pool, which reads whole blocks only.
    """
    first, weight = needed(operands, 0), given(operands, 1)
    batch, channels, *field = first.shape
    if integer(node, "channels_last", 0):
        batch, *field, channels = first.shape
    if weight is not None:
        n_filters, n_per_filter = weight.shape[:2]
        if n_per_filter == 1:  # depthwise: a filter for every channel
            n_per_filter = n_filters
        channels = max(channels, n_per_filter)
    return [(first.dtype, (batch, channels, *field))]


def weight_of_reader(model: onnx.ModelProto, node: onnx.NodeProto) -> str:
    """The weight of the first Conv that reads what a node writes; empty where none does."""
    for reader in all_nodes(model.graph):
        if (reader.domain, reader.op_type) == (NCHWC, "Conv") and reader.input[0] == node.output[0]:
            return str(reader.input[1])
    return ""


def out_of_blocks(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """ReorderOutput: as many channels as the node says."""
    first = needed(operands, 0)
    batch, _, *field = first.shape
    channels = count(node, "channels")
    if integer(node, "channels_last", 0):
        return [(first.dtype, (batch, *field, channels))]
    return [(first.dtype, (batch, channels, *field))]


def convolved_in_blocks(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """Conv in blocks: its weights count channels in blocks as well, except those of the first Conv of a model."""
    first, weight = needed(operands, 0), needed(operands, 1)
    channels = weight.shape[1] * count(node, "group", 1)
    read = [first._replace(shape=(first.shape[0], channels, *first.shape[2:])), weight]
    return [(first.dtype, standard_shape("Conv", read, node.attribute))]


def upsampled(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """Upsample by whole numbers."""
    first = needed(operands, 0)
    scales = integers(node, "scales") or (1,) * len(first.shape)
    return [(first.dtype, tuple(n * scale for n, scale in zip(first.shape, scales, strict=True)))]


def register_in_onnx() -> None:
    """Tell the onnx package that the standard domain has `IN_STANDARD_DOMAIN` from its first operator set on.

    Its checker refuses a node that it does not know, however right its shapes are.
    """
    for op in IN_STANDARD_DOMAIN:
        try:
            onnx.defs.get_schema(op, 1)
        except onnx.defs.SchemaError:
            onnx.defs.register_schema(_normalisation(op))


def _normalisation(op: str) -> onnx.defs.OpSchema:
    """The definition of a normalisation of rows: as in operator set 17, with statistics that may be left out."""
    later = onnx.defs.get_schema("LayerNormalization", 17)
    left_out: tuple[str, ...] = ()
    if op == "SimplifiedLayerNormalization":  # has no bias and no mean
        left_out = ("B", "Mean")
    return onnx.defs.OpSchema(
        op,
        "",
        1,
        inputs=[entry for entry in later.inputs if entry.name not in left_out],
        outputs=[entry for entry in later.outputs if entry.name not in left_out],
        type_constraints=[(entry.type_param_str, entry.allowed_type_strs, "") for entry in later.type_constraints],
        attributes=list(later.attributes.values()),
    )


_OF_MICROSOFT: tuple[tuple[ShapeRule, str], ...] = (
    (normalised, "LayerNormalization SimplifiedLayerNormalization"),
    (like_first, "BiasAdd BiasGelu BiasSoftmax FastGelu GatedAdd GatedRMSNorm Gelu GroupNorm Inverse"),
    (like_first, "LongformerAttention MoE QMoE QuickGelu RotaryEmbedding SampleOp ScaledSiLU SkipGroupNorm Trilu"),
    (skip_normalised, "SkipLayerNormalization SkipSimplifiedLayerNormalization"),
    (as_standard("Conv", 0, 1), "FusedConv"),
    (channels_last(as_standard("Conv", 0, 1)), "NhwcConv NhwcFusedConv"),
    (channels_last(as_standard("MaxPool", 0)), "NhwcMaxPool"),
    (as_standard("MaxPool", 0), "MaxpoolWithMask"),
    (as_standard("Gemm", 0, 1, 2), "FusedGemm"),
    (fused_matmul, "FusedMatMul FusedMatMulActivation TransposeMatMul"),
    (matmul(0, 1), "GemmFastGelu"),
    (packed_matmul, "MatMulNBits MatMulBnb4"),
    (halved, "BiasSplitGelu"),
    (gated, "SwiGLU"),
    (dropped, "BiasDropout"),
    (dropped_by_bits, "BitmaskBiasDropout BitmaskDropout"),
    (broadcast(0, 1), "ComplexMul ComplexMulConj MulInteger"),
    (as_standard("GatherND", 0, 1), "GatherND"),
    (as_standard("GridSample", 0, 1), "GridSample"),
    (distances, "CDist"),
    (causal, "CausalConvWithState"),
    (transposed_with_pads, "ConvTransposeWithDynamicPads"),
    (cropped, "CropAndResize"),
    (expanded, "ExpandDims"),
    (signal, "Irfft"),
    (padded, "Pad"),
    (counted, "Range"),
    (spectrum, "Rfft"),
    (looked_up, "TorchEmbedding"),
    (unfolded, "UnfoldTensor"),
)

RULES: dict[tuple[str, str], ShapeRule] = {
    (NCHWC, "ReorderInput"): into_blocks,
    (NCHWC, "ReorderOutput"): out_of_blocks,
    (NCHWC, "Conv"): convolved_in_blocks,
    (NCHWC, "Upsample"): upsampled,
}
for _op in IN_STANDARD_DOMAIN:
    RULES["", _op] = normalised
for _op in ("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool"):
    RULES[NCHWC, _op] = as_standard(_op, 0)
for _rule, _operators in _OF_MICROSOFT:
    RULES.update(((MICROSOFT, _op), _rule) for _op in _operators.split())

register_in_onnx()
