"""What a running search tells on stderr: a bar for people, or for machines events, one JSON object a line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from autoauto.records.knobs import Method
from autoauto.records.trial import Phase

if TYPE_CHECKING:
    from autoauto.records.trial import FinishedTrial
    from autoauto.study.analysis.best import BestTrial
    from autoauto.study.run import SearchProgress


class Log(Protocol):
    """Hears what a search tells."""

    def progress(self, now: SearchProgress) -> None:
        """Hear where it stands."""

    def trial(self, trial: FinishedTrial) -> None:
        """Hear of a finished trial."""


def add_log(parser: argparse.ArgumentParser, otherwise: str) -> None:
    """Take how the progress is told."""
    parser.add_argument(
        "--log",
        choices=["json"],
        help=f"what stderr shows meanwhile: one JSON object a line for every event; default: {otherwise}",
    )


@contextmanager
def open_log(log: str | None, method: str) -> Iterator[Log]:
    """What shows a search by `method` on stderr."""
    unit = "cells" if method == Method.GUIDED else "tries"
    if log == "json":
        yield JsonLog(unit)
        return
    from autoauto.report.text.progress import search_bar

    with search_bar(unit) as show:
        yield _Bar(show)


class _Bar:
    def __init__(self, show: Any) -> None:
        self._show = show

    def progress(self, now: SearchProgress) -> None:
        speed = None if now.best is None else now.best.samples_per_s
        self._show(now.phase, now.done, now.total, now.n_measured, speed, now.left_s)

    def trial(self, trial: FinishedTrial) -> None:
        """The progress tells it."""


class JsonLog:
    """Writes a search as events."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._phase: str | None = None
        self._best: BestTrial | None = None

    def progress(self, now: SearchProgress) -> None:
        """Write a new phase, a new best, and where the search stands."""
        if now.phase != self._phase:
            self._phase = now.phase
            write_event("phase", phase=now.phase)
        if now.best is not None and now.best != self._best:
            self._best = now.best
            write_event("best", **best_event(now.best))
        left_s = now.left_s if now.left_s is None else round(now.left_s, 3)
        stands = {"done": now.done, "total": now.total, "unit": self._unit}
        write_event("progress", phase=now.phase, **stands, n_measured=now.n_measured, left_s=left_s)

    def trial(self, trial: FinishedTrial) -> None:
        """Write a finished trial."""
        write_event("trial", **trial_event(trial))


@contextmanager
def open_again(log: str | None) -> Iterator[Callable[[int, int], None]]:
    """What shows that the best of a search is measured again: how many measurements are done, of how many."""
    if log != "json":
        from autoauto.report.text.progress import progress_bar

        with progress_bar("measuring again", "measurements") as show:
            yield show
        return
    begun = False

    def tell(done: int, total: int) -> None:
        nonlocal begun
        if not begun:
            write_event("phase", phase=Phase.VERIFYING)
        begun = True
        write_event("progress", phase=Phase.VERIFYING, done=done, total=total, unit="measurements")

    yield tell


def write_event(event: str, **fields: Any) -> None:
    """Write one event with the time, in UTC."""
    print(json.dumps({"time": _utc(datetime.now(UTC)), "event": event, **fields}), file=sys.stderr, flush=True)


def trial_event(trial: FinishedTrial) -> dict[str, Any]:
    """A finished trial as plain values."""
    return asdict(trial) | {"started": _utc(trial.started), "ended": _utc(trial.ended)}


def best_event(best: BestTrial) -> dict[str, Any]:
    """The best so far as plain values, without its stages."""
    return {
        "number": best.number,
        "knobs": asdict(best.knobs),
        "value": best.value,
        "samples_per_s": best.samples_per_s,
    }


def _utc(moment: datetime) -> str:
    """As ISO 8601 writes it.

    >>> _utc(datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC))
    '2024-01-02T03:04:05.000Z'
    """
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
