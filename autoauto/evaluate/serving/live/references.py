"""The servers that configurations are compared with: `References`.

    reference     ▇▇      ▇▇      ▇▇        as many replicas and threads, a slot for every client
    candidate         ▇▇      ▇▇      ▇▇    until the two least CPU times a token of each agree

A configuration is compared with a reference of as many replicas and threads by CPU time (`times_faster`). A reference
is compared with the first one by wall time, in turns too: whether threads wait for each other shows there alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import NamedTuple
from weakref import finalize

from autoauto.evaluate.serving.costs import requests_of
from autoauto.evaluate.serving.live.faults import Faults
from autoauto.evaluate.serving.live.readings import LoadReading, Readings, StepFit, goes_on, times_faster
from autoauto.evaluate.serving.live.server_group import ServerGroup, shared_out
from autoauto.records.costs.decoder import Workload
from autoauto.records.costs.options import Session
from autoauto.records.errors import DoesNotFit, Infeasible, OutOfMemory
from autoauto.records.target import RunsServers
from autoauto.records.units import digits
from autoauto.space.knobs import Knobs
from autoauto.space.trial import Trial

HOPELESS = 0.5
"""Threads with which one client gets less than this share of what it gets with others are not tried further."""
N_SINGLE = 3
"""Loads of one client a server to which forecasts are fitted."""


class ReferenceScale(NamedTuple):
    """The properties that a configuration shares with its reference."""

    session: Session
    replicas: int
    requests: Workload


@dataclass(slots=True)
class Reference:
    """A configuration with which others are compared."""

    knobs: Knobs
    group: ServerGroup  # its servers, which may have been closed to make room
    readings: Readings
    tokens_per_s: float  # as first measured, so that all that is compared with it has one scale
    single_tokens_per_s: float  # of one client a server, for each
    fit: StepFit


class References:
    """The references of all configurations, one for every `Session.common` and number of replicas.

    They run until this is no longer used, or memory lacks: all servers of a configuration need `needed_bytes` of it
    by the estimate. `faults` are what servers that failed say of others.
    """

    def __init__(self, target: RunsServers, needed_bytes: Callable[[Knobs], int], machine_bytes: int) -> None:
        self._target, self._needed_bytes, self._machine_bytes = target, needed_bytes, machine_bytes
        self._n_clients = target.n_clients
        self._references: dict[ReferenceScale, Reference | DoesNotFit] = {}
        self._known: dict[ReferenceScale, Trial] = {}
        self.faults = Faults(needed_bytes)
        finalize(self, _close_all, self._references)

    def continue_from(self, trial: Trial) -> None:
        """Take a trial that runs for the reference of its scale, so that rates stay comparable with it."""
        self._known[_scale(trial.knobs)] = trial
        self.faults.add_working(trial.knobs)

    def n_in_flight(self, knobs: Knobs) -> int:
        """Sequences of a server at once."""
        return min(knobs.batch_size, shared_out(self._n_clients, knobs.replicas, 0))

    def of(self, knobs: Knobs) -> Reference:
        """The reference of the same replicas, threads and requests.

        Raises:
            OutOfMemory, Unsupported: a server does not come up, or its requests fail.
        """
        scale = _scale(knobs)
        if scale not in self._references:
            try:
                self._references[scale] = self._new_reference(scale, knobs)
            except DoesNotFit as failure:
                self._references[scale] = failure
        reference = self._references[scale]
        if isinstance(reference, DoesNotFit):
            raise reference
        return reference

    def _up(self, reference: Reference) -> ServerGroup:
        """The servers of a reference, which are started again where they have ended."""
        if not reference.group.is_alive:
            reference.group.close()
            reference.group = self._started(reference.knobs)
            reference.group.warm_up(self._n_clients)
        return reference.group

    def _started(self, knobs: Knobs, beside: Reference | None = None) -> ServerGroup:
        """The servers of a configuration; references but one end where memory would lack."""
        running = [each for each in self._references.values() if isinstance(each, Reference) and each is not beside]
        needed_bytes = self._needed_bytes(knobs)
        if beside is not None:
            needed_bytes += self._needed_bytes(beside.knobs)
        if needed_bytes + sum(self._needed_bytes(each.knobs) for each in running) > self._machine_bytes:
            for each in running:
                each.group.close()
        try:
            return ServerGroup(self._target, knobs, requests_of(knobs))
        except DoesNotFit as failure:
            self.faults.add(knobs, failure)
            raise

    def _new_reference(self, scale: ReferenceScale, like: Knobs) -> Reference:
        """Start servers with a slot for every client, or with fewer where memory lacks, and measure them.

        Where a search continues they are those of the best trial that is known.
        """
        known = self._known.get(scale)
        if known is None:
            largest = replace(like, session=scale.session, batch_size=self._n_clients)
            knobs, group = self._largest_started(largest)
        else:
            knobs, group = known.knobs, self._started(known.knobs)
        try:
            return self._measured_reference(knobs, group, known)
        except BaseException as failure:
            group.close()
            if isinstance(failure, DoesNotFit) and not isinstance(failure, Infeasible):
                self.faults.add(knobs, failure)
            raise

    def _largest_started(self, knobs: Knobs) -> tuple[Knobs, ServerGroup]:
        """A configuration with half the slots, and half of these, until memory suffices."""
        while True:
            try:
                return knobs, self._started(knobs)
            except OutOfMemory:
                if knobs.batch_size == 1:
                    raise
                knobs = replace(knobs, batch_size=knobs.batch_size // 2)

    def _measured_reference(self, knobs: Knobs, group: ServerGroup, known: Trial | None) -> Reference:
        single = Readings()
        single.readings.append(group.load(knobs.replicas))
        running = [each for each in self._references.values() if isinstance(each, Reference)]
        most = max((each.single_tokens_per_s for each in running), default=0.0)
        single_tokens_per_s = single.best.tokens_per_s / knobs.replicas
        if single_tokens_per_s < HOPELESS * most:  # further loads would take minutes
            raise Infeasible(
                "threads wait for each other on this machine: a server on "
                f"{knobs.session.group_size} cores gives one client {digits(single_tokens_per_s)} tokens/s, with other "
                f"threads {digits(most)}; try it on an idle machine",
                0,
            )
        group.warm_up(self._n_clients)
        for _ in range(N_SINGLE):
            single.readings.append(group.load(knobs.replicas))
        if known is not None:
            # The rate of an earlier search is the scale, so no other reference is needed.
            (readings,) = self._in_turns(group)
            rate = known.tokens.tokens_per_s
        elif not running:
            (readings,) = self._in_turns(group)
            rate = readings.best.tokens_per_s
        else:
            first = running[0]
            other, readings = self._in_turns(self._up(first), group)
            rate = first.tokens_per_s * readings.best.tokens_per_s / other.best.tokens_per_s
        n_sequences = self.n_in_flight(knobs)
        fit = StepFit.of(single.cpu_s, readings.cpu_s, n_sequences, readings.cores)
        fit = fit._replace(cores=fit.cores * rate / fit.tokens_per_s(n_sequences))  # so that it gives the rate
        single_tokens_per_s = max(single_tokens_per_s, single.best.tokens_per_s / knobs.replicas)
        self.faults.add_working(knobs)
        return Reference(knobs, group, readings, rate, single_tokens_per_s, fit)

    def _in_turns(self, *groups: ServerGroup) -> list[Readings]:
        """Put loads of all clients on groups of servers, one after the other, until their readings suffice."""
        every = [Readings() for _ in groups]
        start_s = perf_counter()
        while goes_on(every, start_s):
            for group, readings in zip(groups, every, strict=True):
                readings.readings.append(group.load(self._n_clients))
        return every

    def measured(self, knobs: Knobs) -> tuple[float, LoadReading]:
        """Tokens/s of a configuration, and its least disturbed load; raises as `of`."""
        reference = self.of(knobs)
        if knobs == reference.knobs:
            return reference.tokens_per_s, reference.readings.best
        beside = self._up(reference)
        with self._started(knobs, beside=reference) as group:
            try:
                group.warm_up(self._n_clients)
                other, own = self._in_turns(beside, group)
            except DoesNotFit as failure:
                self.faults.add(knobs, failure)
                raise
        self.faults.add_working(knobs)
        return reference.tokens_per_s * times_faster(own, other), own.best


def _scale(knobs: Knobs) -> ReferenceScale:
    return ReferenceScale(knobs.session.common, knobs.replicas, requests_of(knobs))


def _close_all(references: dict[ReferenceScale, Reference | DoesNotFit]) -> None:
    for reference in references.values():
        if isinstance(reference, Reference):
            reference.group.close()
