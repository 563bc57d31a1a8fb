"""Least squares without negative factors, as SciPy's."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from autoauto.estimate.regression import non_negative


@given(seed=st.integers(0, 2**32 - 1), n_rows=st.integers(1, 40), n_columns=st.integers(1, 15))
def test_it_is_that_of_scipy(seed: int, n_rows: int, n_columns: int) -> None:
    random = np.random.default_rng(seed)
    examples = random.random((n_rows, n_columns)) * (random.random((n_rows, n_columns)) < 0.5)
    matrix = np.vstack([examples, 0.05 * np.eye(n_columns)])  # rows that shrink, as the fit has them
    target = random.normal(size=len(matrix))
    assert np.allclose(non_negative(matrix, target), nnls(matrix, target)[0], rtol=1e-9, atol=1e-12)


def test_of_nothing_but_negative_columns_all_factors_are_zero() -> None:
    assert non_negative(np.eye(2), np.array([-1.0, -2.0])).tolist() == [0.0, 0.0]
