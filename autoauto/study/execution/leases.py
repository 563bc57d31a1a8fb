"""Which configurations a study needs, and which process measures each of them: `Leases`, `Claim`.

A row of the table autoauto_leases is one configuration. Its life:

    request ----> waiting ----claim---> leased ----finish---> finished (has a trial)
                     ^                    |  renew: leased for another 30 s
                     |                    |
                     +--- the lease ran out, its process is gone, or it was released
    withdraw deletes a waiting row; retry makes a row waiting again whose trial failed

Every arrow is one transaction, so any number of processes may use the table at once. A worker that dies delays its
configuration by one lease at most (`LeasedRows`); a worker that was stopped for longer finds its lease gone and writes
nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import NamedTuple

from optuna import Study
from optuna.distributions import distribution_to_json, json_to_distribution
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Delete,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    and_,
    delete,
    exists,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from autoauto.database.leases import LEASE_S, LeasedRows, this_process
from autoauto.database.registry import LONG_TEXT, backend_of
from autoauto.database.tables import create_table
from autoauto.memo import Memo
from autoauto.space.knobs import Knobs
from autoauto.space.trial import Trial
from autoauto.study.store.database import database_of, through_restarts
from autoauto.study.store.optuna_tables import TRIALS
from autoauto.study.store.trial_storage import TrialStorage
from autoauto.study.store.trials import Ranges, from_optuna, knobs_of

_MAX_TRIALS = 64  # in memory: those that ended last
_LEASES = Table(
    "autoauto_leases",
    MetaData(),
    Column("lease_id", Integer, primary_key=True),
    Column("study_id", Integer, nullable=False),
    Column("configuration", String(512), nullable=False),
    Column("ranges", LONG_TEXT, nullable=False),
    Column("n_claims", Integer, nullable=False),
    Column("token", String(32)),
    Column("process", String(256)),
    Column("expires_s", Float(53)),
    Column("trial_id", Integer),
    UniqueConstraint("study_id", "configuration"),
)


class Claim(NamedTuple):
    """A lease that this process holds.

    Attributes:
        ranges: of its parameters, in the space of the search that requested it.
        token: a random name that only this claim has.
        n_claims: number of claims including this one; the workers of all earlier ones were lost.
    """

    knobs: Knobs
    ranges: Ranges
    token: str  # a random name that only this claim has
    n_claims: int


class _LeaseLost(Exception):
    """The lease ran out, and another process has claimed or finished the configuration."""


class Leases:
    """The requested configurations of one study; see the top of this file."""

    def __init__(self, study: Study, lease_s: float = LEASE_S) -> None:
        assert lease_s <= LEASE_S
        self.lease_s, self._rows = lease_s, LeasedRows(_LEASES, lease_s)
        storage, self._study_id = database_of(study)
        assert isinstance(storage, TrialStorage)  # `open_study` and `join_study` gave it one
        self._storage = storage
        self._engine = self._storage.engine
        self._trials: Memo[int, Trial] = Memo(_MAX_TRIALS)  # by number in the database: those that ended do not change
        self._prepare_table()

    @through_restarts
    def request(self, configurations: Mapping[Knobs, Ranges]) -> None:
        """Add the configurations for workers to claim in this order; those in the table stay as they are."""
        with self._engine.connect() as connection:
            known = set(connection.scalars(select(_LEASES.c.configuration).where(self._are(configurations))))
        for knobs, ranges in configurations.items():
            if _name(knobs) not in known:
                texts = {name: distribution_to_json(distribution) for name, distribution in ranges.items()}
                row = {"configuration": _name(knobs), "ranges": json.dumps(texts)}
                with suppress(IntegrityError), self._engine.begin() as connection:  # another search requested it too
                    connection.execute(insert(_LEASES), {"study_id": self._study_id, "n_claims": 0, **row})

    @through_restarts
    def retry(self, configurations: Collection[Knobs]) -> None:
        """Let workers claim again what failed, or was given up, in an earlier search."""
        failed = select(TRIALS.c.trial_id).where(TRIALS.c.study_id == self._study_id, TRIALS.c.state == TrialState.FAIL)
        may_retry = or_(_LEASES.c.trial_id.in_(failed), _LEASES.c.token.is_(None) & _LEASES.c.trial_id.is_(None))
        with self._engine.begin() as connection:
            again = update(_LEASES).where(self._are(configurations), may_retry)
            connection.execute(again.values(trial_id=None, token=None, n_claims=0))

    @through_restarts
    def forget(self, configurations: Collection[Knobs]) -> None:
        """Delete what is known of configurations that have a trial, so that they can be requested again."""
        with self._engine.begin() as connection:
            connection.execute(delete(_LEASES).where(self._are(configurations), _LEASES.c.trial_id.is_not(None)))

    @through_restarts
    def withdraw(self, configurations: Collection[Knobs]) -> None:
        """Delete the requests that nobody has claimed; a measurement that has started continues."""
        with self._engine.begin() as connection:
            connection.execute(self._withdrawal(configurations))

    @through_restarts
    def claim(self, among: Collection[Knobs] | None = None) -> Claim | None:
        """Lease a configuration that is waiting; None when there is none."""
        claim = self._claim(among)
        if claim is None:
            with self._engine.begin() as connection:
                has_freed = self._rows.free_those_of_gone_processes(connection, _LEASES.c.study_id == self._study_id)
            if has_freed:
                return self._claim(among)
        return claim

    @through_restarts
    def renew(self, claim: Claim) -> bool:
        """Extend a lease to `lease_s` from now; False when the claim does not hold it any more."""
        with self._engine.begin() as connection:
            renewed = self._rows.renewed(backend_of(connection).clock_s())
            renewal = update(_LEASES).where(self._is_held(claim)).values(renewed)
            return connection.execute(renewal).rowcount == 1

    def release(self, requested: Collection[Knobs], claims: Collection[Claim]) -> None:
        """Withdraw requests and undo claims, for a process that ends.

        It does not wait for a server that is away: there the leases of a process that is gone run out.
        """
        unclaimed = {"token": None, "n_claims": _LEASES.c.n_claims - 1}
        with suppress(SQLAlchemyError), self._engine.begin() as connection:
            for claim in claims:
                connection.execute(update(_LEASES).where(self._is_held(claim)).values(unclaimed))
            connection.execute(self._withdrawal(requested))

    @through_restarts
    def finish(self, claim: Claim, trial: FrozenTrial) -> int | None:
        """Write the trial and end the lease in one transaction; its id, or None and no trial if the lease is lost."""

        def end_lease(connection: Connection, trial_id: int) -> None:
            end = update(_LEASES).where(self._is_held(claim)).values(trial_id=trial_id, token=None)
            if connection.execute(end).rowcount != 1:
                raise _LeaseLost

        try:
            return self._storage.add_trial(self._study_id, trial, end_lease)
        except _LeaseLost:
            return None

    @through_restarts
    def trial(self, trial_id: int) -> Trial:
        """A trial that `finish` wrote, with its number."""
        return self._trials.of(trial_id, lambda: from_optuna(self._storage.get_trial(trial_id)))

    @through_restarts
    def finished(self, configurations: Collection[Knobs]) -> dict[Knobs, Trial]:
        """The trials, failed ones included, of the given configurations that have one."""
        with self._engine.connect() as connection:
            done = select(_LEASES.c.configuration, _LEASES.c.trial_id)
            rows = connection.execute(done.where(self._are(configurations), _LEASES.c.trial_id.is_not(None))).all()
        return {_knobs(configuration): self.trial(trial_id) for configuration, trial_id in rows}

    def _claim(self, among: Collection[Knobs] | None) -> Claim | None:
        backend = backend_of(self._engine)
        now_s = backend.clock_s()
        eligible = _LEASES.c.study_id == self._study_id if among is None else self._are(among)
        free = and_(eligible, _LEASES.c.trial_id.is_(None), self._rows.are_free(now_s))
        values = {**self._rows.taken(now_s, this_process()), "n_claims": _LEASES.c.n_claims + 1}
        with self._engine.begin() as connection:
            row = backend.claim_first(connection, _LEASES, free, values)
        if row is None:
            return None
        ranges = {name: json_to_distribution(text) for name, text in json.loads(row.ranges).items()}
        return Claim(_knobs(row.configuration), ranges, row.token, row.n_claims)

    def _are(self, configurations: Collection[Knobs]) -> ColumnElement[bool]:
        names = list(map(_name, configurations))
        return and_(_LEASES.c.study_id == self._study_id, _LEASES.c.configuration.in_(names))

    def _withdrawal(self, configurations: Collection[Knobs]) -> Delete:
        waiting = _LEASES.c.token.is_(None) & _LEASES.c.trial_id.is_(None)
        return delete(_LEASES).where(self._are(configurations), waiting)

    def _is_held(self, claim: Claim) -> ColumnElement[bool]:
        return and_(_LEASES.c.study_id == self._study_id, _LEASES.c.token == claim.token)

    @through_restarts
    def _prepare_table(self) -> None:
        create_table(self._engine, _LEASES)
        # Finished rows of a study without trials are of a deleted study whose number was used again.
        trials = select(TRIALS.c.trial_id).where(TRIALS.c.study_id == self._study_id)
        finished = and_(_LEASES.c.study_id == self._study_id, _LEASES.c.trial_id.is_not(None))
        with self._engine.begin() as connection:
            connection.execute(delete(_LEASES).where(finished, ~exists(trials)))


def _name(knobs: Knobs) -> str:
    return json.dumps(knobs.values)


def _knobs(name: str) -> Knobs:
    return knobs_of(json.loads(name))
