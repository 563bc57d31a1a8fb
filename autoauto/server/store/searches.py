"""Searches as clients see them: submitted, listed, read, stopped and resumed; see `tables.py`.

    submit ──▶ waiting ──▶ running ──▶ finished | failed | stopped
                  ▲           │                 │
                  │           ╰ its worker died │
                  ╰──────────── resume ─────────╯

One row is one search, however many asked for it: its holders. A holder that stops it lets go of it; it ends when the
last one has, or an administrator stops it. A new holder has it tried again where it was stopped or has failed.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    case,
    delete,
    exists,
    false,
    func,
    not_,
    or_,
    select,
    true,
    union,
    update,
)

from autoauto.database.registry import backend_of
from autoauto.records.errors import AutoautoError
from autoauto.records.files.uploads import UPLOADED
from autoauto.server.store.sharing import called, held_names, names_for, shares_weights
from autoauto.server.store.submission import SearchLimits, Submission
from autoauto.server.store.tables import HOLDERS, LEASES, SEARCHES, Page, ServiceDatabase, insert_new
from autoauto.server.store.users import Role, User

MAX_PRIORITY = 100
_ID_BYTES = 10
_EMPTY = "null"
ON_END: tuple[Callable[[Connection, Row[Any]], None], ...] = ()
"""Called at every end of a search with its row of `SEARCHES`, in the transaction that ends it.

A transaction may be repeated, or rolled back: what leaves the database, as a mail, is noted there and sent afterwards.
A file with such a function has what it needs from `tables.py`; this one it cannot import.
"""


class SearchState(StrEnum):
    """The states of a search."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def has_ended(self) -> bool:
        """True if nothing happens any more until the search is resumed."""
        return self not in (SearchState.WAITING, SearchState.RUNNING)


class NotFound(AutoautoError):
    """There is no such thing, or none that the caller may see."""


class Forbidden(AutoautoError):
    """The caller may see it, and may not do this."""


class Conflict(AutoautoError):
    """It is not in the state that this needs."""


class Submitted(NamedTuple):
    """The result of a submission: the id of its search, and whether the search is new."""

    search_id: str
    is_new: bool


def submit(
    database: ServiceDatabase,
    user: User,
    submission: Submission,
    priority: int = 0,
    *,
    is_shared: bool = False,
    with_weights: bool = False,
) -> Submitted:
    """Ask for a search; an equal one that is known is the same.

    Args:
        priority: among the user's own searches.
        is_shared: whether all users may see it.
        with_weights: whether those who see it may export it, also with the weights of an uploaded model.

    Raises:
        BadInput: the user has not uploaded a file that it names.
    """
    digest = submission.digest
    row: dict[str, object] = {
        "id": secrets.token_hex(_ID_BYTES),
        "digest": digest,
        "submission": submission.to_json(),
        "owner": user.name,
        "state": SearchState.WAITING,
        "limits": _limits_json(submission, 0, 0, 0.0),
        "reason": "",
        "progress": _EMPTY,
        "answer": _EMPTY,
        "n_attempts": 0,
        "n_measured": 0,
        "n_trials": 0,
        "used_s": 0.0,
        "wants_stop": False,
        "created_s": time.time(),
    }

    def work(connection: Connection) -> Submitted:
        of_digest = SEARCHES.c.digest == digest
        is_new = insert_new(connection, SEARCHES, row)
        while not _keep(connection, of_digest):  # it was deleted just now
            is_new = insert_new(connection, SEARCHES, row)
        search_id = connection.execute(select(SEARCHES.c.id).where(of_digest)).scalar_one()
        names = held_names(database, connection, user, submission)
        holder = {
            "search_id": search_id,
            "owner": user.name,
            "priority": priority,
            "is_shared": is_shared,
            "shares_weights": with_weights,
            "has_stopped": False,
            "names": names,
        }
        if insert_new(connection, HOLDERS, holder):
            if not is_new:  # one that its other holders have stopped, or that has failed, is tried again
                known = connection.execute(select(SEARCHES).where(SEARCHES.c.id == search_id)).one()
                _go_on(connection, known, begins_again=known.state in (SearchState.STOPPED, SearchState.FAILED))
        else:  # of who asks again the better priority counts; what is shared stays so, unless it is shared anew
            values: dict[str, Any] = {
                "priority": case((HOLDERS.c.priority < priority, priority), else_=HOLDERS.c.priority)
            }
            if is_shared:
                values |= {"is_shared": True, "shares_weights": with_weights}
            connection.execute(update(HOLDERS).where(_own(user, search_id)).values(values))
        return Submitted(search_id, is_new or search_id == row["id"])  # also where it is repeated after a lost answer

    return database.write(work)


def _go_on(connection: Connection, row: Row[Any], *, begins_again: bool) -> None:
    """Take back that a search is to stop; one that begins again waits for a worker, with its whole budget."""
    values: dict[str, Any] = {"wants_stop": False}
    if begins_again:
        limits = _limits_json(Submission.from_json(row.submission), row.n_measured, row.n_trials, row.used_s)
        values |= {"state": str(SearchState.WAITING), "limits": limits, "reason": "", "n_attempts": 0, "ended_s": None}
    connection.execute(update(SEARCHES).where(SEARCHES.c.id == row.id).values(values))


def _keep(connection: Connection, which: ColumnElement[bool]) -> bool:
    """Let no other process change or delete a search until the transaction ends; returns False where there is none.

    What is read before may be out of date when it is acted upon: a worker ends a search at any time.
    """
    return connection.execute(update(SEARCHES).where(which).values(id=SEARCHES.c.id)).rowcount == 1


def _own(user: User, search_id: str) -> ColumnElement[bool]:
    return and_(HOLDERS.c.search_id == search_id, HOLDERS.c.owner == user.name)


def list_searches(
    database: ServiceDatabase,
    user: User,
    state: SearchState | None = None,
    owner: str | None = None,
    limit: int = 50,
    before: int = 0,
) -> Page:
    """The searches that a user may see, the newest first, `limit` of them."""
    wanted = [_visible(user)]
    if state is not None:
        wanted.append(_is_in(database, state))
    if owner is not None:
        wanted.append(SEARCHES.c.id.in_(_held_by(owner)))
    query = _query(database, user).where(*wanted)
    return database.newest(query, SEARCHES.c.number, limit, before, lambda row: _described(row, user))


def read_search(database: ServiceDatabase, user: User, search_id: str) -> dict[str, Any]:
    """A search with its answer.

    Raises:
        NotFound: there is none that the user may see.
    """
    row = database.write(lambda connection: _row(database, connection, user, search_id))
    return _described(row, user) | {"answer": msgspec.json.decode(row.answer) or None}


def visible_ids(database: ServiceDatabase, user: User) -> set[str]:
    """The ids of all searches that a user may see."""
    return {row.id for row in database.rows(select(SEARCHES.c.id).where(_visible(user)))}


def check_visible(database: ServiceDatabase, user: User, search_id: str) -> None:
    """Make sure that there is a search, and a user may see it; raises NotFound."""
    database.write(lambda connection: _row(database, connection, user, search_id))


def stop_search(database: ServiceDatabase, user: User, search_id: str) -> dict[str, Any]:
    """Stop a search for its caller, and altogether where no other holder is left.

    Raises:
        NotFound, Forbidden: the user may not see it, or does not hold it.
    """

    def work(connection: Connection) -> None:
        row = _held_row(database, connection, user, search_id)
        if SearchState(row.state).has_ended:
            return
        if user.role is not Role.ADMIN:
            connection.execute(update(HOLDERS).where(_own(user, search_id)).values(has_stopped=True))
            _end_unless(_is_waited_for(search_id), connection, search_id)
        else:
            _end_unless(false(), connection, search_id)

    database.write(work)
    return read_search(database, user, search_id)


def _is_waited_for(search_id: str) -> ColumnElement[bool]:
    return exists().where(HOLDERS.c.search_id == search_id, HOLDERS.c.has_stopped.is_(False))


def _end_unless(waits: ColumnElement[bool], connection: Connection, search_id: str) -> None:
    """Let a search end with its best so far unless somebody waits for it; one that has none ends at once."""
    this = and_(SEARCHES.c.id == search_id, not_(waits))
    never_ran = and_(this, SEARCHES.c.state == SearchState.WAITING, SEARCHES.c.n_trials == 0)
    end_search(connection, never_ran, SearchState.STOPPED, "stopped before it began")
    going = and_(this, SEARCHES.c.state.in_([SearchState.WAITING, SearchState.RUNNING]))
    connection.execute(update(SEARCHES).where(going).values(wants_stop=True))


def end_search(
    connection: Connection, which: ColumnElement[bool], state: SearchState, reason: str, **values: object
) -> bool:
    """End a search; every end passes through here, whichever process it is in.

    Args:
        which: is true of the one search that is to end, and false of all where it must not end any more.
        state: finished, stopped or failed.

    Returns whether it has ended now.
    """
    ended = {"state": str(state), "reason": reason, "ended_s": time.time(), "token": None, "wants_stop": False}
    end = update(SEARCHES).where(which).values(**ended, **values)
    row = backend_of(connection).update_one(connection, end, *SEARCHES.c)
    if row is None:
        return False
    for on_end in ON_END:
        on_end(connection, row)
    return True


def resume_search(database: ServiceDatabase, user: User, search_id: str) -> dict[str, Any]:
    """Let a search go on that was stopped, has failed or whose budget has ended; the budget begins anew.

    Raises:
        NotFound, Forbidden: the user may not see it, or does not hold it.
        Conflict: it has found its answer.
    """

    def work(connection: Connection) -> None:
        row = _held_row(database, connection, user, search_id)
        answer = msgspec.json.decode(row.answer) or {}
        if row.state == SearchState.FINISHED and not answer.get("ended_by"):
            raise Conflict(f"search {search_id} has found its answer, nothing is left to do; submit another request")
        waits = HOLDERS.c.search_id == search_id if row.priority is None else _own(user, search_id)
        connection.execute(update(HOLDERS).where(waits).values(has_stopped=False))  # an administrator's for all
        _go_on(connection, row, begins_again=SearchState(row.state).has_ended)

    database.write(work)
    return read_search(database, user, search_id)


def delete_search(database: ServiceDatabase, user: User, search_id: str) -> bool:
    """Forget a search for its caller; where nobody else holds it, or for an administrator, altogether.

    Returns:
        Whether it is gone, so that its trials may go, too.

    Raises:
        NotFound, Forbidden: the user may not see it, or does not hold it.
        Conflict: it has not ended.
    """

    def work(connection: Connection) -> bool:
        row = _held_row(database, connection, user, search_id)
        of_search = HOLDERS.c.search_id == search_id
        others = select(func.min(HOLDERS.c.owner)).where(of_search, HOLDERS.c.owner != user.name)
        heir = None if user.role is Role.ADMIN else connection.scalar(others)
        if heir is not None:  # it stays for the others, and runs in the turn of one of them
            connection.execute(delete(HOLDERS).where(_own(user, search_id)))
            own = and_(SEARCHES.c.id == search_id, SEARCHES.c.owner == user.name)
            connection.execute(update(SEARCHES).where(own).values(owner=heir))
            _end_unless(_is_waited_for(search_id), connection, search_id)
            return False
        if not SearchState(row.state).has_ended:
            raise Conflict(f"a search that is deleted has ended, {search_id} has not; stop it first")
        connection.execute(delete(HOLDERS).where(of_search))
        connection.execute(delete(SEARCHES).where(SEARCHES.c.id == search_id))
        return True

    return database.write(work)


def count_states(database: ServiceDatabase) -> dict[str, int]:
    """The number of searches in every state."""
    counting = select(SEARCHES.c.state, func.count().label("n_searches")).group_by(SEARCHES.c.state)
    counts = {str(state): 0 for state in SearchState}
    for row in database.rows(counting):
        counts[row.state] = row.n_searches
    return counts


def _limits_json(submission: Submission, n_measured: int, n_trials: int, used_s: float) -> str:
    """The budget as totals: what was used before counts, too."""
    limits = submission.limits
    used = {
        "measurements": (limits.measurements, n_measured),
        "trials": (limits.trials, n_trials),
        "seconds": (submission.request.study.time_budget_s, used_s),
    }
    totals = {name: None if limit is None else limit + before for name, (limit, before) in used.items()}
    return msgspec.json.encode(totals).decode()


def read_limits(text: str) -> tuple[SearchLimits, float | None]:
    """The totals that `_limits_json` wrote, and the seconds among them."""
    totals = msgspec.json.decode(text)
    return SearchLimits(totals["measurements"], totals["trials"]), totals["seconds"]


def _is_lost(database: ServiceDatabase) -> ColumnElement[bool]:
    """True of a search whose worker was lost; clients see it as waiting."""
    return and_(SEARCHES.c.state == SearchState.RUNNING, LEASES.are_free(database.now()))


def is_free(database: ServiceDatabase) -> ColumnElement[bool]:
    """True of a search that a worker may claim: it waits, or its worker was lost."""
    return or_(SEARCHES.c.state == SearchState.WAITING, _is_lost(database))


def _is_in(database: ServiceDatabase, state: SearchState) -> ColumnElement[bool]:
    """True of a search in a state as clients see it; written so that the index of states is used."""
    if state is SearchState.WAITING:
        return is_free(database)
    if state is SearchState.RUNNING:
        return and_(SEARCHES.c.state == SearchState.RUNNING, not_(_is_lost(database)))
    return SEARCHES.c.state == str(state)


def _query(database: ServiceDatabase, user: User) -> Any:
    held = HOLDERS.alias()
    own = and_(held.c.search_id == SEARCHES.c.id, held.c.owner == user.name)
    shared = exists().where(HOLDERS.c.search_id == SEARCHES.c.id, HOLDERS.c.is_shared.is_(True))
    columns = held.c.has_stopped, held.c.priority, shared.label("is_shared"), _is_lost(database).label("is_lost")
    return select(SEARCHES, *columns, shares_weights(), names_for(user)).select_from(SEARCHES.outerjoin(held, own))


def _row(database: ServiceDatabase, connection: Connection, user: User, search_id: str) -> Row[Any]:
    query = _query(database, user).where(SEARCHES.c.id == search_id, _visible(user))
    row = connection.execute(query).one_or_none()
    if row is None:
        raise NotFound(f"there is no search {search_id!r:.60} that you may see; GET /v1/searches lists yours")
    return row


def _visible(user: User) -> ColumnElement[bool]:
    if user.role is Role.ADMIN:
        return true()
    shared = select(HOLDERS.c.search_id).where(HOLDERS.c.is_shared.is_(True))
    return SEARCHES.c.id.in_(union(_held_by(user.name), shared))


def _held_by(owner: str) -> Select[Any]:
    return select(HOLDERS.c.search_id).where(HOLDERS.c.owner == owner)


def _held_row(database: ServiceDatabase, connection: Connection, user: User, search_id: str) -> Row[Any]:
    """The row of a search that a user has asked for, which stays so; for an administrator of any."""
    _keep(connection, SEARCHES.c.id == search_id)
    row = _row(database, connection, user, search_id)
    if row.priority is None and user.role is not Role.ADMIN:  # the priority of the user as a holder
        raise Forbidden(f"search {search_id} is shared with you, and only who asked for it may do this")
    return row


def _described(row: Row[Any], user: User) -> dict[str, Any]:
    """A search as clients read it, without its whole answer."""
    submission = msgspec.json.decode(row.submission)
    answer = msgspec.json.decode(row.answer) or {}
    progress: Mapping[str, Any] | None = msgspec.json.decode(row.progress)
    problem = submission["request"]["problem"]
    named = {"model": problem["model"], "cluster": problem["cluster"], **problem["options"]}
    state = SearchState.WAITING if row.is_lost else SearchState(row.state)
    if row.has_stopped and not state.has_ended:
        state = SearchState.STOPPED  # for its caller: it goes on for another holder, or ends soon
    is_held = row.priority is not None
    owner = user.name if is_held else None  # of other holders a user sees nothing
    if user.role is Role.ADMIN:
        owner = row.owner
    may_export = is_held or user.role is Role.ADMIN or row.shares_weights or not UPLOADED.fullmatch(problem["model"])
    best = answer.get("best")
    if progress is not None:
        best = best or progress.get("best")
        progress = {name: value for name, value in progress.items() if name != "best"}
    return {
        "id": row.id,
        "state": state,
        "reason": row.reason,
        "model": problem["model"],
        "cluster": problem["cluster"],
        "model_name": called(row.names, problem["model"]),
        "cluster_name": called(row.names, problem["cluster"]),
        "files": {what: called(row.names, name) for what, name in named.items() if UPLOADED.fullmatch(str(name))},
        "target": problem["target"],
        "objective": submission["request"]["study"]["objectives"],
        "owner": owner,
        "priority": row.priority,
        "shared": bool(row.is_shared),
        "may_export": bool(may_export),
        "created": row.created_s,
        "started": row.started_s,
        "ended": row.ended_s,
        "used_s": row.used_s,
        "n_measured": row.n_measured,
        "n_trials": row.n_trials,
        "n_attempts": row.n_attempts,
        "ended_by": answer.get("ended_by"),
        "progress": progress,
        "best": best,
        "links": {"self": f"/v1/searches/{row.id}"},
    }
