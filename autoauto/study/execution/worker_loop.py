"""Configurations claimed, measured, and written as trials, by this process and any that joins it: `Crew`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Self

from optuna import Study
from optuna.trial import FrozenTrial

from autoauto.records.errors import BadInput
from autoauto.records.knobs import Aim, Knobs
from autoauto.records.trial import Attempt, FinishedTrial, Status
from autoauto.study.execution.executors import Hands
from autoauto.study.execution.leases import LEASE_S, Claim, Leases
from autoauto.study.execution.process import failed_attempt
from autoauto.study.store.trials import Ranges, as_finished, trial_of

Heard = Callable[[], AbstractContextManager[None]]
Callback = Callable[[FinishedTrial], None]

MOST_CLAIMS = 3
"""A configuration whose worker was lost so often is not tried again in the same search: it may be what kills them."""
_POLL_S = 0.2


class Crew:
    """Hands that measure what a study's searches want.

    While it is entered, a thread renews the leases of what is being measured. Signals are heard while it waits or
    measures, never while it writes; what was not finished is given back. `callback` is told every trial that this crew
    finishes, or finds finished by others when it wants it; all that have ended are written before it is called.
    """

    def __init__(
        self,
        study: Study,
        hands: Hands,
        aim: Aim,
        lease_s: float = LEASE_S,
        callback: Callback | None = None,
    ) -> None:
        self._leases = Leases(study, lease_s)
        self._hands, self._aim = hands, aim
        self._claims: dict[Knobs, Claim] = {}
        self._asked: set[Knobs] = set()
        self._callback = callback
        self._told: set[int] = set()
        self._closed = threading.Event()
        self.n_finished = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._renew, name="autoauto leases", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        try:
            self._hands.close()
        finally:
            self._leases.leave(self._asked, list(self._claims.values()))

    def measure(self, wanted: Mapping[Knobs, Ranges], heard: Heard) -> dict[Knobs, FrozenTrial]:
        """Have the configurations `wanted` measured, here or by others; returns when one or more of them are.

        What was wanted before and is no more is withdrawn, unless somebody has begun it.
        """
        self._leases.want_again([knobs for knobs in wanted if knobs not in self._asked])
        self._leases.withdraw(self._asked.difference(wanted))
        self._asked = set(wanted)
        while True:
            self._leases.want(wanted)
            finished = self._leases.finished(wanted)
            if finished:
                self._asked -= finished.keys()
                self._tell(finished.values(), heard)
                return finished
            self.work(heard, wanted)

    def work(self, heard: Heard, among: Collection[Knobs] | None = None) -> bool:
        """Begin what may begin, wait for a while, write what has ended; whether there is anything to do."""
        while self._hands.n_free and (claim := self._leases.claim(among)):
            if claim.n_claims > MOST_CLAIMS:
                self._give_up(claim)
            else:
                self._claims[claim.knobs] = claim
                self._hands.begin(claim.knobs)
        is_busy = bool(self._claims)
        with heard():
            self._hands.wait(_POLL_S)
        attempts = self._hands.ended()
        written = [trial_id for attempt in attempts if (trial_id := self._write(attempt)) is not None]
        self.n_finished += len(written)
        if self._callback is not None:
            self._tell(map(self._leases.trial, written), heard)
        for attempt in attempts:
            self._hands.recorded(attempt)
        return is_busy

    def _write(self, attempt: Attempt) -> int | None:
        claim = self._claims.pop(attempt.knobs)
        return self._leases.finish(claim, trial_of(attempt, claim.ranges, self._aim))

    def _tell(self, trials: Iterable[FrozenTrial], heard: Heard) -> None:
        """Call the callback with those that it has not heard of."""
        if self._callback is not None:
            for trial in trials:
                if trial.number not in self._told:
                    self._told.add(trial.number)
                    with heard():
                        self._callback(as_finished(trial))

    def _give_up(self, claim: Claim) -> None:
        reason = f"{MOST_CLAIMS} workers were lost while they measured it"
        attempt = failed_attempt(claim.knobs, Status.CRASH, reason, [], 0.0)
        self._leases.finish(claim, trial_of(attempt, claim.ranges, self._aim))

    def _renew(self) -> None:
        while not self._closed.wait(self._leases.lease_s / 3):
            for claim in list(self._claims.values()):
                with suppress(BadInput):  # then the lease runs out, and the work may be done twice but counts once
                    self._leases.renew(claim)
