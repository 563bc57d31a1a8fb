"""Workers that join a study."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState

from autoauto.records.knobs import Knobs, SearchSpace
from autoauto.study.execution.leases import Leases
from autoauto.study.store.study import join_study, load_study
from autoauto.study.store.trials import ranges_of
from tests.running import PATIENCE_S, wait_until

Door = Callable[..., Any]
STORAGE = "sqlite:///studies/autoauto.db"
SMALL = ("resnet50", "--n-ipu", "1", "--batch-size", "1:8", "--memory-proportion", "0.6", "--study-name", "small")


def wanted(n: int) -> list[Knobs]:
    """Have workers measure n configurations that the search left out."""
    space = SearchSpace((2,), (0.6, 1.0), tuple(range(1, 9)))
    several = [knobs for cell in space.cells for knobs in cell][:n]
    Leases(join_study(STORAGE, "small")).want({knobs: ranges_of(space, knobs) for knobs in several})
    return several


def test_there_must_be_such_a_study(door: Door) -> None:
    assert door("worker", "--study-name", "small").code == 2
    door("search", *SMALL)
    code, _, err = door("worker", "--study-name", "smaller")
    assert (code, err.count("\n")) == (2, 1)
    assert "there is no study 'smaller' in this database; the studies are: small" in err


@pytest.mark.slow
def test_a_worker_measures_what_a_search_wants_and_ends_when_there_is_nothing(door: Door) -> None:
    door("search", *SMALL)
    several = wanted(3)
    out = door("worker", "--study-name", "small", "--idle", "1").out
    assert out.splitlines() == ["joined study small: 1 at a time", "nothing to measure for 1 s; 3 measured"]
    found = load_study(STORAGE, "small").get_trials()[-3:]
    assert [trial.params["batch_size"] for trial in found] == [knobs.batch_size for knobs in several]
    assert {trial.state for trial in found} == {TrialState.COMPLETE}
    assert door("worker", "--study-name", "small", "--idle", "0.5").out.splitlines()[-1].endswith("0 measured")


@pytest.mark.slow
def test_several_workers_give_the_answer_of_one(door: Door) -> None:
    assert door("search", *SMALL, "--json").code == 0
    door("search", *SMALL[:-1], "together", "--workers", "2", "--json")
    one, several = (load_study(STORAGE, name) for name in ("small", "together"))
    assert several.best_params == one.best_params
    assert several.best_value == one.best_value
    assert len(several.trials) == len(one.trials)


@pytest.mark.slow
@pytest.mark.parametrize("after_s", [0.0, 1.0, 3.0])
def test_ctrl_c_at_any_moment_is_one_line_and_nothing_is_left_running(tmp_path: Path, after_s: float) -> None:
    long = ("--method", "exhaustive")  # all 1,152: it does not end before it is stopped
    command = [sys.executable, "-m", "autoauto", "search", *long, "--workers", "2", "--study-name", "stopped"]
    environment = {**os.environ, "AUTOAUTO_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(Path.cwd())}
    search = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        wait_until(lambda: (tmp_path / "studies").exists() or search.poll() is not None, "a folder of studies")
        time.sleep(after_s)
        os.killpg(search.pid, signal.SIGINT)  # as a terminal does: to all processes of the command
        _, err = search.communicate(timeout=PATIENCE_S)
    finally:
        search.kill()
    assert err == "autoauto: interrupted; a search goes on from its finished trials when it is started again\n"
    assert search.returncode == 130
    wait_until(lambda: not processes_in(tmp_path), "no process")
    if (tmp_path / "studies/autoauto.db").exists():
        storage = f"sqlite:///{tmp_path}/studies/autoauto.db"
        if has_study(storage):
            assert all(trial.state.is_finished() for trial in load_study(storage, "stopped").get_trials())


def processes_in(folder: Path) -> list[str]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if os.readlink(f"/proc/{name}/cwd") == str(folder):
                found.append(name)
    return found


def has_study(storage: str) -> bool:
    import optuna

    try:
        return "stopped" in optuna.get_all_study_names(storage)
    except Exception:  # noqa: BLE001 (interrupted while it made its tables)
        return False
