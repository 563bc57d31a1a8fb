"""A worker under a memory budget: its limit, its failures, and what is left after it."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from autoauto.processes.start import descendants
from autoauto.programs.phased_training.network import Network, read_samples
from autoauto.programs.phased_training.training import UpdateLoop, train_phased
from autoauto.records.errors import BadInput, OutOfMemory, WorkerLost
from autoauto.records.units import MIB
from autoauto.targets.host.memory_budget import ENVIRONMENT, data_bytes, run_alone
from tests.running import is_running, wait_until


def test_a_budget_limits_the_memory_in_use_at_once_not_the_sum_of_allocations() -> None:
    """120 MiB in all, 6 MiB at a time."""
    limited = run_alone(eval, "sum(len(bytearray(6 * 2**20)) for _ in range(20))", {}, budget_bytes=8 * MIB)
    assert limited.result == 120 * MIB
    assert limited.limit_bytes == limited.overhead_bytes + 8 * MIB
    assert limited.overhead_bytes > MIB


def test_an_allocation_beyond_the_budget_is_out_of_memory_with_the_missing_bytes() -> None:
    message = r"a budget of 8.0 MiB does not suffice: Unable to allocate 32.0 MiB .*; try more, or smaller phases"
    with pytest.raises(OutOfMemory, match=message) as failure:
        run_alone(np.ones, 4 * MIB, budget_bytes=8 * MIB)
    assert 23 * MIB < failure.value.excess_bytes <= 24 * MIB
    assert "in ones" in str(failure.value.__cause__)  # the traceback of the worker


def test_an_exception_of_the_worker_has_its_traceback_as_cause() -> None:
    with pytest.raises(ZeroDivisionError) as failure:
        run_alone(divmod, 1, 0)
    assert "_run_limited" in str(failure.value.__cause__)


def test_a_budget_below_one_byte_is_refused() -> None:
    with pytest.raises(BadInput, match="at least 1 byte, got 0"):
        run_alone(abs, 1, budget_bytes=0)


def test_the_environment_is_set_for_the_worker_only() -> None:
    before = dict(os.environ)
    inside = run_alone(eval, "dict(__import__('os').environ)", {}).result
    assert ENVIRONMENT.items() <= inside.items()
    assert dict(os.environ) == before


def test_data_bytes_counts_private_mappings() -> None:
    before = data_bytes()
    with mmap.mmap(-1, 16 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS):  # malloc might reuse free memory
        assert 16 * MIB <= data_bytes() - before < 17 * MIB


@pytest.mark.slow
def test_a_killed_worker_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker is killed while its streaming memory exists; before, `tempfile` tests the folder with a named file."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    others = descendants(os.getpid())  # what an earlier test of this process started may still be ending

    def workers() -> list[int]:
        return [child for child in descendants(os.getpid()) if child not in others]

    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(
            train_phased, Network(n_hidden=64), read_samples(Path("data/samples/digits.csv.gz")), 10**6, UpdateLoop()
        )
        try:
            wait_until(
                lambda: any(is_nameless(tmp_path, file) for file in open_files(workers())), "a file without a name"
            )
        finally:
            for worker in workers():
                os.kill(worker, signal.SIGKILL)
        with pytest.raises(WorkerLost, match="exit code -9"):
            future.result()
    assert workers() == []
    assert list(tmp_path.iterdir()) == []


def is_nameless(folder: Path, file: str) -> bool:
    return file.startswith(str(folder)) and file.endswith(" (deleted)")


def open_files(processes: list[int]) -> list[str]:
    """Targets of the file descriptors of processes, which may close them at any time."""
    targets = []
    for process in processes:
        for name in os.listdir(f"/proc/{process}/fd"):
            with suppress(FileNotFoundError):
                targets.append(os.readlink(f"/proc/{process}/fd/{name}"))
    return targets


PARENT = """
import os, time
from autoauto.targets.host.memory_budget import run_alone

def print_pid():
    print(os.getpid(), flush=True)
    time.sleep(600)

if __name__ == "__main__":
    run_alone(print_pid)
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
    wait_until(lambda: not is_running(worker), "the worker has ended")
