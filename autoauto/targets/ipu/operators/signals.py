"""Fourier transforms: products with a matrix of sines and cosines, of long signals with two smaller ones.

Nothing is public about transforms in Graphcore's libraries, so that this is an assumption. A signal of a x b samples is
transformed as columns of a, weighed, and then as rows of b (Cooley and Tukey):

    signal of length a b  ->  b signals of length a  ->  a pass that weighs  ->  a signals of length b
"""

from __future__ import annotations

from math import isqrt, prod

from autoauto.targets.ipu.operator_cost import CostRule, OperatorContext, OperatorCost, by_operator, together
from autoauto.targets.ipu.operators import data_movement, products
from autoauto.targets.ipu.operators.elementwise import one_pass
from autoauto.targets.ipu.tiling.split import Product

_LONGEST_MATRIX = 1024  # a longer signal is cut: its matrix would have 4 MiB in halves, and more operations


def dft(context: OperatorContext) -> OperatorCost:
    """DFT along an axis; a real signal needs half of the bins (`onesided`)."""
    (axis,) = context.integers("axis", (-2,))[:1]
    before, after = context.shape(0), context.out_shape
    length = after[axis]
    if context.integer("onesided", 0):
        length = before[axis]
        if context.integer("inverse", 0):
            length = 2 * (min(before[axis], after[axis]) - 1)
    return transform(context, max(length, 1), parts=before[-1])


def rfft(context: OperatorContext) -> OperatorCost:
    """Rfft and Irfft along the last axis."""
    if context.layer.op == "Irfft":
        return transform(context, max(context.out_shape[-1], 1), parts=2)
    return transform(context, max(context.shape(0)[-1], 1), parts=1)


def stft(context: OperatorContext) -> OperatorCost:
    """STFT: frames that overlap are copied, weighed by a window, and transformed."""
    n_bins, window = context.out_shape[2], context.shape(2)
    if window:
        length = window[0]
    elif context.integer("onesided", 1):
        length = 2 * (n_bins - 1)
    else:
        length = n_bins
    n_elements = prod(context.out_shape[:2]) * length
    framed = data_movement.move_bytes(context, n_elements * context.precision.n_bytes, per_element=False)
    costs = [transform(context, max(length, 1), parts=1), framed]
    if window:
        costs.append(one_pass(context, n_elements, ("add",)))
    return together(*costs)


def transform(context: OperatorContext, length: int, parts: int) -> OperatorCost:
    """Signals of `length` samples, each of 1 part if it is real, and of 2 parts if it is complex."""
    if length <= _LONGEST_MATRIX:
        return products.multiply(context, lambda c: _by_matrix(c, length, parts), context.present[:1])
    columns = isqrt(length - 1) + 1
    rows = -(-length // columns)
    return together(
        products.multiply(context, lambda c: _of_pieces(c, length, columns, parts), context.present[:1]),
        one_pass(context, _n_signals(context) * 2 * length, ("add", "add", "add")),
        products.multiply(context, lambda c: _of_pieces(c, length, rows, 2)),
    )


def sines_product(context: OperatorContext, length: int, parts: int) -> Product:
    """The first or only product of a transform."""
    if length <= _LONGEST_MATRIX:
        return _by_matrix(context, length, parts)
    return _of_pieces(context, length, isqrt(length - 1) + 1, parts)


def _by_matrix(context: OperatorContext, length: int, parts: int) -> Product:
    n_signals = _n_signals(context)
    return products.matrix_product(context, 1, n_signals, length * parts, -(-prod(context.out_shape) // n_signals))


def _of_pieces(context: OperatorContext, length: int, piece: int, parts: int) -> Product:
    return products.matrix_product(context, 1, _n_signals(context) * -(-length // piece), piece * parts, 2 * piece)


def _n_signals(context: OperatorContext) -> int:
    """Signals in a tensor; an STFT has one a frame."""
    op, shape = context.layer.op, context.shape(0)
    if op == "STFT":
        return max(prod(context.out_shape[:2]), 1)
    if op == "Rfft":
        return max(prod(shape[:-1]), 1)
    if op == "Irfft":  # the last axis is that of real and imaginary parts
        return max(prod(shape[:-2]), 1)
    axis = context.integers("axis", (-2,))[0] % len(shape)
    return max(prod((*shape[:axis], *shape[axis + 1 : -1])), 1)


COST_RULES: dict[str, CostRule] = by_operator(
    {
        dft: "DFT",
        rfft: "Rfft Irfft",
        stft: "STFT",
    }
)
