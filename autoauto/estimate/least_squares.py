"""Non-negative least squares, `non_negative`."""

from __future__ import annotations

import numpy as np

from autoauto.records.units import BoolArray, FloatArray

_MAX_ENTRIES = 3  # of a column, on average


def non_negative(matrix: FloatArray, target: FloatArray) -> FloatArray:
    """The x >= 0 for which |matrix x - target| is smallest [lawson-hanson].

    Columns enter one at a time, that along which the error falls most steeply first; those that are in have the plain
    least squares. Where these would make an x negative, x moves towards them until one is 0, which leaves:

        free    plain least squares     x
        a       a  3                    3
        a b     a  2   b  4             2  4
        a b c   a -1   b  3   c 3       0  3.3  2        two thirds of the way; a leaves, b and c are solved for again

    Ours, since SciPy's takes 0.3 s to import, a tenth of a search. The columns must be independent.

    >>> non_negative(np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([2.0, 1.0]))
    array([1.5, 0. ])
    """
    x = np.zeros(matrix.shape[1])
    is_in = np.zeros(len(x), dtype=np.bool_)
    # Slopes as small as this are of rounding.
    tolerance = 10 * max(matrix.shape) * np.finfo(np.float64).eps * np.abs(matrix).sum(axis=0).max()
    for _ in range(_MAX_ENTRIES * len(x)):
        slopes = np.where(is_in, -np.inf, matrix.T @ (target - matrix @ x))
        if slopes.max() <= tolerance:
            return x  # no column that is out lowers the error
        is_in[slopes.argmax()] = True
        while (plain := _plain(matrix, target, is_in)).min() < 0.0:
            # As far towards the plain solution as the first x reaches 0; its column leaves.
            falls = plain < 0.0
            x += (x[falls] / (x[falls] - plain[falls])).min() * (plain - x)
            is_in &= x > tolerance
            x[~is_in] = 0.0
        x = plain
    raise ArithmeticError("least squares do not converge: columns depend on each other")


def _plain(matrix: FloatArray, target: FloatArray, is_in: BoolArray) -> FloatArray:
    plain = np.zeros(matrix.shape[1])
    plain[is_in] = np.linalg.lstsq(matrix[:, is_in], target)[0]
    return plain
