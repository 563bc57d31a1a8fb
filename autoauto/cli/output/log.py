"""The progress of a search on stderr, `open_log`: a bar for people, or events for programs, one JSON object a line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from autoauto.cli.output.lines import warn
from autoauto.report.text import progress_bar, search_bar
from autoauto.report.wording import headline
from autoauto.space.objectives import Method
from autoauto.space.table import own_values, speed_values
from autoauto.space.trial import SearchActivity

if TYPE_CHECKING:
    from autoauto.space.trial import Trial
    from autoauto.study.run import SearchProgress


def add_log(parser: argparse.ArgumentParser, default_text: str) -> None:
    """Add how the progress is shown."""
    parser.add_argument(
        "--log",
        choices=["json"],
        help=f"what stderr shows meanwhile; json: one JSON object a line for every event; default: {default_text}",
    )


@contextmanager
def open_log(log: str | None, method: str) -> Iterator[_Events | _Bars]:
    """Show a search by `method` on stderr until the block ends."""
    if log == "json":
        yield _Events("cells" if method == Method.GUIDED else "tries")
        return
    with ExitStack() as bars:
        yield _Bars(bars)


class _Bars:
    """One bar for the search, which another one replaces during the verification."""

    def __init__(self, bars: ExitStack) -> None:
        self._bars, self._show_search = bars, bars.enter_context(search_bar())
        self._show_verification: Callable[[int, int], None] | None = None
        self._has_shown_first = False

    def progress(self, now: SearchProgress) -> None:
        speed = None if now.best is None else now.best.samples_per_s
        self._show_search(now.activity, now.done, now.total, speed, now.left_s, waits_for(now))

    def trial(self, trial: Trial) -> None:
        """Print the first that real devices measured: the model as one would run it without a search."""
        if trial.result.ends is None or self._has_shown_first:
            return

        self._has_shown_first = True
        warn(f"measured so far: {headline(trial, None)}, batch size {trial.knobs.batch_size}; the search goes on")

    def verification(self, done: int, total: int) -> None:
        if self._show_verification is None:
            self._bars.close()
            self._show_verification = self._bars.enter_context(progress_bar("measuring again", "measurements"))
        self._show_verification(done, total)


def waits_for(now: SearchProgress) -> str:
    """A few words on what real devices measure now; empty for modelled devices, which take no time."""
    knobs = now.knobs or now.estimated
    if knobs is None or knobs.session.runtime is None:
        return ""
    session = f"{knobs.session.runtime} {knobs.session.computes_in}"
    n_cores = knobs.session.group_size
    if now.knobs is None:
        cores = "1 core" if n_cores == 1 else f"{n_cores} cores"
        return f"the whole model by {session} on {cores}"
    stages = f"{knobs.n_ipu} stages, " if knobs.n_ipu > 1 else ""
    return f"{session}, {stages}{knobs.replicas} x {n_cores} cores at batch {knobs.batch_size}"


class _Events:
    """Writes the progress of a search as events."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._phase: str | None = None
        self._best: Trial | None = None

    def progress(self, now: SearchProgress) -> None:
        if now.activity != self._phase:
            self._phase = now.activity
            write_event("phase", phase=now.activity)
        if now.best is not None and now.best != self._best:
            self._best = now.best
            write_event("best", **best_event(now.best))
        left_s = now.left_s if now.left_s is None else round(now.left_s, 3)
        counts = {"done": now.done, "total": now.total, "unit": self._unit}
        write_event("progress", phase=now.activity, **counts, n_measured=now.n_measured, left_s=left_s)

    def trial(self, trial: Trial) -> None:
        write_event("trial", **trial_event(trial))

    def verification(self, done: int, total: int) -> None:
        phase = SearchActivity.VERIFYING
        if self._phase != phase:
            self._phase = phase
            write_event("phase", phase=phase)
        write_event("progress", phase=phase, done=done, total=total, unit="measurements")


def write_event(event: str, **fields: Any) -> None:
    """Write one event with its time in UTC."""
    print(json.dumps({"time": _utc(datetime.now(UTC)), "event": event, **fields}), file=sys.stderr, flush=True)


def trial_event(trial: Trial) -> dict[str, Any]:
    """A finished trial as plain values; with the interval of a measured throughput, where it has one."""
    assert trial.started is not None
    assert trial.ended is not None
    first, *others = trial.values or (None,)
    event = {
        "number": trial.number,
        "knobs": own_values(trial.knobs),
        "state": trial.state,
        "value": first,
        **speed_values(trial.knobs, trial.samples_per_s if trial.runs else None),
    }
    if trial.result.run is not None:
        event |= asdict(trial.result.run) | {"ended_early": trial.ended_early}
    return event | {
        "reason": trial.reason,
        "measured": trial.was_measured,
        "started": _utc(trial.started),
        "ended": _utc(trial.ended),
        "others": others,
    }


def best_event(best: Trial) -> dict[str, Any]:
    """The best so far as plain values, without its stages."""
    return {
        "number": best.number,
        "knobs": own_values(best.knobs),
        "value": best.values[0],
        **speed_values(best.knobs, best.samples_per_s),
    }


def _utc(moment: datetime) -> str:
    """A moment in ISO 8601.

    >>> _utc(datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC))
    '2024-01-02T03:04:05.000Z'
    """
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
