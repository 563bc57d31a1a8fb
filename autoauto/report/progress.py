"""A progress bar on stderr, where a person can see it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Report(Protocol):
    """Moves a bar."""

    def __call__(self, done: int, total: int, now: str = "") -> None:
        """Show that `done` of `total` are done, and what is going on now."""


@contextmanager
def progress_bar(what: str, unit: str) -> Iterator[Report]:
    """Show a bar on stderr until the block ends, and nothing at all where stderr is no terminal.

    Args:
        what: what takes its time, for example "profile".
        unit: what is counted, for example "kinds".
    """
    if not sys.stderr.isatty():
        yield _silent
        return
    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)

        def report(done: int, total: int, now: str = "") -> None:
            progress.update(task, completed=done, total=total, description=now)

        yield report


def _silent(done: int, total: int, now: str = "") -> None:
    """Show nothing."""
