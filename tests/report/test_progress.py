"""Progress bars: shown on a terminal, and only there."""

import io
import re
import sys
from collections.abc import Callable

import pytest

from autoauto.report.text import describe, progress_bar, search_bar
from autoauto.space.trial import SearchActivity


class Terminal(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def show_count() -> None:
    with progress_bar("profile", "kinds") as report:
        report(1, 4)
        report(4, 4, "batch_size [bold]")


def show_search() -> None:
    with search_bar() as report:
        report(SearchActivity.PREDICTING, 2, 9, None, 1.0, "")
        report(SearchActivity.MEASURING, 3, 9, 13827.6, 72.4, "")


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


@pytest.mark.parametrize("width", [60, 80])
def test_the_state_of_a_search_is_one_line(shown: Callable[..., str], width: int) -> None:
    text = shown(show_search, width)
    assert re.search("measuring [^ ]+ 3/9, 0:01:12 left, best 13,828/s", re.sub(r"\x1b\[[0-9;]*m", "", text))
    assert "\x1b[1A\x1b[2K\x1b[1A" not in text  # which moves up over a second line


@pytest.mark.parametrize("width", [60, 80])
def test_a_count_is_one_line(shown: Callable[..., str], width: int) -> None:
    assert "\x1b[1A\x1b[2K\x1b[1A" not in shown(show_count, width)


def test_an_error_in_the_block_is_not_swallowed() -> None:
    with pytest.raises(KeyError), progress_bar("profile", "kinds"):
        raise KeyError("x")


def test_what_is_not_known_yet_is_left_out() -> None:
    assert describe(2, 6, None, None, "") == "2/6"
    assert describe(1, 9, 31.4, None, "openvino bf16 at batch 8") == "1/9, best 31/s, openvino bf16 at batch 8"
