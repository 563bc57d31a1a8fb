"""Choices between measured pools by hand, and the program on few rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from studies.gpu_pools import Rated, choices, is_right
from tests.studies.test_gpu_accuracy import ROWS, written


def rated(tpot_s: float, of_gpu: float, forecast: float, *, has_pools: bool = False, case: str = "a") -> Rated:
    return Rated((case,), has_pools, tpot_s, of_gpu, forecast)


def test_the_best_of_each_kind_under_a_bound_are_compared() -> None:
    slow, fast = rated(0.04, 9.0, 9.0), rated(0.01, 4.0, 4.0)
    pooled, alone = rated(0.01, 5.0, 3.0, has_pools=True), rated(0.01, 1.0, 1.0, case="b")
    assert list(choices([slow, fast, pooled, alone])) == [(fast, pooled), (slow, pooled)]


def test_a_choice_is_right_where_it_is_the_measured_one_or_both_are_the_same() -> None:
    pooled = rated(0.01, 5.0, 3.0, has_pools=True)
    assert is_right((rated(0.01, 9.0, 9.0), pooled))
    assert not is_right((rated(0.01, 4.0, 4.0), pooled))
    assert is_right((rated(0.01, 4.9, 4.0), pooled))


@pytest.mark.slow
def test_the_program_runs(run_script: Callable[..., list[str]], tmp_path: Path) -> None:
    pytest.importorskip("aiconfigurator_core", reason="it has the measured times")
    lines = run_script("gpu_pools", "--rows", str(written(tmp_path / "rows.csv", ROWS)))
    assert lines[0] == "0 questions have measured rows of one pool and of two"
