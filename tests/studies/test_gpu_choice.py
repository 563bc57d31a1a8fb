"""Choices among measured configurations by hand, and the program on few rows."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from pathlib import Path

import pytest

from autoauto.targets.gpu.calibration import Factor, Group
from studies.gpu_choice import Choosable, cases, coverage, score
from tests.studies.test_gpu_accuracy import ROWS, written

GROUP = Group("model", "vllm", "h100_sxm", "")


def configuration(tpot_s: float, tokens_per_s: float, forecast_tpot_s: float) -> Choosable:
    """With the forecast throughput in the order of the forecast TPOT."""
    return Choosable("", GROUP, (1024, 128), tpot_s, tokens_per_s, forecast_tpot_s, 1e3 * forecast_tpot_s)


CASE = (configuration(0.010, 80.0, 0.010), configuration(0.016, 100.0, 0.0145), configuration(0.03, 200.0, 0.03))


def factor(held: float) -> Callable[[Group], Factor]:
    return lambda group: Factor(1.0, 0.9, 1.05, held, 0)


def test_the_most_forecast_throughput_within_the_bound_is_chosen() -> None:
    assert score([CASE], [inf], factor(1.0)) == (1, 0, 1.0, 1.0, 1.0)
    assert score([CASE], [0.015], factor(1.0)).met == 0.0, "the second takes 16 ms of 14.5 that were forecast"
    assert score([CASE], [0.02], factor(1.0)) == (1, 0, 1.0, 1.0, 1.0)


def test_a_margin_keeps_bounds_and_costs_throughput() -> None:
    assert score([CASE], [0.015], factor(1.1)) == (1, 0, 1.0, 1.0, 1.0)
    assert score([CASE], [0.02], factor(1.4)) == (1, 0, 1.0, 0.8, 0.8)


def test_bounds_that_no_measured_configuration_meets_are_no_case() -> None:
    assert score([CASE], [0.005], factor(1.0)).n_cases == 0


def test_no_answer_counts_as_no_throughput() -> None:
    result = score([CASE], [0.015, 0.02], factor(1.6))
    assert (result.n_cases, result.n_unanswered, result.throughput, result.throughput_of_all) == (2, 1, 0.8, 0.4)


def test_one_configuration_is_no_choice() -> None:
    other = CASE[0]._replace(requests=(8, 8))
    assert cases([*CASE, other]) == [list(CASE)]


def test_rows_lie_within_intervals_and_keep_their_end() -> None:
    within, below = coverage(CASE, factor(1.2))
    assert within == pytest.approx(2 / 3)
    assert below == 1.0


@pytest.mark.slow
def test_the_program_runs(run_script: Callable[..., list[str]], tmp_path: Path) -> None:
    pytest.importorskip("aiconfigurator_core", reason="it has the measured times")
    names = [f"{letter}{i}" for i in range(8) for letter in "ab"]
    rows = str(written(tmp_path / "rows.csv", [f"{name}{ROWS[name[0] == 'b'][1:]}" for name in names]))
    for half in ("even", "odd"):
        for options in ([], ["--measured", rows], ["--n-measured", "1"]):
            lines = run_script("gpu_choice", "--rows", rows, "--half", half, *options)
            assert lines[0].startswith("all groups, bounds hold at an end that 65% of rows keep")
            assert "1 questions" in lines[1]
