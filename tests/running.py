"""Helpers for tests of processes: `is_running`, `children_of`, `wait_until`, `n_descriptors`, `started_script`."""

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

PATIENCE_S = 60.0
"""The time after which a test fails when an event does not come; long enough for a busy machine."""


def is_running(pid: int) -> bool:
    """Whether the process exists and has not ended."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):  # ProcessLookupError when it ends between opening and reading
        return False


def children_of(pid: int) -> dict[int, bytes]:
    """The command lines of the processes that a process has started, by number; without those that have ended.

    Threads and processes end while they are listed.
    """
    commands: dict[int, bytes] = {}
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):
            for child in map(int, (task / "children").read_text().split()):
                commands[child] = command_line(child)
    return {child: command for child, command in commands.items() if command}


def command_line(pid: int) -> bytes:
    """The words of a process, each with a null byte behind it; empty once it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Wait until `condition` is true; `what` describes it in the error.

    Raises:
        AssertionError: it was not true within `PATIENCE_S`.
    """
    give_up_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_s, f"not within {PATIENCE_S:g} s: {what}"
        time.sleep(0.01)


def n_descriptors() -> int:
    """The number of open files of this process, after closing those of unreachable objects.

    Objects that are there now are left out of later collections, which take a second in a process of many tests; what
    earlier tests left behind then does not end while a test counts.
    """
    gc.collect()
    gc.freeze()
    return len(os.listdir("/proc/self/fd"))


def started_script(text: str, folder: Path) -> "subprocess.Popen[str]":
    """A script in a process that finds autoauto and these tests."""
    script = folder / "script.py"
    script.write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, str(script)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
