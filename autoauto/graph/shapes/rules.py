"""Shape rules of operators for which onnx has none, or a wrong one: `SHAPE_RULES`, by domain and operator.

A rule reads a node and the values of its operands, and returns the element type and the shape of every output in order.
A shape that depends on data is None. It raises `ValueError` with the reason where the operands do not fit. To add one,
put it into the table of the file that fits; the definitions are those of the documentation of the domain
[onnxruntime-contrib]. What else operands must be, for an operator of any domain, `operand_rules/` says.

    contrib.py               what ONNX Runtime's optimiser fuses and lays out anew
    contrib_attention.py     attention and embeddings of transformers
    contrib_quantised.py     what its quantiser writes
    classic.py               trees, linear models and encoders of `ai.onnx.ml`

Here are standard operators of which onnx gives a wrong shape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import onnx

from autoauto.graph.onnx_file import attribute_named
from autoauto.graph.shapes import classic, contrib, contrib_attention, contrib_quantised
from autoauto.graph.shapes.shape_rule import (
    Operands,
    Output,
    ShapeRule,
    given,
    integer,
    like_first,
    needed,
    number,
    or_open,
)


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


def einsum(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """Einsum: a letter is an axis of one length, which may be 1 in some operands; onnx takes the first it reads."""
    attribute = attribute_named(node, "equation")
    equation = "" if attribute is None else attribute.s.decode().replace(" ", "")
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise ValueError(f"{equation} must have a term for every operand, of which there are {len(operands)}")
    lengths: dict[str, int] = {}
    spread: tuple[int, ...] = ()  # the axes of "..."
    for index, term in enumerate(terms):
        shape = needed(operands, index).shape
        front, dots, back = term.partition("...")
        n_spread = len(shape) - len(front) - len(back)
        if n_spread < 0 or (n_spread > 0 and not dots):
            raise ValueError(f"{term} must name the axes of operand {index}, which has {list(shape)}")
        spread = tuple(np.broadcast_shapes(spread, shape[len(front) : len(front) + n_spread]))
        ends = shape[: len(front)] + shape[len(front) + n_spread :]
        for letter, length in zip(front + back, ends, strict=True):
            known = lengths.get(letter, 1)
            if 1 not in (known, length) and known != length:
                raise ValueError(f"{letter!r} of {equation} must have one length, it has {known} and {length}")
            lengths[letter] = length if known == 1 else known
    if not arrow:
        n_uses = Counter(left.replace(",", "").replace(".", ""))
        result = "..." + "".join(sorted(letter for letter, n in n_uses.items() if n == 1))
    front, dots, back = result.partition("...")
    if not set(front + back) <= lengths.keys() or len(set(front + back)) < len(front + back):
        raise ValueError(f"the result of {equation} must have letters of its terms, each once")
    shape = (*(lengths[letter] for letter in front), *(spread if dots else ()), *(lengths[letter] for letter in back))
    return [(needed(operands, 0).dtype, shape)]


_RULES: dict[tuple[str, str], ShapeRule] = {
    ("", "GroupNormalization"): like_first,
    ("", "MeanVarianceNormalization"): like_first,
    **classic.RULES,
    **contrib.RULES,
    **contrib_attention.RULES,
    **contrib_quantised.RULES,
    ("", "Einsum"): einsum,
    ("", "STFT"): stft,
}

SHAPE_RULES: dict[tuple[str, str], ShapeRule] = {key: or_open(rule) for key, rule in _RULES.items()}
"""By domain and operator."""
