from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoauto.records.units import Precision
from autoauto.targets.ipu import kernels

HALF, SINGLE = Precision.FP16, Precision.FP32
Vectors = Callable[[str], Any]


@pytest.fixture(scope="module")
def measured(vectors: Vectors) -> Any:
    return vectors("ipu_kernel_cycles_measured")


def test_gemm_is_within_five_percent_of_measured_products(measured: Any) -> None:
    for m, k, n, cycles in measured["gemm_fp16_interleaved"]["cases_MKN_cycles"]:
        estimate = float(kernels.gemm(m, -(-k // 16), -(-n // 16), HALF, kernels.WIDE_WEIGHT_LOAD_CYCLES))
        assert estimate == pytest.approx(cycles, rel=0.05)


def test_gemm_is_within_three_percent_of_the_notebook_on_average(vectors: Vectors) -> None:
    notebook = vectors("amp_peak_flops_notebook")
    estimates = np.asarray(kernels.gemm(np.array(notebook["N"], dtype=float), 1, 1, HALF))
    errors = np.abs(estimates / np.array(notebook["cycles_from_tflops"]) - 1)
    assert errors.mean() < 0.005
    assert errors.max() < 0.05


@pytest.mark.parametrize(
    ("column", "load"),
    [("cycles_ld64", kernels.WEIGHT_LOAD_CYCLES), ("cycles_ld128", kernels.WIDE_WEIGHT_LOAD_CYCLES)],
)
def test_gemm_agrees_with_the_formula_computed_elsewhere(column: str, load: int, vectors: Vectors) -> None:
    for case in vectors("cost_model_formulas")["conv_1x1_amp_half"]["computed"]:
        estimate = float(kernels.gemm(case["rows"], case["in_groups_of_16"], case["out_groups_of_16"], HALF, load))
        assert estimate == case[column]


def test_reduce_is_exact(measured: Any) -> None:
    for elements, partials, cycles in measured["reduce_add_fp16"]["cases_elements_partials_cycles"]:
        assert kernels.reduce(elements, partials, HALF) == cycles


def test_gelu_is_exact(measured: Any) -> None:
    for elements, cycles in measured["gelu"]["cases"]:
        assert kernels.gelu(elements) == cycles


def test_softmax_is_within_five_percent(measured: Any) -> None:
    for case in measured["softmax_rows"]:
        cycles = case["cycles"] if isinstance(case["cycles"], int) else max(case["cycles"])
        for rows in (7, 8):
            assert kernels.softmax(rows, case.get("padded_to", case["keys"]), HALF) == pytest.approx(cycles, rel=0.05)


def test_layernorm_and_its_halves_are_exact(measured: Any) -> None:
    for rows, width, norm, _, moments, apply in measured["layernorm_rows_width"]["cases_norm_fusedadd_moments_apply"]:
        assert kernels.layernorm(rows, width, HALF) == norm
        assert kernels.moments(rows, width, HALF) == moments
        assert kernels.whiten(rows, width, HALF) == apply


def test_addition_is_exact(measured: Any) -> None:
    dense = measured["add"]["cases"][0]
    assert kernels.elementwise(dense["dense_elements"], ("add",), 2, HALF) == dense["cycles"]


@given(st.integers(1, 64), st.integers(1, 4000))
def test_rows_that_are_longer_take_longer(rows: int, width: int) -> None:
    assert kernels.softmax(rows, width + 48, HALF) > kernels.softmax(rows, width, HALF)
    for kernel in (kernels.layernorm, kernels.moments, kernels.whiten):
        assert kernel(rows, 8 * width + 192, HALF) > kernel(rows, 8 * width + 96, HALF)
        assert kernel(rows, 8 * width + 96, SINGLE) > kernel(rows, 8 * width + 96, HALF)


@pytest.mark.parametrize(("precision", "n_multiplications"), [(Precision.FP8, 128), (HALF, 64), (SINGLE, 16)])
def test_large_products_reach_the_rate_of_the_matrix_units(precision: Precision, n_multiplications: int) -> None:
    rows, panels = 6000, 64  # zeros, loads and launches do not matter any more
    panel = 32 // precision.n_bytes * 16
    cycles = float(kernels.gemm(rows, panels, 4, precision))
    assert 0.9 < rows * panels * 4 * panel / cycles / n_multiplications < 1


def test_the_first_panel_writes_zeros_in_single_precision() -> None:
    first, both = (float(kernels.gemm(600, panels, 1, SINGLE)) for panels in (1, 2))
    assert first > 1.8 * (both - first)


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 8), st.integers(1, 7))
def test_a_convolution_does_at_most_64_multiply_adds_a_cycle(lines: int, width: int, groups: int, taps: int) -> None:
    cycles = float(kernels.convolution(lines, width, (groups, groups), (taps, taps), HALF))
    assert lines * width * groups * groups * 256 * taps * taps / cycles < 64


@given(st.integers(1, 100_000), st.integers(1, 100_000))
def test_more_bytes_never_arrive_sooner(few: int, more: int) -> None:
    assert kernels.exchange(few + more) >= kernels.exchange(few)
    assert kernels.copy(few + more) > kernels.copy(few)
    assert kernels.reorder(few) > kernels.copy(few)


def test_vector_codelets_grow_with_the_field_and_the_kernel() -> None:
    for codelet in (kernels.sliding_window, kernels.vector_mac):
        small = float(codelet(7, 7, 2, (3, 3)))
        assert small < float(codelet(14, 7, 2, (3, 3))) < float(codelet(14, 14, 4, (3, 3)))
        assert small < float(codelet(7, 7, 2, (5, 5)))


def test_comparing_indices_is_cheaper_than_reading_rows() -> None:
    assert kernels.gather(100, 8, 0.1) < kernels.gather(100, 8, 1.0)
