"""Progress bars: shown on a terminal, and only there."""

import io
import sys
from collections.abc import Callable

import pytest

from autoauto.records.trial import SearchActivity
from autoauto.report.text.progress import describe, progress_bar, search_bar


class Terminal(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def show_count() -> None:
    with progress_bar("profile", "kinds") as report:
        report(1, 4)
        report(4, 4, "batch_size [bold]")


def show_search() -> None:
    with search_bar("cells") as report:
        report(SearchActivity.PREDICTING, 2, 9, 0, None, 1.0)
        report(SearchActivity.MEASURING, 3, 9, 7, 13827.6, 72.4)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run something on a terminal of some width and return what stderr shows; nothing goes to stdout."""

    def shown(run: Callable[[], None], width: int) -> str:
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", str(width))
        run()
        assert capsys.readouterr().out == ""
        return " ".join(terminal.getvalue().split())

    return shown


def test_what_is_being_done_controls_no_terminal(shown: Callable[..., str]) -> None:
    def show_name() -> None:
        with progress_bar("profile", "kinds") as report:
            report(1, 1, "conv\a\u202e")

    assert r"conv\x07\u202e" in shown(show_name, 120)


@pytest.mark.parametrize("run", [show_count, show_search])
@pytest.mark.parametrize("colour", ["", "1"])
def test_a_pipe_gets_nothing_even_if_colours_are_forced(
    run: Callable[[], None], colour: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", colour)
    run()
    assert capsys.readouterr() == ("", "")


def test_a_terminal_shows_the_bar(shown: Callable[..., str]) -> None:
    text = shown(show_count, 100)
    assert all(part in text for part in ("profile", "4/4", "kinds", "batch_size [bold]"))


def test_a_terminal_of_80_columns_shows_the_state_of_a_search(shown: Callable[..., str]) -> None:
    text = shown(show_search, 80)
    for part in ("measuring", "3 cells closed", "6 left", "7 measured", "best 13,828", "0:01:12 left"):
        assert part in text


def test_an_error_in_the_block_is_not_swallowed() -> None:
    with pytest.raises(KeyError), progress_bar("profile", "kinds"):
        raise KeyError("x")


@pytest.mark.parametrize(
    ("unit", "phase", "line"),
    [
        ("cells", SearchActivity.PREDICTING, "2 cells predicted, 4 left, 0 measured"),
        ("tries", SearchActivity.MEASURING, "2 tries done, 4 left, 0 measured"),
        ("cells", SearchActivity.VERIFYING, "2 cells done, 4 left, 0 measured"),
    ],
)
def test_a_line_has_the_verb_of_the_activity(unit: str, phase: SearchActivity, line: str) -> None:
    assert describe(unit, phase, 2, 6, 0, None, None) == line
