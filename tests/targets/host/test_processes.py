"""Worker processes: messages, failures, environment, and their end."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from autoauto.processes.channel import Channel
from autoauto.processes.start import UNGUARDED_HINT
from autoauto.records.errors import WorkerLost
from autoauto.targets.host.processes import Workers, WorkerTraceback
from tests.running import is_running, started_script, wait_until


def double(connection: Channel, factor: int) -> None:
    while (number := connection.recv()) is not None:
        connection.send(number * factor)


def fail_deeply(connection: Channel) -> None:
    connection.recv()
    raise KeyError("deep inside")


def fail_to_read(connection: Channel) -> None:
    raise FileNotFoundError("weights")


def fail_strangely(connection: Channel) -> None:
    class Local(Exception):
        pass

    raise Local("cannot be pickled")


def send_environment(connection: Channel) -> None:
    connection.send((os.environ.get("AUTOAUTO_TEST"), signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())))
    connection.send(Path("/proc/self/oom_score_adj").read_text())
    connection.recv()


def test_workers_answer_and_have_ended_after_the_context() -> None:
    with Workers() as workers:
        workers.start("two", double, 2)
        workers.start("three", double, 3)
        for number in range(2):
            workers.send(number, 7)
        assert [workers.receive(1), workers.receive(0)] == [21, 14]
        pids = workers.pids
    assert not any(map(is_running, pids))


def test_the_exception_of_any_worker_is_raised_with_its_traceback_while_another_one_is_awaited() -> None:
    with Workers() as workers:
        workers.start("idle", double, 2)
        workers.start("failing", fail_deeply)
        workers.send(1, "go")
        with pytest.raises(KeyError, match="deep inside") as failure:
            workers.receive(0)
        pids = workers.pids
    assert isinstance(failure.value.__cause__, WorkerTraceback)
    assert "in fail_deeply" in str(failure.value.__cause__)
    assert not any(map(is_running, pids))


def test_an_io_error_of_a_worker_is_not_taken_for_a_lost_connection() -> None:
    with Workers() as workers:
        workers.start("failing", fail_to_read)
        with pytest.raises(FileNotFoundError, match="weights"):
            workers.receive(0)


def test_an_exception_that_cannot_be_pickled_becomes_a_runtime_error_with_its_text() -> None:
    with Workers() as workers:
        workers.start("failing", fail_strangely)
        with pytest.raises(RuntimeError, match="Local: cannot be pickled"):
            workers.receive(0)


def test_a_killed_worker_is_reported_with_its_exit_code() -> None:
    with Workers() as workers:
        workers.start("stage 0", double, 2)
        os.kill(workers.pids[0], signal.SIGKILL)
        with pytest.raises(WorkerLost, match="stage 0 ended without a message, exit code -9"):
            workers.receive(0)


def write_garbage_and_wait(connection: Channel) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with suppress(OSError):
                os.write(int(name), b"garbage!")
    time.sleep(600)


def test_a_worker_that_writes_garbage_to_every_descriptor_is_reported_at_once(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with Workers() as workers:
        workers.start("stage 0", write_garbage_and_wait)
        with pytest.raises(WorkerLost, match="stage 0 wrote into the channel of its results: something else than"):
            workers.receive(0)
    assert capfd.readouterr().err == ""


def leave_a_child(connection: Channel, exit_code: int) -> None:
    """End while a child in a session of its own keeps all descriptors open."""
    if not os.fork():
        os.setsid()
        signal.alarm(60)
        time.sleep(600)
    os._exit(exit_code)


@pytest.mark.parametrize("exit_code", [0, 7])
def test_the_end_of_a_worker_is_noticed_whose_child_keeps_its_descriptors(exit_code: int) -> None:
    with Workers() as workers:
        workers.start("stage 0", leave_a_child, exit_code)
        with pytest.raises(WorkerLost, match=f"stage 0 ended without a message, exit code {exit_code}"):
            workers.receive(0)


def test_workers_get_their_environment_and_block_ctrl_c() -> None:
    with Workers({"AUTOAUTO_TEST": "here"}) as workers:
        workers.start("worker", send_environment)
        assert workers.receive(0) == ("here", True)
        assert workers.receive(0) == "1000\n"  # the kernel kills it before the search where memory runs out
    assert "AUTOAUTO_TEST" not in os.environ


PARENT = """
import time
from autoauto.targets.host.processes import Workers
from tests.targets.host.test_processes import double
if __name__ == "__main__":
    with Workers() as workers:
        workers.start("orphan", double, 2)
        workers.send(0, 1)
        workers.receive(0)
        print(workers.pids[0], flush=True)
        time.sleep(600)
"""


def test_a_worker_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    with started_script(PARENT, tmp_path) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        parent.kill()
    wait_until(lambda: not is_running(pid), "the worker has ended")


def test_a_script_that_starts_workers_whenever_it_is_imported_is_refused_in_one_line(tmp_path: Path) -> None:
    unguarded = PARENT.replace('if __name__ == "__main__":', "if True:")
    with started_script(unguarded, tmp_path) as parent:
        _, errors = parent.communicate()
    assert parent.returncode == 1
    assert errors.splitlines()[-1] == f"autoauto.records.errors.BadInput: {UNGUARDED_HINT}"
    assert errors.count("Traceback") == 1
