"""Pairs of measured configurations by hand, and the program on few rows."""

from __future__ import annotations

from collections.abc import Callable
from math import log
from pathlib import Path

import pytest

from autoauto.evaluate.serving.margins import EngineChoice
from studies.gpu_margins import Point, chosen_shares, pairs_of
from tests.studies.test_gpu_accuracy import ROWS, written


def point(n_gpus: int, forecast: float, measured: float, case: str = "a") -> Point:
    served = EngineChoice("vllm", ("bf16", "bf16"), 1, (n_gpus, 1, 1))
    return Point((case,), (case,), served, log(forecast), log(measured))


def test_pairs_are_of_one_case_the_higher_forecast_first() -> None:
    small, large, other = point(1, 1.0, 1.0), point(4, 1.1, 1.0), point(2, 1.0, 1.0, "b")
    assert pairs_of([small, large, other]) == [(large, small)]


def test_the_simplest_of_a_tie_is_chosen() -> None:
    """A group of 1 is forecast 4 % less than one of 4, and measured 10 % less."""
    points = [point(4, 1.04, 1.0), point(1, 1.0, 0.9)]
    assert chosen_shares(points, "case", 0.5) == ([1.0], 0)
    (share,), n_simpler = chosen_shares(points, "case", 0.7)
    assert share == pytest.approx(0.9)
    assert n_simpler == 1


def test_a_larger_group_is_never_chosen_for_a_tie() -> None:
    points = [point(1, 1.04, 1.0), point(4, 1.0, 1.1)]
    (share,), n_simpler = chosen_shares(points, "case", 0.9)
    assert share == pytest.approx(1 / 1.1)
    assert n_simpler == 0


@pytest.mark.slow
def test_the_program_runs(run_script: Callable[..., list[str]], tmp_path: Path) -> None:
    pytest.importorskip("aiconfigurator_core", reason="it has the measured times")
    names = [f"{letter}{i}" for i in range(8) for letter in "ab"]
    rows = str(written(tmp_path / "rows.csv", [f"{name}{ROWS[name[0] == 'b'][1:]}" for name in names]))
    assert run_script("gpu_margins", "--rows", rows)[0].startswith("even: ")
    assert run_script("gpu_margins", "--rows", rows, "--fit")[0] == "difference,n_pairs,deviation,source"
