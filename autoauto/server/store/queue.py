"""Which search a worker runs next, and its lease: `Queue`. Every method is one transaction.

    waiting ──claim──▶ running ──finish──▶ finished | failed | stopped
       ▲                  │  renew: leased for another 30 s
       ╰──────────────────╯ release; or the lease ran out, or its process is gone

Between owners the one with the fewest running searches is next, then the one whose last search began longest ago;
between the searches of an owner the one with the highest priority, then the oldest. A search that several hold waits
among those of each, and runs in the turn that comes first.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, Select, and_, func, not_, or_, select, update

from autoauto.database.leases import this_process
from autoauto.database.registry import backend_of
from autoauto.server.store.models import fetch_uploads
from autoauto.server.store.searches import SearchState, end_search, is_free, read_limits
from autoauto.server.store.submission import SearchLimits, Submission
from autoauto.server.store.tables import HOLDERS, LEASES, SEARCHES, ServiceDatabase
from autoauto.server.store.trials import n_trials_of

MAX_ATTEMPTS = 3
"""A search fails after it has lost so many workers in a row without a further trial."""


class Lease(NamedTuple):
    """A search that this process runs.

    Attributes:
        limits: totals of measurements and trials at which it ends.
        left_s: seconds that are left of its time budget; None without one.
        used_s: seconds that earlier attempts took.
        n_trials: trials of earlier attempts.
        token: a random name that only this lease has.
    """

    search_id: str
    submission: Submission
    limits: SearchLimits
    left_s: float | None
    used_s: float
    n_trials: int
    token: str


class LeaseKey(NamedTuple):
    """The identity of a lease: its search, and its token."""

    search_id: str
    token: str


class Standing(NamedTuple):
    """The progress of a search.

    Attributes:
        progress: as clients read it, with the best so far.
        used_s: seconds of all attempts.
        is_further: whether a trial was added since the last one.
    """

    progress: Mapping[str, Any]
    n_measured: int
    used_s: float
    is_further: bool


class Queue:
    """The searches that wait for a worker.

    Args:
        labels: what this worker says of itself.
        max_running: searches of one owner that may run at once; None for any number.
        process: of the worker (`this_process`); by default this one.
    """

    def __init__(
        self,
        database: ServiceDatabase,
        labels: Mapping[str, str] | None = None,
        max_running: int | None = None,
        process: str | None = None,
    ) -> None:
        self._database = database
        self._labels = dict(labels or {})
        self._max_running = max_running
        self._process = process or this_process()

    def claim(self) -> Lease | None:
        """Lease the search that is next; None when none waits that this worker may run."""

        def work(connection: Connection) -> Lease | None:
            self._database.alone(connection)
            LEASES.free_those_of_gone_processes(connection, SEARCHES.c.state == SearchState.RUNNING)
            allowed = []
            for row in connection.execute(_waiting(self._database, SEARCHES.c.submission)):
                if msgspec.json.decode(row.submission)["labels"].items() <= self._labels.items():
                    allowed.append(row)
            for turn in _in_turns(self._database, connection, allowed, self._max_running):
                lease = self._claim(connection, turn)
                if lease is not None:
                    return lease
            return None

        return self._database.write(work)

    def open(self, lease: Lease) -> str:
        """The URL of the database for the trials of a search, whose uploaded files are on this machine then.

        Raises:
            BadInput: a file is missing.
        """
        fetch_uploads(self._database, lease.submission.uploads)
        return self._database.storage

    def renew(self, lease: Lease | LeaseKey, standing: Standing | None) -> bool | None:
        """Extend a lease, and store how far its search is; returns whether it is to stop, None where it is lost."""
        values = LEASES.renewed(self._database.now())
        if standing is not None:
            values |= {
                "progress": msgspec.json.encode(standing.progress).decode(),
                "n_measured": standing.n_measured,
                "n_trials": n_trials_of(lease.search_id),
                "used_s": standing.used_s,
            }
            if standing.is_further:  # only workers that were lost without a further trial count against a search
                values["n_attempts"] = 1
        renewal = update(SEARCHES).where(self._is_held(lease)).values(values)

        def work(connection: Connection) -> bool | None:
            row = backend_of(connection).update_one(connection, renewal, SEARCHES.c.wants_stop)
            return None if row is None else row.wants_stop

        return self._database.write(work)

    def finish(
        self, lease: Lease | LeaseKey, state: SearchState, answer: Mapping[str, Any] | None, reason: str, used_s: float
    ) -> bool:
        """Store what a search has found; returns False, and stores nothing, where the lease is lost.

        A search that has stopped while somebody has begun to wait for it again is not over: it waits for a worker.
        """
        values: dict[str, Any] = {"used_s": used_s, "n_trials": n_trials_of(lease.search_id)}
        if answer is not None:
            values["answer"] = msgspec.json.encode(answer).decode()
        which = self._is_held(lease)
        if state is SearchState.STOPPED:
            which = and_(which, SEARCHES.c.wants_stop.is_(True))
        if self._database.write(lambda connection: end_search(connection, which, state, reason, **values)):
            return True
        self.release(lease)
        return False

    def release(self, lease: Lease | LeaseKey, reason: str = "", *, is_lost: bool = False) -> None:
        """Give a search to another worker; where `is_lost`, it has cost a worker, for this reason."""

        def work(connection: Connection) -> None:
            values: dict[str, Any] = {"state": str(SearchState.WAITING), "token": None}
            if is_lost:
                values["reason"] = reason
            else:
                values["n_attempts"] = SEARCHES.c.n_attempts - 1
            connection.execute(update(SEARCHES).where(self._is_held(lease)).values(values))
            if is_lost:
                self._fail(connection, and_(SEARCHES.c.id == lease.search_id, SEARCHES.c.state == SearchState.WAITING))

        self._database.write(work)

    def held(self, token: str) -> LeaseKey | None:
        """The lease with a token; None where it is lost."""
        query = select(SEARCHES.c.id).where(SEARCHES.c.token == token)
        search_id = self._database.scalar(query)
        return None if search_id is None else LeaseKey(search_id, token)

    def holds(self, connection: Connection, lease: LeaseKey) -> bool:
        """True if a lease is held; then no other process can take it before the transaction ends."""
        keep = update(SEARCHES).where(self._is_held(lease)).values(token=lease.token)
        return connection.execute(keep).rowcount == 1

    def _claim(self, connection: Connection, turn: Any) -> Lease | None:
        # Guarded: SQLite takes no lock before the first change, so another process may have claimed it by now.
        this = and_(SEARCHES.c.id == turn.id, is_free(self._database))
        if self._fail(connection, this):
            return None
        values = LEASES.taken(self._database.now(), self._process)
        values |= {
            "state": str(SearchState.RUNNING),
            "started_s": time.time(),
            "owner": turn.holder,
            "n_trials": n_trials_of(turn.id),
            "n_attempts": SEARCHES.c.n_attempts + 1,
        }
        claim = update(SEARCHES).where(this).values(values)
        row = backend_of(connection).update_one(connection, claim, *SEARCHES.c)
        if row is None:
            return None
        limits, seconds = read_limits(row.limits)
        left_s = None if seconds is None else seconds - row.used_s
        submission = Submission.from_json(row.submission)
        return Lease(row.id, submission, limits, left_s, row.used_s, row.n_trials, row.token)

    def _fail(self, connection: Connection, which: Any) -> bool:
        """End a search that has cost too many workers; returns whether it has."""
        last = connection.scalar(select(SEARCHES.c.reason).where(which))
        reason = (
            f"it lost its worker {MAX_ATTEMPTS} times without a further trial; the last time: "
            f"{last or 'the worker was killed, or lost the database'}"
        )
        too_many = and_(which, SEARCHES.c.n_attempts >= MAX_ATTEMPTS)
        return end_search(connection, too_many, SearchState.FAILED, reason)

    def _is_held(self, lease: Lease | LeaseKey) -> Any:
        return and_(SEARCHES.c.id == lease.search_id, SEARCHES.c.token == lease.token)


def n_before(database: ServiceDatabase, search_id: str) -> int | None:
    """The number of searches that begin before one that waits, as things are; None if it does not wait."""

    def work(connection: Connection) -> int | None:
        waiting = connection.execute(_waiting(database))
        turns = enumerate(_in_turns(database, connection, waiting))
        return next((number for number, turn in turns if turn.id == search_id), None)

    return database.write(work)


def _waiting(database: ServiceDatabase, *columns: Any) -> Select[Any]:
    """A query of the searches that wait: a row for each holder that waits, for all holders if none does any more."""
    waits = or_(HOLDERS.c.has_stopped.is_(False), SEARCHES.c.wants_stop.is_(True))
    both = SEARCHES.join(HOLDERS, HOLDERS.c.search_id == SEARCHES.c.id)
    named = SEARCHES.c.id, SEARCHES.c.number, HOLDERS.c.owner.label("holder"), HOLDERS.c.priority
    return select(*named, *columns).select_from(both).where(is_free(database), waits)


def _in_turns(
    database: ServiceDatabase, connection: Connection, waiting: Iterable[Any], max_running: int | None = None
) -> Iterator[Any]:
    """The searches in the order in which they are claimed, as if each that is taken ran from then on."""
    of_holders: dict[str, list[Any]] = {}
    for row in sorted(waiting, key=lambda row: (row.priority, -row.number)):  # the next of each holder is the last
        of_holders.setdefault(row.holder, []).append(row)
    if not of_holders:
        return
    running = and_(SEARCHES.c.state == SearchState.RUNNING, not_(is_free(database)))
    n_running = Counter(connection.scalars(select(SEARCHES.c.owner).where(running)))
    latest = select(SEARCHES.c.owner, func.max(SEARCHES.c.started_s)).group_by(SEARCHES.c.owner)
    started_s = {owner: moment or 0.0 for owner, moment in connection.execute(latest)}
    # The holder with the fewest running searches is on top, then the one whose last search began longest ago.
    turns = []
    for holder, rows in of_holders.items():
        turns.append((n_running[holder], started_s.get(holder, 0.0), rows[-1].number, holder))
    heapify(turns)
    taken: set[str] = set()
    while turns:
        n_now, last_s, _, holder = heappop(turns)
        rows = of_holders[holder]
        while rows and rows[-1].id in taken:  # in the turn of another holder
            rows.pop()
        if not rows or (max_running is not None and n_now >= max_running):
            continue
        # Its next search may be another than when it was pushed, and so may its rank among holders that are even.
        if turns and (n_now, last_s, rows[-1].number, holder) > turns[0]:
            heappush(turns, (n_now, last_s, rows[-1].number, holder))
            continue
        turn = rows.pop()
        taken.add(turn.id)
        yield turn
        if rows:
            heappush(turns, (n_now + 1, time.time(), rows[-1].number, holder))
