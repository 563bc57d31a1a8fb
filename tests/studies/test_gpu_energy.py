"""The study of energy prints upper bounds beside measured joules, and which tables have a power."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("aiconfigurator_core", reason="it has the systems and the models")
pytest.importorskip("pyarrow", reason="tables of kernels are Parquet files")
ROWS = Path(__file__).parents[2] / "studies" / "recorded" / "polyserve_energy.csv"


def test_no_measured_energy_is_above_the_bound(run_script: Callable[..., list[str]]) -> None:
    printed = json.loads("".join(run_script("gpu_energy", "--rows", str(ROWS), "--json")))
    assert len(printed["rows"]) == 4
    for row in printed["rows"]:
        assert row["joules_per_token"] < row["max_joules_of_measured_speed"]
        assert row["joules_per_token"] == pytest.approx(
            row["share_of_limit"] * row["max_joules_of_measured_speed"], rel=0.01
        ), "joules are the mean power over tokens a second"
    assert all("gemm" not in name for name, has_power in printed["tables"].items() if has_power), "no product has one"
