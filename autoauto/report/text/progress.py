"""A progress bar on stderr, where a person can see it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column

from autoauto.records.trial import Phase


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


class Show(Protocol):
    """Moves the bar."""

    def __call__(
        self, phase: Phase, done: int, total: int, n_measured: int, samples_per_s: float | None, left_s: float | None
    ) -> None:
        """Show what the search is at, that `done` of `total` are done, the best throughput so far and the time left."""


@contextmanager
def search_bar(unit: str) -> Iterator[Show]:
    """Show a bar on stderr until the block ends, and nothing at all where stderr is no terminal.

    Args:
        unit: what is counted: "cells" or "tries".
    """
    if not sys.stderr.isatty():
        yield _silent_search_progress
        return
    columns = (
        TextColumn("{task.fields[phase]}"),
        BarColumn(bar_width=10),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=False)),  # two lines of 80 columns
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None, phase=Phase.PREDICTING)

        def show(
            phase: Phase, done: int, total: int, n_measured: int, samples_per_s: float | None, left_s: float | None
        ) -> None:
            words = describe(unit, phase, done, total, n_measured, samples_per_s, left_s)
            progress.update(task, completed=done, total=total, description=words, phase=phase)

        yield show


def describe(
    unit: str, phase: Phase, done: int, total: int, n_measured: int, samples_per_s: float | None, left_s: float | None
) -> str:
    """One line of where a search stands.

    >>> describe("cells", Phase.MEASURING, 3, 9, 7, 13827.6, 12.2)
    '3 cells closed, 6 left, 7 measured, best 13,828 samples/s, about 0:00:12 left'
    """
    word = {Phase.PREDICTING: "predicted", Phase.MEASURING: "closed" if unit == "cells" else "done"}.get(phase, "done")
    parts = [f"{done:,} {unit} {word}, {total - done:,} left", f"{n_measured:,} measured"]
    if samples_per_s is not None:
        parts.append(f"best {samples_per_s:,.0f} samples/s")
    if left_s is not None:
        parts.append(f"about {timedelta(seconds=round(left_s))} left")
    return ", ".join(parts)


def _silent_search_progress(
    phase: Phase, done: int, total: int, n_measured: int, samples_per_s: float | None, left_s: float | None
) -> None:
    """Show nothing."""
