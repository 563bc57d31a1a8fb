"""An answer that a stand-in for an engine measured, on the command line: forecast beside measured, and choices."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import RunCli

STAND_IN = Path(__file__).parents[3] / "launch" / "stand_in_engine.py"
SERVED = (
    "Qwen/Qwen3-8B",
    "--target",
    "gpu",
    "--cluster",
    "h100_sxm-2",
    "--engine",
    "vllm",
    "--isl",
    "64",
    "--osl",
    "8",
)
SMALL = ("--batch-size", "4,8", "--constraint", "tpot_s <= 0.5", "--study-name", "measured")


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of the engine's name that computes nothing, and answers as it does."""
    program = tmp_path / "vllm"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {STAND_IN} vllm "$@"\n')
    program.chmod(0o755)
    truth = tmp_path / "truth.json"
    truth.write_text('{"step_s": 0.002}')
    monkeypatch.setenv("STAND_IN", str(truth))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


@pytest.mark.slow
@pytest.mark.usefixtures("engine")
def test_it_has_forecast_and_measurement_and_what_a_choice_was_worth(run_cli: RunCli) -> None:
    pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")
    done = run_cli("search", *SERVED, *SMALL, "--measure", "1", "--measure-flips", "1", "--json")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    rows, best = answer["measured"]["rows"], answer["best"]
    assert len(rows) == 2
    assert best["tokens_per_s"] == pytest.approx(max(row["measured"]["tokens_per_s"] for row in rows))
    assert [bound["origin"] for bound in answer["bounds"]] == ["measured"]
    measured = [choice for choice in answer["choices"] if choice["measured_ratio"]]
    assert len(measured) == 1
    assert measured[0]["measured_ratio"] <= 1.0
    lines = run_cli("explain", "measured").out.splitlines()
    assert lines[0].endswith(
        f"measured (forecast {rows[answer['measured']['answer']]['forecast']['tokens_per_s']:,.0f})"
    )
    assert any(line.startswith("measuring ended: 1 were measured") for line in lines)
    assert any("measured 0." in line or "measured 1." in line for line in lines)
    page = run_cli("report", "measured", "--html", "page.html")
    assert page.code == 0
    html = Path("page.html").read_text()
    assert "Measured against forecast" in html
    assert "TPOT" in html
