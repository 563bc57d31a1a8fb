"""Ctrl-C while processes start, with real ones."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from autoauto.processes import out_of_hearing
from tests.running import PATIENCE_S, wait_until

STARTS = """
import os, time
from multiprocessing import get_context
from pathlib import Path
from autoauto.spawning import die_with_parent, out_of_hearing

if __name__ != "__main__":  # in the child, before it knows what it shall do
    Path("starting").touch()
    time.sleep(0.5)

def lives(parent):
    die_with_parent(parent)
    Path("lives").touch()
    time.sleep(60)

if __name__ == "__main__":
    process = get_context("spawn").Process(target=lives, args=(os.getpid(),))
    with out_of_hearing():
        process.start()  # the first one: the resource tracker starts with it
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        while not Path("lives").exists():
            time.sleep(0.01)
        process.kill()
        print("interrupted")
"""


def test_a_process_that_starts_does_not_hear_what_the_terminal_sends(tmp_path: Path) -> None:
    (tmp_path / "starts.py").write_text(STARTS)
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    parent = subprocess.Popen(
        [sys.executable, "starts.py"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until((tmp_path / "starting").exists, "a process that starts")
    os.killpg(parent.pid, signal.SIGINT)
    assert parent.communicate(timeout=PATIENCE_S) == ("interrupted\n", "")


def test_an_interrupt_waits_until_all_are_started() -> None:
    done = []

    def interrupted() -> None:
        with out_of_hearing():
            signal.raise_signal(signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            done.append(1)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with out_of_hearing():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
