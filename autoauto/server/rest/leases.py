"""Handlers for workers that have no access to the database: they get searches and files, and report trials and events.

POST /v1/leases ──▶ a search and its token     POST /v1/leases/TOKEN/renew, /finish, /release
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection

from autoauto.records.errors import BadInput
from autoauto.records.files.fields import MisfitError
from autoauto.records.files.json import converted
from autoauto.server.call import Answer, Call, Service
from autoauto.server.rest.json_bodies import read_object
from autoauto.server.rest.worker_messages import (
    ClaimRequest,
    FinishRequest,
    ReleaseRequest,
    RenewRequest,
    StudyHead,
    TrialsRequest,
    checked_trial,
)
from autoauto.server.store import models
from autoauto.server.store.queue import LeaseKey, Queue, Standing
from autoauto.server.store.searches import Conflict, NotFound
from autoauto.server.store.study_copy import OutOfOrder, add_trials, head_of, trial_texts, write_head
from autoauto.server.store.submission import read_labels
from autoauto.server.store.tables import ServiceDatabase
from autoauto.server.store.trials import study_name, study_number

Read = TypeVar("Read")
N_TRIALS = 50
"""Maximum number of trials in one answer to a worker."""


def claim(service: Service, call: Call) -> Answer:
    """Lease the next search."""
    given, _ = _read(call, ClaimRequest)
    queue = Queue(service.database, read_labels(given.labels), given.max_running, given.process)
    lease = queue.claim()
    if lease is None:
        return Answer(204, None)
    submission = {"submission": lease.submission.to_json(), "limits": lease.limits}
    return Answer(200, {**lease._asdict(), **submission})


def lease_trials(service: Service, call: Call) -> Answer:
    """Trials of a leased search."""
    held = _held(service, call)
    first = _read(call, TrialsRequest)[0].first
    study_id = study_number(service.database, held.search_id)
    if study_id is None:
        return Answer(200, {"head": None, "trials": []})
    studies = service.database.studies
    head, texts = service.database.run(
        lambda: (head_of(studies, study_id), trial_texts(studies, study_id, first, N_TRIALS))
    )
    return Answer(200, {"head": head, "trials": texts})


def renew(service: Service, call: Call) -> Answer:
    """Extend a lease, add trials."""
    held = _held(service, call)
    given, plain = _read(call, RenewRequest)
    if given.head is not None:
        _add(service.database, held, given.head, given)
    standing = None if given.standing is None else Standing(*plain["standing"])
    wants_stop = Queue(service.database).renew(held, standing)
    if wants_stop is None:
        raise _lost()
    return Answer(200, {"wants_stop": wants_stop})


def finish(service: Service, call: Call) -> Answer:
    """End a leased search."""
    held = _held(service, call)
    given, plain = _read(call, FinishRequest)
    if not Queue(service.database).finish(held, given.state, plain["answer"], given.reason, given.used_s):
        raise _lost()
    return Answer(204, None)


def release(service: Service, call: Call) -> Answer:
    """Give a search back."""
    given, _ = _read(call, ReleaseRequest)
    Queue(service.database).release(_held(service, call), given.reason, is_lost=given.is_lost)
    return Answer(204, None)


def model_part(service: Service, call: Call) -> Answer:
    """A part of an uploaded file."""
    part = models.stored_part(service.database, call.path["digest"], call.query["part"])
    if part is None:
        raise NotFound(f"there is no part {call.query['part']} of {call.path['digest']!r:.80}; parts begin with 0")
    return Answer(200, None, raw=(part, "application/octet-stream"))


def _add(database: ServiceDatabase, held: LeaseKey, head: StudyHead, given: RenewRequest) -> None:
    """Add to the study of a search; a trial is written only while its lease is held."""
    queue = Queue(database)

    def check(connection: Connection) -> None:
        if not queue.holds(connection, held):
            raise _lost()

    trials = [checked_trial(text, len(head.directions)) for text in given.trials]

    def add() -> None:
        study_id = write_head(database.studies, study_name(held.search_id), msgspec.structs.asdict(head))
        add_trials(database.studies, study_id, given.first, trials, check)

    try:
        database.run(add)
    except OutOfOrder as error:
        raise Conflict(str(error)) from error
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"a study and its trials must be as a worker sends them: {error}; use this version") from error


def _held(service: Service, call: Call) -> LeaseKey:
    token = call.path["lease"]
    held = Queue(service.database).held(token) if token.isalnum() and token.isascii() else None
    if held is None:
        raise _lost()
    return held


def _lost() -> Conflict:
    return Conflict("a lease must be held for this, it is lost; claim another search")


def _read(call: Call, kind: type[Read]) -> tuple[Read, dict[str, Any]]:
    """Read the message of a worker; returns it as its type, and as all the plain values that were sent."""
    content = read_object(call.body, "a worker's message")
    try:
        return converted(kind, content), content
    except MisfitError as error:
        raise BadInput(f"a worker's message: {error}; see GET /openapi.json") from error
