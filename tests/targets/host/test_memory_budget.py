"""A worker under a memory budget: limits that bite, failures that travel, nothing left behind."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pytest

from autoauto.records.errors import BadInput, OutOfMemory
from autoauto.records.units import MIB
from autoauto.runtimes.phased_training.network import Network, digits
from autoauto.runtimes.phased_training.training import Loop, train_phased
from autoauto.targets.host.memory_budget import ENVIRONMENT, data_bytes, run_alone
from tests.running import is_running, wait_until


def test_a_budget_limits_what_is_held_at_once() -> None:
    """120 MiB in all, 6 MiB at a time."""
    ran = run_alone(eval, "sum(len(bytearray(6 * 2**20)) for _ in range(20))", {}, budget_bytes=8 * MIB)
    assert ran.result == 120 * MIB
    assert ran.limit_bytes == ran.overhead_bytes + 8 * MIB
    assert ran.overhead_bytes > MIB


def test_what_exceeds_the_budget_is_an_outcome() -> None:
    message = r"a budget of 8.0 MiB does not suffice: Unable to allocate 32.0 MiB .*; try more, or smaller phases"
    with pytest.raises(OutOfMemory, match=message) as failure:
        run_alone(np.ones, 4 * MIB, budget_bytes=8 * MIB)
    assert 23 * MIB < failure.value.excess_bytes <= 24 * MIB
    assert "in ones" in str(failure.value.__cause__)  # the worker's own traceback


def test_a_failure_brings_its_own_traceback() -> None:
    with pytest.raises(ZeroDivisionError) as failure:
        run_alone(divmod, 1, 0)
    assert "_limited" in str(failure.value.__cause__)


def test_a_budget_has_at_least_one_byte() -> None:
    with pytest.raises(BadInput, match="at least 1 byte, got 0"):
        run_alone(abs, 1, budget_bytes=0)


def test_the_settings_are_the_workers_alone() -> None:
    before = dict(os.environ)
    inside = run_alone(eval, "dict(__import__('os').environ)", {}).result
    assert ENVIRONMENT.items() <= inside.items()
    assert dict(os.environ) == before


def test_data_bytes_counts_what_is_allocated() -> None:
    before = data_bytes()
    with mmap.mmap(-1, 16 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS):  # malloc may reuse what it holds
        assert 16 * MIB <= data_bytes() - before < 17 * MIB


@pytest.mark.slow
def test_a_killed_worker_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while its streaming memory is in use; before it exists, `tempfile` tries the folder with a named file."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(train_phased, Network(n_hidden=64), digits(), 10**6, Loop())
        try:
            wait_until(lambda: any(is_nameless(tmp_path, file) for file in open_files(active_children())), "memory")
        finally:
            (worker,) = active_children()
            worker.kill()
        with pytest.raises(BrokenProcessPool):
            running.result()
    assert active_children() == []
    assert list(tmp_path.iterdir()) == []


def is_nameless(folder: Path, file: str) -> bool:
    return file.startswith(str(folder)) and file.endswith(" (deleted)")


def open_files(processes: list[BaseProcess]) -> list[str]:
    """What the file descriptors of processes point at; they may be closed at any time."""
    found = []
    for process in processes:
        for name in os.listdir(f"/proc/{process.pid}/fd"):
            with suppress(FileNotFoundError):
                found.append(os.readlink(f"/proc/{process.pid}/fd/{name}"))
    return found


PARENT = """
import os, time
from autoauto.targets.host.budget import run_alone

def work():
    print(os.getpid(), flush=True)
    time.sleep(600)

if __name__ == "__main__":
    run_alone(work)
"""


@pytest.mark.slow
def test_a_worker_dies_with_its_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        assert is_running(worker)
        parent.kill()
    wait_until(lambda: not is_running(worker), "no worker")
