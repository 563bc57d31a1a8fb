"""The arithmetic of the host benchmark, and one round of its smallest model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from autoauto.records.layers import LayerRange
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.plans.timeline import Run, Timeline
from autoauto.records.schedule import FORWARD, Codes, Order, Schedule
from autoauto.records.units import Precision
from autoauto.space.knobs import Knobs
from studies.custom_target import model_of
from studies.host_benchmark import (
    ALONE,
    COLUMNS,
    NAMES,
    REPLICAS,
    SEARCH,
    SUMMARY,
    Entrant,
    MeasuredEntrant,
    error,
    row,
    run_in_turns,
    speed_of,
    summary,
)

pytest.importorskip("onnxruntime")


def plan(cycles: int) -> Plan:
    return Plan((Stage(LayerRange(0, 1), 0, cycles, 0, 0, 0, {}, 1),))


def steady(period_ms: float, n_pipelines: int = 1) -> Run:
    """Pipelines of one stage that is always busy."""
    period = int(period_ms * 1e6)
    codes = Codes(1, 8)
    schedule = Schedule(Order.INFERENCE, (0,), 8, (codes.of(FORWARD, 0, range(8)),))
    starts = np.arange(8) * period
    none = (np.zeros((0, 2), np.int64),)
    return Run(plan(period), (Timeline(schedule, (starts,), (starts + period,), none, 8 * period),) * n_pipelines)


def entrant(cycles: int, replicas: int = 1, name: str = "entrant") -> Entrant:
    flow: Any = None
    knobs = Knobs(n_ipu=1, batch_size=4, replicas=replicas, runtime="onnxruntime")
    return Entrant(name, flow, knobs, plan(cycles))


def test_a_row_has_throughput_its_interval_latency_and_the_error_of_the_prediction() -> None:
    cells = row("model", MeasuredEntrant(entrant(22_000_000), [steady(20.0)] * 3), 400.0)
    how_fast = ["200.00", "0.00", "0.50"]
    assert cells == ["model", "onnxruntime fp32", "4", "entrant", *how_fast, "20.0", "20.00", "22.00", "+10.0 %"]
    assert len(cells) == len(COLUMNS)
    assert row("model", MeasuredEntrant(entrant(1), [steady(20.0)]), 1.0)[5] == "-"


def test_the_predicted_period_is_divided_by_the_replicas() -> None:
    two = MeasuredEntrant(entrant(20_000_000, replicas=2), [steady(20.0, 2)])
    assert speed_of(two).mean == pytest.approx(400.0)
    assert error(two) == pytest.approx(0.0)


def test_the_summary_has_the_best_of_every_way_and_the_ratio_of_the_search_to_them() -> None:
    results = [
        MeasuredEntrant(entrant(20_000_000, name=name), [steady(period_ms)])
        for name, period_ms in ((ALONE, 20.0), (ALONE, 16.0), (REPLICAS, 10.0), (SEARCH, 8.0))
    ]
    cells = summary("model", Precision.FP32, results)
    assert cells == ["model", "fp32", "-", "250.00", "400.00", "-", "-", "500.00", "1.25", "-", "68.8 %"]
    assert len(cells) == len(SUMMARY)


def test_what_disturbs_a_whole_round_does_not_count_in_the_ratio() -> None:
    disturbed = (1.0, 2.0, 4.0)
    results = [
        MeasuredEntrant(entrant(1, name=name), [steady(period_ms * times) for times in disturbed])
        for name, period_ms in ((REPLICAS, 10.0), (SEARCH, 8.0))
    ]
    assert summary("model", Precision.FP32, results)[-3:-1] == ["1.25", "0.00"]


def test_entrants_run_in_turn() -> None:
    order: list[str] = []

    def recording(name: str) -> Any:
        def run() -> Run:
            order.append(name)
            return steady(1.0)

        return SimpleNamespace(run=run)

    results = run_in_turns([recording("a"), recording("b")], 2)
    assert order == ["a", "b", "a", "b"]
    assert [len(result.runs) for result in results] == [2, 2]


@pytest.mark.slow
@pytest.mark.timeout(300)  # about ten runs, each repeated while other processes disturb it
def test_every_way_to_run_a_model_has_its_row(run_script: Callable[..., list[str]], tmp_path: Path) -> None:
    onnx.save(model_of(n_layers=4, width=1024), tmp_path / "small.onnx")
    which = ["--models", "small.onnx", "--batch-sizes", "16", "--runtimes", "onnxruntime", "--precisions", "fp32"]
    options = [*which, "--rounds", "1", "--min-s", "0.1"]
    header, *lines = run_script("host_benchmark", *options)
    assert header.split() == " ".join(name for name, _ in COLUMNS).split()
    rows = lines[: lines.index("")]
    names = [next(name for name in NAMES if f" {name} " in line) for line in rows]
    assert names == [name for name in NAMES if name in names]
    assert {"one session, all cores", ALONE, SEARCH} <= set(names)
    assert lines[-2].split()[0] == "small.onnx"
    assert lines[-1].endswith(f"over {len(rows)} cells, measured")
