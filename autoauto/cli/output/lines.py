"""Lines of text on stdout, `print_line`, and on stderr, `warn`; names in them cannot control the terminal."""

from __future__ import annotations

import sys

from autoauto.report.style import printable


def print_line(text: str) -> None:
    """Print text on stdout, without breaks where the terminal ends."""
    print(printable(text), flush=True)


def warn(message: str) -> None:
    """Print a message on stderr, in one line."""
    print(f"autoauto: {printable(message, keep='')}", file=sys.stderr)
