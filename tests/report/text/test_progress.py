"""The progress bar: there for a person, silent for a pipe."""

import io
import sys

import pytest

from autoauto.records.trial import Phase
from autoauto.report.text.progress import describe, progress_bar, search_bar


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


def run_search_progress() -> None:
    with search_bar("cells") as show:
        show(Phase.PREDICTING, 2, 9, 0, None, 1.0)
        show(Phase.MEASURING, 3, 9, 7, 13827.6, 72.4)


def test_a_pipe_sees_nothing_search_progress(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    run_search_progress()
    assert capsys.readouterr() == ("", "")


def test_a_terminal_of_80_columns_sees_where_the_search_stands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    run_search_progress()
    shown = " ".join(terminal.getvalue().split())
    for words in ("measuring", "3 cells closed", "6 left", "7 measured", "best 13,828", "0:01:12 left"):
        assert words in shown
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("unit", "phase", "words"),
    [
        ("cells", Phase.PREDICTING, "2 cells predicted, 4 left, 0 measured"),
        ("tries", Phase.MEASURING, "2 tries done, 4 left, 0 measured"),
        ("cells", Phase.VERIFYING, "2 cells done, 4 left, 0 measured"),
    ],
)
def test_words_are_those_of_the_phase(unit: str, phase: Phase, words: str) -> None:
    assert describe(unit, phase, 2, 6, 0, None, None) == words
