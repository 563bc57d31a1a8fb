"""Progress bars on stderr, shown only on a terminal: `progress_bar` for a count, `search_bar` for a search."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from autoauto.records.trial import SearchActivity
from autoauto.report.style import printable


class CountReporter(Protocol):
    """Updates a bar of `progress_bar`."""

    def __call__(self, done: int, total: int, now: str = "") -> None:
        """Show that `done` of `total` are done, and what is being done."""


class SearchReporter(Protocol):
    """Updates a bar of `search_bar`."""

    def __call__(
        self,
        phase: SearchActivity,
        done: int,
        total: int,
        n_measured: int,
        samples_per_s: float | None,
        left_s: float | None,
    ) -> None:
        """Show the search's activity, that `done` of `total` are done, the best throughput so far and the time left."""


@contextmanager
def progress_bar(what: str, unit: str) -> Iterator[CountReporter]:
    """Show a bar on stderr until the block ends; show nothing if stderr is no terminal.

    Args:
        what: the task, for example "profile".
        unit: what is counted, for example "kinds".
    """
    if not sys.stderr.isatty():
        yield _show_nothing
        return
    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with _bar(*columns) as progress:
        task = progress.add_task("", total=None)

        def report(done: int, total: int, now: str = "") -> None:
            progress.update(task, completed=done, total=total, description=printable(now))

        yield report


@contextmanager
def search_bar(unit: str) -> Iterator[SearchReporter]:
    """Show a bar on stderr until the block ends; show nothing if stderr is no terminal.

    Args:
        unit: what is counted: "cells" or "tries".
    """
    if not sys.stderr.isatty():
        yield _show_nothing
        return
    columns = (
        TextColumn("{task.fields[phase]}"),
        BarColumn(bar_width=10),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=False)),  # two lines of 80 columns
    )
    with _bar(*columns) as progress:
        task = progress.add_task("", total=None, phase=SearchActivity.PREDICTING)

        def report(
            phase: SearchActivity,
            done: int,
            total: int,
            n_measured: int,
            samples_per_s: float | None,
            left_s: float | None,
        ) -> None:
            line = describe(unit, phase, done, total, n_measured, samples_per_s, left_s)
            progress.update(task, completed=done, total=total, description=line, phase=phase)

        yield report


def describe(
    unit: str,
    phase: SearchActivity,
    done: int,
    total: int,
    n_measured: int,
    samples_per_s: float | None,
    left_s: float | None,
) -> str:
    """The state of a search in one line.

    >>> describe("cells", SearchActivity.MEASURING, 3, 9, 7, 13827.6, 12.2)
    '3 cells closed, 6 left, 7 measured, best 13,828 samples/s, about 0:00:12 left'
    """
    verb = {
        SearchActivity.PREDICTING: "predicted",
        SearchActivity.MEASURING: "closed" if unit == "cells" else "done",
    }.get(phase, "done")
    parts = [f"{done:,} {unit} {verb}, {total - done:,} left", f"{n_measured:,} measured"]
    if samples_per_s is not None:
        parts.append(f"best {samples_per_s:,.0f} samples/s")
    if left_s is not None:
        parts.append(f"about {timedelta(seconds=round(left_s))} left")
    return ", ".join(parts)


def _bar(*columns: ProgressColumn) -> Progress:
    return Progress(*columns, console=Console(stderr=True), transient=True)


def _show_nothing(*_: Any, **__: Any) -> None:
    """Replace a reporter where no person sees a bar."""
