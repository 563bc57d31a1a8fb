"""Ctrl-C while processes start, with real processes."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from autoauto.processes.start import sigint_blocked
from tests.running import PATIENCE_S, wait_until

STARTS = """
import time
from pathlib import Path
from autoauto.processes.start import ChildProcess

def wait_for(name):
    while not Path(name).exists():
        time.sleep(0.01)

if __name__ != "__main__":  # in the child, before it has its task
    Path("starting").touch()
    wait_for("interrupted")

def lives(channel):
    Path("lives").touch()
    time.sleep(60)

if __name__ == "__main__":
    process = ChildProcess(lives, ())
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        wait_for("lives")
        process.close()
        print("interrupted")
"""


def test_ctrl_c_of_the_terminal_does_not_interrupt_a_process_that_starts(tmp_path: Path) -> None:
    (tmp_path / "starts.py").write_text(STARTS)
    parent = subprocess.Popen(
        [sys.executable, "starts.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until((tmp_path / "starting").exists, "a process that starts")
        os.killpg(parent.pid, signal.SIGINT)
        (tmp_path / "interrupted").touch()
        assert parent.communicate(timeout=PATIENCE_S) == ("interrupted\n", "")
    finally:
        with suppress(ProcessLookupError):  # all of its group have ended
            os.killpg(parent.pid, signal.SIGKILL)
        parent.communicate()


def test_an_interrupt_is_deferred_until_all_processes_are_started() -> None:
    done = []

    def interrupted() -> None:
        with sigint_blocked():
            signal.raise_signal(signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            done.append(1)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_an_ignored_signal_is_still_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with sigint_blocked():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
