"""The planner benchmark on its smallest size."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import pytest

from autoauto.estimate.table import cost_table
from autoauto.plan.pipeline.optimal import optimal
from autoauto.records.costs.cost import CostTable
from studies import planner_benchmark as bench


@pytest.fixture(scope="module")
def runs() -> Any:
    return bench.measure_all(bench.PLANNERS, bench.Setting(24, 4, "slow"), limit_s=10.0)


def endless(table: CostTable) -> None:
    while True:
        pass


def test_planners_are_stopped_and_empty_stages_are_no_partition() -> None:
    layers = bench.profile(bench.transformer(24), 100.0)
    table = cost_table(layers, bench.cluster(4, (70.0,)), 0.85)
    assert bench.measure(endless, table, 0.05) == (inf, None, 0)
    assert bench.measure(lambda _: (0, 9, 24, 24, 24), table, 10.0)[1:] == (None, 0)
    assert bench.measure(lambda _: None, table, 10.0)[1:] == (None, 0)
    run = bench.measure(lambda table: optimal(table).partition, table, 10.0)
    assert run.cost_cycles == optimal(table).cost_cycles
    assert run.excess_bytes <= 0


def test_no_planner_is_cheaper_than_the_optimum(runs: Any) -> None:
    assert len(runs) == len(bench.PLANNERS) * len(bench.MODELS)
    for key in runs:
        relative = bench.relative_cost(runs, *key)
        assert relative is None or relative >= 1
        assert key[1] not in {"optimal", "three axes"} or relative == 1


def test_a_row_has_a_cell_for_every_planner(runs: Any) -> None:
    setting = bench.Setting(24, 4, "slow")
    cells = list(bench.row(runs, setting, list(bench.PLANNERS)[2:], 10.0))
    assert cells[:3] == ["24", "4", "slow"]
    assert cells[6] == "-"  # nothing smaller to compare with
    assert len(cells) == 5 + len(bench.PLANNERS)


def test_growth_is_over_the_next_fewer_layers() -> None:
    milliseconds = {24: 2.0, 107: 3.0, 200: 12.0}
    runs = {
        (bench.Setting(n_layers, 4, "equal"), "optimal", model): bench.Run(ms, 1, 0)
        for n_layers, ms in milliseconds.items()
        for model in bench.MODELS
    }
    assert [bench.growth(runs, bench.Setting(n, 4, "equal")) for n in milliseconds] == [
        None,
        1.5,
        4.0,
    ]


def test_the_file_has_a_line_for_every_run(runs: Any, tmp_path: Path) -> None:
    bench.write_csv(tmp_path / "runs.csv", runs)
    with (tmp_path / "runs.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(runs)
    assert {row["planner"] for row in rows} == set(bench.PLANNERS)
    assert all(float(row["relative_cost"]) >= 1 for row in rows if row["relative_cost"])


def test_models_fill_most_of_the_memory() -> None:
    for operations, mib_a_device in bench.MODELS.values():
        profile = bench.profile(operations(1000), mib_a_device * 4)
        table = cost_table(profile, bench.cluster(4, (70.0,)), 0.85)
        used = [stage.total_bytes / stage.limit_bytes for stage in optimal(table).stages]
        assert all(start < stop for start, stop in pairwise(optimal(table).partition))
        assert 0.4 < sum(used) / 4 <= 1


@pytest.mark.slow
def test_the_table_ends_with_the_share_of_planning_in_a_search(
    run_script: Callable[..., list[str]], tmp_path: Path
) -> None:
    header, *lines = run_script("planner_benchmark", "--quick", "--layers", "24", "--csv", str(tmp_path / "runs.csv"))
    assert header.split()[:5] == ["layers", "devices", "links", "optimal", "three"]
    assert [line.split()[:3] for line in lines[:3]] == [["24", "4", links] for links in bench.LINKS_GBPS]
    for line, profiles in zip(lines[-2:], ("new", "known"), strict=True):
        match = re.fullmatch(rf"Default search, {profiles} profiles: (\d+) plans, [\d.]+% of [\d.]+ s", line)
        assert match
        assert int(match[1]) > 0
    assert len((tmp_path / "runs.csv").read_text(encoding="utf-8").splitlines()) == 1 + 3 * 3 * len(bench.PLANNERS)


@pytest.mark.slow
def test_every_period_has_a_time(run_script: Callable[..., list[str]]) -> None:
    header, line, _ = run_script("planner_benchmark", "--periods", "--quick", "--layers", "24")
    assert header.split() == ["layers", "devices", "barrier", "overlap", "serial", "duplex", "all", "to", "all"]
    assert line.split()[:2] == ["24", "4"]
    assert len(line.split()) == 2 + 2 * 5
    assert line.split()[3] == "1.00x"
