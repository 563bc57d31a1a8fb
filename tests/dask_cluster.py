"""A Dask cluster of this machine for tests: `started`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import autoauto
from tests.running import wait_until


class DaskCluster(NamedTuple):
    """The address of a scheduler, and its process with those of its workers."""

    address: str
    processes: list[subprocess.Popen[bytes]]


@contextmanager
def started(n_workers: int, folder: Path, n_devices: int = 2) -> Iterator[DaskCluster]:
    """A scheduler and workers 0, 1, ... with so many devices each.

    The scheduler chooses its port and writes it to a file.
    """
    file = folder / "scheduler.json"
    root = Path(autoauto.__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": str(root), "DASK_DISTRIBUTED__WORKER__DAEMON": "False"}
    options = ["--no-dashboard", "--scheduler-file", str(file)]
    scheduler = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", *options]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--resources", f"device={n_devices}", *options]
    workers = [[*worker, "--name", f"{k}", "--nthreads", "2", "--no-nanny"] for k in range(n_workers)]
    processes = [
        subprocess.Popen(command, env=environment, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for command in (scheduler, *workers)
    ]
    try:
        wait_until(lambda: address_in(file), "the address of the scheduler")
        yield DaskCluster(address_in(file), processes)
    finally:
        for process in processes:
            process.kill()  # a worker that has lost its scheduler may wait for it after a SIGTERM
            process.wait()


def address_in(file: Path) -> str:
    """The address in a scheduler's file; empty until it is written completely."""
    try:
        return str(json.loads(file.read_text())["address"])
    except (FileNotFoundError, json.JSONDecodeError):
        return ""


def wait_for(address: str, n_workers: int) -> str:
    """Wait until so many workers have joined a scheduler; returns its address."""
    from distributed import Client

    with Client(address, timeout=60.0, set_as_default=False) as client:
        client.wait_for_workers(n_workers, timeout=60)
    return address
