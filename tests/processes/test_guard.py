"""Guarded processes and all that they start, with real processes."""

from __future__ import annotations

import mmap
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO

import pytest

from autoauto.processes.channel import Channel
from autoauto.processes.start import ChildProcess, Ending, descendants, held_bytes
from tests.running import is_running, n_descriptors, wait_until

pytestmark = pytest.mark.slow
MIB = 2**20


@pytest.fixture
def log() -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile() as file:
        yield file


def ending_of(process: ChildProcess) -> Ending:
    """Wait until the process has ended."""
    wait([process.descriptors[1]])
    ending = process.ending()
    assert ending is not None
    return ending


def echo(channel: Channel, note: str) -> None:
    print(note, flush=True)
    channel.send((note, channel.recv()))
    raise SystemExit(5)


def test_a_process_answers_prints_to_its_log_and_ends_with_its_exit_code(log: IO[bytes]) -> None:
    process = ChildProcess(echo, ("hello",), log, has_guard=True)
    process.channel.send(7)
    assert process.channel.recv() == ("hello", 7)
    assert ending_of(process) == Ending(5)
    process.close()
    log.seek(0)
    assert log.read() == b"hello\n"


@pytest.mark.parametrize("has_guard", [False, True])
def test_modules_in_the_working_directory_do_not_replace_others(
    log: IO[bytes], has_guard: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("socket", "pickle", "autoauto"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    process = ChildProcess(echo, ("hello",), log, has_guard=has_guard)
    process.channel.send(7)
    assert process.channel.recv() == ("hello", 7)
    assert ending_of(process) == Ending(5)
    process.close()


@pytest.mark.parametrize("has_guard", [False, True])
def test_a_start_without_enough_descriptors_leaves_no_process_and_no_descriptor(
    log: IO[bytes], has_guard: bool
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    n_before, n_failed = n_descriptors(), 0
    others = descendants(os.getpid())  # of earlier tests of this process
    free = [number for number in range(256) if not Path(f"/proc/self/fd/{number}").exists()]
    for limit in free[:14]:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        try:
            ChildProcess(echo, ("hello",), log, has_guard=has_guard).close()
        except OSError:
            n_failed += 1
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert n_descriptors() == n_before
        assert not set(descendants(os.getpid())).difference(others)
    assert 0 < n_failed < 14


def aborts(channel: Channel) -> None:
    signal.signal(signal.SIGABRT, signal.SIG_DFL)
    os.abort()


def test_a_process_that_dies_of_a_signal_is_reported_with_it(log: IO[bytes]) -> None:
    process = ChildProcess(aborts, (), log, has_guard=True)
    assert ending_of(process) == Ending(-signal.SIGABRT)
    process.close()


def in_a_session_of_its_own() -> int:
    """A grandchild of the guard, which keeps all descriptors open and ignores all signals that it may."""
    if pid := os.fork():
        return pid
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(60)


def daemon() -> int:
    """As above, and its parent ends at once, so that it becomes an orphan."""
    reading, writing = os.pipe()
    if not os.fork():
        os.write(writing, str(in_a_session_of_its_own()).encode())
        os._exit(0)
    return int(os.read(reading, 20))


def starts_others(channel: Channel, exit_code: int | None) -> None:
    channel.send((os.getpid(), in_a_session_of_its_own(), daemon()))
    if exit_code is not None:
        os._exit(exit_code)
    channel.recv()


def test_all_that_a_process_started_ends_when_it_ends(log: IO[bytes]) -> None:
    process = ChildProcess(starts_others, (7,), log, has_guard=True)
    pids = process.channel.recv()
    assert ending_of(process) == Ending(7)
    assert not any(map(is_running, pids))
    process.close()


def test_all_that_a_process_started_ends_when_it_is_closed(log: IO[bytes]) -> None:
    process = ChildProcess(starts_others, (None,), log, has_guard=True)
    pids = process.channel.recv()
    wait_until(lambda: set(pids) <= set(descendants(process.pid)), "an orphan that the guard has adopted")
    process.close()
    assert not any(map(is_running, pids))


PARENT = """
import sys, time
from autoauto.processes.start import ChildProcess
from tests.processes.test_guard import starts_others
if __name__ == "__main__":
    process = ChildProcess(starts_others, (None,), sys.stderr.buffer, has_guard=True)
    print(process.pid, *process.channel.recv(), flush=True)
    time.sleep(600)
"""


def test_all_that_a_process_started_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 4
        assert all(map(is_running, pids))
        parent.kill()
    wait_until(lambda: not any(map(is_running, pids)), "all have ended")


def test_a_process_whose_parent_is_killed_at_once_ends_without_a_word(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import os\n"
        "from autoauto.processes.start import ChildProcess\n"
        "if __name__ == '__main__':\n"
        "    print(ChildProcess(print, (), has_guard=True).pid, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    written = tmp_path / "written"
    with written.open("wb") as output:
        parent = subprocess.Popen([sys.executable, str(script)], stdout=output, stderr=output, env=environment)
        assert parent.wait() == -signal.SIGKILL  # now its number is that of no process
    pid = written.read_text().split()[0]
    wait_until(lambda: not is_running(int(pid)), "the process has ended")
    assert written.read_text() == f"{pid}\n"


def fills_shared_memory(channel: Channel) -> None:
    memory = shared_memory(96)
    channel.recv()
    memory.close()


def shared_memory(n_mib: int) -> mmap.mmap:
    """Memory that is shared with processes forked from now on, all of it in use."""
    memory = mmap.mmap(-1, n_mib * MIB)
    for _ in range(n_mib):
        memory.write(b"x" * MIB)
    return memory


def fills_memory_of_children(channel: Channel) -> None:
    for _ in range(3):
        if not os.fork():
            memory = bytearray(b"x") * (32 * MIB)
            time.sleep(600 + memory[0])  # holds it
    channel.recv()


@pytest.mark.parametrize("fills", [fills_shared_memory, fills_memory_of_children])
def test_memory_counts_that_is_shared_and_that_of_children(log: IO[bytes], fills: object) -> None:
    assert callable(fills)
    process = ChildProcess(fills, (), log, 80 * MIB, has_guard=True)
    ending = ending_of(process)
    assert ending.held_bytes > 80 * MIB
    process.close()


def test_memory_that_several_share_counts_once() -> None:
    memory = shared_memory(64)
    reading, writing = os.pipe()
    if not (child := os.fork()):
        os.write(writing, bytes([max(memory[:: mmap.PAGESIZE])]))  # touches every page
        time.sleep(600)
    try:
        os.read(reading, 1)
        alone = held_bytes([os.getpid()], 0), held_bytes([child], 0)
        both = os.getpid(), child
        assert held_bytes(both, 0) == pytest.approx(sum(alone), rel=0.01)  # the share of each, which are equal
        assert held_bytes(both, 2**60) > held_bytes(both, 0) + 60 * MIB  # all of each: the limit is far away
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)
