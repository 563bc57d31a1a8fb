"""Fused kernels against every measured case of their kind."""

import doctest
from collections.abc import Callable
from typing import Any

import pytest

from studies import fused_kernels


@pytest.fixture(scope="module")
def measured(vectors: Callable[[str], Any]) -> Any:
    return vectors("ipu_kernel_cycles_measured")


def test_products_of_panels(measured: Any) -> None:
    for m, k, n, cycles in measured["gemm_fp16_interleaved"]["cases_MKN_cycles"]:
        assert fused_kernels.gemm_interleaved(m, k, n) == pytest.approx(cycles, rel=0.02)


def test_products_that_pack_their_rows(measured: Any) -> None:
    for m, k, n, layout, cycles in measured["gemm_fp16_packed"]["cases"]:
        assert fused_kernels.gemm_packed(m, k, n, layout == "interleaved") == pytest.approx(cycles, rel=0.01)


def test_rows_that_do_not_meet_the_edges_of_panels_cost_more() -> None:
    even, uneven = (fused_kernels.gemm_packed(rows, 64, 64) for rows in (96, 97))
    assert uneven > even + 16 * 184


def test_merging_attention(measured: Any) -> None:
    merge = measured["attention_merge_72"]
    assert fused_kernels.attention_merge(8, 72, initial=True) == merge["initial"]
    assert fused_kernels.attention_merge(8, 72) == merge["update"]
    assert fused_kernels.attention_merge(8, 72, final=True) == merge["final"]


def test_bias_and_gelu(measured: Any) -> None:
    for rows, width, cycles in measured["bias_gelu_rows_width"]["cases"]:
        assert fused_kernels.bias_gelu(rows, width) == pytest.approx(cycles, rel=0.01)


def test_additions_dense_and_of_a_row(measured: Any) -> None:
    dense, row = measured["add"]["cases"]
    assert fused_kernels.add(dense["dense_elements"], dense["dense_elements"]) == dense["cycles"]
    assert fused_kernels.add(row["elements"], row["broadcast"]) == row["cycles"]
    assert fused_kernels.add(1730, 1730) > 2 * fused_kernels.add(1728, 1728)  # pair by pair


def test_normalisation_with_the_residual(measured: Any) -> None:
    for rows, width, _, added, *_ in measured["layernorm_rows_width"]["cases_norm_fusedadd_moments_apply"]:
        assert fused_kernels.layernorm_add(rows, width) == pytest.approx(added, rel=0.01)


def test_the_examples_of_every_kernel_hold() -> None:
    results = doctest.testmod(fused_kernels)
    assert results.failed == 0
    assert results.attempted >= 6
