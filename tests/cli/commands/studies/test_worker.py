"""Workers that join a study, and Ctrl-C while processes measure."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest
from optuna.study import Study
from optuna.trial import TrialState

import autoauto
from autoauto.cli.options.study import DEFAULT_STORAGE
from autoauto.space.knobs import Knobs
from autoauto.space.space import SearchSpace
from autoauto.study.execution.leases import Leases
from autoauto.study.store.study import join_study, load_study
from autoauto.study.store.trials import ranges_of
from tests.cli.conftest import Prepare, RunCli
from tests.running import PATIENCE_S, wait_until

SMALL = (
    "resnet50",
    "--n-ipu",
    "1",
    "--replicas",
    "1",
    "--batch-size",
    "1:8",
    "--memory-proportion",
    "0.6",
    "--study-name",
    "small",
)


def test_the_study_must_exist(run_cli: RunCli) -> None:
    assert run_cli("worker", "--study-name", "small").code == 2
    run_cli("search", *SMALL)
    code, _, err = run_cli("worker", "--study-name", "smaller")
    assert (code, err.count("\n")) == (2, 1)
    assert "there is no study 'smaller' in sqlite:///studies/autoauto.db; did you mean 'small'?" in err


@pytest.mark.slow
def test_a_worker_measures_what_a_search_wants_and_ends_when_there_is_nothing(
    run_cli: RunCli, prepare: Prepare
) -> None:
    prepare("search", *SMALL)
    configurations = want(3)
    out = run_cli("worker", "--study-name", "small", "--idle", "1").out
    assert out.splitlines() == ["joined study small: 1 at a time", "nothing to measure for 1 s; 3 measured"]
    trials = load_study(DEFAULT_STORAGE, "small").get_trials()[-3:]
    assert [trial.params["batch_size"] for trial in trials] == [knobs.batch_size for knobs in configurations]
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}
    assert run_cli("worker", "--study-name", "small", "--idle", "0.5").out.splitlines()[-1].endswith("0 measured")


def want(n: int) -> list[Knobs]:
    """Have workers measure n configurations that the search left out."""
    space = SearchSpace((2,), (0.6, 1.0), tuple(range(1, 9)))
    configurations = [knobs for cell in space.cells for knobs in cell][:n]
    Leases(join_study(DEFAULT_STORAGE, "small")).request({knobs: ranges_of(space, knobs) for knobs in configurations})
    return configurations


@pytest.mark.slow
def test_several_processes_measure_the_same_as_one(run_cli: RunCli) -> None:
    assert run_cli("search", *SMALL).code == 0
    assert run_cli("search", *SMALL[:-1], "together", "--workers", "2").code == 0
    alone, together = (values_of(load_study(DEFAULT_STORAGE, name)) for name in ("small", "together"))
    assert together == alone


def values_of(study: Study) -> list[tuple[int, float | None]]:
    """Batch size and throughput of every trial, in any order."""
    return sorted((trial.params["batch_size"], trial.value) for trial in study.get_trials())


@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    [
        pytest.param("SELECT 1", id="when the database exists"),
        pytest.param("SELECT 1 FROM studies", id="when the study exists"),
        pytest.param("SELECT 1 FROM trials WHERE state = 'COMPLETE'", id="after the first trial"),
        pytest.param("SELECT 1 FROM trials WHERE state = 'COMPLETE' LIMIT 1 OFFSET 9", id="after 10 trials"),
    ],
)
def test_ctrl_c_at_any_moment_is_one_line_and_leaves_nothing_running(tmp_path: Path, query: str) -> None:
    long = ("--method", "exhaustive")  # 1,152 configurations: the search does not end before it is interrupted
    command = [sys.executable, "-m", "autoauto", "search", *long, "--workers", "2", "--study-name", "stopped"]
    package = str(Path(autoauto.__file__).parents[1])
    environment = {**os.environ, "AUTOAUTO_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": package}
    database = tmp_path / "studies/autoauto.db"
    search = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        wait_until(lambda: has_row(database, query) or search.poll() is not None, f"a row of {query}")
        os.killpg(search.pid, signal.SIGINT)  # as a terminal does: to all processes of the command
        _, err = search.communicate(timeout=PATIENCE_S)
    finally:
        search.kill()
    assert err == "autoauto: interrupted; a search continues from its finished trials when it is started again\n"
    assert search.returncode == 130
    wait_until(lambda: not processes_in(tmp_path), "no process")
    assert not has_row(database, "SELECT 1 FROM trials WHERE state IN ('RUNNING', 'WAITING')")


def has_row(database: Path, query: str) -> bool:
    """Whether a query of the database has a result; False while there is no database or no such table."""
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as reader:
        return reader.execute(query).fetchone() is not None
    return False


def processes_in(folder: Path) -> list[str]:
    """The processes whose working directory is the folder."""
    processes = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if os.readlink(f"/proc/{name}/cwd") == str(folder):
                processes.append(name)
    return processes
