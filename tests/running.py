"""What tests of processes ask the kernel, and how long they wait for it."""

import gc
import os
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE_S = 60.0
"""What takes a moment may take so long on a busy machine; what never comes fails the test then."""


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):  # the second when it ends between opening and reading
        return False


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Ask until it is true; `what` should then be.

    Raises:
        AssertionError: it was not true within `PATIENCE_S`.
    """
    give_up_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_s, f"not within {PATIENCE_S:g} s: {what}"
        time.sleep(0.01)


def n_descriptors() -> int:
    """Open files of this process; not those of objects that nobody has any more, which may be closed at any time."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))
