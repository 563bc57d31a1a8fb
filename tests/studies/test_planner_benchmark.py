"""The benchmark's own machinery, on its smallest size."""

from __future__ import annotations

import csv
from itertools import pairwise
from math import inf
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autoauto.plan.pipeline.optimal import optimal
from autoauto.records.cost import CostTable


@pytest.fixture(scope="module")
def runs(study: ModuleType) -> Any:
    return study.measure_all(study.PLANNERS, study.Setting(24, 4, "slow"), limit_s=10.0)


def endless(table: CostTable) -> None:
    while True:
        pass


def test_planners_are_stopped_and_empty_stages_are_no_partition(study: ModuleType) -> None:
    layers = study.profile(study.transformer(24), 100.0)
    table = study.cost_table(layers, study.cluster(4, (70.0,)), 0.85)
    assert study.measure(endless, table, 0.05) == (inf, None, 0)
    assert study.measure(lambda _: (0, 9, 24, 24, 24), table, 10.0)[1:] == (None, 0)
    assert study.measure(lambda _: None, table, 10.0)[1:] == (None, 0)
    run = study.measure(lambda table: optimal(table).partition, table, 10.0)
    assert run.cost_cycles == optimal(table).cost_cycles
    assert run.excess_bytes <= 0


def test_nobody_is_cheaper_than_the_optimum(study: ModuleType, runs: Any) -> None:
    assert len(runs) == len(study.PLANNERS) * len(study.MODELS)
    for key in runs:
        relative = study.relative_cost(runs, *key)
        assert relative is None or relative >= 1
        assert key[1] not in {"optimal", "three axes"} or relative == 1


def test_a_row_has_a_cell_for_every_planner(study: ModuleType, runs: Any) -> None:
    setting = study.Setting(24, 4, "slow")
    cells = list(study.row(runs, setting, list(study.PLANNERS)[2:], 10.0))
    assert cells[:3] == ["24", "4", "slow"]
    assert cells[6] == "-"  # nothing smaller to compare with
    assert len(cells) == 5 + len(study.PLANNERS)


def test_growth_is_over_the_next_fewer_layers(study: ModuleType) -> None:
    milliseconds = {24: 2.0, 107: 3.0, 200: 12.0}
    runs = {
        (study.Setting(n_layers, 4, "equal"), "optimal", model): study.Run(ms, 1, 0)
        for n_layers, ms in milliseconds.items()
        for model in study.MODELS
    }
    assert [study.growth(runs, study.Setting(n, 4, "equal")) for n in milliseconds] == [None, 1.5, 4.0]


def test_the_file_has_a_line_for_every_run(study: ModuleType, runs: Any, tmp_path: Path) -> None:
    study.write_csv(tmp_path / "runs.csv", runs)
    with (tmp_path / "runs.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(runs)
    assert {row["planner"] for row in rows} == set(study.PLANNERS)
    assert all(float(row["relative_cost"]) >= 1 for row in rows if row["relative_cost"])


def test_models_fill_most_of_the_memory(study: ModuleType) -> None:
    for operations, mib_a_device in study.MODELS.values():
        profile = study.profile(operations(1000), mib_a_device * 4)
        table = study.cost_table(profile, study.cluster(4, (70.0,)), 0.85)
        used = [stage.total_bytes / stage.limit_bytes for stage in optimal(table).stages]
        assert all(start < stop for start, stop in pairwise(optimal(table).partition))
        assert 0.4 < sum(used) / 4 <= 1
