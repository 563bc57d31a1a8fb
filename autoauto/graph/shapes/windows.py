"""Windows that are longer than what they read, which onnx's inference accepts: `check_windows`, `check_lengths`.

onnx divides towards zero: a window of 16 at steps of 16 over a signal of 8 gets an output of length 1. ONNX Runtime
refuses that of a convolution and computes it of a pool; neither makes an output without elements of a longer signal.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from autoauto.graph.onnx_file import attribute_named
from autoauto.graph.shapes.shape_rule import Operands, given, integer, integers
from autoauto.graph.shapes.values import Value, label
from autoauto.records.errors import UnreadableModel

_CONVOLUTIONS = dict.fromkeys(("Conv", "ConvInteger", "FusedConv", "NhwcConv", "NhwcFusedConv"), 1) | {"QLinearConv": 3}
"""With the operand that is the weight."""
_POOLS = frozenset({"AveragePool", "LpPool", "MaxPool", "MaxpoolWithMask", "NhwcMaxPool", "QLinearAveragePool"})
_SHORTENED = frozenset(
    {"ConvTranspose", "ConvTransposeWithDynamicPads", "DeformConv", "Pad", "Resize", "UnfoldTensor", "Upsample"}
)
"""Other operators that cut off ends, or leave out elements."""
_TRY = "try a longer input with --shape"


class WindowTooLong(UnreadableModel):
    """A node reads windows that are longer than its input; it runs at greater lengths only."""


def check_windows(node: onnx.NodeProto, operands: Operands) -> None:
    """Refuse a node whose windows are longer than what it reads; raises `WindowTooLong`."""
    read = given(operands, 0)
    if read is None:
        return
    if node.op_type in _CONVOLUTIONS:
        kernel = integers(node, "kernel_shape")
        weight = given(operands, _CONVOLUTIONS[node.op_type])
        if not kernel and weight is not None:
            kernel = weight.shape[2:]
        _check_strides(node, read, kernel)
    elif node.op_type in _POOLS:
        _check_strides(node, read, integers(node, "kernel_shape"), is_pool=True)
    elif node.op_type == "Pad" and _text(node, "mode") == b"reflect":
        _check_reflection(node, read, operands)
    elif node.op_type == "STFT":
        window, length = given(operands, 2), _number(operands, 3)
        if length is None and window is not None and window.shape:
            length = window.shape[0]
        if length is not None and len(read.shape) > 1 and length > read.shape[1]:
            raise WindowTooLong(
                f"a frame must not be longer than its signal, {label(node)} has frames of {length} and reads a signal "
                f"of {read.shape[1]}; {_TRY}"
            )
    elif node.op_type == "DFT":
        length = _number(operands, 1)
        if length is not None and length < 1:
            raise WindowTooLong(f"a transform needs a length of 1 or more, {label(node)} has {length}; {_TRY}")


def check_lengths(node: onnx.NodeProto, operands: Operands, written: Sequence[Value]) -> None:
    """Refuse a node that would make an output of negative length, or cut off everything; raises `WindowTooLong`."""
    first = given(operands, 0)
    read = first.shape if first is not None else ()
    # These operators make axes shorter: an output without elements means that nothing is left.
    shortest = 1 if node.op_type in _SHORTENED and 0 not in read else 0
    for value in written:
        if any(length < shortest for length in value.shape):
            raise WindowTooLong(
                f"an axis must have a length of {shortest} or more, {label(node)} would make {list(value.shape)} of "
                f"{list(read)}; {_TRY}"
            )


def _check_strides(node: onnx.NodeProto, read: Value, kernel: Sequence[int], is_pool: bool = False) -> None:
    """Refuse windows that reach over the end of the padded input; windows of a pool may do so by less than a step."""
    if _text(node, "auto_pad").startswith(b"SAME"):
        return
    lengths = read.shape[2:]
    if node.op_type.startswith("Nhwc") or integer(node, "channels_last", 0):
        lengths = read.shape[1:-1]
    n_axes = len(lengths)
    dilations = integers(node, "dilations") or (1,) * n_axes
    steps: tuple[int, ...] = (1,) * n_axes  # a window reaches over the end by less than this
    if is_pool:
        steps = integers(node, "strides") or steps
    pads = integers(node, "pads") or (0,) * 2 * n_axes
    if not len(kernel) == len(dilations) == len(steps) == n_axes or len(pads) != 2 * n_axes:
        return  # onnx says what does not fit
    spans = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    padded = [length + sum(pads[axis::n_axes]) for axis, length in enumerate(lengths)]
    if any(span - length >= step for span, length, step in zip(spans, padded, steps, strict=True)):
        raise WindowTooLong(
            f"a window must not be longer than what it reads, {label(node)} has windows of {spans} "
            f"and reads {padded}, padding included; {_TRY}"
        )


def _check_reflection(node: onnx.NodeProto, read: Value, operands: Operands) -> None:
    """Refuse a reflection with more elements than lie behind the edge, after negative pads have cut off some."""
    pads: Sequence[int] = integers(node, "pads")
    axes: Sequence[int] = range(len(read.shape))
    of_pads, of_axes = given(operands, 1), given(operands, 3)
    if of_pads is not None:
        pads = () if of_pads.data is None else of_pads.data.reshape(-1).tolist()
    if of_axes is not None:
        axes = () if of_axes.data is None else of_axes.data.reshape(-1).tolist()
    half, n_axes = len(pads) // 2, len(read.shape)
    for axis, before, after in zip(axes, pads[:half], pads[half:], strict=False):
        if not (before or after) or not -n_axes <= axis < n_axes:
            continue
        if max(before, after, 0) >= read.shape[axis] + min(before, 0) + min(after, 0):
            raise WindowTooLong(
                f"a reflection must be shorter than its axis, {label(node)} pads axis {axis % n_axes} of "
                f"{list(read.shape)} by {before} and {after}; {_TRY}"
            )


def _number(operands: Operands, index: int) -> int | None:
    value = given(operands, index)
    if value is None or value.data is None or value.data.size != 1:
        return None
    return int(value.data.reshape(-1)[0])


def _text(node: onnx.NodeProto, name: str) -> bytes:
    attribute = attribute_named(node, name)
    return b"" if attribute is None else attribute.s
