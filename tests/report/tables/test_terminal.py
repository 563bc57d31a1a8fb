"""What is printed: no blanks at ends of lines, and commands that one can copy from any terminal."""

import io
import shlex
import subprocess
import sys

import pytest

from autoauto.report.style import broken_command
from autoauto.report.tables.table import Column, Table, show, show_command

COMMAND = "autoauto measure resnet50 --cluster bow-2000 --n-ipu 1 --constraint 'n_ipu * replicas <= 16' --batch-size 92"


class Terminal(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def words(lines: list[str]) -> list[str]:
    """What a shell reads."""
    script = "printf '%s\\n' " + "\n".join(lines)
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout.splitlines()


def test_lines_have_no_blanks_at_their_ends(capsys: pytest.CaptureFixture[str]) -> None:
    show(Table("One", (Column("a"), Column("b")), (("1", "long " * 30), ("2", "x"))), "", "text  ")
    lines = capsys.readouterr().out.split("\n")
    assert lines == [line.rstrip() for line in lines]
    assert lines[-3:] == ["", "text", ""]
    show()
    assert capsys.readouterr().out == ""


def test_numbers_and_heads_are_whole_where_words_can_make_room(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    numbers = tuple(Column(head, "difference_percent") for head in ("difference", "another"))
    show(Table("One", (Column("a"), *numbers, Column("why")), (("some words " * 5, -12.5, 3.0, "a reason " * 9),)))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["a", "difference", "another", "why"]
    assert lines[3].split()[-4:] == ["-12.5", "%", "+3.0", "%"] or "-12.5 %   +3.0 %" in lines[3]


@pytest.mark.parametrize("width", [20, 40, 60, 80])
def test_a_terminal_breaks_a_command_between_words_so_that_a_shell_reads_the_same(width: int) -> None:
    lines = broken_command(COMMAND, width)
    assert words(lines) == shlex.split(COMMAND)
    assert all(len(line) <= width or len(shlex.split(line.rstrip("\\"))) == 1 for line in lines)


def test_a_program_gets_a_command_in_one_line_and_a_terminal_in_several(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    show_command("Measure it again", COMMAND)
    assert capsys.readouterr().out == f"Measure it again: {COMMAND}\n"
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    show_command("Measure it again", COMMAND)
    show_command("Why", "autoauto explain x")
    first, *lines, last = terminal.getvalue().splitlines()
    assert (first, last) == ("Measure it again:", "Why: autoauto explain x")
    assert words(lines) == shlex.split(COMMAND)
    assert max(map(len, lines)) <= 60
