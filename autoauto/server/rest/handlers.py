"""The handlers of the paths of the interface, a function each: `Call` to `Answer`. They run in threads and may wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec

from autoauto.records.errors import BadInput
from autoauto.records.installation import VERSION
from autoauto.server.call import Answer, Call, Service
from autoauto.server.rest.json_bodies import read_object
from autoauto.server.store import models, searches, trials
from autoauto.server.store.room import check_room
from autoauto.server.store.searches import MAX_PRIORITY, SearchState
from autoauto.server.store.submission import Submission
from autoauto.server.store.tables import DatabaseAway
from autoauto.space.requests.request import SearchRequest

_OF_SERVER = ("request", "limits", "labels", "priority", "shared", "share_weights")


def health(service: Service, call: Call) -> Answer:
    """The answer to a health check: 200 if the database answers and has room."""
    if not service.database.answers():
        raise DatabaseAway("the database of the server must answer, it does not; try again later")
    check_room(service.database)
    return Answer(200, {"status": "ok", "version": VERSION})


def openapi(service: Service, call: Call) -> Answer:
    """This document."""
    return Answer(200, None, raw=(service.document, "application/json"))


def metrics(service: Service, call: Call) -> Answer:
    """Counts, for Prometheus."""
    return Answer(200, None, raw=service.metrics.text(searches.count_states(service.database)))


def submit(service: Service, call: Call) -> Answer:
    """Ask for a search; an equal one is the same."""
    given = read_object(call.body, "a submission")
    options = {name: value for name, value in given.items() if name not in _OF_SERVER}
    if "request" in given and options:
        raise BadInput(f"a submission has options or a request, got request and {min(options)!r:.60}; leave one out")
    if "request" in given:
        request = SearchRequest.from_json(msgspec.json.encode(given["request"]).decode())
    else:
        request = service.read_request(options)
    submission = Submission.of(request, given.get("limits"), given.get("labels"))
    priority = given.get("priority", 0)
    if not isinstance(priority, int) or isinstance(priority, bool) or abs(priority) > MAX_PRIORITY:
        raise BadInput(f"priority must be a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}, got {priority!r:.60}")
    is_shared = _switch(given, "shared")
    with_weights = _switch(given, "share_weights")
    if with_weights and not is_shared:
        raise BadInput("share_weights says what others may do with a shared search, got it without shared; add shared")
    search_id, is_new = searches.submit(
        service.database, call.user, submission, priority, is_shared=is_shared, with_weights=with_weights
    )
    location = f"/v1/searches/{search_id}"
    content: dict[str, Any] = {"id": search_id, "state": SearchState.WAITING, "links": {"self": location}}
    if not is_new:
        known = searches.read_search(service.database, call.user, search_id)
        content["state"] = known["state"]
        if known["state"] in (SearchState.STOPPED, SearchState.FAILED):
            content["links"]["resume"] = f"{location}/resume"
            content["detail"] = f"{known['state']}: {known['reason']}; POST {location}/resume lets it go on"
    return Answer(202 if is_new else 200, content, location)


def _switch(given: Mapping[str, Any], name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise BadInput(f"{name} must be true or false, got {value!r:.60}")
    return value


def list_page(service: Service, call: Call) -> Answer:
    """The searches that you may see, the newest first."""
    given = call.query
    state = None if given["state"] is None else SearchState(given["state"])
    page = searches.list_searches(service.database, call.user, state, given["owner"], given["limit"], given["before"])
    return Answer(200, {"searches": page.entries, "next": _next("/v1/searches", given, before=page.more)})


def read(service: Service, call: Call) -> Answer:
    """A search: its state, its best so far, its answer."""
    return Answer(200, searches.read_search(service.database, call.user, call.search_id))


def delete(service: Service, call: Call) -> Answer:
    """Forget a search that has ended, with its trials."""
    search_id = call.search_id
    if searches.delete_search(service.database, call.user, search_id):
        trials.delete_trials(service.database, search_id)
    return Answer(204, None)


def list_trials(service: Service, call: Call) -> Answer:
    """The trials of a search, by number."""
    search_id = call.search_id
    page = trials.list_trials(service.database, call.user, search_id, call.query["first"], call.query["limit"])
    following = _next(f"/v1/searches/{search_id}/trials", call.query, first=page.more)
    return Answer(200, {"trials": page.entries, "next": following})


def _next(path: str, given: Mapping[str, Any], **start: int | None) -> str | None:
    if None in start.values():
        return None
    query = {name: value for name, value in {**given, **start}.items() if value is not None}
    return f"{path}?{urlencode(query)}"


def events(service: Service, call: Call) -> Answer:
    """Every change of your newest searches."""
    return Answer(200, None, events=lambda: searches.list_searches(service.database, call.user).entries)


def search_events(service: Service, call: Call) -> Answer:
    """Every change of a search."""
    search_id = call.search_id
    searches.check_visible(service.database, call.user, search_id)
    return Answer(200, None, events=lambda: [searches.read_search(service.database, call.user, search_id)])


def stop(service: Service, call: Call) -> Answer:
    """End a search with its best so far."""
    return Answer(200, searches.stop_search(service.database, call.user, call.search_id))


def resume(service: Service, call: Call) -> Answer:
    """Let an ended search go on."""
    return Answer(200, searches.resume_search(service.database, call.user, call.search_id))


def upload(service: Service, call: Call) -> Answer:
    """Upload a model or a cluster, once."""
    assert call.file is not None
    name = call.query["name"] or ""
    quota_bytes = service.upload_quota_bytes
    digest, is_new = models.store_model(service.database, call.user, call.file, name, quota_bytes)
    content = models.read_model(service.database, call.user, digest)
    return Answer(201 if is_new else 200, content, f"/v1/models/{digest}")


def read_model(service: Service, call: Call) -> Answer:
    """A file that you have uploaded."""
    return Answer(200, models.read_model(service.database, call.user, call.digest))


def list_models(service: Service, call: Call) -> Answer:
    """The files that you have uploaded."""
    page = models.list_models(service.database, call.user, call.query["limit"], call.query["before"])
    used = {"used_bytes": models.used_bytes(service.database, call.user), "quota_bytes": service.upload_quota_bytes}
    return Answer(200, {"models": page.entries, "next": _next("/v1/models", call.query, before=page.more), **used})


def delete_model(service: Service, call: Call) -> Answer:
    """Forget a file that you uploaded."""
    models.delete_model(service.database, call.user, call.digest)
    return Answer(204, None)
