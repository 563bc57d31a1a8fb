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
    statistics = (*first.shape[:axis], *(1 for _ in first.shape[axis:]))
    return [(first.dtype, first.shape), *[(TensorProto.FLOAT, statistics)] * 2]


def skip_normalised(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """A sum and its normalisation: the output, statistics of every row, and the sum."""
    first = needed(operands, 0)
    statistics = (TensorProto.FLOAT, (*first.shape[:-1], 1))
    return [(first.dtype, first.shape), statistics, statistics, (first.dtype, first.shape)]


def product(left: Shape, right: Shape) -> Shape:
    """The shape of a matrix product, batched as NumPy's `matmul`."""
    a, b = (left if len(left) > 1 else (1, *left)), (right if len(right) > 1 else (*right, 1))
    if a[-1] != b[-2]:
        raise ValueError(f"{a[-1]} is not {b[-2]} in {list(left)} and {list(right)}")
    rows, columns = a[-2:-1] if len(left) > 1 else (), b[-1:] if len(right) > 1 else ()
    return (*np.broadcast_shapes(a[:-2], b[:-2]), *rows, *columns)


def fused_matmul(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """FusedMatMul: each operand may be transposed, after its leading axis has moved behind the other batch axes."""
    left, right = needed(operands, 0), needed(operands, 1)
    return [(left.dtype, product(_turned(node, left.shape, "A"), _turned(node, right.shape, "B")))]


def _turned(node: onnx.NodeProto, shape: Shape, side: str) -> Shape:
    if integer(node, f"transBatch{side}", 0) and len(shape) > 2:
        shape = (*shape[1:-1], shape[0], shape[-1])
    turns = integer(node, f"trans{side}", 0) and len(shape) > 1
    return (*shape[:-2], shape[-1], shape[-2]) if turns else shape


def matmul(left: int, right: int, dtype_of: int = 0, dtype: int | None = None) -> ShapeRule:
    """The product of the operands at `left` and `right`, of the type of that at `dtype_of` or of `dtype`."""

    def rule(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
        kind = needed(operands, dtype_of).dtype if dtype is None else dtype
        return [(kind, product(needed(operands, left).shape, needed(operands, right).shape))]

    return rule


def packed_matmul(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """A product with a weight of K rows and N columns that are packed."""
    first = needed(operands, 0)
    turned = not integer(node, "transB", 1)  # of MatMulBnb4 alone
    depth, width = count(node, "K"), count(node, "N")
    depth, width = (width, depth) if turned else (depth, width)
    if first.shape[-1] != depth:
        raise ValueError(f"{first.shape[-1]} is not {depth} in {list(first.shape)} and the weight")
    return [(first.dtype, (*first.shape[:-1], width))]


def causal(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """CausalConvWithState, channels first: the output, and as many inputs as the next call needs."""
    first, weight = needed(operands, 0), needed(operands, 1)
    if integer(node, "channels_last", 0) or integer(node, "state_window", 0) or integer(node, "input_channels", 0):
        raise ValueError("only channels on the second axis and one state are known")
    state = checked(((weight.shape[2] - 1) * count(node, "dilation", 1),))
    return [(first.dtype, first.shape), (first.dtype, (*first.shape[:2], *state, *first.shape[3:]))]


def halved(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """BiasSplitGelu and the like: one half of the last axis gates the other half, which is the output."""
    first = needed(operands, 0)
    return [(first.dtype, (*first.shape[:-1], first.shape[-1] // 2))]


def gated(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """SwiGLU: two halves, apart or together."""
    return like_first(node, operands) if given(operands, 1) else halved(node, operands)


def dropped(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """Dropout fused with a sum: the output, and its mask."""
    first = needed(operands, 0)
    return [(first.dtype, first.shape), (TensorProto.BOOL, first.shape)]


def dropped_by_bits(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """BitmaskDropout, also fused with a sum: the output, and a mask of one bit an element, 32 in a number."""
    first = needed(operands, 0)
    n_words = ceil(int(np.prod(first.shape, dtype=np.int64)) / 32)
    return [(first.dtype, first.shape), (TensorProto.UINT32, (n_words,))]


def transposed_with_pads(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """ConvTranspose whose pads are an operand."""
    attributes = list(node.attribute)
    if given(operands, 2):
        attributes.append(helper.make_attribute("pads", elements(operands, 2).reshape(-1).tolist()))
    first = needed(operands, 0)
    return [(first.dtype, standard_shape("ConvTranspose", operands[:2], attributes))]


def padded(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """Pad: so many elements before the first and behind the last of every axis."""
    first = needed(operands, 0)
    pads = elements(operands, 1).reshape(2, -1)
    if pads.shape[1] != len(first.shape):
        raise ValueError(f"{pads.size} pads do not fit {list(first.shape)}")
    return [(first.dtype, checked(tuple(n + int(a + b) for n, a, b in zip(first.shape, *pads, strict=True))))]


def expanded(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """ExpandDims: an axis of length 1."""
    first = needed(operands, 0)
    axis = number(operands, 1)
    axis = axis if axis >= 0 else axis + len(first.shape) + 1
    if not 0 <= axis <= len(first.shape):
        raise ValueError(f"axis {number(operands, 1)} does not fit {list(first.shape)}")
    return [(first.dtype, (*first.shape[:axis], 1, *first.shape[axis:]))]


def counted(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """Range: as many elements as steps lie between the ends."""
    start, limit = (elements(operands, index).reshape(-1)[0] for index in (0, 1))
    step = elements(operands, 2).reshape(-1)[0] if given(operands, 2) else 1
    if not step:
        raise ValueError("the step of a range must not be 0")
    return [(needed(operands, 0).dtype, (max(ceil((limit - start) / step), 0),))]


def distances(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """CDist: the distance of every row of A from every row of B."""
    left, right = needed(operands, 0), needed(operands, 1)
    return [(left.dtype, (ranked(left, 2)[0], ranked(right, 2)[0]))]


def spectrum(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """Rfft: the first half of the bins of the last axis, real and imaginary."""
    first = needed(operands, 0)
    length = first.shape[-1]
    return [(first.dtype, (*first.shape[:-1], length // 2 + 1 if integer(node, "onesided", 1) else length, 2))]


def signal(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """Irfft: the real signal of bins that are laid out as `spectrum` gives them."""
    first = needed(operands, 0)
    *front, n_bins, _ = first.shape
    return [(first.dtype, checked((*front, 2 * (n_bins - 1) if integer(node, "onesided", 1) else n_bins)))]


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
    axis, size, step = axis_of(node, "dim", -1, first.shape), count(node, "size"), count(node, "step", 1)
    n_windows = max((first.shape[axis] - size) // step + 1, 0)
    return [(first.dtype, checked((*first.shape[:axis], n_windows, *first.shape[axis + 1 :], size)))]


def into_blocks(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """ReorderInput: channels in whole blocks, as many as the weight of its reader has; pools read whole blocks only.

    Behind its operand stands that weight (`weight_of_reader`).
    """
    first, weight = needed(operands, 0), given(operands, 1)
    batch, *field = first.shape
    channels = field.pop(-1 if integer(node, "channels_last", 0) else 0)
    if weight is not None:
        depthwise = weight.shape[1] == 1
        channels = max(channels, weight.shape[0] if depthwise else weight.shape[1])
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
    shape = (batch, *field, channels) if integer(node, "channels_last", 0) else (batch, channels, *field)
    return [(first.dtype, shape)]


def convolved_in_blocks(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """Conv in blocks: its weights count channels in blocks, too, but for the first one of a model."""
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
        if not _is_defined(op):
            onnx.defs.register_schema(_normalisation(op))


def _is_defined(op: str) -> bool:
    try:
        onnx.defs.get_schema(op, 1)
    except onnx.defs.SchemaError:
        return False
    return True


def _normalisation(op: str) -> onnx.defs.OpSchema:
    """The definition of a normalisation of rows: as in operator set 17, with statistics that may be left out."""
    later = onnx.defs.get_schema("LayerNormalization", 17)
    simple = op == "SimplifiedLayerNormalization"  # no bias, no mean
    return onnx.defs.OpSchema(
        op,
        "",
        1,
        inputs=[entry for entry in later.inputs if not simple or entry.name != "B"],
        outputs=[entry for entry in later.outputs if not simple or entry.name != "Mean"],
        type_constraints=[(entry.type_param_str, entry.allowed_type_strs, "") for entry in later.type_constraints],
        attributes=list(later.attributes.values()),
    )


def _of(domain: str, rule: ShapeRule, operators: str) -> dict[tuple[str, str], ShapeRule]:
    return {(domain, op): rule for op in operators.split()}


_LIKE_FIRST = (
    "BiasAdd BiasGelu BiasSoftmax FastGelu GatedAdd GatedRMSNorm Gelu GroupNorm Inverse LongformerAttention MoE QMoE "
    "QuickGelu RotaryEmbedding SampleOp ScaledSiLU SkipGroupNorm Trilu"
)

RULES: dict[tuple[str, str], ShapeRule] = {
    **{("", op): normalised for op in IN_STANDARD_DOMAIN},
    **_of(MICROSOFT, normalised, " ".join(IN_STANDARD_DOMAIN)),
    **_of(MICROSOFT, like_first, _LIKE_FIRST),
    **_of(MICROSOFT, skip_normalised, "SkipLayerNormalization SkipSimplifiedLayerNormalization"),
    **_of(MICROSOFT, as_standard("Conv", 0, 1), "FusedConv"),
    **_of(MICROSOFT, channels_last(as_standard("Conv", 0, 1)), "NhwcConv NhwcFusedConv"),
    **_of(MICROSOFT, channels_last(as_standard("MaxPool", 0)), "NhwcMaxPool"),
    **_of(MICROSOFT, as_standard("MaxPool", 0), "MaxpoolWithMask"),
    **_of(MICROSOFT, as_standard("Gemm", 0, 1, 2), "FusedGemm"),
    **_of(MICROSOFT, fused_matmul, "FusedMatMul FusedMatMulActivation TransposeMatMul"),
    **_of(MICROSOFT, matmul(0, 1), "GemmFastGelu"),
    **_of(MICROSOFT, packed_matmul, "MatMulNBits MatMulBnb4"),
    **_of(MICROSOFT, halved, "BiasSplitGelu"),
    **_of(MICROSOFT, gated, "SwiGLU"),
    **_of(MICROSOFT, dropped, "BiasDropout"),
    **_of(MICROSOFT, dropped_by_bits, "BitmaskBiasDropout BitmaskDropout"),
    **_of(MICROSOFT, broadcast(0, 1), "ComplexMul ComplexMulConj MulInteger"),
    **_of(MICROSOFT, as_standard("GatherND", 0, 1), "GatherND"),
    **_of(MICROSOFT, as_standard("GridSample", 0, 1), "GridSample"),
    (MICROSOFT, "CDist"): distances,
    (MICROSOFT, "CausalConvWithState"): causal,
    (MICROSOFT, "ConvTransposeWithDynamicPads"): transposed_with_pads,
    (MICROSOFT, "CropAndResize"): cropped,
    (MICROSOFT, "ExpandDims"): expanded,
    (MICROSOFT, "Irfft"): signal,
    (MICROSOFT, "Pad"): padded,
    (MICROSOFT, "Range"): counted,
    (MICROSOFT, "Rfft"): spectrum,
    (MICROSOFT, "TorchEmbedding"): looked_up,
    (MICROSOFT, "UnfoldTensor"): unfolded,
    (NCHWC, "ReorderInput"): into_blocks,
    (NCHWC, "ReorderOutput"): out_of_blocks,
    (NCHWC, "Conv"): convolved_in_blocks,
    (NCHWC, "Upsample"): upsampled,
    **{(NCHWC, op): as_standard(op, 0) for op in ["AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool"]},
}

register_in_onnx()
