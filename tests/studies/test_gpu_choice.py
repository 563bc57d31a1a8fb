"""Choices among measured configurations by hand, and the program on few rows."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, log
from pathlib import Path
from statistics import NormalDist

import pytest

from autoauto.records.costs.decoder import Workload
from autoauto.targets.gpu.calibration import HELD, Group, Ratio, factor_of
from autoauto.targets.gpu.family_errors import TPOT_PRIOR, Prior
from studies.gpu_choice import Choosable, FactorOf, cases, coverage, factors_of, reliability, score
from tests.studies.test_gpu_accuracy import ROWS, written

GROUP = Group("model", "vllm", "h100_sxm", "")


REQUESTS = Workload(1024, 128)


def configuration(latency_s: float, tokens_per_s: float, forecast_s: float) -> Choosable:
    """With the forecast throughput in the order of the forecast latency."""
    return Choosable("", GROUP, REQUESTS, latency_s, tokens_per_s, forecast_s, 1e3 * forecast_s)


CASE = (configuration(0.010, 80.0, 0.010), configuration(0.016, 100.0, 0.0145), configuration(0.03, 200.0, 0.03))


def factor(held: float) -> FactorOf:
    """One that is normally distributed around 1 with so much at the share of `HELD`."""
    deviation = max(1e-9, log(held) / NormalDist().inv_cdf(HELD))
    made = factor_of([], Prior(deviation, 1e-9, 1.0, p_far=0.0))
    return lambda _: made


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
    other = CASE[0]._replace(requests=Workload(8, 8))
    assert cases([*CASE, other]) == [list(CASE)]


def test_rows_lie_within_intervals_and_keep_their_end() -> None:
    assert coverage(CASE, factor(1.01)) == pytest.approx((2 / 3, 2 / 3))
    assert coverage(CASE, factor(1.2)) == (1.0, 1.0)


def test_rows_of_the_same_requests_are_left_out() -> None:
    of_group = factors_of([(Workload(8, 8), Ratio(GROUP, 2.0, None)), (REQUESTS, Ratio(GROUP, 5.0, None))], "tpot")
    assert of_group(CASE[0]).factor == pytest.approx(factor_of([2.0], TPOT_PRIOR).factor)
    assert of_group(CASE[0]._replace(group=GROUP._replace(engine="sglang"))).n_rows == 0


def test_what_is_said_to_hold_is_compared_with_what_holds() -> None:
    """Of 20 ms, what was forecast with 10 and 14.5 ms is certain, what was with 30 is not; two rows keep it."""
    low, high = reliability(CASE, [0.02], factor(1.01))
    assert low == (0.0, 0.2, 1, 0.0)
    assert high == (0.95, 1.0, 2, 1.0)


@pytest.mark.slow
def test_the_program_runs(run_script: Callable[..., list[str]], tmp_path: Path) -> None:
    pytest.importorskip("aiconfigurator_core", reason="it has the measured times")
    names = [f"{letter}{i}" for i in range(8) for letter in "ab"]
    rows = str(written(tmp_path / "rows.csv", [f"{name}{ROWS[name[0] == 'b'][1:]}" for name in names]))
    for half in ("even", "odd"):
        for options in ([], ["--measured", rows], ["--n-measured", "1"], ["--bound", "ttft"]):
            lines = run_script("gpu_choice", "--rows", rows, "--half", half, *options)
            assert lines[0].startswith(f"all groups, bounds hold with a probability of {HELD:.0%}")
            assert "1 questions" in lines[1]
