"""The loop that claims, measures and writes configurations, in a search and in every worker that joins: `WorkerLoop`.

Searches and workers share a table of requested configurations (`Leases`). Each runs this loop:

    search    request(A, B) -> claim A -> measure A -> write trial of A, end lease -> finished(A, B)? -> ...
    worker                     claim B -> measure B -> write trial of B, end lease -> claim -> nothing to do

A search waits for the configurations that its method needs, and meanwhile measures those of them that nobody else has
claimed. A worker measures all that is requested.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Self

from optuna import Study

from autoauto.database.leases import LEASE_S
from autoauto.records.errors import BadInput
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objectives
from autoauto.space.trial import Status, Trial
from autoauto.study.execution.executors import Executor
from autoauto.study.execution.leases import Claim, Leases
from autoauto.study.execution.process import failed_trial
from autoauto.study.store.trials import Ranges, to_optuna

Interruptible = Callable[[], AbstractContextManager[None]]
"""Makes the context in which a signal raises KeyboardInterrupt: `Interrupts.interruptible`."""

MAX_CLAIMS = 3
"""A configuration whose worker died so often is not tried again in the same search: it may be what kills workers."""
_POLL_S = 0.2


class WorkerLoop:
    """Measures the requested configurations of a study with an executor.

    Inside its `with` block a thread renews the leases of the running measurements. Signals raise while it waits or
    measures, never while it writes; at the end the claims of unfinished measurements are released. `callback` is called
    once with every trial that this loop writes, or that others wrote for one of its requests; all trials that
    finished together are written before it is called. Those of `stale` are measured again although they have a trial.
    """

    def __init__(
        self,
        study: Study,
        executor: Executor,
        objectives: Objectives,
        lease_s: float = LEASE_S,
        callback: Callable[[Trial], None] | None = None,
        stale: Collection[Knobs] = (),
    ) -> None:
        self._leases = Leases(study, lease_s)
        self._executor, self._objectives = executor, objectives
        self._claims: dict[Knobs, Claim] = {}
        self._requested: set[Knobs] = set()
        self._stale = set(stale)
        self._callback = callback
        self._reported: set[int] = set()
        self._closed = threading.Event()
        self.n_finished = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._renew, name="autoauto leases", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        try:
            self._executor.close()
        finally:
            self._leases.release(self._requested, list(self._claims.values()))

    def measure(self, configurations: Mapping[Knobs, Ranges], interruptible: Interruptible) -> dict[Knobs, Trial]:
        """Request the configurations, and return when one or more of them have a trial, from here or elsewhere.

        What was requested by an earlier call and is no longer needed is withdrawn, unless its measurement has started.
        """
        if again := self._stale & configurations.keys():
            self._leases.forget(again)
            self._stale -= again
        self._leases.retry([knobs for knobs in configurations if knobs not in self._requested])
        self._leases.withdraw(self._requested.difference(configurations))
        self._requested = set(configurations)
        while True:
            self._leases.request(configurations)
            finished = self._leases.finished(configurations)
            if finished:
                self._requested -= finished.keys()
                self._report(finished.values(), interruptible)
                return finished
            self.work(interruptible, configurations)

    def work(self, interruptible: Interruptible, among: Collection[Knobs] | None = None) -> bool:
        """Claim what the executor has room for, wait for a moment, and write the trials that finished.

        True if anything was measured or is being measured. Only configurations `among` those given are claimed, by
        default all requested ones.
        """
        while self._executor.n_free and (claim := self._leases.claim(among)):
            if claim.n_claims > MAX_CLAIMS:
                reason = f"{MAX_CLAIMS} workers were lost while they measured it"
                lost = failed_trial(claim.knobs, Status.CRASH, reason, [], 0.0)
                self._leases.finish(claim, to_optuna(lost, claim.ranges, self._objectives))
            else:
                self._claims[claim.knobs] = claim
                self._executor.submit(claim.knobs)
        is_busy = bool(self._claims)
        with interruptible():
            self._executor.wait(_POLL_S)
        trials = self._executor.finished()
        written = [trial_id for trial in trials if (trial_id := self._write(trial)) is not None]
        self.n_finished += len(written)
        if self._callback is not None:
            self._report(map(self._leases.trial, written), interruptible)
        for trial in trials:
            self._executor.on_recorded(trial)
        return is_busy

    def _write(self, trial: Trial) -> int | None:
        claim = self._claims.pop(trial.knobs)
        return self._leases.finish(claim, to_optuna(trial, claim.ranges, self._objectives))

    def _report(self, trials: Iterable[Trial], interruptible: Interruptible) -> None:
        """Call the callback with the trials that it was not called with before."""
        if self._callback is not None:
            for trial in trials:
                if trial.number not in self._reported:
                    self._reported.add(trial.number)
                    with interruptible():
                        self._callback(trial)

    def _renew(self) -> None:
        while not self._closed.wait(self._leases.lease_s / 3):
            for claim in list(self._claims.values()):
                with suppress(BadInput):  # the lease then ends; the work may be done twice, but is written once
                    self._leases.renew(claim)
