"""A guard ends an engine with all that it started, however the search ends."""

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from autoauto.launch.faults import EngineFault, FaultKind
from autoauto.launch.guard import free_port
from autoauto.launch.guarded import GuardedEngine, GuardTask
from autoauto.records.errors import MeasurementsFailed
from tests.running import is_running, started_script, wait_until

FAMILY = "trap '' TERM; setsid sleep 1000 & echo $! > {0}/child; echo $$ > {0}/self; wait; sleep 1000"
"""A program that does not end when it is asked to, with a child in a session of its own."""


def family(folder: Path) -> GuardTask:
    return GuardTask(("sh", "-c", FAMILY.format(folder)))


def members(folder: Path) -> list[int]:
    files = [folder / "self", folder / "child"]
    wait_until(lambda: all(file.exists() and file.read_text().strip() for file in files), "the processes are there")
    return [int(file.read_text()) for file in files]


def test_a_port_is_given_to_nobody_else_and_can_be_taken() -> None:
    port = free_port()
    others = set()
    for _ in range(100):
        with socket.socket() as other:
            other.bind(("", 0))
            others.add(other.getsockname()[1])
    assert port not in others | {free_port() for _ in range(100)}
    with socket.create_server(("", port)) as server:
        assert server.getsockname()[1] == port


@pytest.mark.slow  # waits until the engine is killed that does not end when it is asked to
def test_closing_ends_all_that_was_started(tmp_path: Path) -> None:
    with GuardedEngine(family(tmp_path)) as engine:
        pids = members(tmp_path)
        assert engine.pid == pids[0]
        assert engine.fault() is None
    assert not any(map(is_running, pids))


def test_closing_ends_what_an_engine_that_ends_left_behind(tmp_path: Path) -> None:
    """Its child has a session of its own, so it is not asked to end."""
    code = f"setsid sleep 1000 & echo $! > {tmp_path}/child; echo $$ > {tmp_path}/self; exec sleep 1000"
    with GuardedEngine(GuardTask(("sh", "-c", code))) as engine:
        pids = members(tmp_path)
        assert engine.pid == pids[0]
        assert all(map(is_running, pids))
    assert not any(map(is_running, pids))


def test_an_engine_is_asked_to_end_before_it_is_killed(tmp_path: Path) -> None:
    ended = tmp_path / "ended"
    code = f"trap 'echo asked > {ended}; exit' TERM; echo $$ > {tmp_path}/self; echo 0 > {tmp_path}/child; "
    with GuardedEngine(GuardTask(("sh", "-c", code + "while true; do sleep 0.01; done"))):
        members(tmp_path)
    assert ended.read_text() == "asked\n"


def test_what_ends_a_container_is_run_twice_once_the_engine_has_ended(tmp_path: Path) -> None:
    """Each run notes whether the engine still runs."""
    noted, pid = tmp_path / "noted", tmp_path / "pid"
    code = f"kill -0 $(cat {pid}) 2> {os.devnull} && echo runs >> {noted} || echo ended >> {noted}"
    with GuardedEngine(GuardTask(("sleep", "1000"), at_end=("sh", "-c", code))) as engine:
        pid.write_text(str(engine.pid))
    assert noted.read_text().split() == ["ended", "ended"]


@pytest.mark.slow  # waits until the engine is killed that does not end when it is asked to
def test_nothing_is_left_of_a_search_that_was_killed(tmp_path: Path) -> None:
    lines = [
        "import time",
        "from pathlib import Path",
        "from tests.launch.test_guard import GuardedEngine, family",
        f"engine = GuardedEngine(family(Path({str(tmp_path)!r})))",
        "time.sleep(1000)",
    ]
    search = started_script("\n".join(lines), tmp_path)
    pids = members(tmp_path)
    os.kill(search.pid, signal.SIGKILL)
    search.communicate()
    wait_until(lambda: not any(map(is_running, pids)), "the processes are gone")


def test_an_engine_dies_with_its_guard(tmp_path: Path) -> None:
    engine = GuardedEngine(GuardTask(("sleep", "1000")))
    os.kill(engine._process.pid, signal.SIGKILL)
    wait_until(lambda: not is_running(engine.pid), "the engine is gone")
    engine.close()


def test_files_of_a_command_are_where_it_starts() -> None:
    code = "import os, sys; print(os.getcwd(), open('a.yaml').read(), sys.argv[1], os.environ['B'], file=sys.stderr)"
    task = GuardTask((sys.executable, "-c", code, "{port}"), {"B": "c"}, {"a.yaml": "text"})
    with GuardedEngine(task) as engine:
        wait_until(engine.fault, "it has ended")
        folder, *rest = engine.log()[0].split()
        assert rest == ["text", str(engine.port), "c"]
    assert not Path(folder).exists()


def test_a_program_that_is_not_there_says_so() -> None:
    with pytest.raises(EngineFault, match="no-such-engine: No such file") as raised:
        GuardedEngine(GuardTask(("no-such-engine",)))
    assert raised.value.kind is FaultKind.MISSING


def test_an_engine_that_ends_says_why() -> None:
    with GuardedEngine(GuardTask(("sh", "-c", "echo 'ValueError: the model is unknown' >&2; exit 3"))) as engine:
        wait_until(engine.fault, "it has ended")
        assert str(engine.fault()) == "the engine ended with exit code 3: ValueError: the model is unknown"


def test_an_engine_that_a_signal_ended_has_the_exit_code_of_shells() -> None:
    with GuardedEngine(GuardTask(("sh", "-c", "kill -9 $$"))) as engine:
        wait_until(engine.fault, "it has ended")
        assert str(engine.fault()).startswith("the engine ended with exit code 137")


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (("no-such-guard",), "no-such-guard must be a program: No such file"),
        (("sh", "-c", "read task; echo hello; read end"), "sh must print nothing of its own, got b'hello"),
        (("sh", "-c", "read task; echo 3; read end"), "sh must print nothing of its own, got b'3"),
        (("sh", "-c", "echo 'KeyError: why' >&2; exit 3"), "sh must run a program, got none .* exit code 3: KeyError"),
        (("sh", "-c", "read task; read end"), "sh must run a program, got none within 0.05 s: it did not answer"),
    ],
)
def test_a_guard_that_does_not_run_ends_the_measuring(
    program: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autoauto.launch.guarded.START_S", 0.05 if "0.05" in message else 60.0)
    with pytest.raises(MeasurementsFailed, match=message):
        GuardedEngine(GuardTask(("true",)), program)


def test_a_guard_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoauto.launch.guarded.END_S", 0.05)
    says = '{"port": 7, "pid": 8}'
    engine = GuardedEngine(GuardTask(("true",)), ("sh", "-c", f"read task; echo '{says}'; exec sleep 1000"))
    assert (engine.port, engine.pid, engine.fault()) == (7, 8, None)
    engine.close()
    assert engine._process.returncode == -signal.SIGKILL


def test_a_guard_has_the_last_lines_of_a_long_log() -> None:
    """Of 24,000 lines of ten bytes the last 20,000 are the 200,000 bytes that are read."""
    code = "import sys; sys.stderr.write(''.join('%09d\\n' % number for number in range(24_000)))"
    with GuardedEngine(GuardTask((sys.executable, "-c", code))) as engine:
        wait_until(engine.fault, "it has ended")
        log = engine.log()
    assert log == tuple(f"{number:09}" for number in range(4_000, 24_000))
