"""The output of commands: lines (`print_line`), tables (`show`), warnings (`warn`), and JSON instead (`print_json`)."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from autoauto.report.style import assumed_text, printable

if TYPE_CHECKING:
    from rich.text import Text

    from autoauto.report.tables.table import Table


def print_line(text: str) -> None:
    """Print text on stdout; long lines are not broken at the width of the terminal."""
    print(printable(text), flush=True)


def show(*parts: Table | str | Text) -> None:
    """Print tables and lines of text below each other; the library that draws tables is imported for them only."""
    from autoauto.report.tables.table import show

    show(*parts)


def show_command(what: str, command: str) -> None:
    """Print what a command does and the command, so that one can copy it from a terminal."""
    from autoauto.report.tables.table import show_command

    show_command(what, command)


def warn(message: str) -> None:
    """Print a message on stderr, in one line."""
    print(f"autoauto: {printable(message, keep='')}", file=sys.stderr)


def print_assumed(notes: Sequence[str]) -> None:
    """Print what was assumed of a model and of its numbers; nothing where there is nothing."""
    if notes:
        print_line(assumed_text(notes))


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the choice between JSON and tables."""
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout and nothing else")


def print_json(record: dict[str, Any]) -> None:
    """Print one JSON object on stdout."""
    print(json.dumps(record, indent=1))
