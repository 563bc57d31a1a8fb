"""PyTorch loads our CSV files, lowers them, and trains with them; we read what PyTorch writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autoauto.exporters.schedule_csv import write_schedule_csv
from autoauto.records.schedule import BACKWARD, Order, Schedule
from autoauto.schedule.csv_checks import read_schedule_csv
from autoauto.schedule.simulate.simulate import simulate
from tests.exporters.schedule_csv.conftest import CASES, Case, times_of
from tests.running import PATIENCE_S

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # those of torch
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def schedules() -> Any:
    """The module of PyTorch's schedules."""
    return pytest.importorskip("torch.distributed.pipelining.schedules", reason="torch loads the CSV, and is missing")


def programs(schedule: Schedule) -> list[list[str]]:
    return [list(map(str, schedule.actions(device))) for device in range(schedule.n_devices)]


def stages_of(n_stages: int, n_ranks: int, n_local: int = 1) -> list[Any]:
    """What a schedule asks of its stages before it runs."""
    fields = {"num_stages": n_stages, "group_size": n_ranks, "group_rank": 0, "submod": None, "is_last": False}
    return [SimpleNamespace(stage_index=index, **fields) for index in range(n_local)]


def loaded(schedules: Any, schedule: Schedule, path: Path) -> Any:
    """PyTorch's runtime with the schedule of a file."""
    stages = stages_of(schedule.n_stages, schedule.n_devices)
    runtime = schedules._PipelineScheduleRuntime(stages, schedule.n_micro_batches)
    runtime._load_csv(str(path), format="compute_only")
    return runtime


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.training and case.order is not Order.INFERENCE], ids=str
)
def test_pytorch_loads_and_lowers_every_order(
    schedules: Any, case: Case, made: Callable[[Case], Schedule], tmp_path: Path
) -> None:
    schedule, ours, theirs = made(case), tmp_path / "ours.csv", tmp_path / "theirs.csv"
    write_schedule_csv(schedule, ours)
    runtime = loaded(schedules, schedule, ours)
    letters = {"I": "B"} if schedule.has(2) else {}
    assert [
        [
            f"{a.stage_index}{letters.get(a.computation_type.value, a.computation_type.value)}{a.microbatch_index}"
            for a in row
        ]
        for row in runtime.pipeline_order.values()
    ] == programs(schedule)
    assert runtime.stage_index_to_group_rank == dict(enumerate(schedule.devices))
    runtime._dump_csv(str(theirs), format="compute_comms")
    again = read_schedule_csv(theirs)
    assert programs(again) == programs(schedule)
    assert simulate(again, times_of(case)).stop_tick == simulate(schedule, times_of(case)).stop_tick


def test_pytorch_refuses_a_file_without_backwards(
    schedules: Any, made: Callable[[Case], Schedule], tmp_path: Path
) -> None:
    """When this fails, the docstring of `schedule_to_csv` and docs/schedules.md can promise more."""
    schedule = made(Case(Order.INFERENCE, 2, 4))
    write_schedule_csv(schedule, tmp_path / "inference.csv")
    with pytest.raises(AssertionError, match="expected 4 total backwards"):
        loaded(schedules, schedule, tmp_path / "inference.csv")


@pytest.mark.parametrize("format", ["compute_only", "compute_comms"])
@pytest.mark.parametrize(
    ("name", "n_local"),
    [
        ("ScheduleLoopedBFS", 2),
        ("ScheduleInterleaved1F1B", 3),
        ("ScheduleInterleavedZeroBubble", 2),
        ("ScheduleZBVZeroBubble", 2),
        ("ScheduleDualPipeV", 2),
    ],
)
def test_files_of_pytorchs_own_schedules_are_read(
    schedules: Any, name: str, n_local: int, format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_ranks, n_micro_batches = 4, 12
    monkeypatch.setattr(schedules, "_check_torch_compile_compatibility", lambda *_: None)
    runtime = getattr(schedules, name)(
        stages_of(n_local * n_ranks, n_ranks, n_local), n_micro_batches, loss_fn=lambda *_: None
    )
    runtime._dump_csv(str(tmp_path / "torch.csv"), format=format)
    schedule = read_schedule_csv(tmp_path / "torch.csv")
    assert (schedule.n_devices, schedule.n_stages) == (n_ranks, n_local * n_ranks)
    assert (schedule.n_micro_batches, schedule.has(BACKWARD)) == (n_micro_batches, True)
    assert dict(enumerate(schedule.devices)) == runtime.stage_index_to_group_rank
    leaves = [
        [
            f"{a.stage_index}{a.computation_type.value}{a.microbatch_index}"
            for action in row
            if action
            for a in action.sub_actions or (action,)
        ]
        for row in runtime.pipeline_order.values()
    ]
    write_schedule_csv(schedule, tmp_path / "ours.csv")
    assert [line.split(",") for line in (tmp_path / "ours.csv").read_text().splitlines()] == leaves


RUNS = {
    "gpipe.csv": Case(Order.GPIPE, 2, 4),
    "1f1b.csv": Case(Order.ONE_F_ONE_B, 2, 4),
    "interleaved.csv": Case(Order.INTERLEAVED, 2, 4, 2),
    "zb1p.csv": Case(Order.ZB1P, 2, 4),
    "zbv.csv": Case(Order.ZBV, 2, 4),
    "popart.csv": Case(Order.POPART, 2, 4),
}


@pytest.fixture(scope="module")
def results(
    schedules: Any, made: Callable[[Case], Schedule], tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, dict[str, Any]]]:
    """What every rank printed for every file, by its name."""
    folder = tmp_path_factory.mktemp("torch")
    for name, case in RUNS.items():
        write_schedule_csv(made(case), folder / name)
    (folder / "mixed.csv").write_text("0F0,0F1,0F2,0I0,0F3,0W0,0B1,0B2,0I3,0W3\n1F0,1B0,1F1,1I1,1F2,1W1,1B2,1F3,1B3\n")
    files = [f"{made(case).n_stages}:{name}" for name, case in RUNS.items()] + ["2:mixed.csv"]
    program = str(Path(__file__).with_name("torch_pipeline.py"))
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, program, str(rank), "2", str(folder), *files],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        ends = [rank.communicate(timeout=4 * PATIENCE_S) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(errors for _, errors in ends)
    return [{result["file"]: result for result in map(json.loads, out.splitlines())} for out, _ in ends]


@pytest.mark.parametrize("name", [*RUNS, "mixed.csv"])
def test_a_pipeline_of_two_processes_computes_what_the_whole_model_does(
    results: list[dict[str, dict[str, Any]]], name: str
) -> None:
    ranks = [rank[name] for rank in results]
    n_stages = sum(len(rank["stages"]) for rank in ranks)
    assert sorted(stage for rank in ranks for stage in rank["stages"]) == list(range(n_stages))
    assert max(rank["gradient_error"] for rank in ranks) < 1e-6
    assert [rank["loss_error"] for rank in ranks if n_stages - 1 in rank["stages"]] == [pytest.approx(0, abs=1e-6)]
