"""Shape rules of standard operators on signals: `RULES`."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from autoauto.graph.shapes.shape_rule import Operands, Output, ShapeRule, given, integer, needed, number


def stft(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """STFT: a spectrum a frame; of real signals, by default, half of it. onnx gives the whole by default."""
    signal, window = needed(operands, 0), given(operands, 2)
    if len(signal.shape) < 2:
        raise ValueError(f"a signal must have 2 or 3 axes, its shape is {list(signal.shape)}")
    length = number(operands, 3) if given(operands, 3) or window is None else window.shape[0]
    step = number(operands, 1)
    n_samples = signal.shape[1]
    if not 0 < length <= n_samples or step < 1:
        raise ValueError(f"frames of {length} at steps of {step} must lie in a signal of {n_samples}")
    n_bins = length // 2 + 1 if integer(node, "onesided", 1) else length
    return [(signal.dtype, (signal.shape[0], (n_samples - length) // step + 1, n_bins, 2))]


RULES: dict[tuple[str, str], ShapeRule] = {("", "STFT"): stft}
