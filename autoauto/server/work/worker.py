"""A worker of the service, `SearchWorker`: it claims searches, and has a process beside it run them.

claim ──▶ Task to the runner ──▶ its standings are stored, the lease is renewed ──▶ Outcome is stored
                  │                              │
                  ╰ the runner dies: release     ╰ the lease is lost, or the worker ends: the runner is killed
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import wait
from time import monotonic

from autoauto.database.leases import LEASE_S
from autoauto.processes.channel import BadMessage
from autoauto.processes.start import ChildProcess, RecycledChild
from autoauto.records.errors import AutoautoError, BadInput
from autoauto.server.store.queue import Lease, Queue, Standing
from autoauto.server.store.searches import SearchState
from autoauto.server.work.paths import without_paths
from autoauto.server.work.remote import RemoteSource, Unwelcome
from autoauto.server.work.runner import STOP, Describers, Outcome, Task, run_searches

POLL_S = 0.2
"""How often a worker without a search looks for one."""
RENEW_S = 0.5
"""How often the standing of a search is stored, and a stop is looked for."""
MAX_SEARCHES = 200
"""Searches after which the runner is replaced."""
_SLOW_POLL_S = 2.0
_END_S = 10.0
GIVE_UP_S = 4.0
"""How long a worker that is to end waits for a server or a database that is away; leases of its searches run out."""


SearchSource = Queue | RemoteSource
"""A source of searches for a worker, which reports their progress and end to it."""


class SearchWorker:
    """Runs the searches of a source, one at a time.

    Args:
        on_end: is called with the id of every search that has ended here, and its state.
        launch: how engines of searches that measure are started; None where this worker runs no such search.
    """

    def __init__(
        self,
        source: SearchSource,
        describers: Describers,
        log: Callable[[str], None],
        on_end: Callable[[str, SearchState], None] = lambda search_id, state: None,
        launch: str | None = None,
    ) -> None:
        self._launch = launch
        self._source = source
        self._log = log
        self._on_end = on_end
        self._runner = RecycledChild(run_searches, (describers,), MAX_SEARCHES)
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run_all, name="autoauto worker", daemon=True)
        self._idle_s: float | None = None
        self._error: Unwelcome | None = None
        self.n_finished = 0

    def start(self, idle_s: float | None = None) -> None:
        """Do what `run` does in a thread, so that `close` ends it also where it waits for what is away."""
        self._idle_s = idle_s
        self._thread.start()

    def wait(self) -> None:
        """Wait until `end` is called, or what `start` began has ended."""
        self._is_ending.wait()

    def close(self) -> None:
        """End what `start` began, within a few seconds.

        Raises:
            Unwelcome: the source took no requests.
        """
        self.end()
        if self._thread.is_alive():
            self._thread.join(GIVE_UP_S)
        if self._error is not None:
            raise self._error

    def _run_all(self) -> None:
        try:
            self.run(self._idle_s)
        except Unwelcome as error:
            self._error = error
        finally:
            self.end()

    def run(self, idle_s: float | None = None) -> None:
        """Run searches until `end` is called, or for `idle_s` there was none.

        Raises Unwelcome if the source takes no requests of this worker.
        """
        last_busy_s = monotonic()
        try:
            while not self._is_ending.is_set():
                if self._work():
                    last_busy_s = monotonic()
                    continue
                idle_now_s = monotonic() - last_busy_s
                if idle_s is not None and idle_now_s >= idle_s:
                    break
                self._is_ending.wait(POLL_S if idle_now_s < LEASE_S else _SLOW_POLL_S)
        finally:
            self._runner.close()

    def end(self) -> None:
        """Let `run` end soon; its search is given to another worker."""
        self._is_ending.set()

    def _work(self) -> bool:
        """Run the next search, if there is one; a database that is away is waited for."""
        try:
            lease = self._source.claim()
            if lease is None:
                return False
            self._run(lease)
        except Unwelcome:
            raise
        except Exception as error:  # noqa: BLE001 (no search may end the worker: its lease runs out, and it is tried again)
            self._log(str(error) if isinstance(error, AutoautoError) else f"{type(error).__name__}: {error}")
            self._runner.close()
            self._is_ending.wait(_SLOW_POLL_S)
            return False
        return True

    def _run(self, lease: Lease) -> None:
        task = self._task(lease)
        if task is None:
            return
        runner = self._runner.use()
        with suppress(OSError):  # it died while it was idle
            runner.channel.send(task)
        standing: Standing | None = None
        renewed_s = monotonic()
        asked_to_stop = task.wants_stop
        while True:
            message = self._message(runner)
            if isinstance(message, Outcome):
                self._finish(lease, message, standing)
                return
            if isinstance(message, Standing):
                # A trial that was added since the last renewal is further also where the last message has none.
                is_further = message.is_further or (standing is not None and standing.is_further)
                standing = message._replace(is_further=is_further)
            elif message is not None:  # it has ended
                self._runner.close()
                self._source.release(lease, str(message), is_lost=True)
                self._log(f"search {lease.search_id}: {message}")
                return
            if self._is_ending.is_set():
                self._runner.close()
                self._source.release(lease)
                return
            if monotonic() - renewed_s >= RENEW_S:
                wants_stop = self._source.renew(lease, standing)
                renewed_s = monotonic()
                if standing is not None:
                    standing = standing._replace(is_further=False)
                if wants_stop is None:
                    self._log(f"search {lease.search_id}: its lease was lost, another worker has it")
                    self._runner.close()
                    return
                if wants_stop and not asked_to_stop:
                    asked_to_stop = True
                    with suppress(OSError):
                        runner.channel.send(STOP)

    def _task(self, lease: Lease) -> Task | None:
        """The task for the runner; None where a file is missing, and the search has failed for that."""
        wants_stop = self._source.renew(lease, None)
        try:
            storage = self._source.open(lease)
        except BadInput as error:
            reason = without_paths(str(error), lease.submission.uploads)
            self._source.finish(lease, SearchState.FAILED, None, reason, lease.used_s)
            return None
        return Task(lease, storage, bool(wants_stop), self._launch)

    def _message(self, runner: ChildProcess) -> Standing | Outcome | str | None:
        """The next message of the runner; None if there is none within a moment, a text on its end if it has ended."""
        try:
            if not runner.channel.poll():
                wait(runner.descriptors, RENEW_S / 2)
            ending = runner.ending()  # first, so that its last messages are there
            if runner.channel.poll():
                message: Standing | Outcome = runner.channel.recv()
                return message
        except BadMessage as error:
            return f"its process wrote {error}"
        except (EOFError, OSError):
            ending = runner.ending(_END_S)
        if ending is None:
            return None
        code = ending.exit_code
        return f"its process was killed by signal {-code}" if code < 0 else f"its process ended with exit code {code}"

    def _finish(self, lease: Lease, outcome: Outcome, standing: Standing | None) -> None:
        if standing is not None:
            self._source.renew(lease, standing)
        used_s = standing.used_s if standing else lease.used_s
        if outcome.state is SearchState.WAITING:
            self._log(f"search {lease.search_id}: {outcome.reason}")
            self._source.release(lease)
            return
        if self._source.finish(lease, outcome.state, outcome.answer, outcome.reason, used_s):
            self.n_finished += 1
            self._on_end(lease.search_id, outcome.state)
