"""The process that runs searches for a worker, one after the other: `run_searches`.

    worker ──Task──▶ runner     worker ◀──Standing, then Outcome── runner     worker ──STOP──▶ runner

It lives beside the worker so that a search that takes all memory, or crashes a library, costs this process only. Its
trials are in the database as soon as they end; another process continues from them.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import Any, NamedTuple

from optuna.exceptions import StorageInternalError
from sqlalchemy.exc import SQLAlchemyError

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.open import open_problem
from autoauto.processes.channel import Channel
from autoauto.records.errors import AutoautoError
from autoauto.records.target import Origin
from autoauto.server.store.queue import Lease, Standing
from autoauto.server.store.searches import SearchState
from autoauto.server.store.trials import study_name
from autoauto.server.work.paths import without_paths
from autoauto.space.requests.request import SearchRequest
from autoauto.space.trial import Trial
from autoauto.study.run import Observers, SearchProgress, SearchResult, nothing_fits
from autoauto.study.search import StudyStorage, search_study
from autoauto.study.store.study import load_study
from autoauto.study.verify_winner import with_auto_pipeline

STOP = "stop"
_NOW_S = 1e-9
"""A time budget after which nothing further is tried: the best so far is verified."""
_PERIOD_S = 0.2


class Describers(NamedTuple):
    """Functions that turn results into plain values; another process imports them from their modules.

    Attributes:
        answer: of the result of a search, of which the last argument is the id.
        best: of the best so far.
    """

    answer: Callable[[Flow, SearchRequest, SearchResult, str], dict[str, Any]]
    best: Callable[[Trial], dict[str, Any]]


class Task(NamedTuple):
    """A search that is to be run.

    Attributes:
        wants_stop: whether only the best so far is wanted.
        launch: how engines are started to be measured.
    """

    lease: Lease
    storage: str
    wants_stop: bool
    launch: str | None = None

    @property
    def request(self) -> SearchRequest:
        """The request of the search."""
        return self.lease.submission.request


class Outcome(NamedTuple):
    """The end of a search.

    Attributes:
        state: finished, stopped or failed; waiting where the database was lost, and another attempt may succeed.
        answer: what was found; None where it failed.
        reason: in one line, why there is no answer.
    """

    state: SearchState
    answer: Mapping[str, Any] | None
    reason: str = ""


class _Ended(Exception):
    """A search is to end now, with its best so far; the argument says by which limit."""


def run_searches(channel: Channel, describers: Describers) -> None:
    """Run what the channel asks for, until its other end is closed."""
    with suppress(EOFError, OSError):
        while True:
            task = channel.recv()
            if isinstance(task, Task):  # a stop may arrive after its search has ended
                outcome = _searched(_RunningSearch(channel, task, describers))
                reason = without_paths(outcome.reason, task.lease.submission.uploads)
                channel.send(outcome._replace(reason=reason))


def _searched(run: _RunningSearch) -> Outcome:
    try:
        return run.search()
    except AutoautoError as error:
        if _is_of_database(error):
            return Outcome(SearchState.WAITING, None, str(error))
        return Outcome(SearchState.FAILED, None, str(error))
    except (OSError, EOFError):  # the worker is gone
        raise
    except Exception as error:  # noqa: BLE001 (one search must not end the others)
        traceback.print_exc()
        return Outcome(SearchState.FAILED, None, f"autoauto failed: {type(error).__name__}: {error}")


def _is_of_database(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, SQLAlchemyError | StorageInternalError):
            return True
        error = error.__cause__
    return False


class _RunningSearch:
    def __init__(self, channel: Channel, task: Task, describers: Describers) -> None:
        self._channel = channel
        self._task = task
        self._describers = describers
        self._started_s = monotonic()
        self._sent_s = 0.0
        self._n_trials = task.lease.n_trials
        self._n_sent = task.lease.n_trials  # how many of them there were when the last standing was sent
        self._n_measured = 0
        self._now: SearchProgress | None = None
        self._origin: Origin | None = None
        self._is_stopped = False
        self._n_lines = 0  # of engines that were measured

    def search(self) -> Outcome:
        task = self._task
        if task.wants_stop and not task.lease.n_trials:
            return Outcome(SearchState.STOPPED, None, "stopped before it began")
        flow = open_problem(task.request.problem, task.storage)
        self._origin = flow.traits.origin
        ended_by = STOP if task.wants_stop else None
        result = None
        if ended_by is None:
            try:
                result = self._search(flow, task.lease.left_s)
                ended_by = "seconds" if result.out_of_time else None
            except _Ended as end:
                ended_by = str(end)
            except KeyboardInterrupt:  # while an engine was measured
                if not self._is_stopped:
                    raise
                ended_by = STOP
        if result is None:  # it was ended: the trials so far are read again, and their best is verified
            result = self._search(flow, _NOW_S)
        self._n_measured = result.counts.n_measured
        self._send("ended", result.counts.n_tried, result.counts.n_tried, None)  # with the last trials, too
        answer = self._describers.answer(flow, task.request, result, task.lease.search_id) | {"ended_by": ended_by}
        reason = "" if result.front else str(nothing_fits(result))
        return Outcome(SearchState.STOPPED if ended_by == STOP else SearchState.FINISHED, answer, reason)

    def _search(self, flow: Flow, left_s: float | None) -> SearchResult:
        budget_s = None if left_s is None else max(left_s, _NOW_S)
        config = self._task.request.study
        measure = replace(config.measure, launch=self._task.launch or config.measure.launch)
        config = replace(config, time_budget_s=budget_s, measure=measure)
        storage = StudyStorage(self._task.storage, study_name(self._task.lease.search_id), request=self._task.request)
        is_last = left_s == _NOW_S
        observers = Observers(
            self._on_trial,
            None if is_last else self._on_progress,
            self._on_verification,
            on_measurement=self._on_measurement,
            is_stopped=self._wants_stop,
        )
        result = search_study(flow, config, storage, observers=observers)
        study = load_study(self._task.storage, result.study_name)
        assert result.summary is not None
        # Pages show it, and opening a model would keep them waiting.
        return replace(result, summary=with_auto_pipeline(flow, study, result.summary))

    def _on_trial(self, _: Trial) -> None:
        self._n_trials += 1

    def _on_progress(self, now: SearchProgress) -> None:
        is_better = self._now is None or now.best != self._now.best
        self._now = now
        self._n_measured = now.n_measured
        if is_better or monotonic() - self._sent_s >= _PERIOD_S:
            self._send(str(now.activity), now.done, now.total, now.left_s)
        limits = self._task.lease.limits
        if self._wants_stop():
            raise _Ended(STOP)
        if limits.measurements is not None and now.n_measured >= limits.measurements and now.knobs is not None:
            raise _Ended("measurements")
        if limits.trials is not None and self._n_trials >= limits.trials and now.knobs is not None:
            raise _Ended("trials")

    def _wants_stop(self) -> bool:
        """True once a stop has arrived, or the worker is gone."""
        if not self._is_stopped and self._channel.poll():
            try:
                self._is_stopped = self._channel.recv() == STOP
            except EOFError:
                self._is_stopped = True
        return self._is_stopped

    def _on_measurement(self, _: str) -> None:
        """Send how many engines were tried; each has a line when it is started, and one with its result."""
        most = self._task.request.study.measure.n_most
        self._n_lines += 1
        self._send("measuring on engines", min(self._n_lines // 2, most), most, None)

    def _on_verification(self, done: int, total: int) -> None:
        self._send("verifying", done, total, None)

    def _send(self, activity: str, done: int, total: int, left_s: float | None) -> None:
        best = None
        if self._now is not None and self._now.best is not None:
            best = self._describers.best(self._now.best)
        progress = {
            "activity": activity,
            "done": done,
            "total": total,
            "left_s": left_s,
            "n_measured": self._n_measured,
            "origin": self._origin,
            "best": best,
        }
        used_s = self._task.lease.used_s + monotonic() - self._started_s
        is_further = self._n_trials > self._n_sent
        self._channel.send(Standing(progress, self._n_measured, used_s, is_further))
        self._sent_s = monotonic()
        self._n_sent = self._n_trials
