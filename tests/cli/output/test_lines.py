"""Lines on stdout and stderr: names in them do not control the terminal."""

from __future__ import annotations

import pytest

from autoauto.cli.output.lines import print_line, warn

NAME = "conv\x1b[2J\a\u202e\u200b\x9b"
SHOWN = r"conv\x1b[2J\x07\u202e\u200b\x9b"


def test_control_characters_are_shown_as_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    print_line(f"{NAME}\nläuft 等")
    warn(f"{NAME}\nhere")
    assert capsys.readouterr() == (f"{SHOWN}\nläuft 等\n", f"autoauto: {SHOWN}\\nhere\n")
