"""Progress bars on stderr, shown only on a terminal: `progress_bar` for a count, `search_bar` for a search."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn

from autoauto.records.trials.trial import SearchActivity
from autoauto.report.style import printable

_BAR_WIDTH = 8


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
        samples_per_s: float | None,
        left_s: float | None,
        now: str = "",
    ) -> None:
        """Show the search's activity, that `done` of `total` are done, the best throughput so far and the time left.

        With what it waits for `now`, if that takes long enough to be read.
        """


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
        BarColumn(bar_width=_BAR_WIDTH),
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
def search_bar() -> Iterator[SearchReporter]:
    """Show a bar on stderr until the block ends; show nothing if stderr is no terminal."""
    if not sys.stderr.isatty():
        yield _show_nothing
        return
    columns = (
        TextColumn("{task.fields[phase]}"),
        BarColumn(bar_width=_BAR_WIDTH),
        TextColumn("{task.description}", markup=False),
    )
    with _bar(*columns) as progress:
        task = progress.add_task("", total=None, phase=SearchActivity.PREDICTING)

        def report(
            phase: SearchActivity,
            done: int,
            total: int,
            samples_per_s: float | None,
            left_s: float | None,
            now: str = "",
        ) -> None:
            line = describe(done, total, samples_per_s, left_s, now)
            progress.update(task, completed=done, total=total, description=line, phase=phase)

        yield report


def describe(done: int, total: int, samples_per_s: float | None, left_s: float | None, now: str = "") -> str:
    """The state of a search in few words: with its bar they fit a line of 60 columns.

    >>> describe(3, 9, 13827.6, 12.2)
    '3/9, 0:00:12 left, best 13,828 samples/s'
    >>> describe(1, 9, 31.4, None, "openvino bf16 at batch 8")
    '1/9, best 31 samples/s, openvino bf16 at batch 8'
    """
    parts = [f"{done:,}/{total:,}"]
    if left_s is not None:
        parts.append(f"{timedelta(seconds=round(left_s))} left")
    if samples_per_s is not None:
        parts.append(f"best {samples_per_s:,.0f} samples/s")
    if now:
        parts.append(now)
    return ", ".join(parts)


def _bar(*columns: ProgressColumn) -> Progress:
    return Progress(*columns, console=Console(stderr=True), transient=True)


def _show_nothing(*_: Any, **__: Any) -> None:
    """Replace a reporter where no person sees a bar."""
