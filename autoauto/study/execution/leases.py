"""Which process holds something, and whether it is gone, as far as one machine can tell."""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

from optuna import Study
from optuna.distributions import distribution_to_json, json_to_distribution
from optuna.trial import FrozenTrial
from sqlalchemy import (
    Column,
    ColumnElement,
    Delete,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    and_,
    delete,
    event,
    exists,
    func,
    insert,
    literal,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError, ProgrammingError, SQLAlchemyError
from sqlalchemy.orm import Session
from sqlalchemy.schema import CreateTable

from autoauto.records.knobs import Knobs
from autoauto.study.store.database import database_of, through_restarts
from autoauto.study.store.trials import Ranges, knobs_of


def myself() -> str:
    """This process among all machines: its machine, and its number there."""
    return f"{_place()}:{os.getpid()}"


def is_gone(owner: str) -> bool:
    """Whether a process was on this machine and is no more; of other machines nothing is known."""
    place, _, number = owner.rpartition(":")
    if place != _place():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


@cache
def _place() -> str:
    """Where process numbers mean the same: one boot of one machine, and of its containers the same one."""
    facts = [socket.gethostname()]
    with suppress(OSError):
        facts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
    with suppress(OSError):
        facts.append(str(Path("/proc/self/ns/pid").stat().st_ino))
    return "/".join(facts)


LEASE_S = 30.0
_LONGEST_S = 2 * LEASE_S  # an expiry further ahead than any lease is of a clock that has been set back since
_LEASES = Table(
    "autoauto_leases",
    MetaData(),
    Column("lease_id", Integer, primary_key=True),
    Column("study_id", Integer, nullable=False),
    Column("configuration", String(512), nullable=False),
    Column("ranges", Text, nullable=False),
    Column("n_claims", Integer, nullable=False),
    Column("token", String(32)),
    Column("owner", String(256)),
    Column("expires_s", Float(53)),
    Column("trial_id", Integer),
    UniqueConstraint("study_id", "configuration"),
)
_TRIALS = Table("trials", MetaData(), Column("trial_id", Integer), Column("study_id", Integer), Column("state", String))


class Claim(NamedTuple):
    """A lease that this process holds.

    Attributes:
        knobs: the configuration to measure.
        ranges: of its parameters, in the space of the search that wants it.
        token: known to nobody else.
        n_claims: how often it was claimed, this time included; all earlier workers were lost.
    """

    knobs: Knobs
    ranges: Ranges
    token: str
    n_claims: int


class _Late(Exception):
    """The lease ran out, and somebody else has the configuration or has finished it."""


class Leases:
    """The configurations that are wanted in one study; every change is one transaction.

    Times are the database's: PostgreSQL's clock, or for SQLite, which one machine uses, that machine's monotonic clock.
    So no clock of a worker that is set forward or back ends a lease, and none lasts longer because a machine was
    started again, or because the server's clock was set: then a lease may end early, which costs time alone.
    """

    def __init__(self, study: Study, lease_s: float = LEASE_S) -> None:
        assert lease_s <= LEASE_S
        self.lease_s = lease_s
        self._storage, self._study_id = database_of(study)
        self._engine = self._storage.engine
        self._make_table()
        self._forget_deleted_study()

    @through_restarts
    def want(self, wanted: Mapping[Knobs, Ranges]) -> None:
        """Have workers measure these, the first first; those that there are already stay as they are."""
        with self._engine.connect() as connection:
            known = set(connection.scalars(select(_LEASES.c.configuration).where(self._are(wanted))))
        for knobs, ranges in wanted.items():
            if _name(knobs) not in known:
                what = {"configuration": _name(knobs), "ranges": _dump(ranges)}
                with suppress(IntegrityError), self._engine.begin() as connection:  # another search wants it too
                    connection.execute(insert(_LEASES), {"study_id": self._study_id, "n_claims": 0, **what})

    @through_restarts
    def want_again(self, wanted: Collection[Knobs]) -> None:
        """Have workers measure again what failed, or was lost too often, in an earlier search."""
        failed = select(_TRIALS.c.trial_id).where(_TRIALS.c.study_id == self._study_id, _TRIALS.c.state == "FAIL")
        to_try = or_(_LEASES.c.trial_id.in_(failed), _LEASES.c.token.is_(None) & _LEASES.c.trial_id.is_(None))
        with self._engine.begin() as connection:
            again = update(_LEASES).where(self._are(wanted), to_try)
            connection.execute(again.values(trial_id=None, token=None, n_claims=0))

    @through_restarts
    def withdraw(self, knobs: Collection[Knobs]) -> None:
        """Want these no more; what somebody has begun goes on."""
        with self._engine.begin() as connection:
            connection.execute(self._withdrawal(knobs))

    @through_restarts
    def claim(self, among: Collection[Knobs] | None = None) -> Claim | None:
        """Lease a configuration that nobody works on; None when there is none."""
        return self._claim(among) or (self._claim(among) if self._free_the_gone() else None)

    @through_restarts
    def renew(self, claim: Claim) -> bool:
        """Hold a lease for another while; False when it is somebody else's by now."""
        with self._engine.begin() as connection:
            renewal = update(_LEASES).where(self._is_held(claim)).values(expires_s=self._now() + self.lease_s)
            return connection.execute(renewal).rowcount == 1

    def leave(self, wanted: Collection[Knobs], claims: Collection[Claim]) -> None:
        """Want nothing more, and give back what is claimed as if it had not been: for a process that ends.

        It does not wait for a database that is away: there the leases of who has gone end by themselves.
        """
        given_back = {"token": None, "n_claims": _LEASES.c.n_claims - 1}
        with suppress(SQLAlchemyError), self._engine.begin() as connection:
            for claim in claims:
                connection.execute(update(_LEASES).where(self._is_held(claim)).values(given_back))
            connection.execute(self._withdrawal(wanted))

    @through_restarts
    def finish(self, claim: Claim, trial: FrozenTrial) -> int | None:
        """Write the trial and end the lease in one transaction; its id, or None, and nothing written, if it is late."""

        def end_lease(session: Session) -> None:
            """In the transaction in which Optuna writes the trial; its lock on the study is held."""
            ours = select(func.max(_TRIALS.c.trial_id)).where(_TRIALS.c.study_id == self._study_id)
            end = update(_LEASES).where(self._is_held(claim)).values(trial_id=session.scalar(ours), token=None)
            if session.connection().execute(end).rowcount != 1:
                raise _Late

        session = self._storage.scoped_session()
        event.listen(session, "before_commit", end_lease)
        try:
            return self._storage.create_new_trial(self._study_id, trial)
        except _Late:
            return None
        finally:
            event.remove(session, "before_commit", end_lease)

    @through_restarts
    def trial(self, trial_id: int) -> FrozenTrial:
        """A trial that `finish` wrote, with its number."""
        return self._storage.get_trial(trial_id)

    @through_restarts
    def finished(self, wanted: Collection[Knobs]) -> dict[Knobs, FrozenTrial]:
        """Those of `wanted` that have a trial, failed ones included."""
        with self._engine.connect() as connection:
            done = select(_LEASES.c.configuration, _LEASES.c.trial_id)
            found = connection.execute(done.where(self._are(wanted), _LEASES.c.trial_id.is_not(None))).all()
        return {_knobs(configuration): self._storage.get_trial(trial_id) for configuration, trial_id in found}

    def _claim(self, among: Collection[Knobs] | None) -> Claim | None:
        """One statement, so that SQLite locks before it looks; PostgreSQL passes over what others are just claiming."""
        now, token = self._now(), uuid.uuid4().hex
        nobodys = or_(_LEASES.c.token.is_(None), _LEASES.c.expires_s < now, _LEASES.c.expires_s > now + _LONGEST_S)
        ours = _LEASES.c.study_id == self._study_id if among is None else self._are(among)
        first = (
            select(_LEASES.c.lease_id).where(ours, _LEASES.c.trial_id.is_(None), nobodys).order_by(_LEASES.c.lease_id)
        )
        one = first.limit(1).with_for_update(skip_locked=True).scalar_subquery()
        taken = {"token": token, "owner": myself(), "expires_s": now + self.lease_s}
        claim = update(_LEASES).where(_LEASES.c.lease_id == one).values(n_claims=_LEASES.c.n_claims + 1, **taken)
        with self._engine.begin() as connection:
            row = connection.execute(claim.returning(*_LEASES.c)).one_or_none()
        return None if row is None else Claim(_knobs(row.configuration), _load(row.ranges), token, row.n_claims)

    def _free_the_gone(self) -> bool:
        """Free what is leased to processes of this machine that are gone, without waiting for their leases to end."""
        held = and_(_LEASES.c.study_id == self._study_id, _LEASES.c.token.is_not(None))
        with self._engine.connect() as connection:
            gone = [
                owner for owner in connection.scalars(select(_LEASES.c.owner).where(held).distinct()) if is_gone(owner)
            ]
        if gone:
            with self._engine.begin() as connection:
                connection.execute(update(_LEASES).where(held, _LEASES.c.owner.in_(gone)).values(token=None))
        return bool(gone)

    def _are(self, knobs: Collection[Knobs]) -> ColumnElement[bool]:
        return and_(_LEASES.c.study_id == self._study_id, _LEASES.c.configuration.in_([_name(one) for one in knobs]))

    def _withdrawal(self, knobs: Collection[Knobs]) -> Delete:
        waiting = _LEASES.c.token.is_(None) & _LEASES.c.trial_id.is_(None)
        return delete(_LEASES).where(self._are(knobs), waiting)

    def _is_held(self, claim: Claim) -> ColumnElement[bool]:
        return and_(_LEASES.c.study_id == self._study_id, _LEASES.c.token == claim.token)

    def _now(self) -> ColumnElement[float]:
        if self._engine.dialect.name == "sqlite":
            return literal(time.monotonic())
        return literal_column("extract(epoch FROM clock_timestamp())", Float)

    @through_restarts
    def _make_table(self) -> None:
        with suppress(IntegrityError, ProgrammingError), self._engine.begin() as connection:  # another was as quick
            connection.execute(CreateTable(_LEASES, if_not_exists=True))

    @through_restarts
    def _forget_deleted_study(self) -> None:
        """A study without trials has nothing finished: such rows are of a deleted study that had the same number."""
        trials = select(_TRIALS.c.trial_id).where(_TRIALS.c.study_id == self._study_id)
        finished = and_(_LEASES.c.study_id == self._study_id, _LEASES.c.trial_id.is_not(None))
        with self._engine.begin() as connection:
            connection.execute(delete(_LEASES).where(finished, ~exists(trials)))


def _name(knobs: Knobs) -> str:
    return json.dumps(asdict(knobs))


def _knobs(name: str) -> Knobs:
    return knobs_of(json.loads(name))


def _dump(ranges: Ranges) -> str:
    return json.dumps({name: distribution_to_json(distribution) for name, distribution in ranges.items()})


def _load(ranges: str) -> Ranges:
    return {name: json_to_distribution(distribution) for name, distribution in json.loads(ranges).items()}
