"""How every command ends: Ctrl-C, a reader that has seen enough, and wrong arguments."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from autoauto.cli.commands import predict
from autoauto.cli.commands.studies import search
from autoauto.cli.main import _failed_file
from tests.cli.conftest import RunCli
from tests.running import wait_until


def test_ctrl_c_is_one_line_which_says_that_a_search_continues(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(search, "open_flow", interrupt)
    monkeypatch.setattr(predict, "open_flow", interrupt)
    code, out, err = run_cli("search", "resnet50")
    hint = "a search continues from its finished trials when it is started again"
    assert (code, out, err) == (130, "", f"autoauto: interrupted; {hint}\n")
    assert run_cli("predict", "resnet50") == (130, "", "autoauto: interrupted\n")


def test_an_operating_system_error_is_one_line(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(predict, "open_flow", full_disk)
    assert run_cli("predict", "resnet50") == (
        2,
        "",
        "autoauto: the output: No space left on device; free some space, or write elsewhere\n",
    )


@pytest.mark.parametrize("words", [(), ("no-such-command",), ("predict", "--no-such-option")])
def test_wrong_arguments_are_one_line_that_names_the_help(run_cli: RunCli, words: tuple[str, ...]) -> None:
    code, out, err = run_cli(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--help" in err


@pytest.mark.parametrize(
    ("command", "code"), [("clusters >&-", 0), ("clusters --no-such-option 2>&-", 2), ("clusters <&- >&- 2>&-", 0)]
)
def test_streams_that_the_caller_has_closed_lead_nowhere(command: str, code: int) -> None:
    shell = ["sh", "-c", f"{sys.executable} -m autoauto {command}"]
    done = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.parametrize(
    ("command", "code", "error"),
    [
        ("clusters | true", 0, ""),
        ("clusters --help | true", 0, ""),
        (
            "clusters > /dev/full",
            2,
            "autoauto: the output: No space left on device; free some space, or write elsewhere\n",
        ),
        (
            "clusters --json > /dev/full",
            2,
            "autoauto: the output: No space left on device; free some space, or write elsewhere\n",
        ),
        ("clusters --no-such-option 2> /dev/full", 2, ""),
    ],
)
def test_a_reader_that_has_gone_or_a_full_disk_is_no_traceback(command: str, code: int, error: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    shell = ["bash", "-c", f"set -o pipefail; {sys.executable} -m autoauto {command}"]
    done = subprocess.run(shell, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (code, error)


@pytest.mark.slow
def test_a_stderr_that_cannot_be_written_takes_no_result(tmp_path: Path) -> None:
    words = f"search resnet50 --n-ipu 1 --batch-size 1 --log json --storage sqlite:///{tmp_path}/study.db"
    shell = ["bash", "-c", f"{sys.executable} -m autoauto {words} 2> /dev/full"]
    done = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "Best configuration" in done.stdout


@pytest.mark.parametrize("columns", ["0", "", "\xb2", "80 "])
def test_a_terminal_of_unknown_width_has_the_default_one(
    columns: str, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run_cli("clusters")
    monkeypatch.setenv("COLUMNS", columns)
    assert run_cli("clusters") == expected


def test_no_terminal_is_wider_than_the_bound(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000000000")
    _, out, _ = run_cli("schedule", "--stages", "2")
    assert max(map(len, out.splitlines())) < 10_000


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_the_earliest_moment_ends_with_130(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "autoauto", "search", "--storage", f"sqlite:///{tmp_path}/study.db"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: is_caught(process.pid, signal.SIGTERM), "the process handles SIGTERM")
        process.send_signal(number)
        _, error = process.communicate()
    assert (process.returncode, error.splitlines()[-1][:21]) == (130, "autoauto: interrupted")


def is_caught(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal (SigCgt, man 5 proc)."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    return bool(caught >> (number - 1) & 1)


def test_a_file_that_cannot_be_written_is_named() -> None:
    assert _failed_file(OSError(errno.ENOSPC, "No space left on device", "a/b.json")) == (
        "a/b.json: No space left on device; free some space, or write elsewhere"
    )
    assert _failed_file(OSError(errno.ENOSPC, "No space left on device")).startswith("the output: No space")
    assert _failed_file(OSError(errno.EMFILE, "Too many open files")).startswith("Too many open files; raise the limit")
