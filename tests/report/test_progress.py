"""The progress bar: there for a person, silent for a pipe."""

import io
import sys

import pytest

from autoauto.report.progress import progress_bar


class Terminal(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def run() -> None:
    with progress_bar("profile", "kinds") as report:
        report(1, 4)
        report(4, 4, "batch_size [bold]")


def test_a_pipe_sees_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    run()
    assert capsys.readouterr() == ("", "")


def test_a_terminal_sees_the_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    run()
    shown = terminal.getvalue()
    assert all(word in shown for word in ("profile", "4/4", "kinds", "batch_size [bold]"))
    assert capsys.readouterr().out == ""


def test_colours_that_are_forced_make_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    run()
    assert capsys.readouterr() == ("", "")


def test_an_error_in_the_block_is_not_swallowed() -> None:
    with pytest.raises(KeyError), progress_bar("profile", "kinds"):
        raise KeyError("x")
